"""Which stage of its loader a real training waits for is named, whichever finding tells of the wait."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S, RECORD_FOR
from training import end, launch, wait_for_ranks

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "loader_training.py"
OURS = [sys.executable, "-m", "tuiadvisor"]
NUM_STEPS = "80"
BUDGET = "10%"  # detail often enough that some of it lies after whatever the machine did last


@pytest.mark.parametrize(
    ("arguments", "stage"),
    [
        pytest.param(("3", "1", "240", "30"), "one worker is slower than the others", id="turn"),
        pytest.param(
            ("2", "5", "0", "20", "60"),
            "before the thread that pins memory",
            id="pin",
            marks=[pytest.mark.extended, pytest.mark.alone],
        ),
        pytest.param(
            ("0", "60", "0", "20"),
            "% of it in collate",
            id="collate",
            marks=[pytest.mark.extended, pytest.mark.alone],
        ),
    ],
)
def test_the_stage_is_named(arguments: tuple[str, ...], stage: str, tmp_path: Path) -> None:
    """Three workers of which one is slow; a thread that pins and takes long; a slow collate without workers."""
    recording = str(tmp_path / "run.tuirec")
    training = launch(2, list(arguments), SCRIPT)
    try:
        wait_for_ranks(training, 2)
        done = subprocess.run(
            [
                *OURS, "record", "--pid", str(training.pid), "-o", recording,
                "--steps", NUM_STEPS, "--for", RECORD_FOR, "--budget", BUDGET,
            ],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
    finally:
        end(training)
    told = subprocess.run(
        [*OURS, "diagnose", recording, "--json"], capture_output=True, timeout=PATIENCE_S, check=True
    )
    messages = [finding["message"] for finding in json.loads(told.stdout)["findings"]]
    assert any(stage in message for message in messages), messages
