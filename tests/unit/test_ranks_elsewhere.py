"""What goes wrong on hosts that nobody watches: those who are watched wait in communication, and it says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, final_view

FOUR = Job(num_ranks=4, num_steps=600)
CHECKPOINT = Fault("forward", (1,), 800 * MS, every=50)


@pytest.mark.parametrize("missing", [(1,), (1, 2), (1, 2, 3)])
def test_a_checkpoint_of_a_rank_that_is_not_watched_is_a_wait_of_the_others(missing: tuple[int, ...]) -> None:
    """It was "a part of the loop that no hook sees", where all of it passed within hooked communication."""
    view = final_view(replace(FOUR, missing=missing).with_faults(CHECKPOINT))
    (pause,) = view.pauses
    assert ("periodic", (), "comm_exposed") == (pause.kind, pause.ranks, pause.phase)
    assert "in communication holds up" in view.verdict.sentence
    assert "for ranks that are not watched, or the network" in view.verdict.sentence
    assert f"Not watched: {len(missing)} of the job's ranks." in view.findings[0].message


def test_the_same_rank_watched_is_the_one_who_begins_them() -> None:
    """Nor is the others' wait the exchange's own time."""
    view = final_view(FOUR.with_faults(CHECKPOINT))
    assert [(1, "forward")] == [(late.rank, late.cause) for late in view.stragglers]
    assert "comm_exposed" not in {pause.phase for pause in view.pauses}


def test_an_exchange_that_is_longer_every_50_steps_is_told_as_one() -> None:
    """Averaged parameters, gathered state: on all ranks at once, whoever comes last."""
    view = final_view(FOUR.with_faults(Fault("comm", None, 300 * MS, every=50)))
    (pause,) = view.pauses
    assert ("periodic", (), "comm_exposed") == (pause.kind, pause.ranks, pause.phase)
    assert "an exchange that takes 300 ms longer every 50 steps holds up all ranks" in view.verdict.sentence


@pytest.mark.parametrize("missing", [(2, 3), (1, 2, 3)])
def test_a_rank_elsewhere_that_becomes_slower_is_a_longer_wait_since_then(missing: tuple[int, ...]) -> None:
    """Of two ranks the step at which it began was not told; one alone was "41 % longer", without where."""
    view = final_view(replace(FOUR, missing=missing).with_faults(Fault("forward", (3,), 9 * MS, onset=300)))
    assert "waits for ranks that are not watched, or for the network, make steps" in view.verdict.sentence
    (finding,) = [one for one in view.findings if one.id == "slower_since"]
    assert 300 == pytest.approx(finding.since_step, abs=10)
    grown = final_view(replace(FOUR, missing=missing).with_faults(Fault("decay", (3,), 9 * MS)))
    assert "have made steps" in grown.verdict.sentence


def test_one_rank_of_four_tells_how_long_it_waits() -> None:
    """A late rank elsewhere is 9 of its 26 ms."""
    view = final_view(replace(FOUR, missing=(1, 2, 3)).with_faults(Fault("forward", (3,), 9 * MS)))
    assert view.verdict.decision is None
    assert "of it waiting for the network or for a rank that was not seen" in view.verdict.sentence
    (finding,) = [one for one in view.findings if one.id == "unseen_rank"]
    wait_s = finding.evidence["barrier_wait_s"]
    assert isinstance(wait_s, float)
    assert 8 * MS < wait_s < 11 * MS


@pytest.mark.parametrize("missing", [(2, 3), (1, 2, 3)])
def test_three_stops_of_a_rank_elsewhere_are_waits_of_those_watched(missing: tuple[int, ...]) -> None:
    """They were "all ranks paused 3 times"."""
    stops = tuple(Fault("forward", (3,), 1.5, onset=at, until=at + 1) for at in (100, 220, 475))
    view = final_view(replace(FOUR, missing=missing).with_faults(*stops))
    assert "waited 3 times, for 1.5 s on average" in view.verdict.sentence
    assert "paused" not in view.verdict.sentence


def test_half_of_the_ranks_that_wait_for_nobody_may_be_the_slow_ones() -> None:
    """The host that is watched is slow: it was "Keep: nothing found in what was seen"."""
    quick = replace(FOUR, ranks_per_host=2, transfer_s=0.05 * MS, noise=0.002)
    slow = quick.with_faults(Fault("forward", (0, 1), 9 * MS))
    half = final_view(replace(slow, missing=(2, 3)))
    assert (None, None) == (half.verdict.decision, half.verdict.finding)
    assert "it may be them that the others wait for" in half.verdict.sentence
    most = final_view(replace(quick, missing=(3,)))
    assert "keep" == most.verdict.decision


@pytest.mark.parametrize(("missing", "told"), [((3,), 1), ((2, 3), 2)])
@pytest.mark.parametrize("kind", ["forward", "decay"])
def test_how_many_are_not_watched_is_said_of_one_too(missing: tuple[int, ...], told: int, kind: str) -> None:
    """It was "for one of the 1 ranks that are not watched"."""
    onset = 300 if kind == "forward" else 0
    view = final_view(replace(FOUR, missing=missing).with_faults(Fault(kind, (3,), 9 * MS, onset=onset)))
    (finding,) = [one for one in view.findings if one.id == "slower_since"]
    assert "for a rank that is not watched, or for the network." in finding.message
    assert f"Not watched: {told} of the job's ranks." in finding.message


def test_no_keep_rests_on_half_of_the_ranks_where_their_order_is_unknown() -> None:
    """Five of eight ranks were not watched, one of them late by half a step, and it was "Keep"."""
    unseen = tuple(name for name in FOUR.observed if name != "comm_exposed")
    job = replace(FOUR, barrier_seen=False, observed=unseen)
    half = final_view(replace(job, missing=(2, 3)).with_faults(Fault("forward", (3,), 9 * MS)))
    assert half.verdict.decision is None
    assert "could not be observed, and 2 ranks were not compared" in half.verdict.sentence
    most = final_view(replace(job, missing=(3,)))
    assert most.verdict.decision == "keep"
    assert "could not be observed, and 1 rank was not compared." in most.verdict.sentence
