"""Steps beside a checkpoint that is written in the background: the save explains them, not a device or host."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view

EVERY, BESIDE = 50, 12
# Rank 1 computes at half its pace while its other thread writes: in all phases alike, as a slow device or host would.
SLOW = tuple(
    Fault("spread", (1,), 2.0, onset=begin, until=begin + BESIDE) for begin in range(EVERY, 400, EVERY)
)


@pytest.mark.parametrize("seed", range(4))
def test_slow_steps_beside_a_save_are_the_save_s(seed: int) -> None:
    """Neither a straggler nor irregular pauses nor slower since, and the writer is said."""
    view = final_view(Job(num_steps=400, seed=seed, saving=(1, EVERY, BESIDE), faults=SLOW))
    assert [("background_save", (1,), None)] == [(i, r, None) for i, r, _ in above_info(view)], above_info(
        view
    )
    (finding,) = (one for one in view.findings if one.id == "background_save")
    assert "rank 1" in finding.message
    # 16 ms of a step of 17 come in twelve of fifty steps.
    assert BESIDE / EVERY * 16 * MS == pytest.approx(finding.loss_s_per_step, rel=0.3)


@pytest.mark.parametrize("seed", range(4))
def test_a_save_that_slows_nothing_is_no_finding(seed: int) -> None:
    """And its steps stay among those that count."""
    view = final_view(Job(num_steps=400, seed=seed, saving=(1, EVERY, BESIDE)))
    assert [] == [one.id for one in view.findings if one.id == "background_save"]
    assert "saving" not in view.window.excluded


def test_a_rank_that_is_late_in_all_steps_is_named_while_another_saves() -> None:
    """What goes on beside the steps is nobody's alibi."""
    late = Fault("forward", (2,), 8 * MS)
    view = final_view(Job(num_steps=400, saving=(1, EVERY, BESIDE), faults=(late,)))
    assert [("straggler", (2,), "forward")] == above_info(view)


def test_a_straggler_that_always_saves_is_told_so() -> None:
    """No step is without a save, so nothing shows what it costs: the rank is named, and the save beside it."""
    late = Fault("spread", (1,), 1.6)
    view = final_view(Job(num_steps=400, saving=(1, EVERY, EVERY), faults=(late,)))
    (finding,) = (one for one in view.findings if one.id == "straggler")
    assert (1,) == finding.ranks
    assert "checkpoint is written in its background in 100 %" in finding.message
