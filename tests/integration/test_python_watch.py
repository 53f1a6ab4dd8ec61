"""`tuiadvisor.watch()` around a real training: attached inside the block, told of the fault, gone after it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from patience import PATIENCE_S
from training import running

import tuiadvisor

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def named(told: dict[str, object]) -> tuple[str, tuple[int, ...]]:
    """Name and ranks of a finding that was told."""
    finding = told["finding"]
    assert isinstance(finding, dict)
    return finding["id"], tuple(finding["ranks"])


def test_a_late_rank_is_told_and_the_probes_leave_with_the_block(tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    fault = ("--fault", "slow-data", "--fault-rank", "1", "--delay-ms", "40")
    with running(2, "--step-ms", "20", "--seconds", "3000", *fault) as (training, _):
        with tuiadvisor.watch(training.pid, output=tmp_path / "run.tuirec", on_finding=told.append) as live:
            verdict = live.wait(PATIENCE_S)
            assert verdict is not None
            deadline_s = time.monotonic() + PATIENCE_S
            while "straggler" not in (names := [named(one)[0] for one in told]):
                assert time.monotonic() < deadline_s, (names, live.view)
                time.sleep(0.1)
        assert training.poll() is None
    # What crowds the machine is told, too, perhaps before it.
    assert [(1,)] == [ranks for name, ranks in map(named, told) if name == "straggler"]
    assert tuiadvisor.open(tmp_path / "run.tuirec").verdict.decision == "tune"
