"""What the training thread of a traced rank did when: waiting for data, copying it, forward, backward, optimizer.

In: the host's events of a trace.  Out: runs of one phase, in order, with what lies between them as `other`. Data
loading and the optimizer have ranges of their own; backward is what autograd's nodes cover, with the gaps in which the
main thread does nothing; a copy to the device is an operator that copies and launched one; forward is the other
operators of the main thread that a backward follows.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.metrics.series.intervals import union
from tuiadvisor.metrics.steps.arrays import distinct

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

CATEGORIES: Final = frozenset(("cpu_op", "operator", "user_annotation"))
OPERATOR, BACKWARD, DATA, OPTIMIZER, BETWEEN, COPY = range(6)
NAMES: Final = {
    OPERATOR: "forward",
    BACKWARD: "backward",
    DATA: "data_wait",
    OPTIMIZER: "optimizer",
    COPY: "h2d",
}
COPIES: Final = frozenset(("aten::to", "aten::_to_copy", "aten::copy_"))  # to the device, or as well not
NODE: Final = re.compile(
    r"autograd::engine::evaluate_function|\w+Backward\d*$|torch::autograd::AccumulateGrad"
)
MAX_THREADS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Runs:
    """Sorted, disjoint; phase: a name of NAMES, "" for what is none. seen: phases that the trace shows at all."""

    begin_ns: Ints
    end_ns: Ints
    phase: tuple[str, ...]
    seen: frozenset[str]


@dataclass(slots=True)
class HostWork:
    """Mutable: feed it the events on the host, 21 bytes each."""

    begin: array[int] = field(default_factory=lambda: array("q"))
    end: array[int] = field(default_factory=lambda: array("q"))
    label: array[int] = field(default_factory=lambda: array("b"))
    thread: array[int] = field(default_factory=lambda: array("i"))
    threads: dict[object, int] = field(default_factory=dict)
    main: dict[int, int] = field(default_factory=dict)  # thread -> step marks on it
    copied_ns: Ints = field(
        default_factory=lambda: np.empty(0, dtype=np.int64)
    )  # launches of copies to the device

    def take(self, event: dict[str, Any], begin: int | None, duration: int | None) -> None:
        """An operator or a range; other events of its categories are passed over."""
        name = event.get("name")
        if not isinstance(name, str) or begin is None or duration is None or duration < 0:
            return
        label = label_of(name)
        if label is None:
            return
        self.begin.append(begin)
        self.end.append(begin + duration)
        self.label.append(label)
        tid = event.get("tid")
        known = self.threads.get(tid) if type(tid) is int else None
        self.thread.append(self._thread(tid) if known is None else known)

    def mark(self, event: dict[str, Any]) -> None:
        """A step's mark: the thread it is on is the one that trains."""
        thread = self._thread(event.get("tid"))
        self.main[thread] = self.main.get(thread, 0) + 1

    def _thread(self, tid: object) -> int:
        key = tid if isinstance(tid, int | str) else None
        if key not in self.threads and len(self.threads) >= MAX_THREADS:
            key = None
        return self.threads.setdefault(key, len(self.threads))

    def runs(self) -> Runs:
        """The training thread's phases in order."""
        begin, end = (np.frombuffer(held, dtype=np.int64) for held in (self.begin, self.end)) if self.begin else (
            np.empty(0, dtype=np.int64),
        ) * 2  # fmt: skip
        label = np.frombuffer(self.label, dtype=np.int8) if self.label else np.empty(0, dtype=np.int8)
        thread = np.frombuffer(self.thread, dtype=np.int32) if self.thread else np.empty(0, dtype=np.int32)
        on_main = thread == max(self.main, key=lambda one: self.main[one], default=-1)
        autograd = distinct(thread[(label == BACKWARD) & ~on_main])
        backward = (label == BACKWARD) | np.isin(thread, autograd)
        ranges = on_main & np.isin(label, (DATA, OPTIMIZER, BETWEEN))
        work = on_main & np.isin(label, (OPERATOR, COPY))
        work &= ~_inside(begin, begin[ranges], end[ranges])
        back = union(*_joined(begin[backward], end[backward], begin[(work | ranges) & ~backward]))
        work &= ~_inside(begin, back.begin, back.end)
        copies = work & (label == COPY) & _holds(begin, end, self.copied_ns)
        work &= ~_inside(begin, begin[copies], end[copies])
        pieces = [(begin[work], end[work], OPERATOR), (back.begin, back.end, BACKWARD)]
        to_device = union(begin[copies], end[copies])
        pieces.append((to_device.begin, to_device.end, COPY))
        for kind in (DATA, OPTIMIZER, BETWEEN):
            mine = ranges & (label == kind)
            pieces.append((begin[mine], end[mine], kind))
        return _in_order(pieces)


