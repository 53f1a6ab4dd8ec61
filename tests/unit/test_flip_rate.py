"""The verdict holds when the same run's steps are drawn again, and drawing them changes nobody's lateness."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, folded, frames

sys.path.insert(0, str(Path(__file__).parents[1] / "accuracy"))

from flips import BLOCK_STEPS, drawn, flips, verdict_of

from tuiadvisor.metrics.steps.step_table import select

JOB = Job(num_ranks=4, ranks_per_host=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ((), ("keep", "healthy", ())),
        ((Fault("backward", (2,), 8 * MS),), ("tune", "straggler", (2,))),
        ((Fault("data", None, 12 * MS),), ("tune", "input_bound", (0, 1, 2, 3))),
    ],
    ids=["healthy", "late rank", "input"],
)
def test_a_clear_verdict_never_flips(
    faults: tuple[Fault, ...], expected: tuple[str, str, tuple[int, ...]]
) -> None:
    """A healthy run and two faults well above their thresholds, eight times each."""
    advisor = folded(frames(JOB.with_faults(*faults)))
    assert expected == verdict_of(advisor.view())
    whole, seen = flips(advisor, 8)
    assert expected == whole
    assert {expected: 8} == dict(seen)


def test_drawing_moves_time_and_nothing_else() -> None:
    """Every drawn step has the durations and the order of arrival it had; each block follows the one before."""
    table, _ = folded(frames(JOB)).store.table() or (None, None)
    assert table is not None
    again = drawn(table, np.random.default_rng(1))
    assert table.num_steps == again.num_steps
    assert table.first_step == again.first_step
    whole = np.isfinite(again.arrive_s_RK).all(axis=0)
    late = again.arrive_s_RK - again.begin_s_RK
    known = {tuple(np.round(column, 9)) for column in (table.arrive_s_RK - table.begin_s_RK).T}
    assert all(tuple(np.round(column, 9)) in known for column in late.T[whole])
    gaps = again.begin_s_RK[:, 1:] - again.end_s_RK[:, :-1]
    before = table.begin_s_RK[:, 1:] - table.end_s_RK[:, :-1]
    assert np.nanmedian(gaps) == pytest.approx(np.nanmedian(before), abs=0.1 * MS)
    # Between two blocks ranks of one host may part by what they parted by before, never by a step.
    assert np.nanmin(gaps) > -5 * MS


def test_too_few_steps_are_not_drawn() -> None:
    """Blocks need a run that is longer than a few of them."""
    table, _ = folded(frames(JOB)).store.table() or (None, None)
    assert table is not None
    with pytest.raises(ValueError, match="too few to draw"):
        drawn(select(table, slice(0, 2 * BLOCK_STEPS)), np.random.default_rng(1))
