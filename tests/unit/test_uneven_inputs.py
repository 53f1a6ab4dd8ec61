"""Ranks with fewer batches than others, under Join: what they wait for at the end of each epoch."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, Simulated, folded, frames, simulate

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.views.run_view import RunView

BEGIN, END, STEP = (STEP_NAMES.index(name) for name in ("begin_ns", "end_ns", "step"))
OF_AN_EPOCH = 48


def joined(num_batches: int, phase: str = "other", *faults: Fault) -> RunView:
    """Rank 0 has so many batches an epoch and rank 1 48. phase: what Join's end is counted as."""
    job = Job(num_ranks=2, num_steps=8 * OF_AN_EPOCH, spike_chance=0.0, noise=0.03)
    run = simulate(job.with_faults(*faults) if faults else job)
    short: list[tuple[int, ...]] = []
    for row in run.rows[0]:
        if row[STEP] % OF_AN_EPOCH < num_batches:
            record = list(row)
            if short:  # Join's end passes in the step that begins the next epoch
                record[STEP_NAMES.index(f"{phase}_ns")] += record[BEGIN] - short[-1][END]
                record[BEGIN] = short[-1][END]
            record[STEP] = len(short)
            short.append(tuple(record))
    job = Job(num_ranks=2, num_steps=len(run.rows[1]))
    return folded(frames(job, simulated=Simulated({0: short, 1: run.rows[1]}, run.cycle_s))).view()


@pytest.mark.parametrize("phase", ["other", "data_wait"])
def test_who_runs_out_of_batches_waits_for_whom_and_nobody_is_said_to_stop(phase: str) -> None:
    """Two ranks of 40 and 48 batches: "a pause of 575 ms every 40 steps stops the training", critical, 1.22x."""
    view = joined(40, phase)
    (found,) = [one for one in view.findings if one.id == "periodic_pause"]
    assert "warning" == found.severity
    assert "rank 0 ran out of batches every 40 steps" in view.verdict.sentence
    assert "for rank 1 to finish theirs" in view.verdict.sentence
    assert "stops" not in view.verdict.sentence
    # 88 batches on two ranks are 44 steps an epoch instead of 48.
    assert 48 / 44 == pytest.approx(view.verdict.speedup.expected, rel=0.03)


@pytest.mark.parametrize("late", [0, 1])
def test_a_late_rank_is_named_whoever_has_fewer_batches(late: int) -> None:
    """It was "not compared and may be late": a step of the one is a step of the other where both end at one number."""
    view = joined(40, "other", Fault("backward", (late,), 6 * MS))
    found = [one for one in view.findings if one.severity != "info"]
    assert [("straggler", (late,), "backward")] == [(one.id, one.ranks, one.phase) for one in found[:1]]
    assert [0.006] == [pytest.approx(one.evidence["excess_s"], rel=0.1) for one in found[:1]]
    assert (0, 1) == tuple(row.rank for row in view.ranks if row.step_s is not None)
    (note,) = [one for one in view.losses.notes if "uneven inputs" in one]
    assert "is compared in the steps that it shares with the others" in note


def test_as_many_batches_are_no_uneven_inputs() -> None:
    assert [] == [one.id for one in joined(OF_AN_EPOCH).findings if one.severity != "info"]
