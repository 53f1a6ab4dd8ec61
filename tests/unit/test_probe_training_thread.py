"""Which thread of a process is listened to: the one that runs a backward and then an optimizer step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from test_probe_clock import Clock

from tuiadvisor_probes import phases, ring, step_clock, training_thread
from tuiadvisor_probes.guard import Hook
from tuiadvisor_probes.training_thread import (
    ALONE_AGAIN_NS,
    MAX_THREADS,
    NOBODY,
    STEPS_WITHOUT_BACKWARD,
    TrainingThread,
)


class Process:
    """What the threads ask of the probe, which listens to the thread that made it."""

    def __init__(self, path: str) -> None:
        ring.create_ring_file(path, 16, 16)
        self.ring = ring.RingWriter(path)
        self.clock = step_clock.StepClock(self.ring, threading.get_ident(), lambda: None)
        self.unstepped = self.unmeasured = ""
        self.num_told = 0
        self.thread = TrainingThread(self)  # type: ignore[arg-type]  # the part of a Host that it asks

    def hook(self, name: str) -> Hook:
        return Hook(name, 1, lambda _: None)

    def put_info(self) -> None:
        self.num_told += 1

    @property
    def owner(self) -> int:
        """Ident of the thread that is listened to."""
        ident: int = self.clock.own[0]
        return ident

    def owner_steps(self) -> None:
        """One step of the thread that is listened to, backward and all."""
        for phase in (phases.BACKWARD, phases.OPTIMIZER):
            self.clock.enter(phase)
            self.clock.leave()
        self.clock.stepped = True


class Stranger:
    """Another thread, which does what it is told."""

    def __init__(self, process: Process, name: str) -> None:
        self.thread = process.thread
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.ident: int = self.do(threading.get_ident)

    def do(self, function: Callable[[], Any]) -> Any:
        return self.pool.submit(function).result()

    def backward(self) -> None:
        self.do(self.thread.backward)

    def steps(self) -> bool:
        """Whether it is the training thread from this step on."""
        is_so: bool = self.do(self.thread.steps)
        return is_so


@pytest.fixture(name="process")
def _process(tmp_path: Path) -> Iterator[Process]:
    made = Process(str(tmp_path / "ring"))
    yield made
    made.ring.close()


@pytest.fixture(name="stranger")
def _stranger(process: Process) -> Iterator[Stranger]:
    made = Stranger(process, "ray worker")
    yield made
    made.pool.shutdown()


def test_who_runs_a_backward_and_a_step_is_listened_to(process: Process, stranger: Stranger) -> None:
    """The main thread has not trained: it waits for the one that does."""
    stranger.backward()
    assert process.unstepped.startswith("ray worker")  # said as long as it has not stepped
    assert stranger.steps()

    assert stranger.ident == process.owner
    assert "" == process.unstepped
    assert 2 == process.num_told


def test_a_step_without_a_backward_is_believed_when_it_is_one_of_many(
    process: Process, stranger: Stranger
) -> None:
    """Its backward passes no hook; a single step may be anything's."""
    assert [False] * (STEPS_WITHOUT_BACKWARD - 1) + [True] == [
        stranger.steps() for _ in range(STEPS_WITHOUT_BACKWARD)
    ]
    assert stranger.ident == process.owner


def test_a_step_within_the_training_threads_backward_is_its_own(process: Process, stranger: Stranger) -> None:
    """Autograd's threads step an optimizer once a parameter where it is fused into backward."""
    owner = process.owner
    process.clock.enter(phases.BACKWARD)
    assert not any(stranger.steps() for _ in range(2 * STEPS_WITHOUT_BACKWARD))
    assert owner == process.owner


def test_a_thread_of_a_library_that_steps_alone_points_to_whom_it_works_for(
    process: Process, stranger: Stranger
) -> None:
    """Not one of Python's own: as autograd's it steps within the backward of a thread that never steps itself."""
    from _thread import start_new_thread

    stranger.backward()
    for _ in range(STEPS_WITHOUT_BACKWARD):
        done = threading.Event()
        start_new_thread(lambda done=done: (process.thread.steps(), done.set()), ())
        assert done.wait(60)
    assert stranger.ident != process.owner

    stranger.backward()
    assert stranger.ident == process.owner


def test_two_threads_that_train_are_measured_neither(process: Process, stranger: Stranger) -> None:
    """The owner has stepped between two steps of the other, twice: a sum of two loops would be true of none."""
    stranger.backward()
    process.owner_steps()
    for _ in range(3):
        assert not stranger.steps()
        process.clock.enter(phases.FORWARD)
        process.clock.leave()
        process.owner_steps()

    assert NOBODY == process.owner
    assert "ray worker_0" in process.unmeasured
    assert "MainThread" in process.unmeasured
    assert not stranger.steps()  # nor is it taken for the only one as soon as it comes again


def test_who_trains_alone_after_two_did_is_listened_to_again(
    process: Process, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For half a minute nobody else has stepped."""
    now = Clock()
    monkeypatch.setattr(training_thread, "monotonic_ns", now)
    stranger.backward()
    process.owner_steps()
    process.clock.enter(phases.FORWARD)  # it is in the midst of a step whenever the other one comes
    assert [False, False] == [stranger.steps() for _ in range(2)]
    assert NOBODY == process.owner

    now.now += ALONE_AGAIN_NS
    assert not stranger.steps()
    now.now += 1
    assert stranger.steps()
    assert "" == process.unmeasured


def test_a_training_that_moves_to_another_thread_is_followed(process: Process, stranger: Stranger) -> None:
    """The former one has stepped, but neither steps nor is about to between two steps of the new one."""
    process.owner_steps()
    stranger.backward()
    assert [False, True] == [stranger.steps() for _ in range(2)]
    assert stranger.ident == process.owner


def test_a_training_thread_that_has_ended_is_followed_by_the_next(
    process: Process, stranger: Stranger
) -> None:
    """At its first step: there is nobody whom it could be mixed up with."""
    after = Stranger(process, "second fit")  # made before the other ends, whose ident it would be given
    stranger.backward()
    assert stranger.steps()
    stranger.pool.shutdown()

    after.backward()
    assert after.steps()
    assert after.ident == process.owner
    after.pool.shutdown()


@pytest.mark.parametrize("how", ["probe has left", "forked child"])
def test_nobody_is_followed_where_nothing_is_measured(process: Process, stranger: Stranger, how: str) -> None:
    """The hooks are still there for a moment, the ring may not be ours."""
    stranger.backward()
    if how == "probe has left":
        process.clock.active = False
    else:
        process.clock.own[0] = 0
    owner = process.owner
    assert not stranger.steps()
    assert owner == process.owner


def test_threads_that_come_and_go_cost_no_memory(process: Process) -> None:
    """A server that runs each request's backward in a thread of its own, for days."""
    owner = process.owner
    process.owner_steps()
    for number in range(2 * MAX_THREADS + 2):
        ident = 1_000_000 + number  # an ended thread's, as the kernel would give it to the next one
        process.thread._backward(ident)
    assert owner == process.owner
    assert len(process.thread.backwards) <= MAX_THREADS
