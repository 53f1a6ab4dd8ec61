"""Pauses at one distance whose length changed: what comes now is told, by its own length, and what was is over."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import HOOKED, MS, Fault, Job, Simulated, final_view, folded, frames, simulate

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.metrics.pauses.sizes import by_length
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.message import seconds

EVERY, CHANGE = 50, 300


def run(num_ranks: int, num_steps: int, before_s: float, after_s: float) -> RunView:
    """Rank 0 stops every 50 steps, from step 300 on for another time."""
    before = Fault("other", (0,), before_s, every=EVERY, until=CHANGE)
    after = Fault("other", (0,), after_s, every=EVERY, onset=CHANGE)
    return final_view(Job(num_ranks=num_ranks, num_steps=num_steps).with_faults(before, after))


def lengths(view: RunView) -> list[float]:
    """Of the periodic pauses that are told, seconds."""
    return [float(one.evidence["length_s"] or 0) for one in view.findings if one.id == "periodic_pause"]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
@pytest.mark.parametrize("num_steps", [360, 460, 610])
def test_pauses_that_grew_are_told_by_their_present_length(num_ranks: int, num_steps: int) -> None:
    """From the second long one on; the typical one of all was 40 ms until as many long ones had come."""
    assert lengths(run(num_ranks, num_steps, 0.040, 1.0)) == pytest.approx([1.0], rel=0.02)


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_the_first_long_one_is_told_by_itself(num_ranks: int) -> None:
    """Beside the short ones that came before it."""
    view = run(num_ranks, 320, 0.040, 1.0)
    assert lengths(view) == pytest.approx([0.040], rel=0.05)
    (once,) = (finding for finding in view.findings if finding.id == "irregular_pause")
    assert "step 300" in once.message


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_long_pauses_that_became_short_promise_nothing(num_ranks: int) -> None:
    """They cost what they cost now."""
    view = run(num_ranks, 610, 1.0, 0.040)
    assert view.verdict.decision == "keep"
    assert lengths(view) == pytest.approx([0.040], rel=0.05)


def test_lengths_that_come_in_turns_are_one_row() -> None:
    """A validation at every second checkpoint."""
    columns = np.arange(600) % 50 == 0
    in_turns = np.where(np.arange(600) % 100 == 0, 1.0, 0.1)
    assert 1 == len(by_length(columns, in_turns))
    grown = np.where(np.arange(600) < 400, 0.1, 1.0)
    before, after = by_length(columns, grown)
    assert [0, 350] == [int(np.flatnonzero(before)[0]), int(np.flatnonzero(before)[-1])]
    assert 4 == np.count_nonzero(after)
    assert 1 == len(by_length(columns, np.where(np.arange(600) < 550, 0.1, 1.0)))
    assert 1 == len(by_length(columns, np.where(np.arange(600) < 400, 0.1, 0.15)))
    assert 1 == len(by_length(np.zeros(600, dtype=np.bool_), grown))


@pytest.mark.parametrize(
    ("value", "words"), [(0.9996, "1 s"), (0.9994, "999 ms"), (0.0009996, "1 ms"), (99.7, "99.7 s")]
)
def test_what_rounds_to_a_thousand_has_the_next_unit(value: float, words: str) -> None:
    """It was "1e+03 ms"."""
    assert words == seconds(value)


@pytest.mark.parametrize("seed", [417023, 20795])
def test_one_that_is_far_longer_than_the_others_of_its_rank_is_told_by_itself(seed: int) -> None:
    """Nine short ones of a crowded host and a stop of 5 s were "9 times, for 617 ms on average"."""
    short = Fault("other", (1,), 0.060, chance=0.06)
    stop = Fault("other", (1,), 5.0, onset=115, until=116)
    job = Job(num_ranks=2, num_steps=230, noise=0.25, spike_chance=0.15, seed=seed)
    view = final_view(job.with_faults(short, stop))
    (pause,) = (pause for pause in view.pauses if pause.length_s > 1)
    assert ((115,), (1,)) == (pause.steps, pause.ranks)
    assert 5.0 == pytest.approx(pause.length_s, rel=0.05)
    assert all(other.length_s < 0.3 for other in view.pauses if other is not pause)


def evaluating(*besides: Fault, num_ranks: int = 2) -> RunView:
    """Rank 0 is seen to evaluate for 80 ms every 50 steps."""
    evaluates = Fault("eval", (0,), 0.080, every=EVERY)
    job = Job(num_ranks=num_ranks, num_steps=460, observed=(*HOOKED, "eval"))
    return final_view(job.with_faults(evaluates, *besides))


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_who_evaluates_alone_is_waited_for(num_ranks: int) -> None:
    """On the others it may have passed by the hook: then they do not wait, they do the same."""
    others = tuple(range(1, num_ranks))
    alone = evaluating(num_ranks=num_ranks)
    together = evaluating(Fault("other", others, 0.080, every=EVERY), num_ranks=num_ranks)
    for view, ranks in ((alone, (0,)), (together, ())):
        (found,) = (one for one in view.findings if one.evidence.get("length_s") and "forward" in one.message)
        assert ranks == found.ranks, found.message
        assert bool(ranks) == ("rank 0 alone" in found.message)


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize(("before_s", "after_s"), [(0.080, 0.600), (0.600, 0.080)])
@pytest.mark.parametrize("kind", ["eval", "checkpoint"])
def test_what_hooks_mark_is_told_by_its_present_length_too(
    num_ranks: int, before_s: float, after_s: float, kind: str
) -> None:
    """An evaluation that took 250 ms and takes 740 ms since was told as 442 ms, which none of them took."""
    everybody = tuple(range(num_ranks))
    before = Fault(kind, everybody, before_s, every=EVERY, until=CHANGE)
    after = Fault(kind, everybody, after_s, every=EVERY, onset=CHANGE)
    job = Job(num_ranks=num_ranks, num_steps=460, observed=tuple(dict.fromkeys((*HOOKED, kind))))
    view = final_view(job.with_faults(before, after))
    told = [one for one in view.findings if one.id in {"periodic_pause", "checkpoint_pause"}]
    assert [after_s] == pytest.approx([float(one.evidence["length_s"] or 0) for one in told], rel=0.05)
    assert after_s / EVERY == pytest.approx(told[0].loss_s_per_step, rel=0.15)


def test_an_evaluation_whose_step_was_not_seen_whole_has_no_length() -> None:
    """As beside the attach: the next step, which has but the end of it, was an evaluation of 17 ms among others."""
    faults = (Fault("eval", None, 0.300, every=EVERY), Fault("other", None, 15 * MS, onset=51, until=52))
    job = Job(num_ranks=2, num_steps=460, observed=(*HOOKED, "eval")).with_faults(*faults)
    run = simulate(job)
    unknown = [STEP_NAMES.index(name) for name in ("arrive_ns", "release_ns")]
    rows = {
        rank: [
            tuple(
                -1 if row[1] == EVERY - 1 and place in unknown else value for place, value in enumerate(row)
            )
            for row in records
        ]
        for rank, records in run.rows.items()
    }
    view = folded(frames(job, simulated=Simulated(rows, run.cycle_s))).view()
    (told,) = (one for one in view.pauses if one.kind == "eval")
    assert not {EVERY, EVERY + 1} & set(told.steps)
    assert 2 * EVERY in told.steps
    assert 0.300 == pytest.approx(told.length_s, rel=0.03)


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_what_is_left_of_some_evaluations_has_no_distance(num_ranks: int) -> None:
    """After 100, 20 and 140 steps: "a pause of 57.6 ms every 100 steps" was told of a full host."""
    often = Fault("eval", None, 0.080, every=20)
    others = [Fault("other", None, 0.120, onset=at, until=at + 1) for at in (100, 200, 220, 360)]
    job = Job(num_ranks=num_ranks, num_steps=460, observed=(*HOOKED, "eval")).with_faults(often, *others)
    view = final_view(job)
    (left,) = (pause for pause in view.pauses if pause.kind == "periodic")
    assert (4, None) == (len(left.steps), left.period_steps)
    (found,) = (
        one
        for one in view.findings
        if one.evidence.get("period_steps", 0) is None and one.id == "periodic_pause"
    )
    assert "4 times since step" in found.message
    assert "at no fixed distance" in found.message


def test_what_an_evaluation_leaves_is_told_by_its_present_length() -> None:
    """A save beside it that nobody marks: 40 ms, and from step 300 on a second."""
    short = Fault("other", (0,), 0.040, every=EVERY, until=CHANGE)
    long = Fault("other", (0,), 1.0, every=EVERY, onset=CHANGE)
    assert [1.0] == pytest.approx([each for each in lengths(evaluating(short, long)) if each > 0.2], rel=0.05)
