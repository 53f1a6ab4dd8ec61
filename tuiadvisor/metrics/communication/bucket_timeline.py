"""What of a gradient exchange compute could hide: the timeline of DDP's buckets, as it was and with other buckets.

In: Exchanges: when the last rank had each piece of the gradients, before the exchange's end; seconds, K steps x P
pieces in the order of launch.  Out: BucketLine. The model is one link that moves one bucket after another at a
constant rate: a bucket starts when its last gradient is ready on the last rank and the bucket before it has gone. The
rate is the one that explains the observed end of each step, so the timeline as it was comes out exactly. Left out, and
said where it is shown: what starting a bucket costs by itself (unknown: one end a step cannot tell it from the rate),
and what compute loses to an exchange beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.arrays import Floats, Ints

MIB: Final = 1 << 20  # as DDP counts bucket_cap_mb
CAPS_MIB: Final = (1, 5, 10, 25, 50)  # of DDP(bucket_cap_mb=...): 25 is its default
HALF_TICK_S: Final = 0.5e-9  # clocks count nanoseconds
MIN_STEPS: Final = 4  # one burst; fewer are an anecdote
WORTH: Final = 0.1  # of the exposed transfer: a smaller part is not worth a word
NEAR_BEST: Final = 0.8  # the largest buckets that save so much of what the best size saves: fewer starts

Lever = Literal["smaller_buckets", "fewer_bytes", "last_gradients", "nothing_exposed"]


@dataclass(frozen=True, slots=True)
class Exchanges:
    """K steps, P pieces of gradients in the order of launch; a piece lies in one bucket."""

    steps_K: Ints
    before_s_KP: Floats  # seconds before the exchange's end at which the last rank had the piece
    backward_s_K: Floats  # ... at which backward had begun on the rank that came last
    bytes_P: Ints
    bucket_P: Ints  # 0, 1, ... ascending


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of the median step, seconds after backward began."""

    num_bytes: int
    ready_s: float  # its last gradient, on the last rank
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class OtherBuckets:
    """The same gradients in buckets of another size."""

    cap_mib: int
    num_buckets: int
    exposed_s_K: Floats
    saved_s_K: Floats  # never below 0 nor above what is exposed


@dataclass(frozen=True, slots=True)
class BucketLine:
    """Seconds a step. Every saving is of exposed transfer alone: waiting for a late rank is no part of it."""

    num_steps: int
    exposed_s_K: Floats  # after the last rank's last gradient
    rate_bytes_s: float | None  # median; None where nothing was exposed
    backward_s: float  # median, until the last gradient
    window_s: float  # median, from the first piece's readiness to the last one's: what can hide anything
    transfer_s: float | None  # of all buckets at that rate
    buckets: tuple[Bucket, ...]  # as they were
    best_buckets: tuple[Bucket, ...]  # with the best other size
    others: tuple[OtherBuckets, ...]
    most_saved_s_K: Floats  # with every piece sent off as soon as it is ready
    best: OtherBuckets | None  # None: no other size saves enough to be worth it
    lever: Lever


def exposed_s(before_s_KP: Floats, bytes_P: Ints, lasts: Sequence[int], rate_K: Floats) -> Floats:
    """Seconds that a step's exchange lasts beyond its last gradient, in buckets that end with these pieces; K.

    rate_K: bytes/s, above 0, may be infinite.
    """
    ready_KP = np.minimum.accumulate(before_s_KP, axis=1)  # launched in their order
    left_G = _left(bytes_P, lasts)
    end_K = (left_G[None, :] / rate_K[:, None] - ready_KP[:, lasts]).max(axis=1)
    return np.asarray(np.maximum(end_K + ready_KP[:, -1], 0.0))


def rates(before_s_KP: Floats, bytes_P: Ints, lasts: Sequence[int]) -> Floats:
    """Bytes/s at which each step's buckets end when they did: the least that lets none end later; K.

    Infinite where the exchange ended with its last gradient.
    """
    ready_KP = np.minimum.accumulate(before_s_KP, axis=1)
    found = np.full(before_s_KP.shape[0], np.inf)
    ready_KG = ready_KP[:, lasts]
    timed = ready_KG[:, -1] > HALF_TICK_S
    found[timed] = (_left(bytes_P, lasts)[None, :] / ready_KG[timed]).max(axis=1)
    return found


