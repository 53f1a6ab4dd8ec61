"""An evaluation or a rollout that all ranks make, and one of them takes longer for: the others wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view

EVERY = 20
ROLLOUT = Fault("eval", None, 80 * MS, every=EVERY)
TWO = Job(num_ranks=2, num_steps=300, observed=(*Job().observed, "eval"))


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_who_takes_longer_is_named_with_what_it_adds(num_ranks: int) -> None:
    """Slower environments of one rank: it was "a pause of 325 ms every 20 steps holds up all ranks", of nobody."""
    view = final_view(
        replace(TWO, num_ranks=num_ranks).with_faults(ROLLOUT, Fault("eval", (1,), 240 * MS, every=EVERY))
    )
    lengths = {pause.ranks: pause.length_s for pause in view.pauses}
    assert 240 * MS == pytest.approx(lengths[(1,)], rel=0.1)
    assert 80 * MS == pytest.approx(lengths[()], rel=0.1)
    (finding,) = above_info(view)
    assert "ms longer than the others for a forward without backward every 20 steps" in view.verdict.sentence
    assert ("periodic_pause", (1,), "eval") == finding


@pytest.mark.parametrize("extra", [0.0, 15 * MS])
def test_rollouts_that_are_alike_are_everybodys(extra: float) -> None:
    """A sixth longer is the next rank's another time."""
    view = final_view(TWO.with_faults(ROLLOUT, Fault("eval", (1,), extra, every=EVERY)))
    assert {()} == {pause.ranks for pause in view.pauses}


def test_what_one_rank_does_alone_is_all_its_own() -> None:
    """Nothing of it is common."""
    view = final_view(TWO.with_faults(Fault("eval", (1,), 240 * MS, every=EVERY)))
    assert {(1,)} == {pause.ranks for pause in view.pauses}
    assert "alone does a forward without backward" in view.verdict.sentence


def test_turns_at_being_the_slowest_name_nobody() -> None:
    """Episodes of any length: the one who takes longest is another each time."""
    late = Fault("eval", (0,), 200 * MS, every=EVERY, until=150)
    other = Fault("eval", (1,), 200 * MS, every=EVERY, onset=150)
    view = final_view(TWO.with_faults(ROLLOUT, late, other))
    assert {()} == {pause.ranks for pause in view.pauses}


def test_two_long_ones_of_one_rank_may_be_chance() -> None:
    """Of two ranks one is the slower one each time: nine of nine tell, not three."""
    few = replace(TWO, num_steps=90).with_faults(ROLLOUT, Fault("eval", (1,), 240 * MS, every=EVERY))
    assert {()} == {pause.ranks for pause in final_view(few).pauses}
