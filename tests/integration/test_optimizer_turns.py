"""Several optimizers that take turns: a step is an iteration of the loop, and the late rank is named with its size."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_loops import Document, diagnosis_once, is_late, training

pytest.importorskip("torch")


# Which forwards of the late module an iteration holds.
KINDS = {"loader": 1, "made": 1, "critic": 3, "delayed": 1}


EXTENDED = ("made", "delayed", "loader")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.extended if kind in EXTENDED else ()) for kind in KINDS],
)
def test_a_step_is_an_iteration_of_the_loop(kind: str, tmp_path: Path) -> None:
    """As long as the program's own log says; all updates in it."""
    late_s = 0.04 * KINDS[kind]

    def is_told(document: Document) -> bool:
        if not is_late(document, 1, "forward"):
            return False
        rates = [float(path.read_text() or "nan") for path in tmp_path.glob("rate.*")]
        # Less, if each update were a step.
        is_iteration = document["step"]["mean_s"] == pytest.approx(len(rates) / sum(rates), rel=0.3)
        return is_iteration and document["stragglers"]["ranks"][0]["loss_s_per_step"] == pytest.approx(
            late_s, rel=0.3
        )

    with training("turns_training.py", kind, tmp_path) as pids:
        document = diagnosis_once(pids, tmp_path, is_told)
    assert 0 == document["losses"]["hooks_disabled"]
