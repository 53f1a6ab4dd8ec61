"""What happens to a rank's profiler trace before we read it: lost, doubled, shifted, renamed events, another rank.

In: the content of a good trace as parsed JSON.  Out: the same, damaged in one to three ways a file can be and still be
read. A damage may take away what could be said; nothing here makes another rank late on every clock there is.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Trace = dict[str, Any]
LENGTHS: Final[tuple[object, ...]] = (
    *(0, -1, 1, 1e-3, 1e9, 1e15, -1e15, math.nan, math.inf),
    *(None, "", "12.5", "x", [], True),
)


def damaged_trace(content: Trace, chance: random.Random) -> Trace:
    """A copy with one to three damages."""
    events = [dict(event, args=dict(event["args"])) for event in content["traceEvents"]]
    trace = content | {"distributedInfo": dict(content["distributedInfo"]), "traceEvents": events}
    for _ in range(chance.choice((1, 1, 2, 3))):
        chance.choice(DAMAGES)(trace, chance)
    return trace


def _some(trace: Trace, chance: random.Random) -> list[dict[str, Any]]:
    """One event, or up to half of them, or a stretch."""
    events = trace["traceEvents"]
    if len(events) < 2:
        return list(events)
    way = chance.randrange(3)
    if way == 0:
        return [chance.choice(events)]
    if way == 1:
        share = chance.uniform(0.0, 0.5)
        return [event for event in events if chance.random() < share]
    begin = chance.randrange(len(events))
    return list(events[begin : begin + chance.randrange(1, len(events))])


def _lost(trace: Trace, chance: random.Random) -> None:
    gone = set(map(id, _some(trace, chance)))
    trace["traceEvents"] = [event for event in trace["traceEvents"] if id(event) not in gone]


def _cut(trace: Trace, chance: random.Random) -> None:
    """The beginning or the end, as a ring of events that was too small leaves it."""
    num = chance.randrange(len(trace["traceEvents"]) + 1)
    events = trace["traceEvents"]
    trace["traceEvents"] = events[num:] if chance.random() < 0.5 else events[:num]


def _doubled(trace: Trace, chance: random.Random) -> None:
    trace["traceEvents"] += [dict(event) for event in _some(trace, chance)]


def _out_of_order(trace: Trace, chance: random.Random) -> None:
    chance.shuffle(trace["traceEvents"])


def _shifted(trace: Trace, chance: random.Random) -> None:
    """A clock that was set, once or for a while."""
    by_us = chance.choice((-1, 1)) * 10 ** chance.uniform(0, 12)
    for event in _some(trace, chance):
        if isinstance(event["ts"], float):
            event["ts"] += by_us


def _clock_set(trace: Trace, chance: random.Random) -> None:
    """All of it, or from an event on: in time, not in the file."""
    times = [event["ts"] for event in trace["traceEvents"] if isinstance(event["ts"], float)]
    since = chance.choice(times) if times and chance.random() < 0.7 else -math.inf
    by_us = chance.choice((-1, 1)) * 10 ** chance.uniform(0, 12)
    for event in trace["traceEvents"]:
        if isinstance(event["ts"], float) and event["ts"] >= since:
            event["ts"] += by_us


def _drifting(trace: Trace, chance: random.Random) -> None:
    """A clock that runs too fast, up to twice."""
    factor = 1 + chance.choice((-1, 1)) * 10 ** chance.uniform(-9, 0)
    for event in trace["traceEvents"]:
        if isinstance(event["ts"], float):
            event["ts"] = 1e9 + (event["ts"] - 1e9) * factor


def _flipped(trace: Trace, chance: random.Random) -> None:
    """A bit of a double, in a time or a duration."""
    for event in _some(trace, chance)[: chance.choice((1, 1, 5, 40))]:
        key = chance.choice(("ts", "dur"))
        if isinstance(event[key], float):
            (bits,) = struct.unpack("<Q", struct.pack("<d", event[key]))
            (event[key],) = struct.unpack("<d", struct.pack("<Q", bits ^ (1 << chance.randrange(64))))


def _of_other_length(trace: Trace, chance: random.Random) -> None:
    length = chance.choice(LENGTHS)
    for event in _some(trace, chance):
        event["dur"] = length


def _times_swapped(trace: Trace, chance: random.Random) -> None:
    some = _some(trace, chance)
    times = [event["ts"] for event in some]
    chance.shuffle(times)
    for event, time in zip(some, times, strict=True):
        event["ts"] = time


def _renamed(trace: Trace, chance: random.Random) -> None:
    name = chance.choice(
        ("", "x", "ncclDevKernel_AllGather_RING_LL()", "ncclKernel_Broadcast()", "ampere_sgemm", 7)
    )
    for event in _some(trace, chance):
        event["name"] = name


def _of_other_category(trace: Trace, chance: random.Random) -> None:
    category = chance.choice(("", "kernl", "gpu_memcpy", "cuda_runtime", "cpu_op", None))
    for event in _some(trace, chance):
        event["cat"] = category


def _of_other_group(trace: Trace, chance: random.Random) -> None:
    about = {
        "Process Group Name": chance.choice(("0", "tp0", "dp1", "", 5)),
        "Process Group Ranks": chance.choice(("[0, 1]", "[1, 3]", "[0, 1, 2, 3]", "[9]", "[]", "[0, ...]")),
        "Collective name": chance.choice(("allreduce", "broadcast", "", 3)),
    }
    chosen = {key: value for key, value in about.items() if chance.random() < 0.5}
    for event in _some(trace, chance):
        event["args"] |= chosen


def _of_other_rank(trace: Trace, chance: random.Random) -> None:
    """Its file keeps its name: one of the two is wrong."""
    key = chance.choice(("rank", "world_size"))
    trace["distributedInfo"][key] = chance.choice((0, 1, 2, 3, 4, 7, 64, -1, "1", "x", None, 1 << 40, 2.0))


def _nameless(trace: Trace, chance: random.Random) -> None:
    trace["distributedInfo"] = chance.choice(({}, None, [], {"rank": None}))
    trace["distributedInfo"] = trace["distributedInfo"] or {}


DAMAGES: Final[tuple[Callable[[Trace, random.Random], None], ...]] = (
    *(_lost, _cut, _doubled, _out_of_order, _shifted, _clock_set, _drifting, _flipped, _of_other_length),
    *(_times_swapped, _renamed, _of_other_category, _of_other_group, _of_other_rank, _nameless),
)
