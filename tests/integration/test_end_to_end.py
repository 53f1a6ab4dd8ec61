"""The product's whole path on real trainings: attach after the start, record, diagnose; right finding, rank, phase.

Each case starts torchrun on the demo script, which knows nothing of us, and runs the real commands.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from patience import PATIENCE_S, RECORD_FOR
from training import running

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A fault as the training is told, and what must be found."""

    name: str
    num_ranks: int
    arguments: list[str]
    finding: str | None
    ranks: list[int] = field(default_factory=list)
    phase: str | None = None
    steps: int = 250


STEP = ["--step-ms", "20"]
LARGE = ["--delay-ms", "200"]  # so much that no load of the machine comes near it
CASES = [
    Case("data on all", 4, [*STEP, "--fault", "slow-data"], "input_bound", [], "data_wait"),
    Case("data on one", 4, [*STEP, "--fault", "slow-data", "--fault-rank", "2"], "straggler", [2], "data_wait"),
    Case("data on one of two", 2, [*STEP, "--fault", "slow-data", "--fault-rank", "0"], "straggler", [0], "data_wait"),
    Case("forward on one", 4, [*STEP, "--fault", "slow-forward", "--fault-rank", "3"], "straggler", [3], "forward"),
    Case("backward on one", 4, [*STEP, "--fault", "slow-backward", "--fault-rank", "1"], "straggler", [1], "backward"),
    Case("backward on one of two", 2, [*STEP, *LARGE, "--fault", "slow-backward", "--fault-rank", "1"], "straggler", [1], "backward", steps=80),  # noqa: E501
    Case("host of one", 4, [*STEP, "--fault", "slow-host", "--fault-rank", "0"], "straggler", [0], "host"),
    Case("communication", 2, [*STEP, "--fault", "heavy-comm"], "communication_bound", [], "comm_exposed"),
    Case("checkpoints", 4, [*STEP, "--fault", "checkpoint"], "checkpoint_pause", [], "checkpoint", steps=450),
]  # fmt: skip


def tuiadvisor(*arguments: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def recorded(case: Case, folder: Path) -> dict[str, object]:
    """Attach to the running case, record, and give the diagnosis."""
    recording = folder / "run.tuirec"
    with running(case.num_ranks, *case.arguments, is_whole=True) as (training, _):
        length = [
            "--steps",
            str(case.steps),
            "--for",
            RECORD_FOR,
        ]  # steps: a busy machine makes fewer a second
        done = tuiadvisor("record", "--pid", str(training.pid), "-o", str(recording), *length)
        assert done.returncode == 0, done.stderr
        assert training.poll() is None, "the training must not notice"
    document = diagnosis(recording)
    verdict = document["verdict"]
    assert isinstance(verdict, dict)
    assert verdict["sentence"] in done.stdout, "the closing line says what the file says"
    return document


def diagnosis(recording: Path) -> dict[str, object]:
    """`diagnose --json` of a recording."""
    done = tuiadvisor("diagnose", str(recording), "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


EXTENDED = {
    "data on all",
    "data on one",
    "data on one of two",
    "forward on one",
    "backward on one",
    "host of one",
    "communication",
    "checkpoints",
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            one, id=one.name, marks=[pytest.mark.extended, pytest.mark.alone] * (one.name in EXTENDED)
        )
        for one in CASES
    ],
)
def test_fault_is_found_with_rank_and_phase(case: Case, tmp_path: Path) -> None:
    """The verdict's finding is the fault that was injected; the diagnosis has seen only what the probes measured."""
    document = recorded(case, tmp_path)
    serious = [finding for finding in document["findings"] if finding["severity"] != "info"]
    assert serious, document["verdict"]
    assert document["verdict"]["finding"] == case.finding, serious
    (first,) = [finding for finding in serious if finding["id"] == case.finding]
    assert first["phase"] == case.phase
    if case.ranks:
        assert first["ranks"] == case.ranks
        assert [straggler["rank"] for straggler in document["stragglers"]["ranks"]] == case.ranks


@pytest.mark.alone
@pytest.mark.extended
def test_onset_is_dated(tmp_path: Path) -> None:
    """A fault that begins while we watch is dated to the step, counted from the attach on."""
    case = Case(
        "onset", 4, [*STEP, "--fault", "slow-backward", "--fault-rank", "2", "--onset", "450"], "straggler",
        [2], "backward", steps=750,
    )  # fmt: skip
    document = recorded(case, tmp_path)
    (finding,) = [finding for finding in document["findings"] if finding["id"] == "straggler"]
    assert finding["ranks"] == [2]
    assert finding["phase"] == "backward"
    assert finding["since_step"] is not None
    assert finding["since_step"] > 20


@pytest.mark.alone
@pytest.mark.extended
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_healthy_training_has_no_finding_above_info(num_ranks: int, tmp_path: Path) -> None:
    """Nothing is wrong, so nothing is claimed, and the decision is to keep going."""
    document = recorded(Case("healthy", num_ranks, STEP, None), tmp_path)
    assert [finding for finding in document["findings"] if finding["severity"] != "info"] == []
    assert document["verdict"]["decision"] == "keep"
    assert document["stragglers"]["ranks"] == []