def _left(bytes_P: Ints, lasts: Sequence[int]) -> Floats:
    """Bytes from the beginning of each bucket to the end of all."""
    starts = [0, *(last + 1 for last in lasts[:-1])]
    remaining = np.cumsum(np.asarray(bytes_P, dtype=np.float64)[::-1])[::-1]
    return np.asarray(remaining[starts])


def lasts_of(bucket_P: Ints) -> list[int]:
    """The last piece of each bucket."""
    ends = np.flatnonzero(np.diff(bucket_P))
    return [*ends.tolist(), bucket_P.size - 1]


def lasts_with_cap(bytes_P: Ints, cap_bytes: int) -> list[int]:
    """The last piece of each bucket if DDP filled them up to this size: full as soon as it is reached.

    Source: torch.distributed's compute_bucket_assignment_by_size.
    """
    found, held = [], 0
    for place, size in enumerate(bytes_P.tolist()):
        held += size
        if held >= cap_bytes or place == bytes_P.size - 1:
            found.append(place)
            held = 0
    return found


def bucket_line(seen: Exchanges) -> BucketLine | None:
    """What the exchanges tell; None below MIN_STEPS."""
    before_KP = np.minimum.accumulate(np.maximum(seen.before_s_KP, 0.0), axis=1)
    if before_KP.shape[0] < MIN_STEPS or not before_KP.shape[1]:
        return None
    lasts = lasts_of(seen.bucket_P)
    rate_K = rates(before_KP, seen.bytes_P, lasts)
    exposed_K = before_KP[:, -1]

    def saved(ends: Sequence[int]) -> tuple[Floats, Floats]:
        then_K = exposed_s(before_KP, seen.bytes_P, ends, rate_K)
        saved_K = np.minimum(exposed_K - then_K, exposed_K)
        return then_K, np.where(saved_K > HALF_TICK_S, saved_K, 0.0)

    others = []
    for cap in CAPS_MIB:
        ends = lasts_with_cap(seen.bytes_P, cap * MIB)
        others.append(OtherBuckets(cap, len(ends), *saved(ends)))
    most_K = saved(range(seen.bytes_P.size))[1]
    known = rate_K[np.isfinite(rate_K)]
    rate = float(np.median(known)) if known.size else None
    median_P, backward_s = np.median(before_KP, axis=0), float(np.median(seen.backward_s_K))
    window_s = float(median_P[0] - median_P[-1])
    transfer_s = float(seen.bytes_P.sum()) / rate if rate else None
    best = _best(others, float(exposed_K.mean()))
    return BucketLine(
        num_steps=before_KP.shape[0],
        exposed_s_K=exposed_K,
        rate_bytes_s=rate,
        backward_s=max(backward_s - float(median_P[-1]), 0.0),
        window_s=window_s,
        transfer_s=transfer_s,
        buckets=_timeline(backward_s - median_P, seen.bytes_P, lasts, rate),
        best_buckets=_timeline(
            backward_s - median_P, seen.bytes_P, lasts_with_cap(seen.bytes_P, best.cap_mib * MIB), rate
        )
        if best is not None
        else (),
        others=tuple(others),
        most_saved_s_K=most_K,
        best=best,
        lever=_lever(best, transfer_s, window_s),
    )


def _best(others: Sequence[OtherBuckets], exposed_mean_s: float) -> OtherBuckets | None:
    """The largest size that is near the best one."""
    most_s = max(float(one.saved_s_K.mean()) for one in others)
    if most_s < WORTH * exposed_mean_s or most_s <= 0:
        return None
    return next(one for one in reversed(others) if one.saved_s_K.mean() >= NEAR_BEST * most_s)


def _lever(best: OtherBuckets | None, transfer_s: float | None, window_s: float) -> Lever:
    if transfer_s is None:
        return "nothing_exposed"
    if best is not None:
        return "smaller_buckets"
    return "fewer_bytes" if transfer_s > window_s else "last_gradients"


def _timeline(ready_P: Floats, bytes_P: Ints, lasts: Sequence[int], rate: float | None) -> tuple[Bucket, ...]:
    """The buckets of the median step, one after another."""
    if rate is None:
        return ()
    buckets, free_s, start = [], -np.inf, 0
    for last in lasts:
        num_bytes = int(bytes_P[start : last + 1].sum())
        begin_s = max(float(ready_P[last]), free_s)
        free_s = begin_s + num_bytes / rate
        buckets.append(Bucket(num_bytes, float(ready_P[last]), begin_s, free_s))
        start = last + 1
    return tuple(buckets)
