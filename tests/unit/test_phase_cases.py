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
from synthetic_run import MS, STEP_NAMES, Fault, Job, final_view, folded, hello

from tuiadvisor.events import StepFlag
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.views.run_view import RunView

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


def other_cases() -> dict[str, dict[str, Any]]:
    """NVRx's and probing's own straggler cases, by id."""
    found = json.loads((SHARED / "phase_cases" / "nvrx_probing_cases.json").read_text())
    return {one["id"]: one for one in found}


def working_ms(*work_ms: float, steps: int = 60) -> dict[str, Any]:
    """Ranks that compute so long in forward and wait in backward for the longest of them."""
    phases = {
        str(rank): {
            **dict.fromkeys(NAMES, 0.0),
            "forward": work,
            "backward": 10 + max(work_ms) - work,
            "step_time": 10 + max(work_ms),
        }
        for rank, work in enumerate(work_ms)
    }
    return {"steps": steps, "phases_ms_by_rank": phases}


def test_relative_scores_are_nvrxs_and_waiting_counts_for_nobody() -> None:
    """N1: compute grows with the rank, the exchange falls with it. Same ranks flagged, same scores of their work."""
    expected = other_cases()["N1"]["expected"]
    view = view_of(working_ms(*(20.0 * (rank + 1) for rank in range(4))))
    (finding,) = [one for one in view.findings if one.id == "straggler"]
    assert tuple(expected["flag_below_0.75"]) == finding.ranks
    row_scores = {entry.rank: entry.score for entry in view.stragglers}
    # Ours counts the whole work up to the barrier, forward and backward: 10 ms more on every rank.
    work = [20.0 * (rank + 1) + 10 for rank in range(4)]
    assert {rank: work[0] / work[rank] for rank in expected["flag_below_0.75"]} == pytest.approx(row_scores)
    assert [3, 2, 1] == [entry.rank for entry in view.stragglers]  # what each costs, largest first


def test_ranks_without_anything_in_common_get_no_verdict() -> None:
    """N3: where nothing is seen that all ranks reach, nobody is named."""
    assert "no verdict" in other_cases()["N3"]["expected"]["scores"]
    slow = Fault("forward", (1, 2), 20 * MS)
    view = final_view(Job(faults=(slow,), barrier_seen=False, observed=("data_wait", "forward", "optimizer")))
    assert ([], ()) == (said(view), view.stragglers)
    assert "could not be observed" in view.verdict.sentence


@pytest.mark.parametrize(("factor", "index"), [(1.25, 0), (2.0, 1), (3.0, 2)])
def test_a_job_slower_than_its_own_history_is_scored_like_nvrxs(factor: float, index: int) -> None:
    """N5: 1.25, 2 and 3 times as slow as before. NVRx flags below 0.75; ours warns from a fifth on."""
    expected = other_cases()["N5"]["expected"]
    usual_s = sum(
        getattr(Job(), name) for name in ("data_s", "forward_s", "backward_s", "optimizer_s", "other_s")
    )
    slower = Fault("forward", None, (factor - 1) * (usual_s + Job().transfer_s), onset=150)
    view = final_view(Job(num_steps=300, noise=0.02, spike_chance=0.0, faults=(slower,)))
    (finding,) = [one for one in view.findings if one.id == "slower_since"]
    share = finding.evidence["level_shift_share"]
    assert isinstance(share, float)
    assert expected["scores"][index] == pytest.approx(1 / (1 + share), rel=0.03)
    assert ("warning", "forward") == (finding.severity, finding.phase)
    assert 150 == pytest.approx(finding.since_step, abs=2)
    assert not view.stragglers


@pytest.mark.parametrize("name", ["N7", "N9"])
def test_slow_sections_are_those_injected(name: str) -> None:
    """N7: the same section slow on ranks 0 and 1 of four; N9: on none."""
    case = other_cases()[name]
    slow = [rank for _, rank in case["inputs"]["slow"]]
    view = view_of(working_ms(*(60.0 if rank in slow else 20.0 for rank in range(4))))
    assert case["expected"]["relative"].get("section00", []) == [entry.rank for entry in view.stragglers]
    assert [("straggler", tuple(slow), "forward")] * bool(slow) == said(view)


def test_probings_slow_rank_is_named() -> None:
    """P1: 120, 118, 350 and 125 ms of work a step."""
    case = other_cases()["P1"]
    view = view_of(working_ms(*map(float, case["inputs"]["step_ms"].values())))
    assert [("straggler", (case["expected"]["slow_rank"],), "forward")] == said(view)
