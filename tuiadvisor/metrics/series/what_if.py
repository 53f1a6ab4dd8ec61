"""What a step would take if a loss were gone.

In: work between barriers, R ranks x K steps, and per-step losses.  Out: loss a step with its interval, shares
among several culprits, and the slowdown S with its parts. Shares never sum to more than the step.
Sources: What-if analysis (OSDI'25) for S, S_t, S_w, M_W; the airport game's Shapley value for the shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.series.bootstrap import mean_interval
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, NUM_STANDARD_ERRORS, split_scores
from tuiadvisor.metrics.steps.arrays import median

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.metrics.steps.arrays import Floats, Ints

CONFIDENCE: Final = 0.9  # of every gain that is promised: in one of twenty it is less
NORMAL_QUANTILE: Final = 1.645  # 95 %: the lower end of an interval of CONFIDENCE
MAX_LOSS: Final = 0.99  # of the step
MAX_SPEEDUP: Final = 1 / (1 - MAX_LOSS)  # where nearly all of the step is lost
MAX_POOL: Final = 4096  # workers that are drawn from, spread evenly over all
SLOWEST_WORKERS: Final = 0.03  # of the ranks, at least one: M_W heals the slowest 3 % (OSDI'25)
MAX_WHAT_IF_CELLS: Final = 1 << 15  # rank-steps that are healed; of more every n-th


@dataclass(frozen=True, slots=True)
class Gain:
    """Step time now and without a loss, seconds, with the interval of the speed-up."""

    step_s: float
    loss_s: float
    loss_low_s: float
    loss_high_s: float
    speedup: float
    speedup_low: float
    speedup_high: float


@dataclass(frozen=True, slots=True)
class Slowdown:
    """S and its parts; 1 = every rank and step at its ideal."""

    S: float
    S_t: dict[str, float]
    S_w: dict[int, float]  # by row
    M_W: float | None


def like_peers(work: Floats, peers: Floats) -> Floats:
    """The work with the distribution of its peers, keeping its own order of long and short steps."""
    pool = np.sort(peers, axis=None)
    if pool.size > MAX_POOL:
        pool = pool[np.linspace(0, pool.size - 1, MAX_POOL).astype(np.int64)]
    place = np.empty(work.size)
    place[np.argsort(work, kind="stable")] = (np.arange(work.size) + 0.5) / work.size
    return np.interp(place, (np.arange(pool.size) + 0.5) / pool.size, pool)


def shared_loss(work_RK: Floats, culprits: Ints, cured_CK: Floats) -> tuple[Floats, Floats]:
    """(loss each step K, part of each culprit C x K) if the culprits worked as in cured_CK.

    The part of a culprit is its Shapley value: where two are late together, they share what only both could
    save, and the later one answers alone for what it adds. Parts sum to the loss.
    """
    others = np.setdiff1d(np.arange(work_RK.shape[0]), culprits)
    floor_K = np.maximum(work_RK[others].max(axis=0, initial=-np.inf), cured_CK.max(axis=0))
    loss_K = work_RK.max(axis=0) - floor_K
    late = np.maximum(work_RK[culprits] - floor_K, 0.0)
    order = np.argsort(late, axis=0, kind="stable")
    ascending = np.take_along_axis(late, order, axis=0)
    steps = np.diff(ascending, axis=0, prepend=0.0)
    share = np.cumsum(steps / np.arange(len(culprits), 0, -1)[:, None], axis=0)
    parts = np.empty_like(share)
    np.put_along_axis(parts, order, share, axis=0)
    # Clipping at zero counts noise as loss: the parts are scaled to what the job as a whole loses.
    total = parts.sum()
    return loss_K, parts * (max(float(loss_K.sum()), 0.0) / total if total > 0 else 0.0)


def gain(step_K: Floats, loss_K: Floats) -> Gain:
    """Step time and loss over the window with its 90 % interval; both in step order, no NaN.

    Steps near each other resemble each other, so the intervals come from blocks of them as long as they do. The
    speed-up's is that of the lost share, to first order what each step adds to the ratio of the two means. Of few steps
    such an interval goes beyond them all: no step is promised shorter than the least that one had beside its loss.
    """
    step_s, loss_s = float(step_K.mean()), float(loss_K.mean())
    sides = levels_of_loss(loss_K)
    low_s, high_s = _interval(loss_K, sides)
    loss_s = min(loss_s, MAX_LOSS * step_s)
    share = loss_s / step_s if step_s > 0 else 0.0
    low = high = 0.0
    if 0 < share < 1:
        moves_K = (loss_K - share * step_K) / step_s
        low, high = _interval(moves_K - moves_K.mean(), sides)
    expected = 1 / (1 - share)
    kept_s = max(float((step_K - loss_K).min()), (1 - MAX_LOSS) * step_s)
    # What is surely lost is surely gained: a finding and the session that weighs it must not disagree.
    least = step_s / (step_s - min(low_s, loss_s)) if low_s > 0 else 1 / MAX_SPEEDUP
    return Gain(
        step_s=step_s,
        loss_s=loss_s,
        loss_low_s=min(low_s, loss_s),
        loss_high_s=min(max(min(high_s, float(loss_K.max())), loss_s), MAX_LOSS * step_s),
        speedup=expected,
        speedup_low=min(max(1 / (1 - share - low), least), expected),
        speedup_high=max(1 / max(1 - share - high, kept_s / step_s if step_s > 0 else 1.0), expected),
    )


def levels_of_loss(loss_K: Floats) -> tuple[slice, ...]:
    """The stretches of steps that lose one amount each: the whole, or two of which each surely loses something.

    A loss that is smaller since the middle, as where the noise of all ranks has grown around it, has two levels. Taken
    for noise that moves slowly the change between them would outweigh both.
    """
    whole = (slice(0, loss_K.size),)
    if loss_K.size < 2 * MIN_SEGMENT_STEPS or mean_interval(loss_K, CONFIDENCE)[0] > 0:
        return whole
    scores, index = split_scores(loss_K[None])
    if scores[0] <= NUM_STANDARD_ERRORS:
        return whole
    sides = (slice(0, int(index[0])), slice(int(index[0]), loss_K.size))
    return sides if all(mean_interval(loss_K[side], CONFIDENCE)[0] > 0 for side in sides) else whole


def surely_lost(loss_K: Floats) -> bool:
    """Whether the mean loss is above zero beyond chance, of one level or of two."""
    return _interval(loss_K, levels_of_loss(loss_K))[0] > 0


def _interval(values_K: Floats, sides: tuple[slice, ...]) -> tuple[float, float]:
    """Of the mean; what is not known of each side adds up as independent errors do."""
    if len(sides) == 1:
        return mean_interval(values_K, CONFIDENCE)
    mean, below, above = float(values_K.mean()), 0.0, 0.0
    for side in sides:
        values, part = values_K[side], (side.stop - side.start) / values_K.size
        low, high = mean_interval(values, CONFIDENCE)
        below += (part * (float(values.mean()) - low)) ** 2
        above += (part * (high - float(values.mean()))) ** 2
    return mean - sqrt(below), mean + sqrt(above)


def of_events(found: Gain, num_events: int) -> Gain:
    """The gain of so many single events, its lower end by how often as many may come: steps tell little of the rare."""
    return at_least(found, least_of_events(num_events))


def least_of_events(num_events: int) -> float:
    """Share of so many events that as long a time surely brings: the lower end of CONFIDENCE.

    Source: 5 % quantile of a Poisson mean, Wilson and Hilferty's approximation of chi square.
    """
    return float(max(1 - 1 / (9 * num_events) - NORMAL_QUANTILE / (3 * sqrt(num_events)), 0.0) ** 3)


def at_least(found: Gain, share: float) -> Gain:
    """The gain of a loss of which this share is sure, whatever its steps tell."""
    low_s = max(found.loss_low_s, share * found.loss_s)
    speedup = min(found.step_s / (found.step_s - low_s), found.speedup)
    return replace(found, loss_low_s=low_s, speedup_low=max(found.speedup_low, speedup))


def down_to(found: Gain, least_s: float) -> Gain:
    """The gain whose upper end leaves a step at least so many seconds, which nothing of the loss is part of."""
    if least_s <= 0:
        return found
    return replace(found, speedup_high=max(min(found.speedup_high, found.step_s / least_s), found.speedup))


def together(parts: Iterable[Gain]) -> Gain:
    """The gain of several losses of the same steps that share nothing; at least one."""
    parts = tuple(parts)
    step_s = parts[0].step_s
    lost = [
        min(sum(losses), MAX_LOSS * step_s)
        for losses in zip(*((one.loss_s, one.loss_low_s, one.loss_high_s) for one in parts), strict=True)
    ]
    return Gain(step_s, *lost, *(step_s / (step_s - loss_s) for loss_s in lost))


def part_of(found: Gain, share: float) -> Gain:
    """The gain of this share of a loss, 0 to 1, its interval with it."""
    lost = (share * loss_s for loss_s in (found.loss_s, found.loss_low_s, found.loss_high_s))
    ends = (found.speedup, found.speedup_low, found.speedup_high)
    return Gain(found.step_s, *lost, *(1 / (1 - share * (1 - 1 / end)) for end in ends))


def no_shorter_than(found: Gain, least_s: float) -> Gain:
    """The gain that leaves a step at least so many seconds, which something else takes however it is cured."""
    if least_s <= 0:
        return found
    most_s, most = max(found.step_s - least_s, 0.0), max(found.step_s / least_s, 1.0)
    lost = (min(loss_s, most_s) for loss_s in (found.loss_s, found.loss_low_s, found.loss_high_s))
    factors = (min(factor, most) for factor in (found.speedup, found.speedup_low, found.speedup_high))
    return Gain(found.step_s, *lost, *factors)


def of_share(step_s: float, share: float, low: float, high: float | None = None) -> Gain:
    """The gain of a share of the step that is known for the window as a whole.

    low: what of it is surely lost; high: what may be lost with it, None: no more than the share.
    """
    share, low = min(share, MAX_LOSS), min(max(low, 0.0), share, MAX_LOSS)
    high = share if high is None else min(max(high, share), MAX_LOSS)
    lost = (share, low, high)
    return Gain(step_s, *(part * step_s for part in lost), *(1 / (1 - part) for part in lost))


def what_if_stride(num_cells: int) -> int:
    """Every how many-th step of so many rank-steps `slowdown` looks at."""
    return max(1, num_cells // MAX_WHAT_IF_CELLS)


def slowdown(work_RK: Floats, transfer_K: Floats, phases: Mapping[str, Floats]) -> Slowdown | None:
    """S of the job: the mean step against the mean step with every rank at the mean of its peers.

    phases: name -> R x K seconds of the same steps, parts of the work. None for an empty window.
    """
    stride = what_if_stride(work_RK.size)
    work_RK, transfer_K = work_RK[:, ::stride], transfer_K[::stride]
    if work_RK.size == 0:
        return None
    mean_K = work_RK.mean(axis=0)
    transfer_s = median(transfer_K)
    ideal = float(mean_K.mean()) + transfer_s
    if ideal <= 0:
        return None
    measured = float(work_RK.max(axis=0).mean() + transfer_K.mean())
    by_type = {"transfer": float(mean_K.mean() + transfer_K.mean()) / ideal}
    for name, values_RK in phases.items():
        part = values_RK[:, ::stride]
        late_K = (part - part.mean(axis=0)).max(axis=0)
        by_type[name] = (ideal + float(late_K.mean())) / ideal
    late_R = np.maximum(work_RK - mean_K, 0.0).mean(axis=1)
    by_worker = {row: (ideal + float(late)) / ideal for row, late in enumerate(late_R)}
    num_fixed = max(1, int(np.ceil(SLOWEST_WORKERS * len(late_R))))
    fixed = np.argsort(-late_R, kind="stable")[:num_fixed]
    healed = work_RK.copy()
    healed[fixed] = mean_K
    recovered = measured - float(healed.max(axis=0).mean() + transfer_K.mean())
    M_W = recovered / (measured - ideal) if measured - ideal > 1e-9 * ideal else None
    return Slowdown(measured / ideal, by_type, by_worker, M_W)
