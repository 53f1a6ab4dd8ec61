"""A barrier behind the optimizer's step, as after a checkpoint: what was waited there belongs to the next arrival."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from barrier_training import SAVE_S
from rank_loops import Document, diagnosis, diagnosis_once, is_late, training

import tuiadvisor

pytest.importorskip("torch")
NUM_STEPS = 150


def share_without_arrivals(recording: Path) -> float:
    """Of the steps of which both ranks have a whole record.

    Attached and left one after the other, the ranks have unequal steps at both ends: how many depends on the machine.
    """
    rows = pa.table(tuiadvisor.open(recording).steps()).to_pylist()
    arrive_ns = {
        rank: {row["step"]: row["arrive_ns"] for row in rows if row["rank"] == rank and not row["is_first"]}
        for rank in (0, 1)
    }
    # A wait that began before the attach is in nobody's record.
    common = sorted(arrive_ns[0].keys() & arrive_ns[1].keys())[1:]
    assert len(common) > 20  # a diagnosis needs as many
    return sum(None in (arrive_ns[0][step], arrive_ns[1][step]) for step in common) / len(common)


def is_late_by_its_save(document: Document) -> bool:
    """Rank 0, for as long as it writes; `diagnosis_once` fails where that is not told in time."""
    return is_late(document, 0, "checkpoint") and (
        document["stragglers"]["ranks"][0]["loss_s_per_step"] == pytest.approx(SAVE_S, rel=0.3)
    )


def test_the_rank_that_writes_is_late_by_its_checkpoint(tmp_path: Path) -> None:
    """Though the other one waits in the barrier and both come to the gradients together."""
    with training("barrier_training.py", "checkpoint", tmp_path) as pids:
        diagnosis_once(pids, tmp_path, is_late_by_its_save)
    assert share_without_arrivals(tmp_path / "run") < 1 / 10


def test_the_rank_that_others_wait_for_in_a_monitored_barrier_is_late(tmp_path: Path) -> None:
    """It returns no Work to wait for, and was code that no hook sees: who meets nowhere else was kept."""
    with training("barrier_training.py", "monitored", tmp_path) as pids:
        diagnosis_once(pids, tmp_path, is_late_by_its_save)


@pytest.mark.extended
def test_a_barrier_alone_makes_no_step_partial_and_nobody_late(tmp_path: Path) -> None:
    """Both ranks arrive before their records begin, now and then."""
    with training("barrier_training.py", "healthy", tmp_path) as pids:
        document = diagnosis(pids, tmp_path, NUM_STEPS)
    assert share_without_arrivals(tmp_path / "run") < 1 / 10
    assert {"host"} >= {
        late["cause"] for late in document["stragglers"]["ranks"]
    }  # beside others a core may lack
