"""Ranks that average their parameters every few steps and else do not meet, under torchrun: who is late is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_loops import diagnosis_once, is_late
from training import end, launch, wait_for_ranks

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[1] / "local_sgd_training.py"


@pytest.mark.parametrize(
    ("num_ranks", "every", "how"), [(2, 8, "loop"), pytest.param(3, 4, "flat", marks=pytest.mark.extended)]
)
def test_the_late_rank_is_named_live(tmp_path: Path, num_ranks: int, every: int, how: str) -> None:
    """Its phase, too, and nobody else."""
    training = launch(num_ranks, [str(every), "1", "8", how], script=SCRIPT)
    try:
        wait_for_ranks(training, num_ranks)
        told = diagnosis_once([training.pid], tmp_path, lambda document: is_late(document, 1, "forward"))
    finally:
        end(training)
    late = [one for one in told["findings"] if one["id"] == "straggler"]
    assert [[1]] == [one["ranks"] for one in late], told["verdict"]
    assert ["forward"] == [one["phase"] for one in late]
