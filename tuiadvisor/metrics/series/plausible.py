"""Which times can be of one job: what another tool wrote is looked at before a figure rests on it.

In: times or lengths in nanoseconds, of any clock.  Out: what of them lies together, and words for what does not.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

# Chosen: within it lies a step, what one trace holds, and what the logs of one job are apart; clocks of two hosts were
# seen an hour apart.
PLAUSIBLE_NS: Final = 12 * 3600 * 10**9
DAY_NS: Final = 24 * 3600 * 10**9  # in a message
LONG_DAYS: Final = 1000  # in a message: from here on in years


def long_time(duration_ns: float) -> str:
    """A time that is far too long, in the unit that shows it."""
    days = duration_ns / DAY_NS
    return f"{days / 365.25:.0f} years" if abs(days) > LONG_DAYS else f"{days:.1f} days"


@dataclass(slots=True)
class StepLengths:
    """Counts the lengths that no step can have, so that each is said."""

    num_left_out: int = 0
    worst_s: float = 0.0

    def takes(self, seconds: float) -> bool:
        """Whether a step can take so long; NaN, infinity and what is negative are no lengths."""
        if 0 <= seconds * 1e9 <= PLAUSIBLE_NS:
            return True
        self.num_left_out += 1
        if isfinite(seconds):
            self.worst_s = max(self.worst_s, seconds, key=abs)
        return False

    def words(self) -> list[str]:
        """What to say of those that were left out; empty where none was."""
        if not self.num_left_out:
            return []
        some = f"{self.num_left_out} step{'s' * (self.num_left_out > 1)}"
        return [
            f"{some} left out, of lengths that no step has ({long_time(self.worst_s * 1e9)}): times are wrong"
        ]


def together(times_ns: Ints | Floats, apart_ns: float = PLAUSIBLE_NS) -> Bools:
    """Those of the most times that no such gap divides, of one unit; none where two such groups are as large."""
    if not times_ns.size:
        return np.zeros(0, dtype=bool)
    order = np.argsort(times_ns, kind="stable")
    group = np.concatenate(([0], np.cumsum(np.diff(times_ns[order]) > apart_ns)))
    sizes = np.bincount(group)
    if np.count_nonzero(sizes == sizes.max()) > 1:
        return np.zeros(times_ns.size, dtype=bool)
    mask = np.empty(times_ns.size, dtype=bool)
    mask[order] = group == sizes.argmax()
    return mask


def in_order(times: Ints | Floats) -> Bools:
    """The most of them that never fall, in their order: a clock that jumps and comes back is wrong where it is off."""
    tails: list[int] = []  # of the best run of each length, where it ends
    before = np.full(times.size, -1)
    values: list[int] = []
    for at, time in enumerate(times.tolist()):
        place = bisect_right(values, time)
        before[at] = tails[place - 1] if place else -1
        tails[place : place + 1] = [at]
        values[place : place + 1] = [time]
    mask = np.zeros(times.size, dtype=bool)
    at = tails[-1] if tails else -1
    while at >= 0:
        mask[at] = True
        at = int(before[at])
    return mask


def apart(spans_ns: Mapping[str, tuple[int, int]], what: str) -> str:
    """Why files cannot be of one job, by when each begins and ends; "" where they may. what: they are, in plural."""
    if not spans_ns:
        return ""
    first = min(spans_ns, key=lambda file: spans_ns[file][0])
    last = max(spans_ns, key=lambda file: spans_ns[file][0])
    apart_ns = spans_ns[last][0] - spans_ns[first][1]
    if apart_ns <= PLAUSIBLE_NS:
        return ""
    return (
        f"{what} of different times, {long_time(apart_ns)} from {first} to {last}: not compared; "
        "name the folder of one job"
    )
