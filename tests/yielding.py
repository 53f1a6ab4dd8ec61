"""Let a command give way to whatever else wants a core, from its start or from some moment on.

    python tests/yielding.py COMMAND ...          gives way at once
    python tests/yielding.py --later COMMAND ...  in a session of its own, with the usual priority
    python tests/yielding.py --now PID            who was started so gives way from now on, with all that it started

What yields takes the cores that the others leave idle: linters beside all tests, unit tests beside those that judge by
time and mostly sleep. nice alone orders the processes of one session; where the kernel shares the cores between
sessions first (autogroup), the session has to be told, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil

LEAST = 19


def give_way(pid: int) -> None:
    """The session of a process, and the process with its threads and descendants."""
    with contextlib.suppress(OSError):  # a kernel that does not group sessions
        Path(f"/proc/{pid}/autogroup").write_text(str(LEAST))
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                for thread in one.threads():
                    os.setpriority(os.PRIO_PROCESS, thread.id, LEAST)


def main(words: list[str]) -> None:
    """Does not return where a command is run."""
    if words[0] == "--now":
        give_way(int(words[1]))
        return
    with contextlib.suppress(PermissionError):  # who leads a group of processes stays in its session
        os.setsid()
    if words[0] == "--later":
        words = words[1:]
    else:
        give_way(os.getpid())
    os.execvp(words[0], words)  # noqa: S606 - no shell


if __name__ == "__main__":
    main(sys.argv[1:])
