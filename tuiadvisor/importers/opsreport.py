"""A per-operation trace as one JSON document and as a few lines for people.

In: a table's path.  Out: the document with the keys of `diagnose --json` where they apply, and its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.ops import read_ops
from tuiadvisor.metrics.series.plausible import StepLengths, long_time
from tuiadvisor.metrics.traces.op_clock import on_one_clock
from tuiadvisor.metrics.traces.op_table import OpGrid, counted, grid, named, without
from tuiadvisor.metrics.traces.op_verdict import STRAGGLING, Cause, causes
from tuiadvisor.metrics.traces.op_what_if import OpWhatIf, what_if

if TYPE_CHECKING:
    from pathlib import Path

NS: Final = 1e9
SHOWN_ROWS: Final = 6
ADDS_UP: Final = 1.005  # as it is printed
OVERLAP: Final = (
    ": shares of the distance to a step in which all take the mean; each is what mending that alone brings, so they "
    "overlap and may exceed 100 %"
)


def ops_document(path: Path) -> dict[str, Any]:
    """Read, re-simulate, and say what was found."""
    return analysed(path)[1]


def analysed(path: Path) -> tuple[OpGrid, dict[str, Any]]:
    """(the operations of whole steps, the document)."""
    cells = _of_plausible_steps(path, on_one_clock(grid(read_ops(path))))
    result = what_if(cells)
    found = causes(result)
    return cells, {
        "schema": 1,
        "source": {"kind": "ops", "path": str(path)},
        "run": _run(cells),
        "window": {
            "steps": len(result.S_step),
            "first_step": min(result.S_step),
            "last_step": max(result.S_step),
        },
        "step": {
            "mean_s": result.measured_s,
            "simulated_s": result.simulated_s,
            "ideal_s": result.ideal_s,
            "launch_slowdown": result.measured_s / result.simulated_s,
        },
        "what_if": _what_if(result),
        "stragglers": _stragglers(result, found),
        "causes": [_cause(cause) for cause in found],
        "unknown": [
            {
                "metric": name,
                "why": "nothing is slower than its ideal, so no share of the slowdown is defined",
            }
            for name, value in (("M_W", result.M_W), ("M_S", result.M_S))
            if value is None
        ],
        "losses": list(cells.losses),
    }


def _of_plausible_steps(path: Path, cells: OpGrid) -> OpGrid:
    """Without the steps whose operations span more than a step can take."""
    ends, lengths = (cells.start_NC + cells.dur_NC).max(axis=0), StepLengths()
    longest = {step: float(ends[cells.step_C == step].max()) for step in np.unique(cells.step_C).tolist()}
    left = [step for step, seconds in longest.items() if not lengths.takes(seconds)]
    if not left:
        return cells
    kept = ~np.isin(cells.step_C, left)
    if not kept.any():
        raise TuiadvisorError(
            f"{path}: operations of every step span more than a step can take ({long_time(lengths.worst_s * NS)} in "
            "one): write start and duration in seconds, or name the unit in the column, as start_us"
        )
    why = f"steps whose operations span up to {long_time(lengths.worst_s * NS)}, left out, for their times are wrong: "
    return without(cells, kept, why + named(left))


def _run(cells: OpGrid) -> dict[str, Any]:
    places = cells.rank_of
    stages = {stage for _, stage in places}
    return {"num_ranks": len(places), "parallel": {"dp": len({dp for dp, _ in places}), "pp": len(stages)}}


def _what_if(result: OpWhatIf) -> dict[str, Any]:
    return {
        "S": result.S,
        "S_t": result.S_t,
        "S_w": [{"rank": w.rank, "dp": w.dp, "stage": w.stage, "S": w.S} for w in result.S_w],
        "S_dp": {str(dp): value for dp, value in result.S_dp.items()},
        "S_stage": {str(stage): value for stage, value in result.S_stage.items()},
        "S_step": {str(step): value for step, value in result.S_step.items()},
        "M_W": result.M_W,
        "M_W_compute": result.M_W_compute,
        "M_W_ranks": list(result.fixed_workers),
        "M_S": result.M_S,
        "M_L": result.M_L,
        "without_slowest_workers_s": result.without_workers_s,
        "without_last_stage_s": result.without_last_stage_s,
        "forward_backward_correlation": result.forward_backward_correlation,
    }


def _stragglers(result: OpWhatIf, found: tuple[Cause, ...]) -> dict[str, Any]:
    """Ranks that recover half of the slowdown, and those slower than their peers in nearly every step."""
    score = {worker.rank: worker.S for worker in result.S_w}
    of_half_s = result.simulated_s - result.without_workers_s
    ranks = [
        {
            "rank": rank,
            "S": score[rank],
            "loss_s_per_step": of_half_s / len(cause.ranks) if cause.loss_s is None else cause.loss_s,
        }
        for cause in found
        if cause.kind == "worker"
        for rank in cause.ranks
    ]
    return {"slowdown": result.S, "ranks": ranks}


def _cause(cause: Cause) -> dict[str, Any]:
    return {"kind": cause.kind, "share": cause.share, "ranks": list(cause.ranks), "words": cause.words}


def ops_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    what, step, run = document["what_if"], document["step"], document["run"]
    parallel = run["parallel"]
    size = f"{counted(run['num_ranks'], 'rank')}, data parallel {parallel['dp']}, pipeline {parallel['pp']}"
    lines = [
        f"{document['source']['path']}: {counted(document['window']['steps'], 'step')}, {size}",
        f"step {step['mean_s']:.4g} s, ideal {step['ideal_s']:.4g} s: slowdown S = {what['S']:.4g}",
    ]
    if document["causes"]:
        lines += [f"cause: {_share(cause)}{cause['words']}" for cause in document["causes"]]
    else:
        lines.append(f"no straggler: S is not above {STRAGGLING}")
    lines.append(
        f"M_W {_percent(what['M_W'])} (slowest workers), M_S {_percent(what['M_S'])} (last stage){_overlap(document)}"
    )
    lines.append("S by type: " + _top(what["S_t"]))
    workers = {f"rank {w['rank']} (dp {w['dp']}, stage {w['stage']})": w["S"] for w in what["S_w"]}
    lines.append("S by worker: " + _top(workers))
    lines += [f"left out: {loss}" for loss in document["losses"]]
    return "\n".join(lines)


def _share(cause: dict[str, Any]) -> str:
    share = cause["share"]
    if share is None:
        return ""
    return "the whole slowdown: " if share >= 1 else f"{share:.0%} of the slowdown: "


def _overlap(document: dict[str, Any]) -> str:
    """Why shares add up to more than all of it, where they do."""
    what = document["what_if"]
    shown = [cause["share"] or 0.0 for cause in document["causes"]]
    most = max(sum(max(what[name] or 0.0, 0.0) for name in ("M_W", "M_S")), sum(shown), *shown, 0.0)
    return OVERLAP if most > ADDS_UP else ""


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def _top(values: dict[str, float]) -> str:
    shown = sorted(values.items(), key=lambda item: -item[1])[:SHOWN_ROWS]
    more = len(values) - len(shown)
    return ", ".join(f"{name} {value:.3f}" for name, value in shown) + (f", {more} more" if more else "")
