"""An agent's command line, for this machine or another one, and what the Python there may lack to run it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tuiadvisor.ownpython import SAFE_PATH, python_command

if TYPE_CHECKING:
    from collections.abc import Sequence

# "unknown option -P", "Unknown option: -P": of a Python before 3.11
_TOO_OLD: Final = re.compile(rf"[Uu]nknown option:? {SAFE_PATH}\b")


def agent_command(
    python: str = "", pids: Sequence[int] = (), log_options: Sequence[str] = (), *, own_job: bool = False
) -> list[str]:
    """The whole command line, ours unless another Python is named: no address and no key.

    own_job: it will be a step of a Slurm job, and watches that job alone.
    """
    given = ["--pid", *map(str, pids)] if pids else []
    given += ["--own-job"] if own_job else []
    return python_command("tuiadvisor.agent", "--from-stdin", *log_options, *given, python=python)


def what_is_missing(line: str, not_installed: re.Pattern[str]) -> str:
    """What to do about a Python that cannot run an agent; "" where its words are no complaint of that kind."""
    if _TOO_OLD.search(line):
        return (
            "the python there is older than 3.11; name a newer one that has tuiadvisor with --remote-python"
        )
    if not_installed.search(line):
        return f"{line}; install tuiadvisor there, or name its python with --remote-python"
    return ""
