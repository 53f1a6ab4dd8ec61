"""Phase times whose verdict others have published (TraceML's own cases): the same culprit, or none for a stated reason.

TraceML's `backward` holds the exchange that DDP hides in it; what it takes beyond the shortest rank's is waiting, which
our probe sees as exposed communication. Clocks at the barrier are not given: who is late rests on who waits.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from shared_data import SHARED, needs_data
from synthetic_run import STEP_NAMES, Job, folded, hello

from tuiadvisor.advisor.view import RunView
from tuiadvisor.events import PHASES, StepFlag
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns

pytestmark = needs_data

NAMES = {"input_wait": "data_wait", "h2d": "h2d", "forward": "forward", "optimizer_step": "optimizer"}


def cases() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By id: phase times, and TraceML's answer."""
    inputs = json.loads((SHARED / "phase_cases" / "traceml_inputs.json").read_text())
    answers = json.loads((SHARED / "answers" / "phase_cases.json").read_text())
    return {one["id"]: (one, answer) for one, answer in zip(inputs, answers, strict=True)}


def view_of(case: dict[str, Any]) -> RunView:
    """The advisor's view of so many equal steps."""
    ranks = {int(rank): phases for rank, phases in case["phases_ms_by_rank"].items()}
    shortest = min(phases["backward"] for phases in ranks.values())
    rows = []
    for step in range(case["steps"] + 1):  # the first one seen is never whole
        for rank, phases in ranks.items():
            own = {ours: phases[theirs] for theirs, ours in NAMES.items()}
            own |= {"backward": shortest, "comm_exposed": phases["backward"] - shortest}
            length = max(phases["step_time"], sum(own.values()))
            own["other"] = length - sum(own.values())
            begin = 1_000_000_000 + step * round(length * 1e6)
            fields = {f"{name}_ns": round(value * 1e6) for name, value in own.items()}
            fields |= {
                "rank": rank,
                "step": step,
                "begin_ns": begin,
                "end_ns": begin + round(length * 1e6),
                "group_seq": 1000 + step,
                "num_collectives": 1,
                "micro_steps": 1,
                "flags": int(StepFlag.NO_SYNC | (StepFlag.FIRST if step == 0 else 0)),
                "observed": sum(1 << PHASES.index(name) for name in own if name != "other"),
                "checkpoint_ns": 0,
                "eval_ns": 0,
                "pipeline_idle_ns": 0,
            }
            rows.append(tuple(fields.get(name, -1) for name in STEP_NAMES))
    job = Job(num_ranks=len(ranks))
    columns = pack_columns(np.array(rows, dtype=np.int64), STEP_NAMES)
    return folded(
        [hello(job, "node0"), Frame(FrameKind.STEPS, "node0/1/1", 1, 2_000_000_000, columns)]
    ).view()


def said(view: RunView) -> list[tuple[str, tuple[int, ...], str | None]]:
    """What asks for action: finding, ranks, phase."""
    return [(one.id, one.ranks, one.phase) for one in view.findings if one.severity != "info"]


KINDS = {"INPUT_STRAGGLER": ("data_wait",), "COMPUTE_STRAGGLER": ("forward", "backward"), "STRAGGLER": None}


@pytest.mark.parametrize("name", ["T01", "T03", "T05", "T07", "T09"])
def test_the_culprit_is_the_published_one(name: str) -> None:
    """A rank that waits for input, computes longer, or loses time outside its phases: rank and phase."""
    case, answer = cases()[name]
    (finding,) = said(view_of(case))
    expected = answer["expected"]
    assert ("straggler", (answer["traceml_here"]["worst_rank"],)) == finding[:2]
    phases = KINDS[expected["kind"]]
    assert phases is None or finding[2] in phases


@pytest.mark.parametrize("name", ["T15", "T25"])
def test_input_bound_is_input_bound(name: str) -> None:
    """One rank, a fifth and a third of the step without a batch."""
    assert [("input_bound", (0,), "data_wait")] == said(view_of(cases()[name][0]))


@pytest.mark.parametrize("name", ["T17", "T19"])
def test_what_needs_no_action_gets_none(name: str) -> None:
    """Copies on a CPU are not its limit; nine tenths of computing are as it should be."""
    view = view_of(cases()[name][0])
    assert ([], "keep") == (said(view), view.verdict.decision)


def test_of_two_late_ranks_the_later_is_named_too() -> None:
    """T11: rank 0 waits 200 ms for input, rank 1 80. TraceML names rank 1 alone; with it cured the job would still wait
    for rank 0, so ours names both, and what rank 0 costs is the larger part.
    """
    case, answer = cases()["T11"]
    view = view_of(case)
    assert [("straggler", (0, 1), "data_wait")] == said(view)
    assert [answer["expected"]["culprit_rank"]] == [1]
    first, second = view.stragglers
    assert (0, 1) == (first.rank, second.rank)
    assert first.loss_s_per_step > second.loss_s_per_step


@pytest.mark.parametrize(
    ("name", "said_of_all"), [("T13", [("input_bound", (0, 1, 2, 3), "data_wait")]), ("T21", [])]
)
def test_nobody_is_late_where_all_work_alike(name: str, said_of_all: list[Any]) -> None:
    """T13, T21: the ranks differ only in backward, whose excess over the shortest is the exchange. TraceML blames the
    rank with the shortest; all reach the exchange at the same moment, so ours blames none, whatever they do in it.
    """
    case, answer = cases()[name]
    assert answer["traceml_here"]["culprit_rank"] == 0
    assert said_of_all == said(view_of(case))


def test_time_in_no_phase_is_shown_and_no_cause_is_made_up() -> None:
    """T23: TraceML says residual-heavy (30 of 120 ms). Ours shows all that no phase explains, and of the wait for
    input, which TraceML lists second, that it is a sixth of the step.
    """
    view = view_of(cases()["T23"][0])
    assert [("input_bound", (0,), "data_wait")] == said(view)
    assert 100 / 120 == pytest.approx(view.step.shares["other"], abs=0.01)
