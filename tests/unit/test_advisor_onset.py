"""A rank that is late in a part of its steps since some step: dated to it, sized from it on."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view, simulate
from thinned import crossed

pytestmark = pytest.mark.slow

ONSET = 201


@pytest.mark.parametrize(
    ("num_ranks", "fault"),
    crossed(
        [2, 4],
        [
            Fault("data", (1,), 15 * MS, onset=ONSET),
            Fault("data", (1,), 15 * MS, onset=ONSET, every=2),
            Fault("data", (1,), 15 * MS, onset=ONSET, every=3),
            Fault("data", (1,), 15 * MS, onset=ONSET, every=5),
            Fault("data", (1,), 15 * MS, onset=ONSET, chance=0.33),
            Fault("data", (1,), 15 * MS, onset=ONSET, chance=0.5),
            Fault("backward", (1,), 8 * MS, onset=ONSET, every=3),
        ],
    ),
)
def test_onset_loss_and_gain_are_those_since_the_step(num_ranks: int, fault: Fault) -> None:
    """The onset within five steps, loss and speed-up within a tenth of what the steps since then really lose."""
    healthy = Job(num_ranks=num_ranks, num_steps=2 * ONSET)
    job = healthy.with_faults(fault)
    with_it, without = (simulate(one).cycle_s[ONSET:].mean() for one in (job, healthy))
    view = final_view(job)
    phase = "data_wait" if fault.kind == "data" else fault.kind
    assert [("straggler", (1,), phase)] == above_info(view)
    (late,) = view.stragglers
    assert ONSET == pytest.approx(late.since_step, abs=5)
    assert ONSET == pytest.approx(view.window.first_step, abs=5)
    assert with_it - without == pytest.approx(late.loss_s_per_step, rel=0.1)
    assert view.verdict.speedup is not None
    assert with_it / without == pytest.approx(view.verdict.speedup.expected, rel=0.05)
    assert (fault.every == 1 and fault.chance == 1) == late.persistent


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_lateness_is_told_as_long_as_it_is(num_ranks: int) -> None:
    """15 ms every third step: late by 15 ms, also of two ranks, where none is the middle."""
    view = final_view(
        Job(num_ranks=num_ranks, num_steps=300, faults=(Fault("data", (1,), 15 * MS, every=3),))
    )
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert 15 * MS == pytest.approx(finding.evidence["excess_s"], rel=0.1)
    assert 1 / 3 == pytest.approx(finding.evidence["hit_share"], abs=0.05)


@pytest.mark.parametrize(("num_ranks", "culprit"), crossed([3, 4, 5], [0, 1, 2]))
def test_late_in_every_fifth_step_is_named_though_its_typical_step_is_short(
    num_ranks: int, culprit: int
) -> None:
    """The rank may be the fastest in its other steps: it was a peer by that, and never named."""
    for seed in range(4):
        fault = Fault("backward", (culprit,), 30 * MS, every=5)
        view = final_view(Job(num_ranks=num_ranks, num_steps=240, seed=seed, faults=(fault,)))
        assert [("straggler", (culprit,), "backward")] == above_info(view), seed


def test_a_rank_that_is_late_in_all_steps_by_two_amounts_is_late_in_all_of_them() -> None:
    """A CPU limit makes every fourth step wait a period more: 30 ms late always, 60 ms more in a quarter."""
    faults = (Fault("backward", (1,), 30 * MS), Fault("backward", (1,), 60 * MS, every=4))
    view = final_view(Job(num_steps=240, faults=faults))
    (finding,) = [entry for entry in view.findings if entry.id == "straggler"]
    assert 1 == pytest.approx(finding.evidence["hit_share"], abs=0.02)
    assert 45 * MS == pytest.approx(finding.loss_s_per_step, rel=0.15)


def test_late_now_and_then_from_the_beginning_has_no_onset() -> None:
    """What was always so is dated to nothing."""
    for seed in range(6):
        view = final_view(Job(num_steps=300, seed=seed, faults=(Fault("data", (1,), 15 * MS, every=3),)))
        (late,) = view.stragglers
        assert (1, 1) == (late.since_step, view.window.first_step), seed


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("seed", [2, 7, 11, 12])
def test_always_late_and_more_so_for_a_while_again_and_again_has_no_onset(num_ranks: int, seed: int) -> None:
    """8 ms in each step and 0 to 14 ms more for 8 to 19 steps at a time: it was late before the first of these."""
    draw = np.random.default_rng(seed)
    faults, at = [Fault("data", (1,), 8 * MS)], 0
    while at < 240:
        until = at + int(draw.integers(8, 20))
        more_s = float(draw.choice([0, 4, 8, 14])) * MS
        faults.append(Fault("data", (1,), more_s, onset=at, until=until))
        at = until
    view = final_view(Job(num_ranks=num_ranks, num_steps=240, seed=seed, faults=tuple(faults)))
    (late,) = view.stragglers
    assert (1, False, 1) == (late.rank, late.onset_seen, late.since_step)


def test_late_now_and_then_until_a_step_is_over() -> None:
    """The window begins where it ended."""
    view = final_view(Job(num_steps=400, faults=(Fault("data", (1,), 15 * MS, until=ONSET, every=3),)))
    assert [] == above_info(view)
    assert ONSET == pytest.approx(view.window.first_step, abs=5)


def test_bursts_are_sized_from_the_first_one_on() -> None:
    """Ten steps of thirty since step 200: the steps before it were free of it."""
    faults = tuple(Fault("data", (2,), 15 * MS, onset=at, until=at + 10) for at in range(ONSET, 440, 30))
    healthy = Job(num_steps=440)
    job = healthy.with_faults(*faults)
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[ONSET:].mean()
    view = final_view(job)
    assert [("straggler", (2,), "data_wait")] == above_info(view)
    assert ONSET == pytest.approx(view.stragglers[0].since_step, abs=5)
    assert lost_s == pytest.approx(view.stragglers[0].loss_s_per_step, rel=0.1)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize(("every", "amount_s"), [(2, 8 * MS), (5, 12 * MS)])
def test_late_in_a_part_of_the_steps_of_a_quiet_job(num_ranks: int, every: int, amount_s: float) -> None:
    """Hardly any noise: the late steps are most of what varies, and must not be taken for it."""
    healthy = Job(num_ranks=num_ranks, num_steps=240, noise=0.01, spike_chance=0.0)
    job = healthy.with_faults(Fault("data", (1,), amount_s, onset=100, every=every))
    lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[100:].mean()
    view = final_view(job)
    assert [("straggler", (1,), "data_wait")] == above_info(view)
    assert 100 == pytest.approx(view.stragglers[0].since_step, abs=2)
    assert lost_s == pytest.approx(view.stragglers[0].loss_s_per_step, rel=0.1)


def test_two_kinds_of_steps_too_near_to_be_told_apart_are_sized_right() -> None:
    """4 ms in every second step of a job whose steps vary by 2: no shift of all steps, whatever the median says."""
    for seed in range(4):
        healthy = Job(num_ranks=4, num_steps=400, noise=0.12, spike_chance=0.0, seed=seed)
        job = healthy.with_faults(Fault("data", (1,), 4 * MS, every=2))
        lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s).mean()
        (late,) = final_view(job).stragglers
        assert lost_s == pytest.approx(late.loss_s_per_step, rel=0.15)


@pytest.mark.parametrize(("num_ranks", "noise"), crossed([2, 4], [{}, {"noise": 0.12, "spike_chance": 0.05}]))
def test_a_disturbance_before_it_moves_no_onset_of_every_third_step(
    num_ranks: int, noise: dict[str, float]
) -> None:
    """Rank 1 is held up for eight steps, and nine steps later begins to load late in every third step."""
    disturbed = Fault("forward", (1,), 5 * MS, onset=ONSET - 17, until=ONSET - 9)
    for seed in (1, 2):
        healthy = Job(num_ranks=num_ranks, num_steps=330, seed=seed, faults=(disturbed,), **noise)
        job = healthy.with_faults(disturbed, Fault("data", (1,), 8 * MS, onset=ONSET, every=3))
        lost_s = (simulate(job).cycle_s - simulate(healthy).cycle_s)[ONSET:].mean()
        (late,) = final_view(job).stragglers
        assert ONSET == pytest.approx(late.since_step, abs=5), seed
        assert lost_s == pytest.approx(late.loss_s_per_step, rel=0.1), seed


@pytest.mark.parametrize("amount_s", [8 * MS, 20 * MS])
def test_of_two_ranks_the_ones_recovery_is_not_the_others_onset(amount_s: float) -> None:
    """Rank 0 was late until step 60; rank 1, late from step 200 on, was told to be so "since step 60"."""
    for seed in range(3):
        before = Fault("forward", (0,), amount_s, until=60)
        now = Fault("forward", (1,), amount_s, onset=200)
        view = final_view(Job(num_ranks=2, num_steps=300, seed=seed, faults=(before, now)))
        assert {1: 200} == pytest.approx({late.rank: late.since_step for late in view.stragglers}, abs=3)


def test_a_second_late_rank_moves_no_onset_of_the_first() -> None:
    """As rank 2 becomes late the common level rises: rank 1 seemed to recover, and was dated to the beginning."""
    for seed in range(3):
        faults = (Fault("forward", (1,), 10 * MS, onset=100), Fault("backward", (2,), 12 * MS, onset=200))
        view = final_view(Job(num_steps=300, seed=seed, faults=faults))
        assert {1: 100, 2: 200} == pytest.approx(
            {late.rank: late.since_step for late in view.stragglers}, abs=3
        )
        assert {("straggler", (1,), "forward"), ("straggler", (2,), "backward")} == set(above_info(view))
