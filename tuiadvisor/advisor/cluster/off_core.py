"""What kept each rank's process off its cores from outside: its CPU limit, and stops by a signal or a debugger.

In: HOST payloads, once a second.  Out: shares over the latest part of a run. Beside the run delay (`run_delay.py`)
they say why a rank that is slow in everything was not run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from math import isnan
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload, integer, number, objects
from tuiadvisor.advisor.cluster.run_delay import MAX_NS
from tuiadvisor.metrics.lateness.off_core import OffCore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.run_delay import CoreWait

MAX_SAMPLES: Final = 64  # at one a second
MIN_SAMPLES: Final = 4  # a look at one moment is chance
MAX_CORES: Final = 1 << 16
STOPPED: Final = "stopped"


def _cores(value: float | None) -> float | None:
    """A limit that can be one."""
    return value if value is not None and 0 < value < MAX_CORES else None


# Of one sample, each a number, NaN where it was not told: its time in ns; whether the process was stopped; periods of
# its CPU limit so far, and those that held it back; the limit in cores; looks at its state so far, and those that found
# it stopped. Rows of numbers, not objects: twenty thousand of these were most of a state of 512 ranks that is restored.
MONO, STOPPED_NOW, PERIODS, THROTTLED, LIMIT, LOOKS, STOPPED_LOOKS = range(7)
NUM_FIELDS: Final = 7
COUNTS: Final = frozenset({PERIODS, THROTTLED, LOOKS, STOPPED_LOOKS})
UNKNOWN: Final = float("nan")
_Seen = tuple[
    float | None, int, float | None, float | None
]  # OffCore's stopped, num_stopped, throttled, limit_cores
NOTHING: Final[_Seen] = (None, 0, None, None)


class Outside:
    """Mutable: feed it HOST payloads."""

    def __init__(self, core_wait: CoreWait) -> None:
        self._core_wait = core_wait
        self._samples: dict[int, array[float]] = {}  # by rank, NUM_FIELDS a sample, up to twice MAX_SAMPLES
        self._before: dict[int, tuple[float, ...]] = {}  # what the rank's former processes had counted

    def take(self, payload: Payload) -> None:
        """Fold one sample of a host; another clock begins anew, another process goes on where the former one was."""
        now_ns = integer(payload, "mono_ns")
        if now_ns is None:
            return
        for entry in objects(payload, "ranks"):
            rank = integer(entry, "rank")
            if rank is None or not 0 <= rank < MAX_WATCHED_RANKS or number(entry, "cpu_s") is None:
                continue
            sample = (
                float(now_ns),
                float(entry.get("state") == STOPPED),
                _told(integer(entry, "cpu_periods")),
                _told(integer(entry, "throttled_periods")),
                _told(_cores(number(entry, "cpu_limit_cores"))),
                _told(integer(entry, "looks")),
                _told(integer(entry, "stopped_looks")),
            )
            samples = self._samples.setdefault(rank, array("d"))
            if samples and sample[MONO] <= samples[MONO - NUM_FIELDS]:  # another host's clock
                del samples[:]
                self._before.pop(rank, None)
            samples.extend(self._gone_on(rank, samples[-NUM_FIELDS:], sample))
            if len(samples) >= 2 * MAX_SAMPLES * NUM_FIELDS:
                del samples[: MAX_SAMPLES * NUM_FIELDS]

    def _gone_on(self, rank: int, last: Sequence[float], sample: tuple[float, ...]) -> tuple[float, ...]:
        """The sample with its counts on top of those of the processes that had the rank before."""
        now = _on_top(sample, self._before.get(rank))
        if last and (_has_fallen(last[PERIODS], now[PERIODS]) or _has_fallen(last[LOOKS], now[LOOKS])):
            self._before[rank] = tuple(last)
            now = _on_top(sample, self._before[rank])
        return now

    def seen(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> list[OffCore]:
        """Of each rank over its last so many seconds, as `CoreWait.shares`; the bound is of the newest ones."""
        waits = self._core_wait.shares(ranks, last_s, until_ns)
        ends = [MAX_NS] * len(ranks) if until_ns is None else until_ns
        return [
            OffCore(
                wait,
                *self._seen(rank, last_s, end),
                is_counted=self._core_wait.counted(rank),
                most_wait=self._core_wait.most_share(rank, last_s, end),
            )
            for rank, wait, end in zip(ranks, waits, ends, strict=True)
        ]

    def _seen(self, rank: int, last_s: float, until_ns: int) -> _Seen:
        samples = self._samples.get(rank)
        if not samples or not last_s >= 0:
            return NOTHING
        if samples[MONO - NUM_FIELDS] > until_ns:
            samples = samples[: bisect_right(samples[MONO::NUM_FIELDS], until_ns) * NUM_FIELDS]
            if not samples:
                return NOTHING
        times = samples[MONO::NUM_FIELDS]
        begin = bisect_left(times, times[-1] - last_s * 1e9, max(len(times) - MAX_SAMPLES, 0))
        num = len(times) - begin
        if num < MIN_SAMPLES:
            return NOTHING
        first = samples[begin * NUM_FIELDS : (begin + 1) * NUM_FIELDS]
        last = samples[-NUM_FIELDS:]
        num_looks, num_stopped = _looks_between(
            first, last, samples[begin * NUM_FIELDS + STOPPED_NOW :: NUM_FIELDS]
        )
        num_periods, num_throttled = last[PERIODS] - first[PERIODS], last[THROTTLED] - first[THROTTLED]
        throttled = None
        if not isnan(num_periods + num_throttled):
            throttled = min(max(num_throttled / num_periods, 0.0), 1.0) if num_periods > 0 else 0.0
        limit = None if isnan(last[LIMIT]) else last[LIMIT]
        return num_stopped / num_looks, num_stopped, throttled, limit


def _told(value: float | None) -> float:
    return UNKNOWN if value is None else float(value)


def _on_top(sample: tuple[float, ...], before: Sequence[float] | None) -> tuple[float, ...]:
    """before: the last sample of the former process, if there was one."""
    if before is None:
        return sample
    return tuple(
        value + (0.0 if isnan(before[field]) else before[field]) if field in COUNTS else value
        for field, value in enumerate(sample)
    )


def _has_fallen(before: float, now: float) -> bool:
    """Of a count that was above zero it counts as a fall that it is no longer told."""
    return before > 0 and not now >= before


def _looks_between(
    first: Sequence[float], last: Sequence[float], stopped: Sequence[float]
) -> tuple[int, int]:
    """(looks at its state, of them stopped): the agent's many between two samples, else those of the samples."""
    num_looks, num_stopped = last[LOOKS] - first[LOOKS], last[STOPPED_LOOKS] - first[STOPPED_LOOKS]
    if num_looks >= len(stopped) and 0 <= num_stopped <= num_looks:  # of what is unknown neither
        return int(num_looks), int(num_stopped)
    return len(stopped), int(sum(stopped))
