"""The ranks that the others wait for: who, since when, how much, how often.

In: work between barriers of the steady steps, R ranks x K steps, no NaN.  Out: Straggler rows with their loss,
interval, onset and persistence. A rank is named only for arriving late, never for waiting and never for step
time, which is the same on all ranks. Sources: TraceML (imbalance), NVRx (score), Greyhound (verified onset).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from tuiadvisor.metrics.lateness.beyond_noise import beyond_slow_noise
from tuiadvisor.metrics.lateness.habits import habits, late_more_often, times_late
from tuiadvisor.metrics.lateness.if_in_time import all_cured, beyond_others, calm
from tuiadvisor.metrics.lateness.persistence import (
    between_modes,
    is_in_most_steps,
    late_beyond_s,
    persistence,
)
from tuiadvisor.metrics.lateness.precedent import beyond_past
from tuiadvisor.metrics.lateness.stalls import find_stalls
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS, Change
from tuiadvisor.metrics.series.drift import Drift, find_drift
from tuiadvisor.metrics.series.recent_noise import (
    RECENT_STEPS,
    growth,
    recent_noise_s,
    repetition,
)
from tuiadvisor.metrics.series.slow_noise import without_levels
from tuiadvisor.metrics.series.what_if import (
    Gain,
    at_least,
    gain,
    least_of_events,
    of_events,
    shared_loss,
    surely_lost,
)
from tuiadvisor.metrics.steps.arrays import (
    Bools,
    Floats,
    Ints,
    lower_quartile,
    median,
    medians,
    row_mad_sigma,
    row_percentiles,
)
from tuiadvisor.metrics.window.rank_changes import changes_against
from tuiadvisor.metrics.window.regime import MIN_SHIFT_SHARE, NEW_REGIME_SHARE, Regime

MIN_EXCESS_SHARE: Final = 0.02  # of the step: less is no rank that is worth a name
MIN_LOSS_SHARE: Final = 0.015  # of the step: smaller losses are not worth a name
# Ranks of a host or a stage that are late together share one loss: none of them has enough of it to be named alone.
MIN_CROWD: Final = 4
MIN_CROWD_EXCESS: Final = 0.05  # of the step, each of them, in most steps
QUARTER_TO_TAIL: Final = (
    0.970  # standard deviations from the 5 % to the 25 % quantile of a normal distribution
)
MAX_DATED: Final = 32  # ranks late together that are dated one by one
FEW_STEPS: Final = 8
# Of its present mean lateness: who was late by less before a change began with it (`_onset` asks a shift of 0.4).
BEGUN_SHARE: Final = 0.6
PAST_STEPS: Final = 64  # before the window, that tell the noise of a step too


@dataclass(frozen=True, slots=True)
class Late:
    """One rank that makes the others wait."""

    row: int
    excess_s: float  # its work beyond its peers', in a typical step in which it is late
    mean_excess_s: float  # over all steps, without its longest ones
    late_by_s: (
        float  # mean over the steps in which it is late, as what it costs and what others wait are means
    )
    score: float  # peers' work / its own; 1 = as fast as they
    gain: Gain  # its share of the loss, and the step without it
    since: int  # column (of the columns given) of the onset; 0 when it was late from the start
    onset_seen: bool
    hit_share: float  # of the steps in which it was late
    persistent: bool
    hit_K: Bools
    loss_K: Floats
    is_rare: bool = False  # long stalls in few steps, rather than a little in many
    beyond_past: float | None = None  # its lateness over the largest of the past; None: too little past
    surely: float = 0.0  # share of its lateness that others than its steps vouch for
    drift: Drift | None = None  # its lateness grew little by little over all steps given


def _reference_rows(typical_R: Floats) -> tuple[Ints, float]:
    reference = lower_quartile(typical_R)
    return np.flatnonzero(typical_R <= reference), reference


def _candidates(
    work_RK: Floats, deviation_RK: Floats, cycle_s: float, past_RK: Floats, is_sure_R: Bools
) -> tuple[Ints, Bools, dict[int, int]]:
    """Rows that may be late, in which steps each row was late, and how often those that are so now and then.

    past_RK: deviations before the window, of which any number may be there; what a peer's noise is they know too, but
    noise may have grown since, on all ranks alike. is_sure_R: rows that are late by what others than their steps tell.
    """
    before_RK, past_RK = past_RK, past_RK[:, -PAST_STEPS:]
    num_steps = deviation_RK.shape[1]
    typical_R = medians(deviation_RK, 1)
    peers, reference = _reference_rows(typical_R)
    excess_R = typical_R - reference
    own_R = row_mad_sigma(deviation_RK)
    sigma, num_known = float(own_R[peers].max()), num_steps
    present = sigma
    if past_RK.shape[1] > num_steps:
        sigma = max(sigma, float(row_mad_sigma(past_RK[peers]).max()))
        both_RK = np.concatenate((past_RK, deviation_RK), axis=1)
        if growth(both_RK, past_RK.shape[1]) == 1:  # else the past knows nothing of what is noise now
            num_known = past_RK.shape[1]
        present = max(sigma, recent_noise_s(both_RK)) if num_steps < RECENT_STEPS else sigma
    # A rank that is more restless itself is known less well. Of two ranks one is ahead by what the other is behind:
    # their errors add up.
    variance_R = np.maximum(own_R, present) ** 2 + present**2
    num_new = num_steps / repetition(deviation_RK[peers])
    error_R = 1.25 * np.sqrt(variance_R * (2 if typical_R.size == 2 else 1) / num_new)
    # A sigma from eight steps is often half the true one: the fewer the steps, the more errors are asked for.
    limit_R = np.maximum(MIN_EXCESS_SHARE * cycle_s, 3 * (1 + FEW_STEPS / num_known) * error_R)
    if typical_R.size == 2:
        sigma = min(sigma, float(_clean_sigma(deviation_RK).max()))
    hit_s = max(MIN_SHIFT_SHARE * cycle_s, 3 * sigma)
    beyond_RK = deviation_RK - reference
    hit_RK = beyond_RK > hit_s
    is_late_R = excess_R > limit_R
    often = late_more_often(beyond_RK, hit_RK, is_late_R)
    if typical_R.size == 2:
        # Where one is always late, the other is late in the steps in which its own work is longer.
        own_RK = hit_RK & (work_RK - medians(work_RK, 1)[:, None] > hit_s)
        often |= late_more_often(beyond_RK, own_RK, np.zeros(2, dtype=np.bool_))
    times = times_late(beyond_RK, hit_RK, np.flatnonzero(often & ~is_late_R))
    times |= habits(before_RK, beyond_RK, hit_s, is_late_R | often)
    often[list(times)] = True
    peers = np.setdiff1d(peers, np.flatnonzero(often))
    is_late_R |= often
    is_late_R |= is_sure_R & (excess_R > MIN_EXCESS_SHARE * cycle_s)
    rows = np.flatnonzero(is_late_R)
    return rows[~np.isin(rows, peers)], np.asarray(hit_RK), times


def _clean_sigma(deviation_RK: Floats) -> Floats:
    """Standard deviation of a step of each row, by its calmer tail: of two ranks one's late steps are the other's early
    ones, and a third of them makes the middle half of the steps twice as wide.
    """
    very_low, low, high, very_high = row_percentiles(deviation_RK, 5, 25, 75, 95)
    return np.asarray(np.minimum(low - very_low, very_high - high) / QUARTER_TO_TAIL)


def _onset(changes: tuple[Change, ...], excess_s: float, level_s: float) -> int | None:
    """The first step of the present excess: the upward change that brought much of it and was not undone.

    level_s: the same excess as the changes measure it. Who is not yet late after a change did not begin with it: of two
    ranks one seems to become slower where the other recovers.
    """
    index: int | None = None
    later_s = sum(change.shift for change in changes)
    for change in changes:
        later_s -= change.shift
        if change.shift < -0.4 * excess_s:
            index = None
        elif change.shift > 0.4 * excess_s and index is None and later_s < 0.6 * level_s:
            index = change.index
    return index


def _begins_with(change: Change, excess_K: Floats, start: int, present_s: float) -> bool:
    """Whether a rank that is late for a while, again and again, was not so before its first change, an upward one.

    Lateness that is restless from the start moves up and down, too: its first move upward is no beginning.
    """
    before_K = excess_K[: max(0, change.index - start)]
    if (
        before_K.size < MIN_SEGMENT_STEPS
    ):  # little of what was before is in these steps: what it brought tells
        return change.shift > 0
    return change.shift > 0 and float(before_K.mean()) < BEGUN_SHARE * present_s


def _late(
    row: int,
    excess_K: Floats,
    hit_K: Bools,
    loss_K: Floats,
    what_if: Gain,
    *,
    score: float,
    start: int,
    changes: tuple[Change, ...],
    of_two: bool,
    intermittent: bool,
    is_rare: bool,
    first_stall: int | None,
    past_ratio: float | None,
    surely: float,
    drift: Drift | None,
) -> Late:
    """excess_K: lateness beyond the peers' level, each step from column start on. first_stall: among the columns
    given, of a rare one.
    """
    typical_s, mean_s, persistent = persistence(excess_K)
    persistent = persistent and not intermittent and not is_rare
    if persistent:
        hit_K = excess_K > 0.5 * typical_s
    elif not is_rare and (middle_s := between_modes(excess_K)) is not None:
        beyond_s = late_beyond_s(excess_K, middle_s)
        hit_K = excess_K > beyond_s
        # Of two amounts the median is one, and what is lost follows from both.
        typical_s = median(excess_K[hit_K]) if beyond_s == middle_s else float(excess_K[hit_K].mean())
    elif hit_K.any():
        typical_s = median(excess_K[hit_K])
    # Late now and then: what has changed at the onset is the mean.
    present_s = typical_s if persistent else mean_s
    onset = _onset(
        changes, present_s, present_s / 2 if of_two else present_s
    )  # two are as far from their middle
    if intermittent and changes:  # each burst is a change: what counts is the first
        onset = changes[0].index if _begins_with(changes[0], excess_K, start, present_s) else None
    if is_rare:
        onset = first_stall
    return Late(
        row=row,
        excess_s=typical_s,
        mean_excess_s=mean_s,
        late_by_s=float(excess_K[hit_K].mean()) if hit_K.any() and not is_rare else typical_s,
        score=score,
        gain=what_if,
        since=onset if onset is not None else 0,
        onset_seen=onset is not None,
        hit_share=float(hit_K.mean()),
        persistent=persistent,
        hit_K=hit_K if hit_K.any() else np.ones(excess_K.size, dtype=np.bool_),
        loss_K=loss_K,
        is_rare=is_rare,
        beyond_past=past_ratio,
        surely=surely,
        drift=drift,
    )


def _worth(cycle_K: Floats, parts_CK: Floats, excess_CK: Floats, known_C: Bools, again_C: Bools) -> Bools:
    """Which culprits have a loss worth a name, alone or as one of a crowd that is late together.

    known_C: whose loss is above zero beyond doubt. again_C: who is late for a while, again and again.
    """
    cycle_s = float(cycle_K.mean())
    alone = parts_CK.mean(axis=1) > MIN_LOSS_SHARE * cycle_s
    for index in np.flatnonzero(alone & ~known_C):
        alone[index] = surely_lost(parts_CK[index])
    # Of those that are late for a while, again and again, that while is what counts.
    crowd = again_C | np.array([is_in_most_steps(excess_K) for excess_K in excess_CK], dtype=np.bool_)
    typical = [
        median(excess_K[excess_K >= excess_K.mean()] if is_again else excess_K)
        for excess_K, is_again in zip(excess_CK, again_C.tolist(), strict=True)
    ]
    crowd &= np.array(typical) > MIN_CROWD_EXCESS * cycle_s
    if np.count_nonzero(crowd) >= MIN_CROWD:
        joint = gain(cycle_K, parts_CK[crowd].sum(axis=0))
        is_sure = joint.loss_low_s > 0 or bool(again_C[crowd].all())
        if joint.loss_s > 2 * MIN_LOSS_SHARE * cycle_s and is_sure:
            alone |= crowd
    return np.asarray(alone)


def _dating(
    work_RK: Floats, rows: Ints, peers: Ints, regime: Regime, min_shift: float
) -> list[tuple[Change, ...]]:
    """The changes that tell since when each late rank is; of several each is compared with those that are not."""
    if 2 <= rows.size <= MAX_DATED and peers.size:
        return [changes_against(work_RK, int(row), peers, min_shift) for row in rows]
    return [regime.rank_changes.get(int(row), ()) for row in rows]


def find_stragglers(
    work_RK: Floats,
    beyond_RK: Floats,
    cycle_K: Floats,
    regime: Regime,
    surely_R: Floats | None = None,
    *,
    is_named_R: Bools | None = None,
    as_was_RK: Floats | None = None,
) -> tuple[tuple[Late, ...], Floats]:
    """Late ranks within the regime, largest loss first, and the loss of all together, K - start steps.

    beyond_RK: `deviations` of the work. surely_R: of each row, the share of its lateness that others than its steps
    vouch for, as the kernel does for a rank that lacks a core: it is late however restless it is. is_named_R: rows
    that a comparison of their own collectives names beyond chance: what they cost need but be above zero.
    as_was_RK: the work before lateness that wanders was taken out of it; None where it is the same.
    """
    work, cycle = work_RK[:, regime.start :], cycle_K[regime.start :]
    nothing = np.zeros(cycle.size)
    if work.shape[0] < 2 or cycle.size < MIN_SEGMENT_STEPS:
        return (), nothing
    deviation_RK, past_RK = beyond_RK[:, regime.start :], beyond_RK[:, : regime.start]
    surely_R = np.zeros(work.shape[0]) if surely_R is None else surely_R
    is_sure_R = surely_R > 0
    rows, hit_RK, times_before = _candidates(work, deviation_RK, median(cycle), past_RK, is_sure_R)
    least_s = NEW_REGIME_SHARE * median(cycle)
    levelled = partial(without_levels, levels=regime.lasting, least_s=least_s, known=regime.beyond_noise)
    is_beyond_R = beyond_slow_noise(work_RK, rows, regime.start, as_was_RK, levelled=levelled)
    rows = rows[is_beyond_R | is_sure_R[rows]]
    if is_named_R is not None:
        rows = np.union1d(rows, np.flatnonzero(is_named_R))
    otherwise = rows
    rows = np.union1d(rows, np.array(sorted(regime.times_late), dtype=np.int64))
    sure_R = _with_events(surely_R, regime.times_late | times_before)
    stall_RK, times = find_stalls(work, cycle)
    # Late often enough to be known by that, and not by how many times they were.
    stall_RK[[row for row in rows.tolist() if row not in times or _is_known(work, row)]] = False
    is_rare_R = np.asarray(stall_RK.any(axis=1))
    rows = np.union1d(rows, np.flatnonzero(is_rare_R))
    if rows.size == work.shape[0]:  # somebody has to stand for what is normal
        rows = np.union1d(otherwise, np.flatnonzero(is_rare_R))
    hit_RK = np.where(is_rare_R[:, None], stall_RK, hit_RK)
    is_again_R = np.isin(np.arange(work.shape[0]), list(regime.times_late))
    found = _worth_naming(work, cycle, rows, stall_RK, is_sure_R=sure_R > 0, is_again_R=is_again_R)
    if found is None:
        return (), nothing
    rows, excess_CK, loss_K, parts = found
    gains = [gain(cycle, part) for part in parts]
    gains = [
        of_events(one, times[row]) if is_rare_R[row] else at_least(one, float(sure_R[row]))
        for row, one in zip(rows.tolist(), gains, strict=True)
    ]
    peers = np.setdiff1d(np.arange(work.shape[0]), rows)
    peer_work = median(work[peers]) if peers.size else float(medians(calm(work), 1).min())
    unlike_past = beyond_past(beyond_RK, rows, regime.start) if regime.start else [None] * rows.size
    first_stalls = _first_stalls(work_RK, cycle_K, stall_RK, regime.start)
    dating = _dating(work_RK, rows, peers, regime, MIN_SHIFT_SHARE * median(cycle))
    late = [
        _late(
            int(row),
            excess_CK[index],
            hit_RK[row],
            parts[index],
            gains[index],
            score=peer_work / max(median(work[row]), peer_work),
            start=regime.start,
            changes=dating[index],
            of_two=work.shape[0] == 2,
            intermittent=int(row) in regime.intermittent_rows,
            is_rare=bool(is_rare_R[row]),
            first_stall=first_stalls.get(int(row)),
            past_ratio=unlike_past[index],
            surely=float(sure_R[row]),
            drift=find_drift(work_RK[row] - medians(work_RK[peers], 0))
            if peers.size and rows.size <= MAX_DATED
            else None,
        )
        for index, row in enumerate(rows)
    ]
    late.sort(key=lambda entry: (-entry.gain.loss_s, entry.row))
    return tuple(late), loss_K


def _is_known(work: Floats, row: int) -> bool:
    """Whether the steps tell by themselves that a rank costs something: not where it began amid them."""
    return surely_lost(beyond_others(work, np.array([row]))[0])


def _first_stalls(work_RK: Floats, cycle_K: Floats, stall_RK: Bools, start: int) -> dict[int, int]:
    """Column of the first stall of each row that has some in the window: they may have come long before it began."""
    found = {int(row): start + int(np.argmax(stall_RK[row])) for row in np.flatnonzero(stall_RK.any(axis=1))}
    if found and start:
        ever_RK, _ = find_stalls(work_RK, cycle_K)
        found |= {row: int(np.argmax(ever_RK[row])) for row in found if ever_RK[row].any()}
    return found


def _with_events(surely_R: Floats, times_late: dict[int, int]) -> Floats:
    """Of each row, with what so many times late tell of those to come: stretches, or steps begun before the window."""
    result = surely_R.copy()
    for row, times in times_late.items():
        result[row] = max(result[row], least_of_events(times))
    return result


def _worth_naming(
    work: Floats, cycle: Floats, rows: Ints, stall_RK: Bools, *, is_sure_R: Bools, is_again_R: Bools
) -> tuple[Ints, Floats, Floats, Floats] | None:
    """(rows whose loss is worth a name, their excess, the loss of all, their parts of it); None: no row's is."""
    is_rare_R = np.asarray(stall_RK.any(axis=1))
    while rows.size:
        excess_CK = beyond_others(work, rows)
        cured = all_cured(work, rows, excess_CK, stall_RK, is_rare_R)
        loss_K, parts = shared_loss(work, rows, cured)
        worth = _worth(cycle, parts, excess_CK, (is_rare_R | is_sure_R)[rows], is_again_R[rows])
        if worth.all():
            return rows, excess_CK, loss_K, parts
        rows = rows[worth]  # the fewer are named, the more peers stand for what is normal
    return None
