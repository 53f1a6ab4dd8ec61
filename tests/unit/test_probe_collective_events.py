"""Collectives that are called from Python: which wait may be the gradient barrier, and each call as an event."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tuiadvisor.phases import PHASES
from tuiadvisor_probes import collective_hooks as hooks
from tuiadvisor_probes import phases
from tuiadvisor_probes import step_clock as sc
from tuiadvisor_probes.collective_hooks import KIND_WAIT, KINDS, CallEvents, GradientWaits, num_bytes
from tuiadvisor_probes.group_sequence import Sequences

ALL_REDUCE, BROADCAST, SEND = KINDS["allreduce"], KINDS["broadcast"], KINDS["send"]


class Probe:
    """What the hooks ask of the probe: a clock whose books are settled at once, and a ring that is a list."""

    def __init__(self) -> None:
        self.events: list[tuple[int, ...]] = []
        self.barriers: list[tuple[int, int]] = []
        self.groups: dict[str, int] = {}
        self.books = SimpleNamespace(
            totals=[0] * len(PHASES), phase=phases.FORWARD,
            synchronized=lambda *span: self.barriers.append(span),
        )  # fmt: skip
        self.clock = SimpleNamespace(
            said=0, stepped=False, detail_flag=1, pid=os.getpid(), step=7, books=self.books,
            later=lambda book, *span: book(*span),
        )  # fmt: skip
        self.waited: list[tuple[int, int]] = []
        pending = SimpleNamespace(waited=lambda _clock, *span: self.waited.append(span))
        self.forwards = SimpleNamespace(pending=pending)
        self.detail = SimpleNamespace(has_point_to_point=False)
        self.sequences = Sequences()
        self.ring = SimpleNamespace(put_event=lambda kind, rest: self.events.append((kind, *rest)))
        self.found_group = self.groups.__setitem__
        self.waits = GradientWaits(self)  # type: ignore[arg-type]
        self.calls = CallEvents(self, self.waits)  # type: ignore[arg-type]

    def call(self, kind: int, begin_ns: int, work: object, *arguments: Any, group: str = "0") -> None:
        """A method of ProcessGroup returns this work 5 ns later."""
        owner = SimpleNamespace(group_name=group, _get_sequence_number_for_group=lambda: 31)
        self.calls.after_call(kind)(begin_ns, begin_ns + 5, (owner, *arguments), work)

    def wait(self, begin_ns: int, work: object) -> None:
        """Work.wait returns 5 ns later."""
        self.calls.after_wait(begin_ns, begin_ns + 5, (work,), None)


class Tensor:
    """Of so many bytes."""

    def __init__(self, size: int) -> None:
        self.nbytes = size


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.mark.parametrize(
    ("kind", "in_backward", "done_before", "stepped", "is_barrier"),
    [
        (ALL_REDUCE, True, 0, False, True),
        (ALL_REDUCE, False, 9, False, True),  # reduced by the caller behind backward
        (ALL_REDUCE, False, 0, False, False),  # in forward: SyncBatchNorm
        (ALL_REDUCE, True, 0, True, False),  # behind the optimizer: a metric
        (BROADCAST, True, 0, False, False),
    ],
)
def test_a_wait_for_gradients_is_the_barrier(
    probe: Probe, kind: int, done_before: int, *, in_backward: bool, stepped: bool, is_barrier: bool
) -> None:
    """For a collective that can reduce them, within backward or behind it, before the optimizer's step."""
    probe.clock.stepped = stepped
    probe.books.phase = phases.BACKWARD if in_backward else phases.FORWARD
    probe.books.totals[phases.BACKWARD] = done_before
    work = object()
    probe.call(kind, 100, work)
    probe.wait(200, work)
    assert ([(200, 205)] if is_barrier else []) == probe.barriers
    assert probe.clock.said & 1 << phases.COMM_EXPOSED
    probe.wait(300, work)  # of a work that was waited for already
    assert len(probe.barriers) == is_barrier
    assert [(100, 105), (200, 205), (300, 305)] == probe.waited  # all of it is communication already


def test_a_call_and_its_wait_are_one_event(probe: Probe) -> None:
    """From entering the call to the end of the wait; the detail is when the wait began."""
    work = object()
    probe.call(ALL_REDUCE, 100, work, [Tensor(64), Tensor(8)], Tensor(4))
    assert [] == probe.events
    probe.wait(200, work)
    assert [(ALL_REDUCE, 7, 100, 205, 0, 31, 72, 100)] == probe.events


