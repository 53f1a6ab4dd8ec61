"""Whether this process may trace others of its user at all, found out before a training is touched.

In: nothing.  Out: None, or what forbids it and what to do. Yama speaks through /proc; a seccomp filter or a security
module says nothing, so a child of our own, asleep, is traced as a trial.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from tuiadvisor.inject import ptrace
from tuiadvisor.inject.refusals import REMEDIES, has_ptrace_capability, ptrace_restriction

YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
SLEEPERS: Final = ("/bin/sleep", "/usr/bin/sleep")


def tracing_forbidden() -> tuple[str, str] | None:
    """(what forbids it, what to do), None where nothing does."""
    restriction = ptrace_restriction(yama_scope(), has_capability=has_ptrace_capability())
    if restriction is not None:
        return restriction
    error = _trial()
    if error is None or error.errno not in {errno.EPERM, errno.EACCES, errno.ENOSYS}:
        return None
    what = f"ptrace is refused ({error.strerror}), by a seccomp filter of this container or a security module"
    return what, REMEDIES["ptrace_forbidden"]


def yama_scope() -> str | None:
    """Content of Yama's switch, None on a kernel without it."""
    try:
        return YAMA.read_text().strip()
    except OSError:
        return None


def _trial() -> OSError | None:
    """What tracing a sleeping child of ours fails with."""
    program = next((path for path in SLEEPERS if Path(path).exists()), None)
    if program is None:
        return None
    try:
        child = os.posix_spawn(program, ["sleep", "5"], {})
    except OSError:
        return None
    try:
        ptrace.seize(child)
    except OSError as error:
        return error
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return None
