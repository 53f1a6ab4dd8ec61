"""Which column of a stranger's table means what.

In: the header of a CSV.  Out: the position of each column we understand. The contract's names come first; the
others are what published tables call the same thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["step", "throughput", "total"]


LEAST_TOLD: Final = 0.1  # of a unit: smaller times are told in the next one
PREFIXES: Final = (("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9))  # ASCII, as all of the text


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """In which times are told. factor: of a time in the quantity's own unit."""

    words: str
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """What the measured column holds."""

    column: str  # as the table calls it
    kind: Kind
    unit: str  # of "time" in every answer
    seconds: float  # in one unit; 1.0 for throughput, whose time is 1/throughput

    @property
    def counts(self) -> str:
        """What a throughput is of, by the column's name; samples where that does not say."""
        name = self.column.lower()
        return next((what for what in COUNTED if what in name), "samples")

    @property
    def words(self) -> str:
        """Its unit as people say it: a throughput's time is seconds for one of what it counts."""
        return f"s{self._of_one}" if self.kind == "throughput" else self.unit

    @property
    def _of_one(self) -> str:
        return f" per {self.counts.removesuffix('s')}" if self.kind == "throughput" else ""

    def unit_for(self, longest: float) -> TimeUnit:
        """The unit in which times up to this one, in the quantity's own, are told: 11.8 us, not 1.18e-05 s."""
        if self.seconds != 1.0 or longest <= 0:  # of hours and days there are no prefixes
            return TimeUnit(self.words)
        prefix, size = next(
            ((name, size) for name, size in PREFIXES if longest >= LEAST_TOLD * size), PREFIXES[-1]
        )
        return TimeUnit(f"{prefix}s{self._of_one}", 1 / size)


STEP: Final = Quantity("step_s", "step", "s", 1.0)  # of what was recorded


@dataclass(frozen=True, slots=True)
class Columns:
    """Positions in the header; `label` and `layout` may be spread over several columns."""

    devices: int
    value: int
    quantity: Quantity
    global_batch: int | None
    label: tuple[int, ...]
    layout: tuple[int, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]


COUNTED: Final = ("tokens", "images", "steps")  # in the names of columns of throughput

# Contract name, then aliases in order of preference.
# fmt: off
DEVICES: Final = (
    "devices", "num_devices", "n_devices", "gpus", "num_gpus", "n_gpus", "ngpus", "gpu_count", "accelerators",
    "num_accelerators", "chips", "tpus", "npus", "world_size", "ranks", "num_ranks", "total",
)
GLOBAL_BATCH: Final = ("global_batch", "global_batch_size", "global_bs", "gbs", "batch_size", "batch")
LABEL: Final = (
    "label", "series", "model", "system", "benchmark", "run", "name", "seqlen", "gpu", "accel", "accelerator",
    "hardware", "precision",
)
LAYOUT: Final = (
    "layout", "parallelism", "parallel", "strategy", "sharding", "tp", "pp", "cp", "ep", "sp", "mp",
    "tensor_parallel", "pipeline_parallel", "zero", "zero_stage", "micro_bs", "micro_batch", "micro_batch_size",
    "act_ckpt", "offload",
)
# kind, unit, seconds in a unit, names. Times before rates: a rate can be of anything.
VALUES: Final[tuple[tuple[Kind, str, float, tuple[str, ...]], ...]] = (
    ("step", "s", 1.0, (
        "step_s", "step_time_s", "seconds_per_step", "sec_per_step", "s_per_step", "iteration_s", "iteration_time_s",
    )),
    ("step", "ms", 1e-3, ("step_ms", "step_time_ms", "ms_per_step", "iteration_ms", "iteration_time_ms")),
    ("total", "h", 3600.0, ("total_h", "total_hours", "hours")),
    ("total", "min", 60.0, (
        "total_min", "total_minutes", "minutes", "olympic_min", "median_min", "time_to_train_min",
    )),
    ("total", "days", 86400.0, ("total_days", "days", "training_days")),
    ("total", "s", 1.0, ("total_s", "total_seconds")),
    ("throughput", "1/throughput", 1.0, (
        "throughput", "tokens_s", "tokens_per_s", "tokens_per_sec", "tokens_per_second", "samples_s",
        "samples_per_s", "samples_per_sec", "samples_per_second", "images_s", "images_per_s", "images_per_sec",
        "images_per_second", "steps_s", "steps_per_s", "throughput_median",
    )),
)
# fmt: on
CONTRACT: Final = ("step_s", "throughput", "total_h", "total_min", "total_days")
EXAMPLE: Final = "devices and one of step_s, throughput, total_h, total_min, total_days"


def columns_of(header: list[str], where: str) -> Columns:
    """The columns of this header. TuiadvisorError when the devices or the measured quantity can't be told."""
    names = tuple(re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_") for name in header)
    known = [name for name in names if name]
    for name in known:
        if known.count(name) > 1 and name in {*DEVICES, *GLOBAL_BATCH, *CONTRACT}:
            raise TuiadvisorError(f"{where}: column {name} appears twice; keep one of them")
    devices = _first(names, DEVICES)
    if devices is None:
        raise TuiadvisorError(f"{where}: no column of device counts among {_list(known)}; it needs {EXAMPLE}")
    contract = [name for name in CONTRACT if name in names]
    if len(contract) > 1:
        raise TuiadvisorError(f"{where}: columns {' and '.join(contract)} both measure; keep one of them")
    value, quantity, others = _value(names, contract)
    if value is None or quantity is None:
        raise TuiadvisorError(
            f"{where}: no column of times or throughput among {_list(known)}; it needs {EXAMPLE}"
        )
    notes = []
    if others:
        notes.append(f"measured column: {quantity.column}; not used: {', '.join(others)}")
    return Columns(
        devices=devices,
        value=value,
        quantity=quantity,
        global_batch=_first(names, GLOBAL_BATCH),
        label=tuple(names.index(name) for name in LABEL if name in names),
        layout=tuple(names.index(name) for name in LAYOUT if name in names),
        names=names,
        notes=tuple(notes),
    )


def _value(names: tuple[str, ...], contract: Sequence[str]) -> tuple[int | None, Quantity | None, list[str]]:
    found = [
        (names.index(name), Quantity(name, kind, unit, seconds))
        for kind, unit, seconds, aliases in VALUES
        for name in aliases
        if name in names
    ]
    found.sort(key=lambda one: one[1].column not in contract)  # a name of the contract wins over aliases
    if not found:
        return None, None, []
    return found[0][0], found[0][1], [quantity.column for _, quantity in found[1:]]


def _first(names: tuple[str, ...], wanted: tuple[str, ...]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _list(names: list[str]) -> str:
    shown = ", ".join(name[:24] for name in names[:8])
    return (shown + (", …" if len(names) > 8 else "")) or "nothing"
