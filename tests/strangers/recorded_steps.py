"""Mean step of a recording over given seconds, to be held against a program's own log.

In: a recording, or ends of one rank's steps.  Out: milliseconds, None where fewer than three steps ended in them.
"""

from __future__ import annotations

import bisect
from pathlib import Path

from tuiadvisor.stream.columns import unpack_columns
from tuiadvisor.stream.frames import FrameKind, decode
from tuiadvisor.stream.recording import RecordingReader


def step_ms(path: Path, since_s: float, until_s: float) -> float | None:
    """Of the recorded steps of one rank."""
    return mean_step_ms(step_ends(path, since_s, until_s), since_s, until_s)


def recorded_span(path: Path, since_s: float, until_s: float) -> tuple[float, float]:
    """The part of this time in which steps were recorded; all of it where none were.

    A command that starts takes cores from the program: what its log tells of that time is in no recording.
    """
    ends = step_ends(path, since_s, until_s)
    return (max(since_s, ends[0]), min(until_s, ends[-1])) if ends else (since_s, until_s)


def mean_step_ms(ends: list[float], since_s: float, until_s: float) -> float | None:
    """Mean step of one rank between these moments: the time against how many steps passed, parts of steps included.

    So a log is compared over the very seconds between its lines: on a loaded machine a few steps make the difference.
    """
    inside = [one for one in ends if since_s <= one <= until_s]
    if len(inside) < 3:
        return None
    passed = _steps_until(ends, until_s) - _steps_until(ends, since_s)
    begin, end = max(since_s, ends[0]), min(until_s, ends[-1])
    return 1e3 * (end - begin) / passed if passed > 0 else None


def _steps_until(ends: list[float], at_s: float) -> float:
    """How many steps had passed by then, parts of one by its length; before the first and after the last none more."""
    place = bisect.bisect_right(ends, at_s)
    if place in {0, len(ends)}:
        return float(max(place - 1, 0))
    return place - 1 + (at_s - ends[place - 1]) / (ends[place] - ends[place - 1])


def step_ends(path: Path, since_s: float, until_s: float) -> list[float]:
    """Ends of one rank's recorded steps by the host's monotonic clock: between the moments, and one at each side."""
    ends: dict[int, list[int]] = {}
    if not path.exists():
        return []
    with RecordingReader(str(path)) as reader:
        for located in reader.frames():
            frame = decode(located.data)
            if frame.kind == FrameKind.STEPS:
                columns = unpack_columns(frame.payload, ("rank", "end_ns"))
                for rank, end_ns in zip(columns["rank"].tolist(), columns["end_ns"].tolist(), strict=True):
                    ends.setdefault(rank, []).append(end_ns)
    some = sorted(end_ns / 1e9 for end_ns in next(iter(ends.values()), []))
    first, last = bisect.bisect_left(some, since_s), bisect.bisect_right(some, until_s)
    return some[max(first - 1, 0) : last + 1]
