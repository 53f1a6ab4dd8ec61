"""The roofline of a trace: which operations the memory bounds, which the arithmetic, how far each is below its roof.

In: OpWork of a trace, peaks.  Out: Roofline. A dot's FLOPs are counted by its shapes; its bytes are the least that it
can move, so its intensity is an upper bound, and one that is memory-bound here is memory-bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.efficiency.peaks import Peak, peak_of
from tuiadvisor.views.efficiency import Dot, Roofline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.events import MeasuredPeak

# Both operands are of a sample: batched products and attention.
OF_EACH_SAMPLE: Final = re.compile(r"bmm|attention|attn|flash|sdpa", re.IGNORECASE)
MAX_DOTS: Final = 40
NO_SHAPES: Final = (
    "the trace has no shapes: record it with record_shapes=True, or tuiadvisor capture RANK --flops"
)
NO_DEVICE: Final = "the trace does not name its device"


CPU: Final = "CPU"  # as the device of a trace whose training is on one


@dataclass(frozen=True, slots=True)
class OpWork:
    """All calls of one operation with one shape. flops 0: its shapes do not tell them."""

    name: str
    shape: str
    dtype: str
    calls: int
    seconds: float
    flops: float
    num_bytes: float


def dot_of(work: OpWork, peak_flops: float | None, bytes_s: float | None) -> Dot:
    """Where it lies under the roof."""
    rate = work.flops / work.seconds if work.seconds > 0 else 0.0
    intensity = work.flops / work.num_bytes if work.num_bytes else 0.0
    bound, of_roof = None, None
    if peak_flops and bytes_s:
        slope = intensity * bytes_s
        bound = "memory" if slope < peak_flops else "compute"
        of_roof = rate / min(slope, peak_flops) if min(slope, peak_flops) > 0 else None
    return Dot(
        work.name, work.shape, work.dtype, work.calls, work.seconds, work.flops, work.num_bytes,
        rate, intensity, bound, of_roof,
    )  # fmt: skip


def roofline(
    works: Iterable[OpWork],
    device: str | None,
    threads: int | None = None,
    measured: Sequence[MeasuredPeak] = (),
    *,
    on_cpu: bool,
) -> Roofline:
    """device: as the trace names it; measured: peaks of a CPU, taken where their threads are those of the rank."""
    found = list(works)
    counted = sorted((one for one in found if one.flops > 0), key=lambda one: -one.seconds)
    dtype = _main_dtype(counted)
    peak = _peak(device, dtype, threads, measured, on_cpu=on_cpu)
    dots = tuple(
        _dot(one, dtype, peak, device, measured, threads, on_cpu=on_cpu) for one in counted[:MAX_DOTS]
    )
    return Roofline(
        device=device or (CPU if on_cpu else ""),
        dtype=dtype,
        peak_flops=peak.flops,
        peak_bytes_s=peak.memory_bytes_s,
        source=peak.source,
        dots=dots,
        counted_s=sum(one.seconds for one in counted),
        other_s=sum(one.seconds for one in found if one.flops <= 0),
        flops=sum(one.flops for one in counted),
        num_bytes=sum(one.num_bytes for one in counted),
        why=peak.why if counted else NO_SHAPES,
    )


def _dot(  # noqa: PLR0917 - what a dot is held against
    work: OpWork,
    dtype: str | None,
    peak: Peak,
    device: str | None,
    measured: Sequence[MeasuredPeak],
    threads: int | None,
    *,
    on_cpu: bool,
) -> Dot:
    own = peak if work.dtype == dtype else _peak(device, work.dtype, threads, measured, on_cpu=on_cpu)
    return dot_of(work, own.flops, own.memory_bytes_s)


def _main_dtype(works: Sequence[OpWork]) -> str | None:
    """In which most of the FLOPs are."""
    sums: dict[str, float] = {}
    for one in works:
        sums[one.dtype] = sums.get(one.dtype, 0.0) + one.flops
    return max(sums, key=lambda name: sums[name], default=None)


def _peak(
    device: str | None,
    dtype: str | None,
    threads: int | None,
    measured: Sequence[MeasuredPeak],
    *,
    on_cpu: bool,
) -> Peak:
    nothing = Peak(None, None, None, "", NO_SHAPES)
    if dtype is None:
        return nothing
    if not on_cpu:
        return peak_of(device, dtype) if device else Peak(None, None, None, "", NO_DEVICE)
    fitting = [one for one in measured if one.dtype == dtype and threads in {None, one.threads}]
    if not fitting:
        why = f"a CPU's peak in {dtype} has to be measured where it runs: tuiadvisor doctor --measure --threads N"
        return Peak(None, None, None, "", why)
    best = max(fitting, key=lambda one: one.flops)
    words = f"measured on this machine, {best.threads} thread{'s' * (best.threads > 1)}"
    return Peak(best.flops, best.bytes_s, None, words)


def _more_a_byte(name: str) -> str:
    """What gives an operation that memory bounds more work a byte: a batch does where all of it shares an operand."""
    if OF_EACH_SAMPLE.search(name):
        return "fusing it with its neighbours: a larger batch brings as many bytes more as work"
    return "larger batches, or fusing it with its neighbours"


def sentences(found: Roofline) -> list[str]:
    """What the roof says of the next lever."""
    if not found.dots or found.peak_flops is None:
        return []
    known = [dot for dot in found.dots if dot.bound is not None]
    memory = sum(dot.seconds for dot in known if dot.bound == "memory")
    whole = found.counted_s + found.other_s
    lost = sorted(known, key=lambda dot: -dot.seconds * (1 - min(dot.of_roof or 0.0, 1.0)))[:1]
    said = []
    if whole > 0:
        said.append(
            f"{found.counted_s / whole:.0%} of the operations' time multiplies matrices, {memory / whole:.0%} of it "
            f"in shapes that memory bounds; {found.other_s / whole:.0%} goes into the rest (element by "
            "element, softmax, norms, copies), where only fusing helps.".replace("%", " %").replace(
                "  %", " %"
            )
        )
    for dot in lost:
        # A CPU without units for it multiplies slower in half precision: 0.7 against 77 GFLOP/s, measured.
        precision = "" if found.device == CPU else ", or a lower precision"
        lever = (
            _more_a_byte(dot.name) if dot.bound == "memory"
            else f"larger or better aligned sizes{precision}"
        )  # fmt: skip
        said.append(
            f"Most is lost in {dot.name} {dot.shape}: {dot.bound}-bound, at {(dot.of_roof or 0.0) * 100:.0f} % of its "
            f"roof; the lever is {lever}."
        )
    return said
