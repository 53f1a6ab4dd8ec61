"""Armed mode, the watcher's side: give code to a process that was started to wait for us.

A job started with `arm_environment` carries a dormant listener in each of its Python processes
(`tuiadvisor_probes.armed`), for systems that forbid ptrace. Protocol: connect to
`/tmp/tuiadvisor-arm-<uid>[-<random>]/<pid>.sock` as the process sees these numbers and its /tmp; send 8 bytes
big-endian length and that many bytes of UTF-8 source; the listener closes the connection when it has them all.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.inject import process
from tuiadvisor.inject.identity import OtherProcessError, the_same
from tuiadvisor.inject.insideroot import folder_inside
from tuiadvisor.inject.outcome import InjectError, Injection
from tuiadvisor.inject.payload import wrapped

if TYPE_CHECKING:
    from tuiadvisor.inject.identity import Identity

_SITE = Path(__file__).resolve().parent / "arm_site"
TEMPORARY = "/tmp"  # noqa: S108  the listener's own place, which it checks as we do
_FOLDER_PREFIX = "tuiadvisor-arm-"
_HELD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def arm_environment(env: dict[str, str]) -> dict[str, str]:
    """The environment in which every Python process starts a dormant listener.

    The listener comes in by a `sitecustomize` in front of PYTHONPATH, which leaves sys.path again and runs
    the user's own sitecustomize, if there is one.
    """
    listener = importlib.util.find_spec("tuiadvisor_probes.armed")
    if listener is None or listener.origin is None:
        raise ModuleNotFoundError("tuiadvisor_probes.armed")
    paths = [str(_SITE), *filter(None, [env.get("PYTHONPATH")])]
    return env | {
        "TUIADVISOR_ARM": "1",
        "TUIADVISOR_ARM_LISTENER": listener.origin,
        "PYTHONPATH": os.pathsep.join(paths),
    }


def taken_folder() -> str:
    """Whose the folder is in which this user's listeners would wait together; empty where it is as it should be.

    They then wait in folders of their own, under names that nobody knows before.
    """
    folder = Path(TEMPORARY, f"{_FOLDER_PREFIX}{os.getuid()}")
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return ""
    if _is_private(found, os.getuid()):
        return ""
    whose = f"of uid {found.st_uid}" if found.st_uid != os.getuid() else "open to others or no folder"
    return f"{folder} is {whose}"


def waiting_processes(*, remove_dead: bool = False) -> list[int]:
    """Processes of this user and this PID namespace with a socket of theirs; of ended ones it can be deleted."""
    alive: list[int] = []
    for folder in Path(TEMPORARY).glob(f"{_FOLDER_PREFIX}{os.getuid()}*"):
        if not _is_private(folder.lstat(), os.getuid()):
            continue
        for path in folder.glob("*.sock"):
            if path.stem.isdigit() and Path(f"/proc/{path.stem}").exists():
                alive.append(int(path.stem))
            elif path.stem.isdigit() and remove_dead:
                path.unlink(missing_ok=True)
        if remove_dead and folder.name.count("-") > 2:  # one process's own; it stays while it is not empty
            with suppress(OSError):
                folder.rmdir()
    return sorted(alive)


def _is_private(found: os.stat_result, uid: int) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def is_armed(pid: int) -> bool:
    """Whether the process waits for a watcher's code."""
    socket_fd = _open_socket(pid)
    if socket_fd is not None:
        os.close(socket_fd)
    return socket_fd is not None


def _open_socket(pid: int) -> int | None:
    """The process's waiting socket, None where it isn't armed.

    Looked for below the process's own root, so that containers work, and held, so that no link takes its place.
    """
    status = process.status(pid)
    with suppress(OSError), folder_inside(pid, TEMPORARY) as temporary_fd:
        for name in os.listdir(temporary_fd):  # noqa: PTH208  of a descriptor
            if name.startswith(_FOLDER_PREFIX):
                with suppress(OSError):
                    return _open_in_private(temporary_fd, name, f"{status.inner_pid}.sock", status.uid)
    return None


def _open_in_private(temporary_fd: int, folder: str, name: str, uid: int) -> int:
    """A socket in a folder that belongs to its user alone; OSError where it is another thing."""
    folder_fd = os.open(folder, _HELD | os.O_DIRECTORY, dir_fd=temporary_fd)
    try:
        socket_fd = os.open(name, _HELD, dir_fd=folder_fd)
        found = os.fstat(folder_fd)
    finally:
        os.close(folder_fd)
    if not _is_private(found, uid) or not stat.S_ISSOCK(os.fstat(socket_fd).st_mode):
        os.close(socket_fd)
        raise FileNotFoundError(name)
    return socket_fd


def inject_armed(target: Identity, code: str, *, timeout_s: float) -> Injection:
    """Give the code to the listener. Raises InjectError when it does not take it."""
    started_ns, pid = time.monotonic_ns(), target.pid
    socket_fd = _open_socket(pid)
    if socket_fd is None:
        raise InjectError(pid, "not_armed", "it has no listener", "start the job with tuiadvisor arm -- CMD")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            with the_same(target):
                connection.connect(f"/proc/self/fd/{socket_fd}")
                _check_peer(pid, connection)
            content = wrapped(code).encode()
            connection.sendall(struct.pack(">Q", len(content)) + content)
            connection.recv(1)  # the end of the connection is the receipt
    except OtherProcessError:
        raise
    except OSError as error:
        raise InjectError(
            pid, "timeout", f"its listener did not take the code ({error})", "try again"
        ) from error
    finally:
        os.close(socket_fd)
    return Injection(pid=pid, way="armed", stopped_ns=0, total_ns=time.monotonic_ns() - started_ns)


def _check_peer(pid: int, connection: socket.socket) -> None:
    """Whoever listens must be the process itself: code given to another could read what is in it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    listener_pid, _uid, _gid = _PEER_CREDENTIALS.unpack(raw)
    if listener_pid != pid:
        raise InjectError(
            pid, "not_armed", f"process {listener_pid} holds its socket", "restart the job armed"
        )
