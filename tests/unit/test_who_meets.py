"""Ranks that never meet make nobody wait: none is named, whether arrivals or only waits are known, on any clocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import HOOKED, MS, Fault, Job, above_info, final_view, folded, frames, simulate
from thinned import crossed

from tuiadvisor.metrics.steps.barrier import find_barrier
from tuiadvisor.metrics.steps.who_meets import have_mates, meet

NEVER = Job(
    num_steps=400,
    meets_every=10**5,
    own_exchange=0.5,
    barrier_seen=False,
    noise=0.01,
    transfer_s=4 * MS,
    observed=(*HOOKED, "eval"),
)
ALONE = replace(NEVER, barrier_seen=True, ranks_per_host=1, own_numbers=True)


def evidence(job: Job) -> str:
    """What the order of arrival rests on."""
    found = folded(frames(job)).store.table()
    assert found is not None
    return find_barrier(found[0], np.ones(found[0].num_ranks, dtype=np.bool_)).evidence


def test_a_pause_of_all_names_no_rank_whose_steps_are_counted_one_off() -> None:
    """Rank 3's place on the job's axis is a guess by the clock: "rank 3 late by 60 ms in 2.3 % of the steps"."""
    view = final_view(replace(NEVER, seed=109496).with_faults(Fault("data", None, 60 * MS, every=40)))
    assert () == view.stragglers
    assert {()} >= {ranks for name, ranks, _ in above_info(view) if name != "communication_bound"}


@pytest.mark.parametrize(("seed", "own_exchange"), crossed(range(4), [0.1, 0.5, 0.8]))
def test_waits_for_a_group_of_its_own_say_nothing_of_the_others(seed: int, own_exchange: float) -> None:
    """Of each rank the waits alone are known, in each step."""
    job = replace(NEVER, num_ranks=2 + seed, seed=seed, own_exchange=own_exchange)
    assert "none" == evidence(job)
    assert () == final_view(job.with_faults(Fault("forward", (1,), 60 * MS, every=20))).stragglers


@pytest.mark.parametrize(("seed", "num_ranks"), crossed(range(4), [2, 4, 6]))
def test_ranks_alone_on_their_hosts_are_told_apart_without_a_common_clock(seed: int, num_ranks: int) -> None:
    """Each leaves its own exchange soon after it came: "a rotating straggler costs 99 % of the step"."""
    job = replace(ALONE, num_ranks=num_ranks, seed=seed, host_clock_s={1: 3.0})
    assert "none" == evidence(job)
    view = final_view(job.with_faults(Fault("optimizer", (1,), 60 * MS, every=20)))
    assert () == view.stragglers
    assert "turn" not in view.verdict.sentence
    (why,) = [one.why for one in view.unknown if one.metric == "stragglers"]
    assert "do not wait for each other" in why
    assert "arrival" == evidence(replace(job, meets_every=1))


def walks(seed: int, num_ranks: int, own_s: float = 1 * MS) -> np.ndarray:
    """Seconds that ranks work in 200 steps of 20 ms."""
    return 20 * MS + own_s * np.random.default_rng(seed).standard_normal((num_ranks, 200))


def in_groups(work: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(step, wait) of ranks that wait in each step for the last one of their group."""
    groups = work.reshape(-1, size, work.shape[1])
    step = np.repeat(groups.max(axis=1) + 1 * MS, size, axis=0)
    return step, step - work


EACH = np.arange(200)


@pytest.mark.parametrize(("seed", "num_ranks"), crossed(range(3), [2, 4, 8]))
def test_who_waits_for_whom_is_told_by_the_length_of_many_steps(seed: int, num_ranks: int) -> None:
    """All of them, nobody, groups of two."""
    work = walks(seed, num_ranks)
    assert meet(*in_groups(work, num_ranks), EACH) is True
    assert meet(*in_groups(work, 1), EACH) is False
    assert not have_mates(*in_groups(work, 1), EACH)
    assert have_mates(*in_groups(work, 2), EACH)


@pytest.mark.parametrize(("seed", "is_wait"), crossed(range(4), [True, False]))
def test_what_passes_between_the_exchange_and_the_end_of_a_record_does_not_count(
    seed: int, is_wait: bool
) -> None:
    """Ranks alike, of which each is late out of an exchange by itself, and one now and then for a second."""
    random = np.random.default_rng(seed)
    late = random.exponential(5 * MS, (3, 200))
    late[1, 9::25] += 1.0
    work, step, wait = walks(seed, 3), np.empty((3, 200)), np.empty((3, 200))
    at = np.zeros(3)
    for k in range(200):
        arrived = at + work[:, k]
        over = arrived.max() + 1 * MS
        step[:, k] = over + late[:, k] - at
        wait[:, k] = over - arrived + late[:, k] * is_wait
        at = over + late[:, k]
    assert meet(step, wait, EACH) is not False


def test_ranks_that_work_equally_long_tell_nothing() -> None:
    """Nor do clocks of two hosts that are right to 100 ppm, or few steps."""
    work = np.full((2, 200), 20 * MS) * np.array([[1.0], [1.0 + 1e-4]])
    assert meet(work + 1 * MS, np.full_like(work, 1 * MS), EACH) is None
    assert meet(*in_groups(walks(0, 2), 1), np.arange(20)) is None


def test_a_pause_of_the_only_rank_that_was_compared_is_told_of_that_rank() -> None:
    """Of three ranks that pause in turn every 7 steps and meet nobody it "stops the training"."""
    turns = [Fault("forward", (at // 7 % 3,), 60 * MS, onset=at, until=at + 1) for at in range(7, 400, 7)]
    job = replace(NEVER, num_ranks=3, ranks_per_host=1, host_clock_s={1: 1.7, 2: -2.2}, seq_known=False)
    view = final_view(job.with_faults(*turns))
    assert [21.0] == [pause.period_steps for pause in view.pauses]
    assert "every 21 steps stops rank 0" in view.verdict.sentence
    alone = final_view(replace(job, num_ranks=1).with_faults(*turns[2::3]))
    assert "stops the training" in alone.verdict.sentence


def test_ranks_that_meet_and_work_equally_long_are_hardly_ever_told_apart_by_the_ends_of_stretches() -> None:
    """Each ends its records as late as it happens to, by more than they differ over many steps: 38 of 40 were."""
    told = []
    for seed in range(40):
        late = np.random.default_rng(seed).exponential(3 * MS, (2, 201))
        wait = 25 * MS - walks(seed, 2, own_s=0.1 * MS)
        told.append(meet(25 * MS + np.diff(late, axis=1), wait, EACH))
    assert 4 >= told.count(False)


@pytest.mark.parametrize("seed", [6, 8, 13])
def test_a_job_of_which_every_tenth_record_is_lost_still_meets(seed: int) -> None:
    """Ranks that leave an exchange late by chance: "the ranks do not wait for each other", and it was none's bound."""
    late = [Fault("release", (rank,), 3 * MS, chance=0.3) for rank in range(3)]
    job = Job(
        num_ranks=3,
        transfer_s=20 * MS,
        optimizer_s=15 * MS,
        noise=0.01,
        spike_chance=0.0,
        barrier_seen=False,
        seed=seed,
        faults=tuple(late),
    )
    all_of_it, random = simulate(job), np.random.default_rng(seed)
    held = {rank: [row for row in rows if random.random() > 0.1] for rank, rows in all_of_it.rows.items()}
    view = folded(frames(job, simulated=replace(all_of_it, rows=held))).view()
    assert "communication_bound" == view.verdict.finding
