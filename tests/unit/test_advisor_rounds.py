"""Ranks that meet every few steps only (local SGD): who is late is told by how long each waits at a meeting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import HOOKED, MS, Fault, Job, above_info, final_view, folded, frames, simulate
from thinned import crossed

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.metrics.steps.barrier import find_barrier
from tuiadvisor.metrics.steps.step_table import COMM
from tuiadvisor.views.run_view import RunView

ROUNDS = Job(num_ranks=2, meets_every=8, barrier_seen=False, num_steps=240, transfer_s=4 * MS)


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("attach", [0, 13])
def test_a_rank_that_is_late_in_each_step_is_named_with_its_size(num_ranks: int, attach: int) -> None:
    """Attached at another moment than the others, too: what they count rises in every eighth step only."""
    attached = (*(0,) * (num_ranks - 1), attach)
    job = replace(ROUNDS, num_ranks=num_ranks, attach=attached).with_faults(Fault("forward", (1,), 5 * MS))
    view = final_view(job)
    assert "straggler" == view.verdict.finding, view.verdict
    (late,) = view.stragglers
    assert (1, "forward") == (late.rank, late.cause)
    # Never more than it is; step by step some other rank is last now and then, which a round would even out.
    assert 3.5 * MS < late.loss_s_per_step < 5.5 * MS


@pytest.mark.parametrize(("seed", "meets_every"), crossed(range(4), [3, 8, 16]))
def test_in_a_healthy_run_nobody_is_named(seed: int, meets_every: int) -> None:
    """Nor is the meeting a pause: what it takes is communication."""
    assert [] == above_info(final_view(replace(ROUNDS, seed=seed, meets_every=meets_every)))


def test_stretches_that_differ_between_ranks_are_not_bounded_by_meetings() -> None:
    """Two ranks that wait at the same steps, but not for each other."""
    found = folded(frames(ROUNDS)).store.table()
    assert found is not None
    table, alive = found[0], np.ones(2, dtype=np.bool_)
    assert "wait" == find_barrier(table, alive).evidence
    table.step_s_RK[1] *= 1.3
    assert "none" == find_barrier(table, alive).evidence


@pytest.mark.parametrize("meets_every", [4, 8])
def test_who_leaves_before_the_last_has_come_does_not_wait_there(meets_every: int) -> None:
    """Post-local SGD, gradients stay within each rank: "the mean step would take 1.69 ms instead of 169 ms"."""
    job = replace(ROUNDS, meets_every=meets_every, barrier_seen=True).with_faults(Fault("data", (1,), 5 * MS))
    view = final_view(job)
    (late,) = view.stragglers
    assert (1, "data_wait") == (late.rank, late.cause)
    assert 3.5 * MS < late.loss_s_per_step < 5.5 * MS
    unseen = tuple(name for name in job.observed if name != "comm_exposed")
    assert () == final_view(replace(job, observed=unseen)).stragglers  # nor is it known whom they wait for
    assert "arrival" == evidence(replace(job, meets_every=1))


def test_a_slow_data_set_is_told_where_nothing_says_who_arrives_when() -> None:
    """Ranks that meet in code which no hook sees: that one of them waits for its batches is seen."""
    unseen = tuple(name for name in ROUNDS.observed if name != "comm_exposed")
    job = replace(ROUNDS, meets_every=1, num_steps=800, observed=unseen).with_faults(
        Fault("data", (1,), 15 * MS)
    )
    view = final_view(job)
    assert ("held_rank", (1,)) in [(one.id, one.ranks) for one in view.findings]
    assert "rank 1 waits for its next batch" in view.verdict.sentence
    assert "held_rank" not in {one.id for one in final_view(job.with_faults()).findings}
    both = job.with_faults(Fault("data", None, 15 * MS))
    assert "held_rank" not in {one.id for one in final_view(both).findings}


def evidence(job: Job) -> str:
    """What the order of arrival rests on."""
    found = folded(frames(job)).store.table()
    assert found is not None
    return find_barrier(found[0], np.ones(job.num_ranks, dtype=np.bool_)).evidence


@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_late_ranks_of_one_host_or_several_leave_together(ranks_per_host: int) -> None:
    """Clocks of two hosts are seconds apart: who left before whom is asked within one."""
    job = Job(
        num_ranks=4,
        ranks_per_host=ranks_per_host,
        host_clock_s={1: 3.0},
        faults=(Fault("data", (1,), 9 * MS),),
    )
    assert "arrival" == evidence(job)


OWN_GROUPS = replace(ROUNDS, own_exchange=0.2, barrier_seen=True, meets_every=20)


@pytest.mark.parametrize(("meets_every", "late"), crossed([8, 20, 50], [2 * MS, 15 * MS]))
def test_ranks_that_exchange_gradients_within_groups_of_their_own_meet_at_their_long_waits(
    meets_every: int, late: float
) -> None:
    """Two replicas that meet every 50 steps: it was "a pause of 509 ms every 50 steps stops all ranks"."""
    job = replace(OWN_GROUPS, meets_every=meets_every, num_steps=12 * meets_every, noise=0.01)
    view = final_view(job.with_faults(Fault("forward", (1,), late)))
    (late_rank,) = view.stragglers
    assert (1, "forward") == (late_rank.rank, late_rank.cause)
    assert 0.85 * late < late_rank.loss_s_per_step < 1.1 * late
    assert "periodic_pause" not in {one.id for one in view.findings}


@pytest.mark.parametrize(
    ("attach", "meets_every"), crossed([(30, 0), (0, 30), (13, 0, 17, 0), (5, 17, 40, 3)], [8, 25])
)
def test_ranks_that_were_attached_at_other_places_of_a_round_have_the_others_all_the_same(
    attach: tuple[int, ...], meets_every: int
) -> None:
    """It was "a pause of 251 ms every 25 steps stops all ranks": of the first round not all was known of all."""
    job = replace(
        OWN_GROUPS, num_ranks=len(attach), meets_every=meets_every, num_steps=12 * meets_every, noise=0.01
    )
    view = final_view(replace(job, attach=attach).with_faults(Fault("forward", (1,), 10 * MS)))
    assert [1] == [one.rank for one in view.stragglers]
    assert "periodic_pause" not in {one.id for one in view.findings}
    assert view.window.first_step is not None
    assert view.window.first_step >= 0


@pytest.mark.parametrize(("seed", "spike"), crossed(range(3), [2 * MS, 45 * MS]))
def test_meetings_are_found_beside_waits_of_a_crowded_host(seed: int, spike: float) -> None:
    """Each eighth step rank 0 waits 64 ms; in one of twenty others a rank waits nearly as long for its own group."""
    job = replace(OWN_GROUPS, meets_every=8, num_steps=400, seed=seed).with_faults(
        Fault("data", (1,), 8 * MS)
    )
    found = folded(frames(job)).store.table()
    assert found is not None
    table = found[0]
    random = np.random.default_rng(seed)
    extra = (
        spike
        * random.uniform(0.3, 1.0, table.step_s_RK.shape)
        * (random.random(table.step_s_RK.shape) < 0.05)
    )
    extra[:, 7::8] = 0.0
    for last in range(7, 400, 8):  # of all this the meeting makes up: rank 0 waits by so much less or more
        extra[0, last] = extra[1, last - 7 : last].sum() - extra[0, last - 7 : last].sum()
    table.phase_s_PRK[COMM, :, :] += extra
    table.step_s_RK[:, :] += extra
    barrier = find_barrier(table, np.ones(2, dtype=np.bool_))
    assert "wait" == barrier.evidence
    assert 8 * MS == pytest.approx(float(np.nanmean(barrier.lateness_RK[1])), rel=0.25)


@pytest.mark.parametrize(("seed", "meets_every"), crossed(range(4), [8, 20]))
def test_nobody_is_named_among_healthy_groups(seed: int, meets_every: int) -> None:
    """Each rank waits at some meetings, nobody at all of them."""
    assert [] == above_info(final_view(replace(OWN_GROUPS, seed=seed, meets_every=meets_every)))


def test_a_wait_of_half_of_the_ranks_is_no_pause_of_all() -> None:
    """Too few meetings yet to be told as such: the middle of two ranks is half as long as the wait of one."""
    job = replace(OWN_GROUPS, meets_every=50, num_steps=50 * 3 + 30, noise=0.01)
    view = final_view(job.with_faults(Fault("forward", (1,), 15 * MS)))
    assert () == view.pauses
    assert () == view.stragglers


@pytest.mark.parametrize(("seed", "every"), crossed(range(4), [0, 7, 30]))
def test_waits_of_a_rank_that_meets_nobody_make_no_other_late(seed: int, every: int) -> None:
    """Each within its own group, at one pace; rank 0 waits 60 ms every 30 steps, rank 1 does not: 3 ms "late"."""
    job = replace(OWN_GROUPS, meets_every=10_000, num_steps=300, seed=seed, noise=0.01)
    found = folded(frames(job)).store.table()
    assert found is not None
    table, alive = found[0], np.ones(2, dtype=np.bool_)
    if every:
        table.phase_s_PRK[COMM][0, every - 1 :: every] += 60 * MS
        table.step_s_RK[0, every - 1 :: every] += 60 * MS
    assert "none" == find_barrier(table, alive).evidence


@pytest.mark.parametrize(("num_ranks", "late"), crossed([3, 4], [2 * MS, 15 * MS]))
def test_waits_that_are_hardly_longer_than_the_usual_ones_are_no_meetings(
    num_ranks: int, late: float
) -> None:
    """Of those one is a thousand times as far beyond the usual as the next: 120 ms "in no hook" were told instead."""
    for seed in range(3):
        job = Job(num_ranks, meets_every=8, own_exchange=1.0, num_steps=160, noise=0.01, seed=seed)
        view = final_view(job.with_faults(Fault("forward", (2,), late)))
        (late_rank,) = view.stragglers
        assert (2, "forward") == (late_rank.rank, late_rank.cause)
        assert 0.8 * late < late_rank.loss_s_per_step < 1.15 * late
        assert "periodic_pause" not in {one.id for one in view.findings}


LONG_EXCHANGE = Job(meets_every=16, own_exchange=1.0, transfer_s=4 * MS, num_steps=400, noise=0.01)


@pytest.mark.parametrize(("seed", "num_ranks"), crossed(range(4), [2, 3, 8]))
def test_who_leaves_as_far_apart_as_it_has_come_meets_nobody_there(seed: int, num_ranks: int) -> None:
    """In a long exchange of its own each is still there when the last one comes: "a rotating straggler costs 17 %"."""
    job = replace(LONG_EXCHANGE, num_ranks=num_ranks, seed=seed)
    assert {"communication_bound"} >= {name for name, _, _ in above_info(final_view(job))}
    late = final_view(job.with_faults(Fault("forward", (1,), 3 * MS)))
    assert [(1, "forward")] == [(one.rank, one.cause) for one in late.stragglers]


def test_a_longer_step_now_and_then_makes_nobody_late_until_the_next_meeting() -> None:
    """Healthy ranks, apart in a fifth of the steps: "since step 367 steps are 58 % longer on all ranks"."""
    job = replace(
        ROUNDS, meets_every=16, barrier_seen=True, num_steps=400, noise=0.003, spike_chance=0.015, seed=3
    )
    assert "arrival" != evidence(job)
    assert "arrival" == evidence(replace(job, meets_every=1))


@pytest.mark.parametrize("num_ranks", [2, 3, 16])
def test_a_step_that_is_longer_on_one_rank_than_on_the_others_has_no_meeting(num_ranks: int) -> None:
    """Waits alone are known, in each step: it "would take 3.81 ms instead of 18.6 ms", of 34 ms with the meetings."""
    job = replace(LONG_EXCHANGE, num_ranks=num_ranks, own_exchange=0.2, barrier_seen=False)
    view = final_view(job.with_faults(Fault("forward", (1,), 15 * MS)))
    (late,) = view.stragglers
    assert (1, "forward") == (late.rank, late.cause)
    assert 13 * MS < late.loss_s_per_step < 16 * MS
    assert view.step.mean_s is not None
    assert view.step.mean_s - late.loss_s_per_step > 16 * MS
    assert not [pause for pause in view.pauses if pause.length_s > 50 * MS]


@pytest.mark.parametrize(
    ("num_ranks", "seed", "barrier_seen"),
    [(2, 0, True), (2, 1, False), (4, 2, True), (4, 3, False), (8, 4, False)],
)
@pytest.mark.parametrize("kind", ["forward", "optimizer", "other"])
def test_a_pause_of_one_rank_between_meetings_is_its_own_with_its_size(
    num_ranks: int, seed: int, barrier_seen: bool, kind: str
) -> None:
    """Of two ranks it was "a pause of 127 ms every 50 steps stops all ranks", of four late "in forward" of another."""
    job = Job(
        num_ranks,
        meets_every=25,
        own_exchange=0.5,
        num_steps=600,
        barrier_seen=barrier_seen,
        noise=0.01,
        seed=seed,
    )
    view = final_view(job.with_faults(Fault(kind, (1,), 250 * MS, every=20)))
    if kind == "other":
        (pause,) = view.pauses
        assert ((1,), 20.0) == (pause.ranks, pause.period_steps)
        assert 250 * MS == pytest.approx(pause.length_s, rel=0.05)
        return
    (late,) = view.stragglers
    assert (1, kind) == (late.rank, late.cause)
    assert 12.5 * MS == pytest.approx(late.loss_s_per_step, rel=0.15)
    assert "stops all ranks" not in view.verdict.sentence


@pytest.mark.parametrize(("seed", "meets_every"), crossed(range(3), [10, 20]))
def test_ranks_alone_on_their_hosts_are_judged_by_round(seed: int, meets_every: int) -> None:
    """No clock is common to them, and each leaves its own exchange soon after it came."""
    job = replace(
        OWN_GROUPS,
        num_ranks=3,
        ranks_per_host=1,
        host_clock_s={1: 3.0},
        own_numbers=True,
        meets_every=meets_every,
        num_steps=20 * meets_every,
        noise=0.02,
        seed=seed,
    )
    assert "wait" == evidence(job.with_faults(Fault("forward", (1,), 3 * MS)))
    (late,) = final_view(job.with_faults(Fault("forward", (1,), 3 * MS))).stragglers
    assert (1, "forward") == (late.rank, late.cause)
    assert 3 * MS == pytest.approx(late.loss_s_per_step, rel=0.2)
    assert "arrival" == evidence(replace(job, meets_every=1))


@pytest.mark.parametrize(("seed", "barrier_seen"), crossed(range(4), [True, False]))
def test_pauses_in_turns_are_not_told_as_pauses_of_all_at_meetings(seed: int, barrier_seen: bool) -> None:
    """Of each rank every 28 steps, in turn, 15 ms: "a pause of 15 ms every 8 steps stops all ranks"."""
    job = Job(
        4, meets_every=8, own_exchange=0.8, num_steps=420, barrier_seen=barrier_seen, noise=0.01, seed=seed
    )
    turns = [Fault("data", (at // 7 % 4,), 15 * MS, onset=at, until=at + 1) for at in range(7, 420, 7)]
    view = final_view(job.with_faults(*turns))
    assert "every 8 steps" not in view.verdict.sentence
    assert 8.0 not in [pause.period_steps for pause in view.pauses]


@pytest.mark.parametrize(("seed", "meets_every"), crossed(range(2), [3, 8]))
def test_an_evaluation_on_one_rank_is_waited_for_at_the_next_meeting(seed: int, meets_every: int) -> None:
    """Several steps later: "a pause of 1.62 s every 100 steps stops all ranks", and nothing was worth acting on."""
    job = Job(
        num_ranks=3,
        num_steps=500,
        meets_every=meets_every,
        barrier_seen=False,
        observed=(*HOOKED, "eval"),
        noise=0.01,
        spike_chance=0.0,
        seed=seed,
    )
    view = final_view(job.with_faults(Fault("eval", (0,), 0.8, every=50)))
    (pause,) = (one for one in view.pauses if one.kind == "eval")
    assert (0,) == pause.ranks
    assert 0.8 == pytest.approx(pause.length_s, rel=0.1)
    assert "rank 0 alone" in view.verdict.sentence


def met_unseen(job: Job, every: int) -> RunView:
    """Ranks that meet in each step by means of their own, as a file, and in every so many where hooks see."""
    run = simulate(job)
    step, comm, other = (STEP_NAMES.index(name) for name in ("step", "comm_exposed_ns", "other_ns"))

    def hidden(record: tuple[int, ...]) -> tuple[int, ...]:
        row = list(record)
        if (row[step] + 1) % every:
            row[other], row[comm] = row[other] + row[comm], 0
        return tuple(row)

    rows = {rank: [hidden(record) for record in records] for rank, records in run.rows.items()}
    return folded(frames(job, simulated=replace(run, rows=rows))).view()


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_rank_that_others_wait_for_between_meetings_is_no_healthy_run(num_ranks: int) -> None:
    """WeNet's loop, which met in a barrier without a hook: it was kept beside a wait of 131 of 161 ms."""
    job = Job(num_ranks=num_ranks, num_steps=240, barrier_seen=False).with_faults(
        Fault("data", (1,), 130 * MS)
    )
    view = met_unseen(job, 30)

    assert "held_rank" == view.verdict.finding, view.verdict
    (held,) = [one for one in view.findings if one.id == "held_rank"]
    assert held.ranks == (1,)
    assert view.verdict.at_best
    assert "data_wait" != view.verdict.next_constraint


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_of_ranks_that_wait_for_nobody_between_meetings_none_is_held(num_ranks: int) -> None:
    """All of them read for as long, or one computes while the others do what no hook sees."""
    job = Job(num_ranks=num_ranks, num_steps=240, barrier_seen=False)
    assert [] == above_info(met_unseen(job, 30))
    assert "input_bound" == met_unseen(job.with_faults(Fault("data", None, 130 * MS)), 30).verdict.finding
    slow = met_unseen(job.with_faults(Fault("forward", (1,), 130 * MS)), 30)
    assert "held_rank" not in {one.id for one in slow.findings}
