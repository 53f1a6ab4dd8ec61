"""The official way in, `sys.remote_exec` of Python 3.14 and later: no ptrace, nothing stands still.

The interpreter that calls it must be of the target's own minor version: ours if it is, else the target's
program, started as a helper. The main thread runs the script when it gets to it, so a rank blocked in C waits.
A process has room for one script: who calls next overwrites one that was not begun, so watchers take turns.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.inject import process
from tuiadvisor.inject.identity import confirm
from tuiadvisor.inject.insideroot import open_inside
from tuiadvisor.inject.outcome import InjectError, Injection
from tuiadvisor.inject.payload import started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.inject.identity import Identity

FIRST_VERSION = (3, 14)
# The start of another interpreter takes a while: whose id it is now is looked up right before the call.
_CALL = """\
import sys
pid, started, script = sys.argv[1:]
with open(f"/proc/{pid}/stat", "rb") as stat:
    if stat.read().rpartition(b")")[2].split()[19].decode() != started:
        sys.exit("another process has its id now")
sys.remote_exec(int(pid), script)
"""
_FOLDER = "/tmp"  # noqa: S108  as the target sees it; names in it are random
_BEGUN_S = 1.0  # a main thread at work gets to the script within milliseconds
_LOOK_S = 0.002


def caller_for(pid: int, version: tuple[int, int] | None) -> str | None:
    """The program that can call `sys.remote_exec` for this process; None where there is none."""
    if version is None or version < FIRST_VERSION:
        return None
    if version == sys.version_info[:2]:
        return sys.executable
    program = str(Path(f"/proc/{pid}/exe").readlink())
    # Never run another user's program with our rights, nor one that would load another root's libraries.
    if process.status(pid).uid != os.geteuid() or not process.same_root(pid):
        return None
    return program if Path(program).name.startswith("python") else None


def inject_remote_exec(target: Identity, code: str, caller: str, *, timeout_s: float) -> Injection:
    """Have the target's main thread run the code. Raises InjectError when it is refused."""
    started_ns = time.monotonic_ns()
    with _turn(target.pid):
        _call(target, code, caller, timeout_s)
    return Injection(
        pid=target.pid, way="remote_exec", stopped_ns=0, total_ns=time.monotonic_ns() - started_ns
    )


def _call(target: Identity, code: str, caller: str, timeout_s: float) -> None:
    pid = target.pid
    with _script_folder(pid) as folder_fd:
        confirm(target)  # who is there still was there when its folder was opened
        name = _write_script(pid, folder_fd, code)
        completed = subprocess.run(
            [caller, "-I", "-S", "-c", _CALL, str(pid), str(target.start_ticks), f"{_FOLDER}/{name}"],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if completed.returncode:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder_fd)
            raise _refused(pid, completed.stderr)
        deadline_s = time.monotonic() + _BEGUN_S
        while _exists(name, folder_fd) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)


@contextmanager
def _script_folder(pid: int) -> Iterator[int]:
    """The target's own /tmp: a link there is followed inside its root only."""
    try:
        folder_fd = open_inside(pid, _FOLDER)
    except OSError as error:
        why = f"its {_FOLDER} cannot be opened ({error.strerror})"
        raise InjectError(pid, "remote_exec", why, f"make {_FOLDER} a folder of its own") from error
    try:
        yield folder_fd
    finally:
        os.close(folder_fd)


def _exists(name: str, folder_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


@contextmanager
def _turn(pid: int) -> Iterator[None]:
    """Alone with this process among watchers; not waited for longer than a script may take to begin."""
    # The lock goes with its holder, leaves no file behind, and is the same for all users and mount namespaces.
    with Path(f"/proc/{pid}/stat").open("rb") as lock:
        deadline_s = time.monotonic() + 2 * _BEGUN_S
        while time.monotonic() < deadline_s:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_LOOK_S)
        yield


def _write_script(pid: int, folder_fd: int, code: str) -> str:
    """The name of a new script there, readable by the target's user only; it removes itself when it runs."""
    name = f"tuiadvisor-{secrets.token_hex(8)}.py"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder_fd), "w") as file:
            file.write(started(code, before=f"__import__('os').unlink({f'{_FOLDER}/{name}'!r})"))
            uid = process.status(pid).uid
            if uid != os.geteuid():
                os.fchown(file.fileno(), uid, -1)
    except OSError as error:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder_fd)
        why = f"no script could be put into its {_FOLDER} ({error.strerror})"
        raise InjectError(pid, "remote_exec", why, f"free space in {_FOLDER}") from error
    return name


def _refused(pid: int, complaint: str) -> InjectError:
    lines = complaint.strip().splitlines()
    what = lines[-1] if lines else "sys.remote_exec failed"
    reason = "remote_debug_disabled" if "not enabled" in what or "disabled" in what else "remote_exec"
    return InjectError(pid, reason, what, "start the job armed: tuiadvisor arm -- CMD")
