"""Long steps of some ranks, where nothing tells who waits for whom: what is a pause of the job, and what is none."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, final_view


@pytest.mark.parametrize("kind", ["optimizer", "other"])
def test_the_pause_of_one_of_two_ranks_is_in_the_others_next_record(kind: str) -> None:
    """Nothing tells who waits for whom, and each of the two records was of half of the ranks: "Keep"."""
    unseen = tuple(name for name in Job().observed if name != "comm_exposed")
    job = Job(2, num_steps=240, barrier_seen=False, observed=unseen)
    view = final_view(job.with_faults(Fault(kind, (0,), 60 * MS, every=25)))
    assert [25.0] == [pause.period_steps for pause in view.pauses]
    assert 60 * MS == pytest.approx(view.pauses[0].length_s, rel=0.1)
    assert "a pause of" in view.verdict.sentence
