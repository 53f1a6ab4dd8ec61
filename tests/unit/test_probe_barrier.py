"""Arrival at a step's last barrier, corrected by what was waited before it; and the page a child finds empty."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuiadvisor_probes import forks, phases, ring, step_clock


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def time_ns(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Injected time."""
    clock = Clock()
    monkeypatch.setattr(step_clock, "monotonic_ns", clock)
    return clock


@pytest.fixture
def clock(tmp_path: Path, time_ns: Clock) -> Iterator[step_clock.StepClock]:
    """A step clock on a ring."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, 16, 16)
    writer = ring.RingWriter(path)
    yield step_clock.StepClock(writer, 1, lambda: None)
    writer.close()


def wait(clock: step_clock.StepClock, time_ns: Clock, duration: int) -> None:
    """Exposed communication."""
    clock.enter(phases.COMM_EXPOSED)
    time_ns.now += duration
    clock.leave()


def end_step(clock: step_clock.StepClock) -> None:
    """The optimizer has stepped and the next iteration begins."""
    clock.stepped = True
    clock.flush()


def test_one_barrier_a_step_is_the_moment_of_arrival(clock: step_clock.StepClock, time_ns: Clock) -> None:
    """Work 50, wait 7: arrived 7 before the release, in the first step and in the next."""
    for _ in range(2):
        time_ns.now += 50
        wait(clock, time_ns, 7)
        clock.synchronized(time_ns.now - 7, time_ns.now)
        assert (time_ns.now - 7, time_ns.now) == (clock.arrive_ns, clock.release_ns)
        end_step(clock)


def test_earlier_waits_are_taken_off(clock: step_clock.StepClock, time_ns: Clock) -> None:
    """A rank that waited 20 at a broadcast and 3 at the gradients arrived 23 before the release."""
    wait(clock, time_ns, 5)
    clock.synchronized(time_ns.now - 5, time_ns.now)
    end_step(clock)
    wait(clock, time_ns, 20)
    time_ns.now += 50
    wait(clock, time_ns, 3)
    clock.synchronized(time_ns.now - 3, time_ns.now)
    assert 23 == clock.release_ns - clock.arrive_ns


def test_waits_after_a_release_belong_to_the_next_step(clock: step_clock.StepClock, time_ns: Clock) -> None:
    """A loss averaged after the optimizer synchronizes too: its wait counts towards the next arrival."""
    wait(clock, time_ns, 5)
    clock.synchronized(time_ns.now - 5, time_ns.now)
    wait(clock, time_ns, 11)
    end_step(clock)
    wait(clock, time_ns, 2)
    clock.synchronized(time_ns.now - 2, time_ns.now)
    assert 13 == clock.release_ns - clock.arrive_ns


def test_last_of_several_barriers_counts_them_all(clock: step_clock.StepClock, time_ns: Clock) -> None:
    """Three synchronizing micro-batches: the step's arrival carries the waits of all three."""
    end_step(clock)
    wait(clock, time_ns, 1)
    clock.synchronized(time_ns.now - 1, time_ns.now)
    end_step(clock)
    for duration in (4, 5, 6):
        time_ns.now += 30
        wait(clock, time_ns, duration)
        clock.synchronized(time_ns.now - duration, time_ns.now)
    assert 15 == clock.release_ns - clock.arrive_ns


def test_a_forked_child_reads_zero() -> None:
    """The ident stays in the parent and is gone in the child."""
    page = forks.page_with(4711)
    child = os.fork()
    if child == 0:
        os._exit(0 if page[0] == 0 else 1)
    _, status = os.waitpid(child, 0)
    assert 0 == os.waitstatus_to_exitcode(status)
    assert 4711 == page[0]
