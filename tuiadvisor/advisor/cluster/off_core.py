"""What kept each rank's process off its cores from outside: its CPU limit, its priority, stops by signals.

In: HOST payloads, once a second.  Out: shares over the latest part of a run. Beside the run delay (`run_delay.py`)
they say why a rank that is slow in everything was not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.payload_fields import MAX_WATCHED_RANKS, Payload, integer, number, objects
from tuiadvisor.advisor.cluster.rank_samples import MAX_SAMPLES, RankSamples
from tuiadvisor.metrics.lateness.off_core import OffCore
from tuiadvisor.metrics.steps.arrays import finite_or_nones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.rank_samples import Until
    from tuiadvisor.advisor.cluster.run_delay import CoreWait
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MIN_SAMPLES: Final = 4  # a look at one moment is chance
MAX_CORES: Final = 1 << 16
LEAST_NICE, MOST_NICE = -20, 19  # a nice value, as of setpriority(2)
STOPPED: Final = "stopped"


def _cores(value: float | None) -> float | None:
    """A limit that can be one."""
    return value if value is not None and 0 < value < MAX_CORES else None


def _nice(value: int | None) -> int | None:
    """A nice value that can be one."""
    return value if value is not None and LEAST_NICE <= value <= MOST_NICE else None


# Of one sample, each a number, NaN where it was not told: whether the process was stopped; periods of its CPU limit so
# far, and those that held it back; the limit in cores; looks at its state so far, and those that found it stopped;
# seconds its training thread ran so far; that thread's nice value.
STOPPED_NOW, PERIODS, THROTTLED, LIMIT, LOOKS, STOPPED_LOOKS, RUN_S, NICE = range(8)
NUM_FIELDS: Final = 8
COUNTS: Final = frozenset({PERIODS, THROTTLED, LOOKS, STOPPED_LOOKS, RUN_S})
UNKNOWN: Final = float("nan")
_Seen = tuple[
    float | None, int, float | None, float | None, float | None, float | None
]  # OffCore's stopped, num_stopped, throttled, limit_cores, run, nice
NOTHING: Final[_Seen] = (None, 0, None, None, None, None)


class Outside:
    """Mutable: feed it HOST payloads."""

    def __init__(self, core_wait: CoreWait) -> None:
        self._core_wait = core_wait
        self._samples = RankSamples(NUM_FIELDS, counts=sorted(COUNTS), falls_anew=(PERIODS, LOOKS))

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
                float(entry.get("state") == STOPPED),
                _told(integer(entry, "cpu_periods")),
                _told(integer(entry, "throttled_periods")),
                _told(_cores(number(entry, "cpu_limit_cores"))),
                _told(integer(entry, "looks")),
                _told(integer(entry, "stopped_looks")),
                _told(number(entry, "run_s")),
                _told(_nice(integer(entry, "nice"))),
            )
            self._samples.add(rank, now_ns, sample)

    def seen(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> list[OffCore]:
        """Of each rank over its last so many seconds, as `CoreWait.shares`; the bound is of the newest ones."""
        waits, most_waits = self._core_wait.bounds(ranks, last_s, until_ns)
        counted = map(self._core_wait.counted, ranks)
        return [
            OffCore(wait, *of_limit_and_stops[:-1], is_counted, most_wait, of_limit_and_stops[-1])
            for wait, of_limit_and_stops, is_counted, most_wait in zip(
                waits, self._seen(ranks, last_s, until_ns), counted, most_waits, strict=True
            )
        ]

    def _seen(self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None) -> list[_Seen]:
        seen = self._samples.until(ranks, until_ns) if last_s >= 0 else None
        if seen is None:
            return [NOTHING] * len(ranks)
        begin, num = _span(seen, last_s)
        counts = {field: seen.at(field, seen.last) - seen.at(field, begin) for field in COUNTS}
        num_looks, num_stopped = counts[LOOKS], counts[STOPPED_LOOKS]
        # The agent's many looks between two samples, else those of the samples; of what is unknown neither.
        of_agent = (num_looks >= num) & (num_stopped >= 0) & (num_stopped <= num_looks)
        num_looks = np.maximum(np.where(of_agent, num_looks, num), 1)
        num_stopped = np.where(of_agent, num_stopped, seen.total(STOPPED_NOW, begin))
        periods, throttled = counts[PERIODS], counts[THROTTLED]
        share = np.clip(throttled / np.where(periods > 0, periods, 1.0), 0.0, 1.0)
        share = np.where(np.isnan(periods + throttled), np.nan, np.where(periods > 0, share, 0.0))
        span_s = np.maximum(seen.times_s(begin), 1e-9)  # of one sample nothing is known, below
        columns = (
            finite_or_nones(num_stopped / num_looks),
            num_stopped.astype(np.int64).tolist(),
            finite_or_nones(share),
            finite_or_nones(seen.at(LIMIT, seen.last)),
            finite_or_nones(np.where(counts[RUN_S] >= 0, counts[RUN_S] / span_s, np.nan)),
            finite_or_nones(seen.at(NICE, seen.last)),
        )
        return [
            one if is_known else NOTHING
            for one, is_known in zip(zip(*columns, strict=True), _is_enough(seen, num).tolist(), strict=True)
        ]

    def nices(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> list[float | None]:
        """Of each rank the nice value alone of what `seen` tells."""
        seen = self._samples.until(ranks, until_ns) if last_s >= 0 else None
        if seen is None:
            return [None] * len(ranks)
        _, num = _span(seen, last_s)
        return finite_or_nones(np.where(_is_enough(seen, num), seen.at(NICE, seen.last), np.nan))


def _span(seen: Until, last_s: float) -> tuple[Ints, Ints]:
    """(place of each rank's first sample of its last so many seconds, how many these are)."""
    begin = np.maximum(seen.num_before(last_s), seen.last + 1 - MAX_SAMPLES)
    return begin, seen.last + 1 - begin


def _is_enough(seen: Until, num: Ints) -> Bools:
    return np.asarray((num >= MIN_SAMPLES) & (seen.last >= 0))


def _told(value: float | None) -> float:
    return UNKNOWN if value is None else float(value)
