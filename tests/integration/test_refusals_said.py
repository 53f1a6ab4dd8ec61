"""A rank that cannot be entered: commands without screens say so and end, however long they were told to wait."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# To be taken for a rank it needs the variables and a file of that name in its memory, not torch itself.
RANK = """
import mmap, sys
with open("libtorch_python.so", "r+b") as file:
    library = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.readline()
"""
SWITCHED_OFF = "not watched: rank 0: its owner switched remote debugging off; start the job without"


@contextmanager
def _rank(folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    (folder / "libtorch_python.so").write_bytes(bytes(4096))
    with subprocess.Popen(
        [sys.executable, "-c", RANK],
        cwd=folder,
        env=os.environ | {"RANK": "0", "WORLD_SIZE": "1"} | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate("\n")
        assert process.returncode == 0


@pytest.mark.parametrize(
    "command",
    [["watch", "--once", "--for", "24h", "-o", "a.tuirec"], ["record", "-o", "a.tuirec"]],
    ids=["watch", "record"],
)
def test_a_refusal_that_does_not_pass_ends_the_command(command: list[str], tmp_path: Path) -> None:
    """Told to wait for a day, or until ^C: the reason and what to do come as soon as the rank is refused for good.

    Nothing is left of it that the next try would be refused for, or that would be shown as a run.
    """
    with _rank(tmp_path, {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}) as process:
        done = subprocess.run(
            [sys.executable, "-m", "tuiadvisor", *command, "--pid", str(process.pid)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert SWITCHED_OFF in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "a.tuirec").exists()


# A user without rights tries a process of root's, then one of his own that changed its user and is kept from him.
UNSEEN = """
import os, sys, time
from tuiadvisor.agent.attach import REAL_INJECTOR, attach
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.inject import InjectError, identify
os.setgroups([]), os.setgid(65534), os.setuid(65534)
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
for pid in (int(sys.argv[1]), child):
    found = identify(pid)
    rank = RankProcess(
        pid, 1, found.start_ticks, found.uid, 0, 0, 1, 1, "", "", None, None, None, None, "",
        namespaces=found.namespaces)
    try:
        print(attach(rank, REAL_INJECTOR))
    except InjectError as error:
        print(error.reason, str(error).replace(str(pid), "PID"))
"""


def test_what_may_not_be_looked_at_is_said_in_a_sentence() -> None:
    """Not as "Permission denied: /proc/PID/ns/mnt": whose it is and what to do, or why it is kept from its own user."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    done = subprocess.run(
        [sys.executable, "-c", UNSEEN, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    other, own = done.stdout.splitlines()
    assert other == (
        "other_user process PID: it belongs to user 0, you are 65534; run tuiadvisor as that user or as root"
    )
    assert own.startswith(
        "ptrace_forbidden process PID: the system keeps its memory from you (it changed its user"
    )
