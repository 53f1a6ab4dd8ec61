"""A step that became longer: stated while it lasts, and only of what all ranks share."""

from __future__ import annotations

import numpy as np
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.metrics.series.change_points import Change
from tuiadvisor.metrics.steps.barrier import find_barrier
from tuiadvisor.metrics.window.level_shift import LevelShift, level_shift
from tuiadvisor.metrics.window.regime import Regime

ALL = (0, 1, 2, 3)
NUM_STEPS, SINCE = 300, 150


def shift_with(*faults: Fault) -> LevelShift | None:
    """What is said where the step was found to go from 22 to 32 ms at SINCE."""
    found = folded(frames(Job(num_steps=NUM_STEPS, faults=faults))).store.table()
    assert found is not None
    table = found[0]
    barrier = find_barrier(table, np.ones(table.num_ranks, dtype=np.bool_))
    columns = np.flatnonzero(np.isfinite(barrier.cycle_K))
    at = int(np.searchsorted(table.first_step + columns, SINCE))
    regime = Regime(0, (Change(at, 22 * MS, 32 * MS),), {}, frozenset())
    return level_shift(table, regime, columns, barrier.cycle_K[columns], barrier.transfer_K[columns])


def test_a_step_that_stays_longer_on_all_ranks_is_said() -> None:
    """10 ms more in everybody's forward."""
    shift = shift_with(Fault("forward", ALL, 10 * MS, onset=SINCE))
    assert shift is not None
    assert (SINCE, "forward") == (shift.since_step, shift.phase)


def test_a_step_that_is_short_again_is_not_longer_since() -> None:
    """Back after 80 steps, whether or not that was found as a change of its own."""
    assert shift_with(Fault("forward", ALL, 10 * MS, onset=SINCE, until=SINCE + 80)) is None
    assert shift_with(Fault("forward", ALL, 10 * MS, onset=SINCE, until=NUM_STEPS - 25)) is None


def test_waiting_for_ranks_that_are_late_in_turns_is_no_longer_step_of_all_alike() -> None:
    """Each step another rank is 10 ms late: the typical exchange grew, but no transfer did."""
    turns = tuple(Fault("forward", (rank,), 10 * MS, every=4, onset=SINCE + rank) for rank in ALL)
    assert shift_with(*turns) is None


def test_a_transfer_that_takes_longer_is_said() -> None:
    """The exchange itself takes 10 ms more."""
    shift = shift_with(Fault("comm", ALL, 10 * MS, onset=SINCE))
    assert shift is not None
    assert "comm_exposed" == shift.phase


def test_steps_too_restless_to_tell_are_longer_where_a_phase_of_all_ranks_is() -> None:
    """Heat that comes and goes within seconds: a phase began the window, and nothing said by how much."""
    found = folded(frames(Job(num_steps=NUM_STEPS, faults=(Fault("forward", ALL, 10 * MS, onset=SINCE),))))
    timed = found.store.table()
    assert timed is not None
    table = timed[0]
    barrier = find_barrier(table, np.ones(table.num_ranks, dtype=np.bool_))
    columns = np.flatnonzero(np.isfinite(barrier.cycle_K))
    at = int(np.searchsorted(table.first_step + columns, SINCE))

    def told(change: Change) -> LevelShift | None:
        regime = Regime(at, (), {}, frozenset(), change, None, "forward")
        return level_shift(table, regime, columns, barrier.cycle_K[columns], barrier.transfer_K[columns])

    shift = told(Change(at, 8 * MS, 18 * MS))
    assert shift is not None
    assert (SINCE, "forward") == (shift.since_step, shift.phase)
    # What one phase has more and another one less makes no step longer.
    assert told(Change(at, 8 * MS, 48 * MS)) is None
    assert told(Change(at, 18 * MS, 8 * MS)) is None
