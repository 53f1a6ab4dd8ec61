"""A call into a held thread that takes too long: when it is abandoned, and that nothing of it is left behind."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tuiadvisor.inject import idle_thread, ptrace, remote_call

TRAP = 1 << (signal.SIGTRAP - 1)
TID = 4711


class Kernel:
    """ptrace with a script: the stops that come, and the signals that wait at each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stops: list[Any], pending: list[int]) -> None:
        self.done: list[str] = []
        self._stops, self._pending = stops, pending
        for name in (
            "interrupt",
            "resume",
            "detach",
            "set_registers",
            "set_signal_mask",
            "set_extended_state",
        ):
            monkeypatch.setattr(ptrace, name, lambda *_, name=name, **__: self.done.append(name))
        monkeypatch.setattr(ptrace, "registers", lambda _: None)
        monkeypatch.setattr(ptrace, "signal_mask", lambda _: 0)
        monkeypatch.setattr(ptrace, "extended_state", lambda _: (1, b""))
        monkeypatch.setattr(ptrace, "wait_stop", self._wait_stop)
        monkeypatch.setattr(ptrace, "pending_signals", lambda _: self._pending.pop(0))

    def _wait_stop(self, _tid: int, _deadline_s: float) -> tuple[int, bool]:
        stop = self._stops.pop(0)
        if isinstance(stop, Exception):
            raise stop
        self.done.append("stopped")
        return stop  # type: ignore[no-any-return]


def held_in_a_call() -> remote_call.HeldThread:
    thread = remote_call.HeldThread(TID, -1, 0.0)
    thread._running = True
    return thread


@pytest.mark.parametrize(
    ("stops", "pending", "resumed"),
    [
        ([(signal.SIGTRAP, True)], [0], 0),  # stopped in the middle of the call
        ([(signal.SIGTRAP, True), (signal.SIGTRAP, False)], [TRAP], 1),  # it had just reached its breakpoint
        ([(signal.SIGTRAP, True), (signal.SIGSEGV, False)], [1 << (signal.SIGSEGV - 1)], 1),
        ([(signal.SIGTRAP, False)], [], 0),  # the breakpoint's own stop came first
        (
            [(signal.SIGTRAP, True)],
            [1 << (signal.SIGUSR1 - 1)],
            0,
        ),  # the host's own, which is blocked: it stays
    ],
)
def test_no_signal_of_an_abandoned_call_is_left_behind(
    stops: list[Any], pending: list[int], resumed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited behind the stop would end the process as soon as nobody traces it: it is taken first."""
    kernel = Kernel(monkeypatch, stops, pending)
    held_in_a_call().put_back()
    taken = ["resume", "stopped"] * resumed
    put_back = ["set_extended_state", "set_registers", "set_signal_mask", "detach"]
    assert ["interrupt", "stopped", *taken, *put_back] == kernel.done


def test_call_that_only_has_no_processor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a lock for which the process would wait for ever."""
    Kernel(monkeypatch, [ptrace.LateError(), ptrace.LateError(), (signal.SIGTRAP, False)], [])
    monkeypatch.setattr(idle_thread, "waits_for_lock", lambda _: False)
    assert (signal.SIGTRAP, False) == held_in_a_call()._next_stop()


def test_call_that_sleeps_for_a_lock_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that we hold may have it itself."""
    Kernel(monkeypatch, [ptrace.LateError()], [])
    monkeypatch.setattr(idle_thread, "waits_for_lock", lambda _: True)
    with pytest.raises(ptrace.LateError):
        held_in_a_call()._next_stop()


@pytest.mark.parametrize(
    ("looks", "waits"),
    [
        (["202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd1000 0x1000"] * 2, True),
        (["running", "running"], False),
        (["35 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd1000 0x1000"] * 2, False),
    ],
)
def test_who_waits_for_a_lock_sleeps_on_a_futex_twice(
    looks: list[str], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one that runs, or that sleeps elsewhere."""
    futex = idle_thread.HERE.calls["futex"]
    told = [look.replace("202 ", f"{futex} ") for look in looks]
    monkeypatch.setattr(idle_thread, "_glance", lambda *_: (told.pop(0), "5"))
    assert waits == idle_thread.waits_for_lock(TID)
