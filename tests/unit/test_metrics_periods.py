"""Pauses at a fixed distance among the long steps of a loaded machine: found, and nothing made of chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, Simulated, final_view, folded, frames, simulate
from thinned import crossed, num_examples

from tuiadvisor.metrics.pauses.periodic import MIN_PERIODS, _chained, _Events, _regular, periodic_groups
from tuiadvisor.metrics.steps.barrier import Barrier
from tuiadvisor.views.run_view import PauseView, RunView

pytestmark = pytest.mark.slow

ALONE = Fault("other", (0,), 300 * MS, every=50)  # what rank 0 does alone between steps
# Two cores with five runnable threads each: every tenth step of a rank stalls for up to some steps' length.
LOADED = {"noise": 0.3, "spike_chance": 0.1, "spike_s": 25 * MS}
# Seldom, but as long as the pauses themselves.
RARE = {"noise": 0.2, "spike_chance": 0.015, "spike_s": 90 * MS}
QUIET: dict[str, float] = {}


def periodic(view: RunView) -> list[PauseView]:
    """What is listed."""
    return [pause for pause in view.pauses if pause.kind == "periodic"]


@pytest.mark.parametrize(("num_ranks", "noise"), crossed([2, 4], [QUIET, LOADED, RARE]))
def test_a_pause_every_50_steps_is_found_under_noise(num_ranks: int, noise: dict[str, float]) -> None:
    """Long steps by chance outnumber the pauses: rank, distance, phase and length are right all the same."""
    for seed in range(3):
        view = final_view(Job(num_ranks=num_ranks, num_steps=420, seed=seed, faults=(ALONE,), **noise))
        (pause,) = periodic(view)
        assert ((0,), 50, "other") == (pause.ranks, round(pause.period_steps or 0), pause.phase), seed
        assert 300 * MS == pytest.approx(pause.length_s, rel=0.15)
        assert "periodic_pause" in {finding.id for finding in view.findings}


def test_noise_keeps_no_distance() -> None:
    """Healthy runs on loaded machines: long steps by lot are no pauses at a fixed distance."""
    for seed in range(8):
        for noise in (LOADED, RARE):
            view = final_view(Job(num_ranks=2 + 2 * (seed % 2), num_steps=400, seed=seed, **noise))
            assert [] == periodic(view), (seed, noise)


def test_four_pauses_are_enough_where_their_length_tells_them_apart() -> None:
    """A recording that begins late has seen three distances only."""
    view = final_view(Job(num_ranks=2, num_steps=205, faults=(ALONE,), **LOADED))
    (pause,) = periodic(view)
    assert ((0,), 50) == (pause.ranks, round(pause.period_steps or 0))


def test_a_tooth_that_another_pause_hides_or_moves_breaks_no_row() -> None:
    """One validation a step later than due, and one in the step in which rank 1 collects garbage for longer."""
    others = (
        Fault("gc", (1,), 500 * MS, onset=150, until=151),
        Fault("other", (0,), 300 * MS, onset=251, until=252),
    )
    at = tuple(Fault("other", (0,), 300 * MS, onset=k, until=k + 1) for k in range(50, 420, 50) if k != 250)
    for noise in (QUIET, LOADED):
        (pause,) = periodic(final_view(Job(num_ranks=4, num_steps=420, faults=(*at, *others), **noise)))
        assert 50 == pytest.approx(pause.period_steps, abs=1)
        assert (0,) == pause.ranks


def test_errands_of_another_rank_are_not_taken_for_periods() -> None:
    """Three stops of rank 1, longer than the pauses, between them: the pauses stay rank 0's, the stops are told too."""
    stops = tuple(Fault("backward", (1,), 0.9, onset=k, until=k + 1) for k in (120, 173, 287))
    view = final_view(Job(num_ranks=4, num_steps=420, faults=(ALONE, *stops)))
    (pause,) = periodic(view)
    assert ((0,), 50) == (pause.ranks, round(pause.period_steps or 0))
    assert {120, 173, 287} == {
        step for entry in view.pauses if entry.kind == "irregular" for step in entry.steps
    }


def test_lost_records_break_no_row() -> None:
    """A tenth of the records of one rank never arrived, among them those of a pause."""
    job = Job(num_ranks=2, num_steps=420, faults=(ALONE,))
    run = simulate(job)
    lost = {*range(0, 420, 37), 200, 201, *np.random.default_rng(0).choice(420, 25).tolist()}
    cut = Simulated(
        {**run.rows, 1: [row for step, row in enumerate(run.rows[1]) if step not in lost]}, run.cycle_s
    )
    (pause,) = periodic(folded(frames(replace(job), simulated=cut)).view())
    assert ((0,), 50) == (pause.ranks, round(pause.period_steps or 0))


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_pause_that_all_ranks_make_together_is_begun_by_nobody(num_ranks: int) -> None:
    """Somebody is last by a hair in each of them, often the same rank: that is no beginning."""
    for seed in range(4):
        together = tuple(
            Fault("other", (rank,), (120 + rank) * MS, every=30, onset=90) for rank in range(num_ranks)
        )
        (pause,) = periodic(final_view(Job(num_ranks=num_ranks, num_steps=330, seed=seed, faults=together)))
        assert ((), 30) == (pause.ranks, round(pause.period_steps or 0)), seed


