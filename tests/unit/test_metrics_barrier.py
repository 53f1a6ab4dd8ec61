"""Arrival order: the last to arrive is the culprit, the others are its victims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.metrics.steps.accounting import job_seconds, phase_seconds_PR, shares
from tuiadvisor.metrics.steps.barrier import Barrier, find_barrier
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX, StepTable


def table_of(job: Job) -> StepTable:
    """The steps of a simulated job."""
    found = folded(frames(job)).store.table()
    assert found is not None
    return found[0]


def barrier_of(job: Job) -> Barrier:
    """Its barriers, everybody alive."""
    table = table_of(job)
    return find_barrier(table, np.ones(table.num_ranks, dtype=np.bool_))


QUIET = Job(noise=0.0, spike_chance=0.0, num_steps=30)


def test_work_wait_and_transfer_of_a_quiet_run() -> None:
    """Rank 1 works 5 ms longer: it never waits, the others wait 5 ms, the transfer is free of both."""
    barrier = barrier_of(QUIET.with_faults(Fault("forward", (1,), 5 * MS)))
    assert "arrival" == barrier.evidence
    assert {1.0} == set(barrier.last_K[1:].tolist())
    assert 0 == barrier.wait_RK[1, 1:].max()
    assert 5 * MS == pytest.approx(np.median(barrier.wait_RK[0, 1:]), abs=0.3 * MS)
    assert 0.8 * MS == pytest.approx(np.median(barrier.transfer_K[1:]), abs=0.2 * MS)
    assert 22.4 * MS == pytest.approx(np.median(barrier.cycle_K[1:]), abs=0.2 * MS)


def test_a_step_without_one_of_the_ranks_is_not_compared() -> None:
    """A record that is missing leaves its step out, and the next one, whose work began at its release."""
    table = table_of(QUIET)
    table.present_RK[2, 10] = False
    table.arrive_s_RK[2, 10] = np.nan
    barrier = find_barrier(table, np.ones(4, dtype=np.bool_))
    assert [0, 10, 11] == np.flatnonzero(~barrier.complete_K).tolist()


def test_the_newest_steps_wait_for_the_ranks_still_alive() -> None:
    """Rank 3's last three records are under way: those steps are incomplete, unless the rank is dead."""
    table = table_of(QUIET)
    table.present_RK[3, -3:] = False
    table.arrive_s_RK[3, -3:] = np.nan
    alive = np.ones(4, dtype=np.bool_)
    assert not find_barrier(table, alive).complete_K[-3:].any()
    alive[3] = False
    assert find_barrier(table, alive).complete_K[-2:].all()


def test_one_rank_alone_has_nobody_to_be_compared_with() -> None:
    """No evidence, and no numbers."""
    barrier = barrier_of(Job(num_ranks=1, num_steps=30))
    assert "none" == barrier.evidence
    assert np.isnan(barrier.work_RK).all()


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_where_one_alone_meets_somebody_nobody_s_order_is_known(num_ranks: int) -> None:
    """The last stage of a pipeline without a hook sums up the loss: its steps are steps, and no one is late in them.

    With two ranks that were arrivals in half of all records, which was taken for the job's rhythm, and no step counted.
    """
    table = table_of(Job(noise=0.0, spike_chance=0.0, num_steps=30, num_ranks=num_ranks))
    table.arrive_s_RK[:-1] = table.release_s_RK[:-1] = np.nan
    barrier = find_barrier(table, np.ones(num_ranks, dtype=np.bool_))
    assert "none" == barrier.evidence
    assert np.isnan(barrier.lateness_RK).all()
    assert np.isfinite(barrier.cycle_K[1:]).all()


def test_who_has_not_come_yet_is_no_stage() -> None:
    """The records of the rank that is attached second are still to come: that is no order, and no want of one."""
    table = table_of(replace(QUIET, num_ranks=2))
    table.present_RK[1] = False
    table.arrive_s_RK[1] = table.release_s_RK[1] = np.nan
    assert "none" != find_barrier(table, np.ones(2, dtype=np.bool_)).evidence


def test_hosts_with_other_clocks_are_compared_by_their_common_releases() -> None:
    """Clocks 5,000 s apart: lateness is that of the same run on one clock, within the spread of releases."""
    faults = (Fault("backward", (3,), 5 * MS),)
    one = barrier_of(Job(noise=0.0, spike_chance=0.0, num_steps=200, faults=faults))
    two = barrier_of(
        Job(
            noise=0.0, spike_chance=0.0, num_steps=200, faults=faults, ranks_per_host=2, host_clock_s={1: 5e3}
        )
    )
    assert np.nanmedian(one.lateness_RK[3]) == pytest.approx(np.nanmedian(two.lateness_RK[3]), abs=0.1 * MS)


def test_phases_sum_to_the_step_and_unobserved_ones_are_unknown() -> None:
    """No hook on the loader: its time is in `other`, and data_wait is None, not 0."""
    table = table_of(Job(num_steps=30, observed=("forward", "backward", "comm_exposed", "other")))
    seconds = job_seconds(phase_seconds_PR(table))
    assert seconds["data_wait"] is None
    assert 1 == pytest.approx(sum(share for share in shares(seconds).values() if share is not None))
    assert float(np.mean(table.step_s_RK)) == pytest.approx(sum(value for value in seconds.values() if value))


def test_parts_beyond_the_step_are_scaled_to_it() -> None:
    """Numbers that contradict the step never make shares above 1."""
    table = table_of(Job(num_steps=30, num_ranks=2))
    assert (table.phase_s_PRK[PHASE_INDEX["other"]] >= 0).all()
    assert np.nansum(table.phase_s_PRK, axis=0) == pytest.approx(table.step_s_RK)
