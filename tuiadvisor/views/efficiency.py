"""How much of the devices' peak a job's arithmetic takes, and the settings it runs with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Judgement = Literal["poor", "good", ""]


@dataclass(frozen=True, slots=True)
class Stack:
    """What the probes say of model, loader and torch's settings; what is not there was not seen."""

    facts: dict[str, int | str] = field(default_factory=dict)  # flags are 0 or 1, or true or false
    differing: tuple[str, ...] = ()  # names in which ranks differ; the lowest rank's stands in facts

    def number(self, name: str) -> int | None:
        """A number or flag."""
        value = self.facts.get(name)
        return int(value) if isinstance(value, int) else None

    def text(self, name: str) -> str:
        """A text, empty where there is none."""
        value = self.facts.get(name)
        return value if isinstance(value, str) else ""

    @property
    def tells_settings(self) -> bool:
        """Whether anything was seen of model and settings: of several stages on a rank none is the model."""
        return bool(self.facts.keys() - {"stages"})

    @property
    def is_own_exchange(self) -> bool:
        """Nothing wraps the model that was seen: what ranks exchange the loop itself sends."""
        is_wrapped = any(self.text(name) for name in ("wrappers", "sharding", "mesh"))
        return bool(self.number("models")) and not is_wrapped and self.number("zero_stage") is None


@dataclass(frozen=True, slots=True)
class Dot:
    """All calls of one operation with one shape, as a trace shows them."""

    name: str
    shape: str
    dtype: str
    calls: int
    seconds: float  # together
    flops: float  # together, counted by the shapes
    num_bytes: float  # together at least: each operand read once, the result written once
    flops_s: float
    intensity: float  # FLOPs a byte, at most
    bound: str | None  # "memory" or "compute"; None: the roof is not known
    of_roof: float | None  # what it reaches of the roof above it


@dataclass(frozen=True, slots=True)
class Roofline:
    """The roof of one device in one precision and what lies under it, longest first."""

    device: str
    dtype: str | None
    peak_flops: float | None
    peak_bytes_s: float | None
    source: str
    dots: tuple[Dot, ...]
    counted_s: float  # time of the operations above
    other_s: float  # of those whose FLOPs no shape tells: element by element, copies, norms
    flops: float
    num_bytes: float
    why: str = ""  # nothing under the roof, or no roof

    @property
    def ridge(self) -> float | None:
        """FLOPs a byte at which the memory's slope meets the ceiling."""
        return self.peak_flops / self.peak_bytes_s if self.peak_flops and self.peak_bytes_s else None


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """FLOPs as traces count them by the shapes of operators, what is computed again included; None: unknown."""

    flops_per_step: float  # of the whole job
    peak_flops: float | None = None  # of one device, dense
    peak_source: str | None = None
    dtype: str | None = None
    intensity_flop_byte: float | None = None
    bound: str | None = None  # "memory" or "compute"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """FLOPs a step, peak, and their ratio; None is unknown and `why` says what to state or measure."""

    mfu: float | None = None  # model FLOPs of a step over what the devices could do in it
    hfu: float | None = None  # the same with what is computed again in backward
    flops_per_step: float | None = None  # of the whole job
    peak_flops: float | None = None  # of one device, dense
    peak_source: str | None = None
    dtype: str | None = None  # in which matrices are multiplied
    intensity_flop_byte: float | None = None  # of kernels in a trace
    bound: str | None = None  # "memory" or "compute"
    flops_source: str | None = None  # formula, or stated
    flops_per_token: float | None = None
    tokens_per_step: float | None = None
    flops_s_per_device: float | None = None
    num_devices: int | None = None
    clock_mhz: float | None = None  # SM clock over the window, median of the devices
    clock_peak_flops: float | None = None  # the peak at that clock
    mfu_of_clock: float | None = None
    peak_bytes_s: float | None = None  # of its memory
    ridge_flop_byte: float | None = None  # peak over memory bandwidth: below it a kernel is memory-bound
    judgement: Judgement = ""
    judgement_source: str | None = None
    why: str | None = None  # no MFU because
    notes: tuple[str, ...] = ()