def test_a_call_that_is_done_when_it_returns_is_an_event_at_once(probe: Probe) -> None:
    """Each group has a small number, and its name is told once."""
    probe.call(BROADCAST, 100, None, group="a")
    probe.call(BROADCAST, 200, None, group="b")
    probe.call(BROADCAST, 300, None, group="a")
    assert [(100, 105, 0, 0), (200, 205, 1, 0), (300, 305, 0, 0)] == [
        (one[2], one[3], one[4], one[7]) for one in probe.events
    ]
    assert {"a": 0, "b": 1} == probe.groups
    assert sc.UNKNOWN == probe.events[0][6]


def test_a_group_that_has_no_name_of_its_own_is_named_by_torchs_table(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in torch 2.1; one that stands in no table has a number all the same."""

    class Group:
        def _get_sequence_number_for_group(self) -> int:
            return 31

    named, unnamed = Group(), Group()
    table = ModuleType("torch.distributed.distributed_c10d")
    vars(table).update(_world=SimpleNamespace(pg_names={named: "the pipeline's"}))
    monkeypatch.setitem(sys.modules, table.__name__, table)
    for group in (named, unnamed, named):
        probe.calls.after_call(ALL_REDUCE)(100, 105, (group, [Tensor(8)]), None)
    assert [0, 1, 0] == [event[4] for event in probe.events]
    assert {"the pipeline's": 0, hooks.UNNAMED: 1} == probe.groups


def test_messages_make_sequence_numbers_differ(probe: Probe) -> None:
    """Which is noted: ranks cannot be aligned by them then."""
    probe.call(ALL_REDUCE, 100, None)
    assert not probe.detail.has_point_to_point
    probe.call(SEND, 100, None)
    assert probe.detail.has_point_to_point


def test_what_nobody_waited_for_ends_at_an_unknown_moment(probe: Probe) -> None:
    """At the burst's end, or where another work has its id; a wait for what was not seen stands alone."""
    first, second = object(), object()
    probe.call(BROADCAST, 100, first)
    probe.call(BROADCAST, 200, first)
    probe.call(BROADCAST, 300, second)
    assert [(100, sc.UNKNOWN, sc.UNKNOWN)] == [(one[2], one[3], one[7]) for one in probe.events]
    probe.calls.close()
    assert [100, 200, 300] == [one[2] for one in probe.events]
    probe.calls.close()
    assert 3 == len(probe.events)
    probe.wait(400, object())
    assert (KIND_WAIT, 7, 400, 405) == probe.events[-1][:4]


def test_open_calls_are_bounded(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest gives way: a training that never waits costs no memory."""
    monkeypatch.setattr(hooks, "MAX_OPEN_WORKS", 2)
    probe.books.phase = phases.BACKWARD
    works = [object() for _ in range(4)]
    for number, work in enumerate(works):
        probe.call(ALL_REDUCE, 100 * number, work)
    assert [0, 100] == [one[2] for one in probe.events]
    for work in works:
        probe.wait(900, work)
    assert 2 == len(probe.barriers)
    assert [KIND_WAIT, KIND_WAIT, ALL_REDUCE, ALL_REDUCE] == [one[0] for one in probe.events[2:]]


def test_outside_of_a_burst_and_in_a_child_nothing_is_written(probe: Probe) -> None:
    """A patch that could not be taken out goes on being called; a fork shares its parent's ring."""
    probe.clock.detail_flag = 0
    work = object()
    probe.call(ALL_REDUCE, 100, work)
    probe.wait(200, work)
    probe.clock.detail_flag, probe.clock.pid = 1, -1
    probe.call(ALL_REDUCE, 300, None)
    assert [] == probe.events


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ((), sc.UNKNOWN),
        ((None, "x"), sc.UNKNOWN),
        ((Tensor(8), Tensor(64)), 64),
        (([Tensor(8), (Tensor(4), None)], Tensor(3)), 12),
        (([], [None]), sc.UNKNOWN),
        ((SimpleNamespace(nbytes="many"),), sc.UNKNOWN),
    ],
)
def test_the_larger_of_input_and_output_is_what_is_moved(arguments: tuple[Any, ...], size: int) -> None:
    """Lists of tensors are summed; what is none has no size."""
    assert size == num_bytes(arguments)
