"""Pauses begun where nobody watches: those who are watched wait in communication, and it says so."""

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
