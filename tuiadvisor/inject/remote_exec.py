"""The official way in, `sys.remote_exec` of Python 3.14 and later: no ptrace, nothing stands still.

The interpreter that calls it must be of the target's own minor version: ours if it is, else the target's
program, started as a helper. The main thread runs the script when it gets to it, so a rank blocked in C waits.
A process has room for one script: who calls next overwrites one that was not begun, so watchers take turns.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.inject import process
from tuiadvisor.inject.outcome import InjectError, Injection
from tuiadvisor.inject.payload import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_VERSION = (3, 14)
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
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


def inject_remote_exec(pid: int, code: str, caller: str, *, timeout_s: float) -> Injection:
    """Have the target's main thread run the code. Raises InjectError when it is refused."""
    started_ns = time.monotonic_ns()
    with _turn(pid):
        _call(pid, code, caller, timeout_s)
    return Injection(pid=pid, way="remote_exec", stopped_ns=0, total_ns=time.monotonic_ns() - started_ns)


def _call(pid: int, code: str, caller: str, timeout_s: float) -> None:
    script = _write_script(pid, code)
    inside = "/" + str(script.relative_to(f"/proc/{pid}/root"))
    completed = subprocess.run(
        [caller, "-I", "-S", "-c", _CALL, str(pid), inside],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if completed.returncode:
        script.unlink(missing_ok=True)
        raise _refused(pid, completed.stderr)
    deadline_s = time.monotonic() + _BEGUN_S
    while script.exists() and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)


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


def _write_script(pid: int, code: str) -> Path:
    """A script in the target's own /tmp, readable by its user only; it removes itself when it runs."""
    descriptor, name = tempfile.mkstemp(".py", "tuiadvisor-", f"/proc/{pid}/root/tmp")
    script = Path(name)
    inside = "/" + str(script.relative_to(f"/proc/{pid}/root"))
    with os.fdopen(descriptor, "w") as file:
        file.write(wrapped(code, before=f"__import__('os').unlink({inside!r})"))
    uid = process.status(pid).uid
    if uid != os.geteuid():
        os.chown(script, uid, -1)
    return script


def _refused(pid: int, complaint: str) -> InjectError:
    lines = complaint.strip().splitlines()
    what = lines[-1] if lines else "sys.remote_exec failed"
    reason = "remote_debug_disabled" if "not enabled" in what or "disabled" in what else "remote_exec"
    return InjectError(pid, reason, what, "start the job armed: tuiadvisor arm -- CMD")
