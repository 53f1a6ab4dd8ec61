"""Which stage of the data loaders the training threads wait for, from what lay in their queues when they asked.

In: batches seen in bursts, one column each.  Out: LoaderWait. Time is given to the stage that the queues name; a stage
is named where most of the time is its own, else none is. What was not seen is nobody's. Bursts may be further apart
than the window is long: what was seen before it counts as long as steps wait as long as they did then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tuiadvisor.events import BATCHES_HELD_BITS, UNKNOWN

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

Stage = Literal["workers", "turn", "pin", "ready", "own", ""]
# Chosen: fewer batches are chance, and a stage that does not hold most of the time is not what is waited for.
MIN_BATCHES: Final = 8
MOST: Final = 0.6
# The newest: in the first steps queues are still being filled.
RECENT_BATCHES: Final = 16
# Chosen, of batches: a loader just as fast as the step is at its limit in half of them where no batch is made ahead,
# and in all where one is; one that is a tenth faster in none.
AT_ITS_LIMIT: Final = 0.25
# Chosen, times: the mean of 16 batches, every other one waited for, varies by a quarter; beyond it another cause waits.
ANOTHER_WAIT: Final = 1.5


@dataclass(frozen=True, slots=True)
class LoaderBatches:
    """B batches that were asked for; counts are UNKNOWN where they were not seen."""

    wait_s_B: Floats  # from asking to having it
    workers_B: Ints  # worker processes of its loader
    ready_B: Ints  # in the queue that the training thread reads
    unpinned_B: Ints  # made by workers, before the thread that pins; UNKNOWN without one
    held_B: Ints  # read already, and not yet in turn
    making_B: Ints  # asked of the workers, and not yet made
    collate_s_B: Floats  # of a loader without workers; NaN where it was not seen
    seen_until: int | None = None  # job step of the newest, where none was seen in the window itself

    def __len__(self) -> int:
        """Batches."""
        return int(self.wait_s_B.size)


_COLUMNS: Final = tuple(name for name in LoaderBatches.__slots__ if name.endswith("_B"))


@dataclass(frozen=True, slots=True)
class LoaderWait:
    """What those batches say together."""

    num_batches: int
    workers: int  # of the loader that most batches came from
    stage: Stage  # empty: none holds most of the time
    share: float  # of the time until the batches were there
    collate_share: float | None  # of that time; None with workers, or where it was not seen
    seen_until: int | None = None  # as of LoaderBatches


def loader_wait(batches: LoaderBatches) -> LoaderWait | None:
    """None with too few batches, or without any time."""
    total_s = float(batches.wait_s_B.sum())
    if len(batches) < MIN_BATCHES or total_s <= 0:
        return None
    shares = {
        stage: float(batches.wait_s_B[rows].sum()) / total_s for stage, rows in _stages(batches).items()
    }
    stage = max(shares, key=lambda one: shares[one])
    named = shares[stage] >= MOST
    seen = ~np.isnan(batches.collate_s_B)
    own_s = float(batches.wait_s_B[seen].sum())
    return LoaderWait(
        num_batches=len(batches),
        workers=int(np.bincount(np.maximum(batches.workers_B, 0)).argmax()),
        stage=stage if named else "",
        share=shares[stage],
        collate_share=float(batches.collate_s_B[seen].sum()) / own_s if own_s > 0 else None,
        seen_until=batches.seen_until,
    )


def recent_rows(jobs_B: Ints, wait_s_B: Floats, steps: Ints, wait_s: float) -> tuple[Ints, int | None]:
    """(rows of the batches that tell of these job steps, the newest one's step where all are of earlier steps).

    All that were seen in them; where these are too few, the newest before their end, if their steps waited as long as
    steps wait now. jobs_B: job step of each batch. wait_s: mean of these steps, NaN where it is not known.
    """
    within = np.flatnonzero(np.isin(jobs_B, steps))
    if within.size >= MIN_BATCHES or not steps.size:
        return within, None
    before = np.flatnonzero(jobs_B <= steps.max())
    newest = before[np.argsort(jobs_B[before], kind="stable")][-RECENT_BATCHES:]
    if newest.size < MIN_BATCHES:
        return within, None
    then_s = float(wait_s_B[newest].sum()) / np.unique(jobs_B[newest]).size
    if not wait_s / ANOTHER_WAIT <= then_s <= wait_s * ANOTHER_WAIT:
        return within, None
    until = int(jobs_B[newest].max())
    return newest, until if until < steps.min() else None


def share_at_limit(batches: LoaderBatches) -> float:
    """Of the newest batches, in how many shorter steps would have waited: all workers at work, or no batch there.

    NaN where too few batches of workers were seen: then nobody is cleared by it, nor blamed.
    """
    seen = (batches.workers_B > 0) & (batches.making_B >= 0)
    all_at_work = batches.making_B >= batches.workers_B
    # Of several workers one may be what all wait for, while the others have nothing to do.
    has_none = (batches.ready_B == 0) & (batches.unpinned_B <= 0)
    at_limit = (all_at_work | has_none)[seen][-RECENT_BATCHES:]
    return float(np.mean(at_limit)) if at_limit.size >= MIN_BATCHES else np.nan


def _stages(batches: LoaderBatches) -> dict[Stage, Bools]:
    """Which batches waited in which stage. Of a batch with unknown queues no stage is said."""
    has_workers = batches.workers_B > 0
    is_empty = has_workers & (batches.ready_B == 0)
    is_pinning = is_empty & (batches.unpinned_B > 0)
    is_held = is_empty & ~is_pinning & (batches.held_B > 0)
    return {
        "workers": is_empty & ~is_pinning & (batches.held_B == 0),
        "turn": is_held,
        "pin": is_pinning,
        "ready": has_workers & (batches.ready_B > 0),
        "own": batches.workers_B == 0,
    }


def joined(parts: list[LoaderBatches]) -> LoaderBatches | None:
    """Batches of several ranks as one; None without any."""
    if not parts:
        return None
    until = [part.seen_until for part in parts if part.seen_until is not None]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return replace(parts[0], **columns, seen_until=max(until, default=None))


def batches_of(took_ns: Ints, workers: Ints, ready: Ints, unpinned: Ints, detail: Ints) -> LoaderBatches:
    """From an event's columns; `detail` is nanoseconds of collate without workers, batches held with them."""
    has_workers = workers > 0
    wait_s: Floats = took_ns.astype(np.float64) * 1e-9
    collate_s = np.where(has_workers | (detail < 0), np.nan, detail * 1e-9)
    return LoaderBatches(
        wait_s_B=wait_s,
        workers_B=workers,
        ready_B=ready,
        unpinned_B=unpinned,
        held_B=np.where(has_workers & (detail >= 0), detail & (1 << BATCHES_HELD_BITS) - 1, UNKNOWN),
        making_B=np.where(has_workers & (detail >= 0), (detail >> BATCHES_HELD_BITS) - 1, UNKNOWN),
        collate_s_B=np.minimum(collate_s, wait_s),
    )
