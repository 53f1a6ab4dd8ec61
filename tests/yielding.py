"""Run a command that gives way to whatever else wants a core: `python tests/yielding.py COMMAND ...`.

Linters run so beside the tests: they take the cores that tests leave idle, most of all beside those that judge by
time. nice alone orders the processes of one session; where the kernel shares the cores between sessions first, its own
has to be told, too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

LEAST = 19


def main() -> None:
    """Does not return."""
    with contextlib.suppress(PermissionError):  # the leader of a group has a session of its own already
        os.setsid()
    with contextlib.suppress(OSError):  # a kernel without groups of sessions
        Path("/proc/self/autogroup").write_text(str(LEAST))
    os.nice(LEAST)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
