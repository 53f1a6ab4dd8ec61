"""FLOPs of the traced steps and the roofline of one rank's operations.

In: traces, peaks.  Out: the `efficiency` part of the import's document, and its lines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.efficiency.roofline import roofline, sentences
from tuiadvisor.views.efficiency import Dot, Roofline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.events import MeasuredPeak
    from tuiadvisor.importers.rank_trace import RankTrace

NOT_MODEL: Final = "a trace counts what is computed, recomputation included: that is HFU"
NOT_ONE_JOB: Final = (
    "FLOPs a step of a job: the traces do not say of which ranks they are, so they may be of several jobs: "
    "name each by its rank, as rank0.json"
)


def trace_efficiency(
    traces: Sequence[RankTrace], world: int | None, measured: Sequence[MeasuredPeak], of_jobs: str = ""
) -> dict[str, Any]:
    """With null where something is not known; the roofline is of the lowest rank with shapes.

    of_jobs: why they are not of one job; FLOPs are those of a job.
    """
    with_work = [trace for trace in traces if trace.works]
    first = with_work[0] if with_work else traces[0]
    held = roofline(first.works, first.device_name, first.threads, measured, on_cpu=first.device_name is None)
    num = len(first.steps)
    span_s = sum(duration for _, _, duration in first.steps) / 1e9
    total, why_no_total = _flops_per_step(traces, world, of_jobs)
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
        "file": first.file,
        "steps": num,
        "why": held.why or (None if num else "the trace has no ProfilerStep ranges"),
        "notes": [NOT_MODEL] if total else [why_no_total] if why_no_total else [],
        "roofline": {**asdict(held), "ridge_flop_byte": held.ridge},
        "says": sentences(held),
    }


def _flops_per_step(traces: Sequence[RankTrace], world: int | None, of_jobs: str) -> tuple[float | None, str]:
    """(of a step on all ranks of the job, why there is none although operators were counted).

    Ranks without a trace, or with one without shapes, are taken to compute what the others do.
    """
    counted = [trace for trace in traces if trace.steps and any(one.flops for one in trace.works)]
    if not counted:
        return None, ""
    if of_jobs:
        return None, f"FLOPs a step: {of_jobs}"
    if len(traces) == 1:
        return _each(counted) * (world or 1), ""
    counts = Counter(trace.rank for trace in traces if trace.rank is not None)
    known = [trace for trace in counted if trace.rank is not None and counts[trace.rank] == 1]
    if not known or (world is None and counts.total() < len(traces)):
        return None, NOT_ONE_JOB
    return _each(known) * (world or max(counts) + 1), ""


def _each(traces: Sequence[RankTrace]) -> float:
    """Of a step on one rank, the mean of these."""
    return sum(sum(one.flops for one in trace.works) / len(trace.steps) for trace in traces) / len(traces)


def arithmetic(document: dict[str, Any]) -> dict[str, Any] | None:
    """What a recording is told of the FLOPs in these traces: numbers and texts that are known; None without any."""
    found = document["efficiency"]
    if not found["flops_per_step"]:
        return None
    names = ("flops_per_step", "peak_flops", "peak_source", "dtype", "intensity_flop_byte", "bound")
    return {name: found[name] for name in names if found[name] is not None}


def roofline_of(found: dict[str, Any]) -> Roofline:
    """The picture again out of a document that was made here."""
    table = {name: value for name, value in found["roofline"].items() if name != "ridge_flop_byte"}
    return Roofline(**{**table, "dots": tuple(Dot(**dot) for dot in table["dots"])})


def efficiency_lines(found: dict[str, Any]) -> list[str]:
    """For people; empty where the trace has no shapes."""
    if not found["roofline"]["dots"]:
        return []
    hfu = "unknown" if found["hfu"] is None else f"{100 * found['hfu']:.1f} %"
    if found["flops_per_step"]:
        line = (
            f"FLOPs a step, all ranks: {found['flops_per_step']:.4g} (for MFU: --flops-per-step "
            f"{found['flops_per_step']:.4g}); HFU of the traced steps {hfu}"
        )
    elif found["notes"]:
        line = f"FLOPs of {found['file']} alone: HFU of its traced steps {hfu}; unknown {found['notes'][0]}"
    else:
        return list(found["says"])
    return [line, *found["says"]]
