"""Who watches gives way to who computes; who holds a rank does not."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tuiadvisor import priority


def in_a_thread(*calls: Callable[[], None]) -> list[int]:
    """The policies of a fresh thread, before and after each call."""
    found: list[int] = []

    def run() -> None:
        found.append(os.sched_getscheduler(0))
        for call in calls:
            call()
            found.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


@pytest.fixture(autouse=True)
def as_usual() -> None:
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        pytest.skip("the suite itself was started under a policy of its own")


def test_only_the_thread_that_asks_gives_way_and_may_take_it_back() -> None:
    policies = in_a_thread(priority.give_way, priority.no_longer)
    assert [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_OTHER] == policies
    assert os.SCHED_OTHER == os.sched_getscheduler(0)


def test_what_somebody_chose_stays() -> None:
    def idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    assert [os.SCHED_OTHER, *[os.SCHED_IDLE] * 3] == in_a_thread(idle, priority.give_way, priority.no_longer)


def test_a_system_without_the_policy_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    assert [os.SCHED_OTHER] * 2 == in_a_thread(priority.give_way)
    monkeypatch.delattr(os, "SCHED_BATCH")
    priority.give_way()


def test_the_process_that_holds_a_rank_is_as_others_though_who_starts_it_gives_way() -> None:
    """Woken late it would leave that one standing."""
    code = (
        "import os; from tuiadvisor.inject import ready_tracer, tracer; "
        "tracer.run = lambda plan: {'policy': os.sched_getscheduler(0)}; ready_tracer.main()"
    )
    found: list[int] = []

    def agent() -> None:
        priority.give_way()
        (asking, asked), (ours, its) = socket.socketpair(), socket.socketpair()
        with subprocess.Popen([sys.executable, "-c", code], stdin=asked.fileno()), ours:
            with asking, asked, its:
                socket.send_fds(asking, [b"f"], [its.fileno()])
            ours.sendall(marshal.dumps({}))
            ours.shutdown(socket.SHUT_WR)
            with ours.makefile("rb") as answer:
                found.append(marshal.loads(answer.read()[1:])["policy"])  # noqa: S302 - our own

    in_a_thread(agent)
    assert [os.SCHED_OTHER] == found
