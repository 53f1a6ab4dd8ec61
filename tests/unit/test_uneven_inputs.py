"""Ranks with fewer batches than others, under Join: what they wait for at the end of each epoch."""

from __future__ import annotations

import pytest
from synthetic_run import Job, Simulated, folded, frames, simulate

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.views.run_view import RunView

BEGIN, END, STEP = (STEP_NAMES.index(name) for name in ("begin_ns", "end_ns", "step"))
OF_AN_EPOCH = 48


def joined(num_batches: int, phase: str = "other") -> RunView:
    """Rank 0 has so many batches an epoch and rank 1 48. phase: what Join's end is counted as."""
    run = simulate(Job(num_ranks=2, num_steps=8 * OF_AN_EPOCH, spike_chance=0.0, noise=0.03))
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


def test_as_many_batches_are_no_uneven_inputs() -> None:
    assert [] == [one.id for one in joined(OF_AN_EPOCH).findings if one.severity != "info"]