@lru_cache(maxsize=1 << 14)  # a trace repeats few names very often
def label_of(name: str) -> int | None:
    """What an event of the host is of, by its name; None: of nothing here."""
    if name.startswith("enumerate(DataLoader)"):
        return DATA
    if name.startswith("Optimizer."):
        return OPTIMIZER if name.startswith("Optimizer.step") else BETWEEN
    if NODE.match(name):
        return BACKWARD
    if name in COPIES:
        return COPY
    return OPERATOR if "::" in name and not name.startswith(("profiler::", "c10d::")) else None


def _holds(begin: Ints, end: Ints, times: Ints) -> Bools:
    """Which intervals one of the times lies in."""
    times = np.sort(times)
    return np.asarray(np.searchsorted(times, begin, side="left") < np.searchsorted(times, end, side="right"))


def _inside(times: Ints, begin: Ints, end: Ints) -> Bools:
    """Which times lie within one of the intervals."""
    merged = union(begin, end)
    if not merged.begin.size:
        return np.zeros(times.size, dtype=np.bool_)
    at = np.searchsorted(merged.begin, times, side="right") - 1
    return np.asarray((at >= 0) & (times < merged.end[np.maximum(at, 0)]))


def _joined(begin: Ints, end: Ints, others: Ints) -> tuple[Ints, Ints]:
    """The pieces of backward, and the gaps between two of them in which nothing else begins on the main thread."""
    pieces = union(begin, end)
    if pieces.begin.size < 2:
        return pieces.begin, pieces.end
    others = np.sort(others)
    before = np.searchsorted(others, pieces.end[:-1], side="left")
    free = before == np.searchsorted(others, pieces.begin[1:], side="left")
    return (
        np.concatenate((pieces.begin, pieces.end[:-1][free])),
        np.concatenate((pieces.end, pieces.begin[1:][free])),
    )


def _in_order(pieces: list[tuple[Ints, Ints, int]]) -> Runs:
    """Neighbours of one kind as one run, cut where the next begins; operators no backward follows are no forward."""
    begin = np.concatenate([piece[0] for piece in pieces])
    end = np.concatenate([piece[1] for piece in pieces])
    kind = np.concatenate([np.full(piece[0].size, piece[2]) for piece in pieces])
    order = np.argsort(begin, kind="stable")
    begin, end, kind = begin[order], np.maximum.accumulate(end[order]) if begin.size else end, kind[order]
    first = np.concatenate(([True], kind[1:] != kind[:-1])) if kind.size else np.zeros(0, dtype=np.bool_)
    at = np.flatnonzero(first)
    begin, kind = begin[at], kind[at]
    end = end[np.append(at[1:], order.size) - 1] if at.size else end
    if at.size:
        end = np.minimum(end, np.append(begin[1:], end[-1]))
    has_backward = bool((kind == BACKWARD).any())
    names: list[str] = []
    for index, one in enumerate(kind.tolist()):
        if one == OPERATOR and has_backward:
            # Gradients are clipped, metrics computed with the same operators: a forward ends in a backward.
            later = next((int(k) for k in kind[index + 1 :] if k in {BACKWARD, OPTIMIZER, DATA}), None)
            names.append("forward" if later == BACKWARD else "")
        else:
            names.append(NAMES.get(one, ""))
    return Runs(begin, end, tuple(names), frozenset(name for name in names if name))
