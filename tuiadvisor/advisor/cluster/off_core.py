"""What kept each rank's process off its cores from outside: its CPU limit, its priority, stops by signals, storage.

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
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.cluster.rank_samples import Until
    from tuiadvisor.advisor.cluster.run_delay import CoreWait
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

MIN_SAMPLES: Final = 4  # a look at one moment is chance
MOST_LOOKS_S: Final = 1000  # a second: a hundred times what an agent does, so beyond it no agent counted
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
# seconds its training thread ran so far; that thread's nice value. Of the looks those that found its training thread
# waiting for storage; looks at its loader's workers, those that found one so, and those that found one running; those
# at the thread while it waited for data; how many workers there are.
STOPPED_NOW, PERIODS, THROTTLED, LIMIT, LOOKS, STOPPED_LOOKS, RUN_S, NICE = range(8)
STORAGE_LOOKS, WORKER_LOOKS, WORKER_STORAGE_LOOKS, WORKER_RUNNING_LOOKS = range(8, 12)
DATA_STORAGE_LOOKS, WORKERS = 12, 13
NUM_FIELDS: Final = 14
OF_READERS: Final = (
    STORAGE_LOOKS, WORKER_LOOKS, WORKER_STORAGE_LOOKS, WORKER_RUNNING_LOOKS, DATA_STORAGE_LOOKS,
)  # fmt: skip
COUNTS: Final = frozenset({PERIODS, THROTTLED, LOOKS, STOPPED_LOOKS, RUN_S, *OF_READERS})
UNKNOWN: Final = float("nan")
# fmt: off
_Seen = tuple[
    float | None, int, float | None, float | None, float | None,
    float | None, float | None, int, bool, float | None, float | None,
]  # OffCore's stopped, num_stopped, throttled, limit_cores, run; nice and what follows it
# fmt: on
NUM_BEFORE_WAIT: Final = 5  # of these, that stand before what `CoreWait` tells
NOTHING: Final[_Seen] = (None, 0, None, None, None, None, None, 0, False, None, None)


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
                _told(integer(entry, "storage_looks")),
                _told(integer(entry, "worker_looks")),
                _told(integer(entry, "worker_storage_looks")),
                _told(integer(entry, "worker_running_looks")),
                _told(integer(entry, "data_storage_looks")),
                _told(integer(entry, "workers")),
            )
            self._samples.add(rank, now_ns, sample)

    def seen(
        self, ranks: Sequence[int], last_s: float, until_ns: Sequence[int] | None = None
    ) -> list[OffCore]:
        """Of each rank over its last so many seconds, as `CoreWait.shares`; the bound is of the newest ones."""
        waits, most_waits = self._core_wait.bounds(ranks, last_s, until_ns)
        counted = map(self._core_wait.counted, ranks)
        gone = self._core_wait.is_gone(ranks, last_s, until_ns) if last_s >= 0 else [False] * len(ranks)
        return [
            # mypy loses the types of two tuples in one call once they are this long.
            OffCore(wait, *more[:NUM_BEFORE_WAIT], is_counted, most, *more[NUM_BEFORE_WAIT:], is_gone)  # type: ignore[arg-type]
            for wait, more, is_counted, most, is_gone in zip(
                waits, self._seen(ranks, last_s, until_ns), counted, most_waits, gone, strict=True
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
            *_readers(counts, of_agent, MOST_LOOKS_S * span_s),
            finite_or_nones(seen.at(WORKERS, seen.last)),
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


def _readers(
    counts: Mapping[int, Floats], of_agent: Bools, most: Floats
) -> tuple[list[float | None], list[int], list[bool], list[float | None]]:
    """(share of looks that found it waiting for storage, at so many moments, whether at its loader's workers, running).

    Workers of one loader wait together: of many at one moment the error is that of one.
    """
    looks, worker_looks = counts[LOOKS], counts[WORKER_LOOKS]
    in_workers = worker_looks > 0
    num = np.where(in_workers, worker_looks, looks)
    of_data = counts[DATA_STORAGE_LOOKS]  # of older agents: whatever the thread does
    of_thread = np.where(np.isnan(of_data), counts[STORAGE_LOOKS], of_data)
    found = np.where(in_workers, counts[WORKER_STORAGE_LOOKS], of_thread)
    is_known = (
        of_agent & (looks <= most) & (worker_looks >= 0) & (num <= most) & (found >= 0) & (found <= num)
    )
    moments = np.where(is_known, np.minimum(num, looks), 0)
    share = np.where(is_known & (moments > 0), found / np.maximum(num, 1), np.nan)
    running = counts[WORKER_RUNNING_LOOKS]
    is_running = is_known & in_workers & (moments > 0) & (running >= 0) & (running + found <= num)
    return (
        finite_or_nones(share),
        moments.astype(np.int64).tolist(),
        (is_known & in_workers).tolist(),
        finite_or_nones(np.where(is_running, running / np.maximum(num, 1), np.nan)),
    )


def _told(value: float | None) -> float:
    return UNKNOWN if value is None else float(value)
