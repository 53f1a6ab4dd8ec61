"""A thread that waits for storage without the state of one: a file system in user space, Lustre, 9p."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S, wait_until
from slow_fuse import NO_MOUNT

from tuiadvisor.agent import procfs, storage_state
from tuiadvisor.agent.looks import StateLooks
from tuiadvisor.agent.storage_state import waits_for_storage

SLOW_FUSE = Path(__file__).parents[1] / "slow_fuse.py"
READER = """
import sys
open(sys.argv[1] + "/begun", "w").close()
with open(sys.argv[2] + "/data", "rb", buffering=0) as file:
    file.read(4096)
"""


@contextmanager
def waiting(folder: Path) -> Iterator[int]:
    """A process that opens a file whose file system never answers while it is looked at."""
    (folder / "slow").mkdir()
    reader = [sys.executable, "-c", READER, str(folder), str(folder / "slow")]
    command = [sys.executable, str(SLOW_FUSE), str(folder / "slow"), str(2 * PATIENCE_S), *reader]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: (folder / "begun").exists() or server.poll() is not None, "the reader has begun")
        if server.poll() == NO_MOUNT:
            assert server.stderr is not None
            pytest.skip(server.stderr.read().strip() + " (user namespaces and /dev/fuse)")
        (child,) = psutil.Process(server.pid).children()
        yield child.pid
    finally:
        os.killpg(
            server.pid, signal.SIGKILL
        )  # its mount goes with it, and the answer that the reader waits for
        server.communicate()


def test_who_opens_a_file_of_a_slow_file_system_in_user_space_is_met(tmp_path: Path) -> None:
    """It sleeps as for a pipe."""
    with waiting(tmp_path) as pid:

        def state() -> str:
            found = procfs.stat(pid)
            return found.state if found is not None else ""

        wait_until(lambda: state() == "S" and waits_for_storage(pid, pid, "S"), "it waits", seen=state)
        looks = StateLooks()
        for _ in range(3):
            looks.look({pid: pid})
        assert 3 == looks.counts(pid)["storage_looks"]


def test_who_waits_for_something_else_is_not_met() -> None:
    """A process that sleeps, and one that has gone."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as sleeper:
        try:
            wait_until(lambda: psutil.Process(sleeper.pid).status() == "sleeping")
            assert not waits_for_storage(sleeper.pid, sleeper.pid, "S")
        finally:
            sleeper.kill()
    assert not waits_for_storage(sleeper.pid, sleeper.pid, "S")


@pytest.mark.parametrize(
    ("state", "place", "is_storage"),
    [
        ("D", b"folio_wait_bit_common", True),
        ("I", b"", True),
        ("S", b"request_wait_answer.isra.0", True),
        ("S", b"cl_sync_io_wait", True),
        ("S", b"futex_wait_queue", False),
        ("S", b"fuse_dev_do_read", False),  # who answers, and has nothing to do
        ("S", b"0", False),  # what is told to who may not know
        ("S", b"\xff", False),
        ("S", None, False),
        ("R", b"request_wait_answer", False),
        ("T", b"request_wait_answer", False),
    ],
)
def test_state_and_place_tell(
    state: str, place: bytes | None, is_storage: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is asked for of who sleeps alone."""
    monkeypatch.setattr(storage_state.procfs, "read", lambda *_: place)
    assert is_storage == waits_for_storage(1, 1, state)
