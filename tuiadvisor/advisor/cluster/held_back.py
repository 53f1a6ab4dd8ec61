"""When each device held its clock back, as far as a window of steps reaches: stretches of samples that say the same.

In: samples of a device, one a second: its clock, why it is held back.  Out: Throttled of spans of time.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.steps.held_steps import MAX_REASONS, Throttled

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MAX_STRETCHES: Final = 64  # of a device: five minutes of heat that comes and goes every five seconds
MIN_SEEN: Final = 0.5  # of a span: of less nothing is said
LONGEST_NS: Final = 5 * 10**9  # between two samples: what was then is not known


@dataclass(slots=True)
class _Stretch:
    begin_ns: int
    end_ns: int
    why: frozenset[str]
    mhz_sum: float = 0.0
    num: int = 0


class HeldBack:
    """Mutable: of one device."""

    __slots__ = ("_last_ns", "_stretches")

    def __init__(self) -> None:
        self._stretches: deque[_Stretch] = deque(maxlen=MAX_STRETCHES)
        self._last_ns: int | None = None

    def add(self, now_ns: int, mhz: float, why: frozenset[str] | None) -> None:
        """One sample: it stands for the time since the one before. why: None where the device does not say."""
        before_ns, self._last_ns = self._last_ns, now_ns
        if before_ns is None or why is None or not now_ns - before_ns > 0:
            if before_ns is not None and now_ns <= before_ns:
                self._stretches.clear()  # another boot, or another agent's clock
            return
        if now_ns - before_ns > LONGEST_NS:
            return
        last = self._stretches[-1] if self._stretches else None
        if last is None or last.end_ns != before_ns or last.why != why:
            last = _Stretch(before_ns, before_ns, why)
            self._stretches.append(last)
        last.end_ns, last.mhz_sum, last.num = now_ns, last.mhz_sum + mhz, last.num + 1

    def over(self, begin_ns_K: Ints, end_ns_K: Ints) -> Throttled | None:
        """Of these spans of the host's clock; None where it was never held back, or always."""
        known = list(self._stretches)
        held, free = [one for one in known if one.why], [one for one in known if not one.why]
        if not held or not free:
            return None
        seen_ns_K = _within(known, begin_ns_K, end_ns_K)
        span_ns_K = np.maximum(end_ns_K - begin_ns_K, 1)
        share_K = np.full(begin_ns_K.shape, np.nan)
        is_seen_K = seen_ns_K >= MIN_SEEN * span_ns_K
        share_K[is_seen_K] = _within(held, begin_ns_K, end_ns_K)[is_seen_K] / seen_ns_K[is_seen_K]
        reasons: Counter[str] = Counter()
        for one in held:
            reasons.update(dict.fromkeys(one.why, one.num))
        return Throttled(
            share_K,
            mhz=sum(one.mhz_sum for one in held) / sum(one.num for one in held),
            free_mhz=sum(one.mhz_sum for one in free) / sum(one.num for one in free),
            reasons=tuple(sorted(reasons, key=lambda word: (-reasons[word], word))[:MAX_REASONS]),
        )


def _within(stretches: list[_Stretch], begin_ns_K: Ints, end_ns_K: Ints) -> Floats:
    """Nanoseconds of each span that lie in these stretches."""
    edges = np.array([at for one in stretches for at in (one.begin_ns, one.end_ns)], dtype=np.float64)
    passed = np.cumsum([0.0, *(part for one in stretches for part in (one.end_ns - one.begin_ns, 0.0))])[:-1]
    origin = edges[0]
    return np.asarray(
        np.interp(end_ns_K - origin, edges - origin, passed)
        - np.interp(begin_ns_K - origin, edges - origin, passed)
    )
