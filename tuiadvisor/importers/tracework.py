"""FLOPs of the traced steps and the roofline of one rank's operations.

In: traces, peaks.  Out: the `efficiency` part of the import's document, and its lines.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.efficiency.roofline import roofline, sentences
from tuiadvisor.views.efficiency import Dot, Roofline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.events import MeasuredPeak
    from tuiadvisor.importers.rank_trace import RankTrace

NOT_MODEL: Final = "a trace counts what is computed, recomputation included: that is HFU"


def trace_efficiency(
    traces: Sequence[RankTrace], world: int | None, measured: Sequence[MeasuredPeak]
) -> dict[str, Any]:
    """With null where something is not known; the roofline is of the lowest rank with shapes."""
    with_work = [trace for trace in traces if trace.works]
    first = with_work[0] if with_work else traces[0]
    held = roofline(first.works, first.device_name, first.threads, measured, on_cpu=first.device_name is None)
    num = len(first.steps)
    span_s = sum(duration for _, _, duration in first.steps) / 1e9
    each = sum(sum(one.flops for one in trace.works) / len(trace.steps) for trace in with_work if trace.steps)
    devices = max(world or len(traces), len(with_work))
    total = each * devices / len(with_work) if with_work and each else None
    achieved = held.flops / span_s if num and span_s and held.flops else None
    by_bound: dict[str, float] = {}
    for dot in held.dots:
        if dot.bound:
            by_bound[dot.bound] = by_bound.get(dot.bound, 0.0) + dot.seconds
    return {
        "mfu": None,
        "hfu": achieved / held.peak_flops if achieved and held.peak_flops else None,
        "flops_per_step": total,
        "peak_flops": held.peak_flops,
        "peak_source": held.source or None,
        "dtype": held.dtype,
        "intensity_flop_byte": held.flops / held.num_bytes if held.num_bytes else None,
        "bound": max(by_bound, key=lambda name: by_bound[name], default=None),
        "flops_source": "counted by the shapes of operators" if total else None,
        "rank": first.rank,
        "steps": num,
        "why": held.why or (None if num else "the trace has no ProfilerStep ranges"),
        "notes": [NOT_MODEL] if total else [],
        "roofline": {**asdict(held), "ridge_flop_byte": held.ridge},
        "says": sentences(held),
    }


def roofline_of(found: dict[str, Any]) -> Roofline:
    """The picture again out of a document that was made here."""
    table = {name: value for name, value in found["roofline"].items() if name != "ridge_flop_byte"}
    return Roofline(**{**table, "dots": tuple(Dot(**dot) for dot in table["dots"])})


def efficiency_lines(found: dict[str, Any]) -> list[str]:
    """For people; empty where the trace has no shapes."""
    if not found["roofline"]["dots"]:
        return []
    lines = []
    if found["flops_per_step"]:
        hfu = "unknown" if found["hfu"] is None else f"{100 * found['hfu']:.1f} %"
        lines.append(
            f"FLOPs a step, all ranks: {found['flops_per_step']:.4g} (for MFU: --flops-per-step "
            f"{found['flops_per_step']:.4g}); HFU of the traced steps {hfu}"
        )
    return [*lines, *found["says"]]
