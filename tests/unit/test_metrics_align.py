"""Local steps on the job's axis: by sequence numbers, by clocks, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tuiadvisor.metrics.steps.step_alignment import RankSteps, align, is_out_of_step, num_steps_within

STEP_NS = 20_000_000


def steps(first: int, count: int, *, late_ns: int = 0, seq_shift: int = 0, seed: int = 0) -> RankSteps:
    """Steps first.. of the job as a rank attached there counts them, with a millisecond of jitter."""
    job = np.arange(first, first + count, dtype=np.int64)
    jitter = np.random.default_rng(seed).integers(0, 1_000_000, count)
    return RankSteps(job - first, 7 + 3 * job + seq_shift, job * STEP_NS + jitter + late_ns)


def without_seq(rank: RankSteps) -> RankSteps:
    """The same rank with its sequence numbers unknown."""
    return RankSteps(rank.step, np.full(rank.step.size, -1, dtype=np.int64), rank.mark_ns)


REFERENCE = steps(0, 100)


def test_equal_sequence_numbers_and_clocks_agree() -> None:
    """A rank attached at step 37 counts from 0: its offset is 37."""
    found = align(REFERENCE, steps(37, 50, seed=1), same_clock=True)
    assert (37, "sequence and clock") == (found.offset, found.by)


def test_the_clock_alone_is_enough_on_one_host() -> None:
    """Steps that end within a third of a step of each other are the same."""
    found = align(without_seq(REFERENCE), steps(12, 40, late_ns=3_000_000, seed=2), same_clock=True)
    assert (12, "clock") == (found.offset, found.by)


@pytest.mark.parametrize("is_reference", [True, False])
def test_a_release_is_no_step_s_end(is_reference: bool) -> None:
    """The stages of a pipeline of the training's own: one ends its steps in an all-reduce, the other meets nobody."""
    ends = without_seq(steps(0, 100, seed=3))
    early_ns = np.random.default_rng(4).integers(STEP_NS // 5, STEP_NS // 2, 100)
    released = RankSteps(ends.step, ends.seq, ends.mark_ns - early_ns, end_ns=ends.mark_ns)
    other = without_seq(steps(12, 40, late_ns=3_000_000, seed=2))
    found = align(*((released, other) if is_reference else (other, released)), same_clock=True)
    assert (12 if is_reference else -12, "clock") == (found.offset, found.by)


def test_the_sequence_alone_is_enough_between_hosts() -> None:
    """Clocks of hosts an hour apart are not asked."""
    found = align(REFERENCE, steps(12, 40, late_ns=3600 * 10**9), same_clock=False)
    assert (12, "sequence") == (found.offset, found.by)


def test_a_disagreement_is_an_abstention_with_its_size() -> None:
    """Sequence numbers five steps from where the clock says: neither is believed."""
    found = align(REFERENCE, steps(12, 40, seq_shift=15), same_clock=True)
    assert found.offset is None
    assert "its collectives' sequence and its clock disagree by 5 steps" == found.why_not


def test_steps_that_never_meet_are_not_aligned() -> None:
    """Another moment on the same clock, however alike the sequence numbers."""
    found = align(REFERENCE, steps(0, 50, late_ns=10**12), same_clock=True)
    assert found.offset is None
    assert "same time" in found.why_not


def test_ranks_of_different_rhythm_are_not_aligned_by_clock() -> None:
    """A rank with steps of another length ends anywhere within the reference's steps."""
    own = np.arange(60, dtype=np.int64)
    other = RankSteps(own, np.full(60, -1, dtype=np.int64), own * 13_700_000 + 5_000_000)
    assert align(without_seq(REFERENCE), other, same_clock=True).offset is None


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_handful_of_steps_is_not_enough(count: int) -> None:
    """Three matches at least."""
    assert align(REFERENCE, steps(5, count), same_clock=True).offset is None


def test_sequence_numbers_that_stand_still_are_not_used() -> None:
    """A counter that does not advance tells nothing; the clock decides."""
    stuck = RankSteps(REFERENCE.step, np.full(100, 7, dtype=np.int64), REFERENCE.mark_ns)
    found = align(stuck, steps(20, 50), same_clock=True)
    assert (20, "clock") == (found.offset, found.by)


def restless(first: int, count: int, late_ns: int = 0, seed: int = 0) -> RankSteps:
    """Steps without sequence numbers that are long and short on all ranks together, by 2 ms, ends 0.1 ms apart."""
    ends = np.cumsum(STEP_NS + np.random.default_rng(99).normal(0, 2e6, 200)).astype(np.int64)
    jitter = np.random.default_rng(seed).integers(0, 100_000, count)
    return without_seq(replace(steps(first, count), mark_ns=ends[first : first + count] + jitter + late_ns))


def test_wall_clocks_bring_hosts_near_enough_without_sequence_numbers() -> None:
    """The shift is added to the rank's clock before its steps are matched."""
    far = restless(12, 40, late_ns=-500 * 10**9, seed=1)
    found = align(restless(0, 100), far, same_clock=False, clock_shift_ns=500 * 10**9)
    assert (12, "clock") == (found.offset, found.by)


@pytest.mark.parametrize("steps_apart", [-7, -1, 1, 2, 30])
def test_wall_clocks_that_are_steps_apart_align_nothing(steps_apart: int) -> None:
    """Ends fall together, but not those of one step: what is long here is short there."""
    far = restless(40, 40, late_ns=steps_apart * STEP_NS, seed=1)
    found = align(restless(0, 100), far, same_clock=False, clock_shift_ns=0)
    assert found.offset is None


def test_gaps_keep_the_offset() -> None:
    """Lost records leave the numbers of the others alone."""
    rank = steps(10, 60)
    keep = np.arange(60) % 3 != 1
    thinned = RankSteps(rank.step[keep], rank.seq[keep], rank.mark_ns[keep])
    assert 10 == align(REFERENCE, thinned, same_clock=True).offset


def uneven(num_of_epoch: int, num_epochs: int, of_all: int = 60) -> RankSteps:
    """Steps of a rank that has fewer batches an epoch than the longest: it goes on calling their collectives."""
    job = np.concatenate([of_all * epoch + np.arange(num_of_epoch) for epoch in range(num_epochs)])
    return RankSteps(np.arange(job.size, dtype=np.int64), 7 + 3 * job, job * STEP_NS)


def test_a_rank_that_makes_fewer_steps_than_the_others_has_left_the_axis() -> None:
    """Join with uneven inputs: 60 and 50 batches an epoch fell ten steps further apart with each."""
    longest = uneven(60, 4)
    assert is_out_of_step(longest, uneven(50, 4))
    assert is_out_of_step(uneven(50, 4), longest)
    assert not is_out_of_step(longest, uneven(60, 4))
    assert not is_out_of_step(longest, uneven(50, 1))  # nothing is apart before the second epoch


def test_another_groups_numbers_tell_nothing_of_the_axis() -> None:
    """Two collectives a step against three: equal numbers are chance."""
    other = replace(REFERENCE, seq=7 + 2 * REFERENCE.step)
    assert not is_out_of_step(REFERENCE, other)
    assert not is_out_of_step(REFERENCE, without_seq(REFERENCE))
    assert not is_out_of_step(REFERENCE, replace(REFERENCE, seq=REFERENCE.seq + 1))  # as many, and none alike


def test_how_many_steps_of_another_rank_fall_into_one() -> None:
    """Of 60 and 50 batches an epoch ten and its own fall into the first step of the next one; else one each."""
    longest, short = uneven(60, 4), uneven(50, 4)
    begins = np.array(
        [60, 120, 180]
    )  # of an epoch, as the short one counts them in job steps of its own: 50, 100, 150
    assert 11 == num_steps_within(short, longest, np.array([50, 100, 150]))
    assert 1 == num_steps_within(short, longest, np.array([20, 75, 130]))
    assert 1 == num_steps_within(longest, short, begins)
    assert 0 == num_steps_within(short, without_seq(longest), np.array([50, 100, 150]))