def test_few_long_steps_by_lot_keep_no_distance() -> None:
    """One long step in twelve, by lot, looked at after 80 steps: found in fewer than one look of three hundred."""
    chance = np.random.default_rng(7)
    num_found = 0
    for _ in range(num_looks := num_examples(3000)):
        start = np.flatnonzero(chance.random(80) < 1 / 12)
        if start.size > MIN_PERIODS:
            events = _Events(start, start + 1, 0.03 * (1 + chance.exponential(1, start.size)))
            num_found += (_regular(events) or _chained(events, 80)) is not None
    assert num_found < num_looks / 300


def test_noise_that_grew_makes_no_row_of_its_long_steps() -> None:
    """They fall where it is loud: there every place of a row has one by chance. It was "a pause every 10 steps"."""
    job = Job(num_ranks=8, num_steps=600, noise=0.08, spike_chance=0.02, spike_s=4 * MS, louder=(445, 0.4))
    for seed in (877876, 1, 2, 3):
        assert [] == periodic(final_view(replace(job, seed=seed))), seed


def test_pauses_among_fewer_long_steps_are_a_row_still() -> None:
    """Their own places are no chance: only the long steps beside them are counted against them."""
    job = Job(num_ranks=4, num_steps=400, noise=0.08, louder=(250, 0.2), seed=3)
    pause = Fault("other", (0,), 25 * MS, onset=260, every=12)
    (found,) = periodic(final_view(replace(job, faults=(pause,))))
    assert (12, (0,)) == (round(found.period_steps or 0), found.ranks)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_two_ranks_with_distances_of_their_own_are_two_findings(num_ranks: int) -> None:
    """60 ms every 20 steps of rank 0 hid 50 ms every 33 of rank 1, a twentieth of the step."""
    faults = (Fault("other", (0,), 60 * MS, every=20), Fault("other", (1,), 50 * MS, every=33))
    for seed in range(2):
        view = final_view(Job(num_ranks=num_ranks, num_steps=320, seed=seed, faults=faults))
        assert {((0,), 20, "other"), ((1,), 33, "other")} == {
            (pause.ranks, round(pause.period_steps or 0), pause.phase) for pause in periodic(view)
        }
        lost_s = {pause.ranks: pause.length_s for pause in periodic(view)}
        assert (60 * MS, 50 * MS) == pytest.approx((lost_s[0,], lost_s[1,]), rel=0.1)
        found = [finding for finding in view.findings if finding.id == "periodic_pause"]
        assert {(0,), (1,)} == {finding.ranks for finding in found}
        assert "straggler" not in {finding.id for finding in view.findings}


def test_one_rank_that_logs_often_and_validates_seldom_has_two_kinds_of_pauses() -> None:
    """40 ms every 12 steps and 300 ms every 62."""
    faults = (Fault("other", (0,), 40 * MS, every=12), Fault("other", (0,), 300 * MS, every=62))
    view = final_view(Job(num_ranks=4, num_steps=420, faults=faults))
    assert {((0,), 12), ((0,), 62)} == {
        (pause.ranks, round(pause.period_steps or 0)) for pause in periodic(view)
    }


def test_a_straggler_every_few_steps_leaves_another_ranks_pauses_what_they_are() -> None:
    """Rank 1 loads late every 13th step, which is a straggler's; rank 0 validates alone."""
    view = final_view(Job(num_ranks=4, num_steps=420, faults=(Fault("data", (1,), 60 * MS, every=13), ALONE)))
    (pause,) = periodic(view)
    assert ((0,), 50) == (pause.ranks, round(pause.period_steps or 0))
    (late,) = [finding for finding in view.findings if finding.id == "straggler"]
    assert ((1,), "data_wait") == (late.ranks, late.phase)


def test_pauses_that_began_mid_run_cost_what_they_cost_since_then() -> None:
    """100 ms every 25 steps since step 200: 4 ms a step now, not 2 over all steps seen."""
    view = final_view(Job(num_steps=400, faults=(Fault("other", (0,), 100 * MS, every=25, onset=200),)))
    (finding,) = [entry for entry in view.findings if entry.id == "periodic_pause"]
    assert 4 * MS == pytest.approx(finding.loss_s_per_step, rel=0.1)
    assert 4 / 22 == pytest.approx(finding.evidence["loss_share"], rel=0.1)
    assert ((0,), 200) == (finding.ranks, finding.since_step)


