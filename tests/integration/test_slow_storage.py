"""One rank of a real training reads through a slow path: rank, data and storage are named, and of its twins none is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from training import end, launch, wait_for_ranks

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.extended]

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "accuracy"))

from disturbances import io_group, slow_reads  # noqa: E402

RANKS = 3
RECORDED = "20s"
MIB = 1 << 20


def diagnosed(folder: Path, workers: int, bytes_s: int | None, *more: str) -> Any:
    """Three ranks that read 1 MiB a step past the page cache; None: as fast as the disk can."""
    data, recording = folder / "data", folder / "run.tuirec"
    data.mkdir()
    command = [sys.executable, "-m", "tuiadvisor"]
    arguments = [str(data), str(workers), "256", "20", *more]
    training = launch(RANKS, arguments, TESTS / "storage_training.py")

    def run(*words: str) -> str:
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        pids = {rank.rank: rank.pid for rank in wait_for_ranks(training, RANKS) if rank.rank is not None}
        target = ["--pid", str(training.pid), "-o", str(recording), "--for", RECORDED]
        if bytes_s is None:
            run("record", *target)
        else:
            with slow_reads(data, bytes_s)(pids):
                run("record", *target)
    finally:
        end(training)
    return json.loads(run("diagnose", str(recording), "--json"))


@pytest.mark.parametrize(
    ("workers", "words"), [(0, "its training thread waits"), (2, "its loader's workers wait")]
)
def test_a_rank_whose_disk_is_slow_is_told_with_its_storage(workers: int, words: str, tmp_path: Path) -> None:
    """2 and 4 MiB a second; without it each step takes a twentieth of that."""
    group = io_group(tmp_path, MIB)
    if group is None:
        pytest.skip("no limit of reads can be set here (as root, on a disk, with /sys/fs/cgroup writable)")
    group.rmdir()
    document = diagnosed(tmp_path, workers, 4 * MIB if workers else 2 * MIB)
    ((late),) = document["stragglers"]["ranks"]
    assert (1, "data_wait") == (late["rank"], late["cause"])
    assert f"waiting for its next batch: {words} for storage in " in document["verdict"]["sentence"]


@pytest.mark.parametrize("save_every", ["0", "5"])
def test_a_rank_that_reads_as_the_others_has_no_slow_storage(save_every: str, tmp_path: Path) -> None:
    """Nor one that writes a checkpoint now and then."""
    document = diagnosed(tmp_path, 2, None, save_every)
    assert "for storage" not in "".join(one["message"] for one in document["findings"])
