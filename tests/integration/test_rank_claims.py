"""Who is believed to be a rank: not everybody who says so. Processes without torch, in a PID namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from patience import PATIENCE_S

# It becomes its user only once it runs: that user may not see where Python lies.
PROCESS = """
import os, sys
os.setuid(int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
"""
HARNESS = """
import os, re, subprocess, sys
from tuiadvisor.agent.discovery import RankFinder, find_ranks
from tuiadvisor.errors import TuiadvisorError
JOB = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555", "TORCHELASTIC_RUN_ID": ""}

def start(user, rank):
    started = subprocess.Popen(
        [sys.executable, "-c", sys.argv[1], str(user)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | JOB | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
    assert started.stdout.readline() == "ready\\n"
    return started.pid

def said(act):
    try:
        return act()
    except TuiadvisorError as error:
        return error
"""


def _said(script: str, folder: Path) -> list[str]:
    """What it prints as process 1 of a new PID namespace."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("processes of several users need root and unshare")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c"]
    done = subprocess.run(
        [*command, HARNESS + textwrap.dedent(script), PROCESS],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


EARLIER = """
stranger = start(12345, 1)
own = [start(65534, rank) for rank in range(3)]
# Where they started in different seconds, that tells them apart, too.
text = re.sub(" started [0-9:]+", "", str(said(find_ranks)))
print(text.replace(f"--pid {stranger}", "STRANGER").replace("--pid " + " ".join(map(str, own)), "OWN"))
print([own.index(one.pid) == one.rank for one in find_ranks(own)])
"""


def test_a_process_of_another_user_is_never_a_rank_of_the_training(tmp_path: Path) -> None:
    """Started before the ranks, with the names of their job: root has to choose, and is told whose is which."""
    listed = "python -c, 1 rank of user 12345 (STRANGER); python -c, 3 ranks of user 65534 (OWN)"
    expected = [f"2 trainings run here: {listed}; choose one with --pid", "[True, True, True]"]
    assert expected == _said(EARLIER, tmp_path)


LATER = """
own = [start(65534, rank) for rank in range(3) if rank != 1]
finder = RankFinder()
print(len(finder.first()))
start(12345, 1)
print(finder.again())
last = start(65534, 1)
print([one.pid == last for one in finder.again()])
"""


def test_a_process_of_another_user_does_not_join_later(tmp_path: Path) -> None:
    """Where the job's own rank 1 is still to come, it is waited for."""
    assert ["2", "[]", "[True]"] == _said(LATER, tmp_path)
