"""Where a ring may lie, seen from a process in a mount namespace of its own that writes every page of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.agent.room import PLACES
from tuiadvisor.agent.session import RingSession, create_folder, create_session
from tuiadvisor.errors import FailureError

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY, DISK, OTHER_DISK = PLACES  # in a mount namespace of the test's own
WRITER = """
import sys
from tuiadvisor_probes import ring
print("ready", flush=True)
for line in sys.stdin:
    writer = ring.RingWriter(line.strip())
    for index in range(ring.DEFAULT_STEP_CAPACITY): writer.put_step((index,) * ring.NUM_STEP_SLOTS)
    for index in range(ring.DEFAULT_EVENT_CAPACITY): writer.put_event(1, (index,) * 7)
    print("written", flush=True)
"""


class Rank:
    """A process with its own mounts, which writes all of the ring that it is told of."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def mount(self, place: str, size: str) -> None:
        """From now on it sees an empty file system of that size there."""
        self.inside("mount", "-t", "tmpfs", "-o", f"size={size}", "tuiadvisor-test", place)

    def fill(self, place: str, leave_kib: int = 0) -> None:
        """Take all room there but so much."""
        ballast = f"{place}/ballast"
        self.inside("sh", "-c", f"dd if=/dev/zero of={ballast} bs=64k; truncate -s -{leave_kib}K {ballast}")

    def inside(self, *command: str) -> None:
        """Run a command that sees its mounts."""
        enter = [str(shutil.which("nsenter")), f"--target={self.process.pid}", "--mount", *command]
        subprocess.run(enter, capture_output=True, check=True)

    def write_all_of(self, session: RingSession) -> str:
        """What it says when it has written every page; empty if that was its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{session.inner_ring_path}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def ours(self, place: str) -> list[str]:
        """What of us lies there."""
        names = [path.name for path in Path(f"/proc/{self.process.pid}/root{place}").iterdir()]
        return [name for name in names if name.startswith("tuiadvisor-")]


@pytest.fixture
def rank() -> Iterator[Rank]:
    unshare = shutil.which("unshare")
    with_own_mounts = [str(unshare), "--mount"]
    if unshare is None or subprocess.run([*with_own_mounts, "true"], check=False).returncode:
        pytest.skip("no file system of its own (be root)")
    probes = Path(__file__).parents[2] / "probes"
    process = subprocess.Popen(
        [*with_own_mounts, sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(probes)},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield Rank(process)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def session_of(rank: Rank) -> Iterator[RingSession]:
    """A ring for it; all is gone afterwards."""
    session = create_session(rank.process.pid, os.geteuid())
    try:
        yield session
    finally:
        session.remove()
    assert [] == [name for place in PLACES for name in rank.ours(place) if session.directory.endswith(name)]


@pytest.mark.parametrize(("size", "leave_kib"), [("64k", None), ("1m", None), ("64m", 700), ("64m", 3000)])
def test_a_ring_is_not_put_where_room_is_short(rank: Rank, size: str, leave_kib: int | None) -> None:
    """Its writer would end by SIGBUS, or its loaders would find no room: the next place is taken and named."""
    rank.mount(MEMORY, size)
    rank.mount(DISK, "64m")
    if leave_kib is not None:
        rank.fill(MEMORY, leave_kib)

    with session_of(rank) as session:
        assert rank.write_all_of(session) == "written\n"
        assert DISK == str(Path(session.inner_directory).parent)
        assert f"its files lie in {DISK} ({MEMORY}: " in session.place_note
        assert " MiB needed)" in session.place_note


def test_what_fills_later_takes_nothing_from_a_ring(rank: Rank) -> None:
    """All its pages are there, though nobody gets another one."""
    rank.mount(MEMORY, "64m")

    with session_of(rank) as session:
        assert (MEMORY, "") == (str(Path(session.inner_directory).parent), session.place_note)
        rank.fill(MEMORY)
        assert rank.write_all_of(session) == "written\n"


def test_without_room_anywhere_nothing_is_made(rank: Rank) -> None:
    """Each place with its reason, and what to do; for files that are not mapped too."""
    for place in PLACES:
        rank.mount(place, "1m")

    with pytest.raises(FailureError, match=r"no room for its ring \(.*shm: .* MiB free.*tmp: .*; free space"):
        create_session(rank.process.pid, os.geteuid())
    with pytest.raises(FailureError, match=r"no room for its files \(.*tmp: .* MiB free.*; free space"):
        create_folder(rank.process.pid, os.geteuid())

    assert [[], [], []] == [rank.ours(place) for place in PLACES]
