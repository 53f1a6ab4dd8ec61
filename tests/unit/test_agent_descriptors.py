"""Hundreds of ranks on a node: the agent takes the descriptors it may have, and says so when they do not suffice."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tuiadvisor.agent.attach import REAL_INJECTOR, attach
from tuiadvisor.agent.descriptors import SPARE, refuse_without_room
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.errors import FailureError

AGENT = """
import resource, tuiadvisor.agent.__main__ as agent
agent.run_agent = lambda config: print(*resource.getrlimit(resource.RLIMIT_NOFILE))
agent.main(["--endpoint", "ipc:///nowhere", "--pid", "1"])
"""


@pytest.mark.slow
def test_the_agent_takes_the_descriptors_that_it_may_have() -> None:
    """From a shell's 1024 or less to the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -Sn 200; exec "$0" -c "$1"', sys.executable, AGENT],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"{hard} {hard}" == done.stdout.strip()


def test_the_last_descriptors_are_not_for_one_rank_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the ranks have that are watched already is kept; the sentence says the limit and what raises it."""
    taken = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    limits = iter([taken + SPARE + 10, taken + SPARE - 10, taken + SPARE - 10, resource.RLIM_INFINITY])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (next(limits), resource.RLIM_INFINITY))
    refuse_without_room(7)
    with pytest.raises(
        FailureError, match=rf"process 7: the agent may have {taken + SPARE - 10} open files, .*ulimit"
    ):
        refuse_without_room(7)
    with pytest.raises(FailureError, match="open files"):
        attach(this_process(), REAL_INJECTOR)
    refuse_without_room(7)


def this_process() -> RankProcess:
    """Never injected into: it is refused before."""
    return RankProcess(
        pid=os.getpid(), ppid=1, start_ticks=0, uid=os.geteuid(), rank=0, local_rank=0, world_size=1,
        local_world_size=1, command="", label="", python=None, start_wall_ns=None, master=None, run_id=None, job="",
    )  # fmt: skip
