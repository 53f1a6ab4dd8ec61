"""Which thread of the target may be borrowed: one that is asleep where nothing is lost by waking it.

In: /proc/PID/task/*/syscall, read twice.  Out: candidates, best first. Runs in the tracer process only, so
no dataclass here: importing it would cost more than the whole search.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tuiadvisor.inject.machines import HERE, begins_anew

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.inject.machines import Machine

_FUTEX_WAIT, _FUTEX_WAIT_BITSET = 0, 9
_FUTEX_COMMAND = 0x7F  # without the private and clock flags
_LAST = 9
_PARKED_S = 0.006  # longer than the 5 ms after which a thread waiting for the GIL wakes


class Sleep(NamedTuple):
    """Where a thread is asleep: it must still be there when it is stopped."""

    system_call: int
    operation: int
    stack_pointer: int
    instruction: int
    time_out: int = 0
    """Its fourth argument, a futex's time-out."""


class Candidate(NamedTuple):
    """A thread that may be borrowed."""

    rank: int
    tid: int
    sleep: Sleep


def candidates(pid: int, libc_code: Iterable[tuple[int, int]]) -> list[Candidate]:
    """Threads that stay asleep, the most harmless first; empty when all are at work."""
    before = {tid: _glance(pid, tid) for tid in _threads(pid)}
    time.sleep(_PARKED_S)
    found = []
    for tid, glance in before.items():
        if glance is None or glance != _glance(pid, tid):
            continue
        sleep = parse_sleep(glance[0])
        rank = None if sleep is None else rank_of(sleep, main=tid == pid, libc_code=libc_code)
        if sleep is not None and rank is not None:
            found.append(Candidate(rank, tid, sleep))
    return sorted(found)


def rank_of(
    sleep: Sleep, *, main: bool, libc_code: Iterable[tuple[int, int]], machine: Machine = HERE
) -> int | None:
    """0 is best; None where the thread must be left alone.

    A plain FUTEX_WAIT inside libc is a thread waiting for a lock, perhaps the allocator's, which
    pthread_create needs as well; outside libc it is a parked OpenMP worker.
    """
    rank = None
    if begins_anew(machine, sleep.system_call, (0, sleep.operation, 0, sleep.time_out)):
        return None
    if sleep.system_call == machine.calls["futex"]:
        command = sleep.operation & _FUTEX_COMMAND
        if command == _FUTEX_WAIT_BITSET:
            rank = 0
        elif command == _FUTEX_WAIT and not _within(sleep.instruction, libc_code):
            rank = 1
    elif sleep.system_call in machine.restarted:
        rank = 2
    elif main and sleep.system_call in machine.event_waits:
        return _LAST
    return rank if rank is None or not main else rank + 3


def parse_sleep(line: str) -> Sleep | None:
    """One /proc/PID/task/TID/syscall; None for a thread that runs or sleeps outside a system call."""
    fields = line.split()
    if len(fields) != 9 or fields[0] == "-1":
        return None
    number, operation, time_out, stack_pointer, instruction = (fields[place] for place in (0, 2, 4, 7, 8))
    return Sleep(
        int(number), int(operation, 16), int(stack_pointer, 16), int(instruction, 16), int(time_out, 16)
    )


def _glance(pid: int, tid: int) -> tuple[str, str] | None:
    """What the thread waits for and how often it has run: the same twice means it slept through."""
    task = Path(f"/proc/{pid}/task/{tid}")
    try:
        asleep_in = (task / "syscall").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return asleep_in, (task / "schedstat").read_text().split()[-1]
    except FileNotFoundError:  # a kernel without scheduler statistics
        return asleep_in, ""
    except ProcessLookupError:  # it has ended since the line above
        return None


def _threads(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208  pathlib costs 1 ms more on 200 threads
    except FileNotFoundError:
        return []


def _within(address: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(start <= address < end for start, end in ranges)


def waits_for_lock(tid: int) -> bool:
    """Whether a thread sleeps on a futex, twice in a row: not one that only has no processor."""
    before = _glance(tid, tid)
    time.sleep(_PARKED_S)
    if before is None or before != _glance(tid, tid):
        return False
    sleep = parse_sleep(before[0])
    return sleep is not None and sleep.system_call in {HERE.calls["futex"], HERE.calls["futex_wait"]}
