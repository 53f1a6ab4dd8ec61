"""Every step of a recording once, however it was fed: what two runs are compared on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, frames, simulate

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.steps.step_series import SeriesCollector, StepSeries
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame

QUIET = Job(num_ranks=2, num_steps=200, noise=0.02, spike_chance=0.0)


def collected(sequence: Sequence[Frame], *, is_advanced: bool = True) -> StepSeries:
    """Of a run that is read frame by frame."""
    advisor = Advisor()
    collector = SeriesCollector(advisor.store)
    for frame in sequence:
        advisor.feed_frame(frame)
        if is_advanced:
            collector.advance()
    return collector.finish()


def test_every_step_between_two_releases_is_told_once() -> None:
    """The first record may be a part of a step; all others are those of the job, in order."""
    found = collected(frames(QUIET))
    cycle_s = simulate(QUIET).cycle_s
    assert cycle_s[1:] == pytest.approx(found.step_s_K, rel=0.02)
    assert found.steady_s.size > 0.9 * found.step_s_K.size
    assert (len(PHASES), found.step_s_K.size) == found.phase_s_PK.shape


@pytest.mark.slow
def test_steps_that_scroll_away_are_kept() -> None:
    """More than the store holds: taken piece by piece it is the whole run, at the end alone what is left."""
    job = replace(QUIET, num_steps=10_000)
    advisor = Advisor()
    sequence = frames(job, rows_per_frame=200)
    for frame in sequence:
        advisor.feed_frame(frame)
    capacity = advisor.store.capacity
    assert capacity < job.num_steps, "the test must be able to fail"
    whole = collected(sequence)
    assert simulate(job).cycle_s[1:] == pytest.approx(whole.step_s_K, rel=0.02)
    late = collected(sequence, is_advanced=False)
    assert advisor.store.table_width // 2 < late.step_s_K.size < capacity
    assert late.step_s_K == pytest.approx(whole.step_s_K[-late.step_s_K.size :])


@pytest.mark.slow
def test_where_the_pace_changes_no_step_is_passed_over() -> None:
    """Of short steps more are looked at than of long ones, and both are told once."""
    short = replace(
        QUIET, num_steps=7000, forward_s=1 * MS, backward_s=1 * MS, optimizer_s=0.1 * MS, transfer_s=0.1 * MS
    )
    job = short.with_faults(Fault("forward", None, 100 * MS, onset=6400))
    found = collected(frames(job, rows_per_frame=100))
    assert simulate(job).cycle_s[1:] == pytest.approx(found.step_s_K, rel=0.02)


@pytest.mark.parametrize("num_steps", [0, 1])
def test_without_steps_the_series_is_empty(num_steps: int) -> None:
    """Nothing fed, or one step, which has no release before it."""
    found = collected(frames(replace(QUIET, num_steps=num_steps)) if num_steps else [])
    assert (0, 0, (len(PHASES), 0)) == (found.step_s_K.size, found.steady_s.size, found.phase_s_PK.shape)


def test_one_rank_alone_has_steps_without_a_barrier() -> None:
    """Nobody is waited for, so each of its whole steps counts."""
    found = collected(frames(replace(QUIET, num_ranks=1)))
    assert QUIET.num_steps - 2 <= found.step_s_K.size <= QUIET.num_steps
    assert 16 * MS < float(np.median(found.step_s_K)) < 19 * MS


def test_a_series_is_finished_once() -> None:
    """Asked again it holds no step twice."""
    advisor = Advisor()
    for frame in frames(QUIET):
        advisor.feed_frame(frame)
    collector = SeriesCollector(advisor.store)
    once = collector.finish()
    assert np.array_equal(once.step_s_K, collector.finish().step_s_K)


def test_warm_up_is_no_step_of_the_run() -> None:
    """The first fifteen take six times as long: they are left out, not called pauses."""
    slow = Fault("warmup", None, 100 * MS, until=15)
    found = collected(frames(QUIET.with_faults(slow)))
    assert QUIET.num_steps - 20 < found.step_s_K.size <= QUIET.num_steps - 15
    assert found.step_s_K.max() < 60 * MS


def test_pauses_are_among_the_steps_and_not_steady() -> None:
    """What a run waits for now and then is time of it, and no measure of its steps."""
    save = Fault("checkpoint", (0,), 300 * MS, onset=50, every=50)
    found = collected(frames(QUIET.with_faults(save)))
    assert 3 == int((found.step_s_K > 250 * MS).sum())
    assert found.steady_s.max() < 250 * MS


def test_a_phase_without_a_hook_is_unknown_and_one_that_never_came_took_no_time() -> None:
    """NaN and zero are two things."""
    hooked = tuple(name for name in QUIET.observed if name != "forward")
    found = collected(frames(replace(QUIET, observed=hooked)))
    phase = dict(zip(PHASES, found.phase_s_PK, strict=True))
    assert np.isnan(phase["forward"]).all()
    assert QUIET.backward_s == pytest.approx(float(np.median(phase["backward"])), rel=0.05)
    assert not phase["checkpoint"].any()
