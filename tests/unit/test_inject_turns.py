"""What computes for an attach takes turns; one that hangs keeps nobody out."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import PATIENCE_S

from tuiadvisor.inject import Identity, identify, inject, tracer_process, turns
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
    assert max(most) <= turns.COMPUTING.at_once


def test_who_hangs_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read below /proc may never return. Whoever comes first waits for it a while, and those after it no more."""
    monkeypatch.setattr(turns, "WAIT_S", 0.01)
    few = turns.Turns(2)
    hung, begun, returned = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def hang() -> None:
        with few.turn():
            begun.release()
            hung.wait(PATIENCE_S)
        returned.release()

    with ThreadPoolExecutor(few.at_once) as pool:
        for _ in range(few.at_once):
            pool.submit(hang)
        for _ in range(few.at_once):
            begun.acquire()
        with few.turn(), few.turn():
            assert not few._is_free()
        monkeypatch.setattr(turns, "WAIT_S", 2 * PATIENCE_S)
        with few.turn(), few.turn():
            assert not returned.acquire(blocking=False)
        hung.set()
    assert few._is_free()
    with few.turn(), few.turn():  # who came back gave back no turn that it had not
        assert not few._is_free()
