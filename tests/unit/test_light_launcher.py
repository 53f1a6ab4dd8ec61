"""The launcher of tests' trainings that does not import torch: what its ranks are told, and how it ends with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
from patience import PATIENCE_S, wait_until

LAUNCHER = [sys.executable, str(Path(__file__).parents[1] / "light" / "torchrun"), "--standalone"]
RANK = """
import os, sys, time
from pathlib import Path
folder, rank = Path(sys.argv[1]), os.environ["RANK"]
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
(folder / rank).write_text(" ".join([str(os.getpid()), *(os.environ[name] for name in names)]))
if sys.argv[2] == "fail" and rank == "1":
    while not (folder / "0").exists():
        time.sleep(0.01)
    sys.exit(7)
time.sleep(0 if sys.argv[2] == "end" else 600)
"""


def launched(folder: Path, how: str) -> subprocess.Popen[bytes]:
    """Two ranks below the launcher without torch."""
    (folder / "rank.py").write_text(RANK)
    return subprocess.Popen([*LAUNCHER, "--nproc-per-node=2", str(folder / "rank.py"), str(folder), how])


def pids(folder: Path) -> list[int]:
    """Of the ranks that have begun."""
    return [int(text.split()[0]) for rank in "01" if (text := (folder / rank).read_text())]


def test_ranks_of_the_light_launcher_have_torchruns_variables(tmp_path: Path) -> None:
    """And the launcher ends well with them."""
    assert 0 == launched(tmp_path, "end").wait(PATIENCE_S)
    told = [(tmp_path / rank).read_text().split()[1:] for rank in "01"]
    assert [[rank, rank, "2", "2", "127.0.0.1"] for rank in "01"] == told


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    """As torchrun's: exit code 1, and nobody is left."""
    assert 1 == launched(tmp_path, "fail").wait(PATIENCE_S)
    assert [] == [pid for pid in pids(tmp_path) if psutil.pid_exists(pid)]


def test_a_launcher_that_is_told_to_end_ends_its_ranks(tmp_path: Path) -> None:
    """By SIGTERM."""
    launcher = launched(tmp_path, "stay")
    try:
        begun = [tmp_path / rank for rank in "01"]
        wait_until(lambda: all(path.exists() and path.read_text() for path in begun), "both ranks have begun")
        launcher.terminate()
        assert 143 == launcher.wait(PATIENCE_S)
        assert [] == [pid for pid in pids(tmp_path) if psutil.pid_exists(pid)]
    finally:
        launcher.kill()


def test_a_launcher_that_is_told_to_end_while_it_starts_a_rank_leaves_none(tmp_path: Path) -> None:
    """A rank that is not in its list yet when the signal comes ran on for ten minutes."""
    launcher = launched(tmp_path, "stay")
    try:
        first = tmp_path / "0"
        wait_until(lambda: first.exists() and first.read_text(), "the first rank has begun", every_s=0.0)
        group = [child.pid for child in psutil.Process(launcher.pid).children()]
        launcher.terminate()
        assert 143 == launcher.wait(PATIENCE_S)
        assert [] == [pid for pid in group if psutil.pid_exists(pid)]
    finally:
        launcher.kill()
