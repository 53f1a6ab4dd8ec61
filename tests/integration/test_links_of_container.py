"""A process whose /dev/shm and /tmp are absolute links, as an image of a container may have them.

Below /proc/PID/root such a link leads into the watcher's root, and the watcher may be root: nothing may appear there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.agent.session import adopt_session, create_folder, create_session
from tuiadvisor.errors import FailureError
from tuiadvisor.inject import armed, identify, insideroot, remote_exec
from tuiadvisor.inject.outcome import InjectError
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from collections.abc import Iterator

# A root of its own from the host's folders, but for /dev/shm and /tmp, which are links.
CONTAINER = """
set -e
mount -t tmpfs tuiadvisor-test "$1" && cd "$1"
for entry in /*; do
    name=${entry#/}
    case $name in tmp|dev|var) continue;; esac
    if [ -L "$entry" ]; then cp -P "$entry" .
    elif [ -d "$entry" ]; then mkdir "$name"; mount --rbind "$entry" "$name"; fi
done
mkdir -p dev var/tmp
if [ "$4" = readonly ]; then mount -t tmpfs -o ro tuiadvisor-test var/tmp; fi
ln -s "$3" dev/shm
if [ "$2" = inside ]; then mkdir tmp; mkdir -p "./$3"; else ln -s "$3" tmp; fi
mkdir -p ring/tuiadvisor_probes && cp "$7"/__init__.py "$7"/phases.py "$7"/ring.py ring/tuiadvisor_probes
exec chroot . "$5" -I -S -c "$6"
"""
WRITER = """
import sys
sys.path.insert(0, "/ring")
from tuiadvisor_probes import ring
print("ready", flush=True)
for line in sys.stdin:
    writer = ring.RingWriter(line.strip())
    writer.put_u64(ring.OFFSET_STATE, ring.STATE_LIVE)
    print("written", flush=True)
"""


@contextlib.contextmanager
def container(
    folder: Path, way: str = "outside", others: str = "writable"
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process in such a root, and the folder of the host its links name."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("no root directory of its own (be root)")
    root, private = folder / "root", folder / "private"
    for made in (root, private):
        made.mkdir(mode=0o700)
    probes = str(Path(ring_file.__file__).parent)
    # Not the environment's own link to it: the checkout may lie in a folder that this root has not.
    python = os.path.realpath(sys.executable)
    command = [str(shutil.which("unshare")), "--mount", "sh", "-c", CONTAINER, "sh", str(root), way]
    process = subprocess.Popen(
        [*command, str(private), others, python, WRITER, probes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process, private
    finally:
        process.kill()
        process.communicate()


def write(process: subprocess.Popen[str], path: str) -> str:
    """Have it open a ring."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{path}\n")
    process.stdin.flush()
    return process.stdout.readline()


@pytest.fixture(params=["openat2", "walk"])
def call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the kernel's call, and as on a kernel without it."""

    def missing(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    if request.param == "walk":
        monkeypatch.setattr(insideroot, "_openat2", missing)
    return str(request.param)


@pytest.mark.usefixtures("call")
def test_a_ring_lies_where_no_link_leads_out(tmp_path: Path) -> None:
    """Links to a folder of the host are passed over: the next place inside is taken, and the rank can open it."""
    with container(tmp_path) as (process, private):
        session = create_session(process.pid, os.geteuid())
        try:
            assert "/var/tmp" == str(Path(session.inner_directory).parent)  # noqa: S108  in a root of the test's own
            assert "written\n" == write(process, session.inner_ring_path)
            reader = ring_file.RingReader(session.ring_path)
            assert ring_file.STATE_LIVE == reader.get_u64(ring_file.OFFSET_STATE)
            reader.close()
            adopted = adopt_session(process.pid)
            assert adopted is not None
            adopted.close()
        finally:
            session.remove()
        create_folder(process.pid, os.geteuid()).remove()
        assert [] == list(private.iterdir())
        assert [] == list(Path(f"/proc/{process.pid}/root/var/tmp").iterdir())


def test_a_link_to_a_place_inside_is_used(tmp_path: Path) -> None:
    """The path of the link exists in both roots: the process's own is meant."""
    with container(tmp_path, "inside") as (process, private):
        session = create_session(process.pid, os.geteuid())
        try:
            assert "/dev/shm" == str(Path(session.inner_directory).parent)  # noqa: S108  in a root of the test's own
            assert [] == list(private.iterdir())
            assert 1 == len(list(Path(f"/proc/{process.pid}/root{private}").iterdir()))
            assert "written\n" == write(process, session.inner_ring_path)
        finally:
            session.remove()
        assert [] == list(Path(f"/proc/{process.pid}/root{private}").iterdir())


@pytest.mark.usefixtures("call")
def test_without_a_place_inside_the_rank_is_refused(tmp_path: Path) -> None:
    """In one line with each place and its reason."""
    with container(tmp_path, "outside", "readonly") as (process, private):
        with pytest.raises(FailureError, match=r"no room for its ring \(.*shm: .*tmp: .*; free space in one"):
            create_session(process.pid, os.geteuid())
        assert [] == list(private.iterdir())


@pytest.mark.usefixtures("call")
def test_no_script_is_put_where_a_link_leads_out(tmp_path: Path) -> None:
    """What `sys.remote_exec` runs lies in the process's own /tmp or nowhere."""
    with container(tmp_path) as (process, private):
        with pytest.raises(InjectError) as caught:
            remote_exec.inject_remote_exec(identify(process.pid), "pass", sys.executable, timeout_s=10)
        assert "its /tmp cannot be opened" in caught.value.what
        assert [] == list(private.iterdir())


@pytest.mark.usefixtures("call")
def test_a_listener_of_the_host_is_not_the_container_s(tmp_path: Path) -> None:
    """A socket behind a link out of the root is nobody's that we look for."""
    with container(tmp_path) as (process, private):
        folder = private / f"tuiadvisor-arm-{os.geteuid()}"
        folder.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            with contextlib.chdir(folder):  # the whole path may be longer than a socket's
                listener.bind(f"{process.pid}.sock")
            listener.listen()
            assert (folder / f"{process.pid}.sock").is_socket()
            assert not armed.is_armed(process.pid)


def test_a_link_in_the_place_of_a_socket_is_not_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could lead to a socket of root's that takes what is sent to it."""
    monkeypatch.setattr(armed, "TEMPORARY", str(tmp_path))
    folder = tmp_path / f"tuiadvisor-arm-{os.geteuid()}"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(tmp_path):
            listener.bind("other.sock")
        listener.listen()
        (folder / f"{os.getpid()}.sock").symlink_to(tmp_path / "other.sock")
        assert not armed.is_armed(os.getpid())
        (folder / f"{os.getpid()}.sock").unlink()
        (tmp_path / "other.sock").rename(folder / f"{os.getpid()}.sock")
        assert armed.is_armed(os.getpid())
