"""What computes for an attach takes turns; one that hangs keeps nobody out."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import PATIENCE_S

from tuiadvisor.inject import Identity, identify, in_turn, inject, tracer_process, turns
from tuiadvisor.inject.plan import Interpreter, Plan


def test_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sixteen attaches as many make their plans at once as have a turn; while tracers are waited for, all do."""
    planning: list[int] = []
    most: list[int] = []
    plain = tracer_process.make_plan
    waiting = threading.Barrier(16)

    def counted(target: Identity, code: str, interpreter: Interpreter) -> Plan:
        planning.append(1)
        most.append(len(planning))
        time.sleep(0.01)
        made = plain(target, code, interpreter)
        planning.pop()
        return made

    def traced(*_: object) -> dict[str, object]:
        waiting.wait(PATIENCE_S)
        return {"way": "thread", "stopped_ns": 1}

    monkeypatch.setattr(turns, "WAIT_S", PATIENCE_S)
    monkeypatch.setattr(tracer_process, "make_plan", counted)
    monkeypatch.setattr(tracer_process, "_carry_out", traced)
    with ThreadPoolExecutor(16) as pool:
        done = list(pool.map(lambda _: inject(identify(os.getpid()), "pass"), range(16)))
    assert [os.getpid()] * 16 == [one.pid for one in done]
    assert max(most) <= turns.AT_ONCE


def test_who_hangs_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read below /proc may never return."""
    monkeypatch.setattr(turns, "WAIT_S", 0.01)
    hung, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        with in_turn():
            begun.release()
            hung.wait(PATIENCE_S)

    with ThreadPoolExecutor(turns.AT_ONCE) as pool:
        for _ in range(turns.AT_ONCE):
            pool.submit(hang)
        for _ in range(turns.AT_ONCE):
            begun.acquire()
        with in_turn():
            pass
        assert not hung.is_set()
        hung.set()
    for _ in range(2 * turns.AT_ONCE):  # and gave back no turn that it had not
        with in_turn():
            pass
    assert turns._turns._value == turns.AT_ONCE
