"""Ranks that average their parameters every few steps and else do not meet, under torchrun: who is late is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from patience import RECORD_FOR
from rank_loops import tuiadvisor
from training import end, launch, wait_for_ranks

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[1] / "local_sgd_training.py"


@pytest.mark.parametrize(("num_ranks", "every", "how"), [(2, 8, "loop"), (3, 4, "flat")])
def test_the_late_rank_is_named_live(tmp_path: Path, num_ranks: int, every: int, how: str) -> None:
    """Its phase, too, and nobody else."""
    target = tmp_path / "run.tuirec"
    training = launch(num_ranks, [str(every), "1", "8", how], script=SCRIPT)
    try:
        wait_for_ranks(training, num_ranks)
        done = tuiadvisor(
            "record", "--pid", str(training.pid), "-o", str(target), "--steps", "900", "--for", RECORD_FOR
        )
        assert 0 == done.returncode, done.stderr
    finally:
        end(training)
    told = json.loads(tuiadvisor("diagnose", str(target), "--json").stdout)
    late = [one for one in told["findings"] if one["id"] == "straggler"]
    assert [[1]] == [one["ranks"] for one in late], told["verdict"]
    assert ["forward"] == [one["phase"] for one in late]