def test_pauses_that_are_over_are_listed_and_no_finding() -> None:
    """None came for 200 steps: what is so now is said, and the list keeps what was."""
    view = final_view(Job(num_steps=400, faults=(Fault("other", (0,), 100 * MS, every=25, until=200),)))
    assert [((0,), 25)] == [(pause.ranks, round(pause.period_steps or 0)) for pause in periodic(view)]
    assert "periodic_pause" not in {finding.id for finding in view.findings}
    assert view.verdict.decision == "keep"


def test_an_exchange_that_is_long_in_every_third_step_is_no_row_of_pauses() -> None:
    """Every ninth of them is one of three rows, and none is a pause."""
    for seed in range(3):
        view = final_view(
            Job(num_steps=330, seed=seed, faults=(Fault("comm", None, 20 * MS, onset=150, every=3),))
        )
        assert [] == periodic(view), seed


# A step's milliseconds in one process on two cores from which on another job took half of its core (2026-11-28).
SHARED_CORE = """
17 17 19 36 20 18 19 18 36 19 25 20 19 20 18 30 27 19 19 18 19 20 19 19 20 19 19 26 20 20 19 20 22 20 20 24 19 32 25
20 20 20 22 22 22 22 19 18 20 19 39 21 18 19 19 27 22 21 46 19 20 21 19 63 21 21 21 19 19 21 18 18 32 20 21 19 21 34
27 17 19 21 18 20 19 21 17 19 21 18 18 20 18 18 24 19 28 20 19 33 43 20 22 20 32 34 20 18 21 19 19 19 17 21 19 20 20
17 18 48 20 19 20 19 18 22 20 22 17 19 26 18 20 17 17 18 17 17 19 17 18 20 18 39 20 18 19 18 25 18 18 19 17 21 19 18
23 19 19 18 18 17 19 19 22 18 19 35 28 19 17 22 18 21 18 18 18 16 18 20 17 18 22 17 19 18 18 19 18 17 18 16 17 39 35
20 18 19 17 32 17 17 18 18 20 19 17 21 17 18 18 17 17 17 17 16 23 31 18 17 27 17 17 19 17 17 18 16 16 18 18 18 16 17
16 23 17 21 17 17 19 32 15 12 12 13 16 16 20 20 17 16 25 18 22 16 16 18 17 18 17 17 16 18 20 19 16 16 22 29 19 17 18
17 17 18 25 19 19 18 18 19 17 17 17 19 18 20 18 17 19 23 21 40 18 18 20 17 20 18 19 20 32 32 57 44 29 36 32 73 32 37
38 28 32 54 36 45 45 50 43 46 55 42 38 47 44 19 18 20 48 35 59 43 34 34 33 43 46 45 41 33 48 50 50 45 63 48 51 38 41
26 20 46 54 40 40 40 49 52 41 37 19 19 18 24 47 44 60 42 42 42 47 51 41 35 34 47 37 43 44
"""


def alone(cycle_ms: list[int]) -> Barrier:
    """Of one process: nobody to be compared with."""
    cycle = np.array(cycle_ms) / 1e3
    of_ranks, of_steps = np.full((1, cycle.size), np.nan), np.full(cycle.size, np.nan)
    complete = np.ones(cycle.size, dtype=np.bool_)
    return Barrier("none", of_ranks, of_ranks, of_ranks, of_steps, cycle, complete, of_steps)


def test_a_stretch_of_long_steps_with_short_ones_between_is_no_row_of_pauses() -> None:
    """More of its steps are long than not: it was told as "a pause of 103 ms every 12 steps stops the training"."""
    shared = alone([int(word) for word in SHARED_CORE.split()])
    assert [] == periodic_groups(shared, shared.complete_K)
    chance = np.random.default_rng(5)
    for seed in range(20):
        # Runs of five to nine long steps, two or three short ones between.
        after = [
            step
            for _ in range(8)
            for step in [*[40] * int(chance.integers(5, 10)), *[18] * int(chance.integers(2, 4))]
        ]
        found = alone([*[18] * 200, *after])
        assert [] == periodic_groups(found, found.complete_K), seed


def test_pauses_of_several_steps_each_stay_pauses() -> None:
    """Three long steps every twelve are a quarter of all."""
    found = alone([18, 18, 18, 18, 18, 90, 70, 60, 18, 18, 18, 18] * 12)
    (columns,) = periodic_groups(found, found.complete_K)
    assert 36 == columns.sum()
