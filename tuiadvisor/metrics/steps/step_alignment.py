"""Which local step of a rank is which step of the job.

Ranks are attached at different moments, so each counts its own steps from 0. One integer a rank, its offset,
puts it on the job's axis: both it and the reference count every optimizer step once, so the offset is constant.
In: columns of an aligned reference and of the rank.  Out: the offset and what supports it, or why there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import UNKNOWN
from tuiadvisor.metrics.steps.arrays import mad_sigma, median

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MIN_MATCHES: Final = 3  # two agree on an offset by chance
MIN_SUPPORT: Final = 0.8  # of the matched steps must agree on one offset
MIN_LENGTHS: Final = 8  # steps, whose lengths can be like others only by belonging to them
MAX_UNLIKE: Final = 0.7  # of the lengths' own spread; of steps that do not belong together it is 1.4
NEAR_SHARE: Final = 0.35  # two ends within this share of a step are the same step

NOT_YET: Final = "not enough steps yet"
NOTHING_COMMON: Final = "no common sequence numbers and no steps that end together with other ranks"


@dataclass(frozen=True, slots=True)
class RankSteps:
    """What alignment needs of one rank: parallel arrays in step order, UNKNOWN where not observed."""

    step: Ints  # local for the rank to align, job steps for the reference
    seq: Ints  # group sequence number at the step's end
    mark_ns: Ints  # release from the barrier, or the step's end: common to all ranks within milliseconds
    end_ns: Ints | None = None  # the step's end where the marks are releases


@dataclass(frozen=True, slots=True)
class RankBlock:
    """The same of many ranks, R x K, at the steps of one reference; only where `present` do they mean anything."""

    seq: Ints
    mark_ns: Ints
    present: Bools


@dataclass(frozen=True, slots=True)
class Alignment:
    """offset: job step = local step + offset; None when the evidence is missing or contradicts itself."""

    offset: int | None
    by: str  # "sequence", "clock", "sequence and clock", "" when None
    why_not: str  # "" when aligned


def _rises(values: Ints) -> bool:
    """Whether each is larger than the one before."""
    return bool((values[1:] > values[:-1]).all())


def _usual_gap(marks_ns: Ints) -> float:
    """Median distance of neighbours; NaN for fewer than two."""
    return median((marks_ns[1:] - marks_ns[:-1]).astype(np.float64))


def _vote(differences: Ints) -> int | None:
    if differences.size < MIN_MATCHES:
        return None
    values, counts = np.unique(differences, return_counts=True)
    best = int(np.argmax(counts))
    return int(values[best]) if counts[best] >= MIN_SUPPORT * differences.size else None


def _advances(steps: RankSteps) -> tuple[Ints, Ints] | None:
    """(step, sequence number) of those in which it advanced, of some only where ranks meet every few steps.

    None where it falls back. The first step of all is one of them if it was like that in every step: whether it
    advanced there is not known otherwise.
    """
    known = steps.seq != UNKNOWN
    step, seq = steps.step[known], steps.seq[known]
    rise = np.diff(seq)
    if not step.size or (rise < 0).any():
        return None
    advanced = np.concatenate(([bool((rise > 0).all())], rise > 0))
    return step[advanced], seq[advanced]


def offset_by_sequence(reference: RankSteps, rank: RankSteps) -> int | None:
    """The offset at which equal sequence numbers fall on equal steps; None if they do not advance or disagree."""
    theirs, own = _advances(reference), _advances(rank)
    if theirs is None or own is None:
        return None
    _, ref_at, own_at = np.intersect1d(theirs[1], own[1], assume_unique=True, return_indices=True)
    return _vote(theirs[0][ref_at] - own[0][own_at])


def offset_by_clock(reference: RankSteps, rank: RankSteps, clock_shift_ns: int = 0) -> int | None:
    """The offset at which the ranks' steps end together; clock_shift_ns is added to the rank's clock."""
    ref_known, own_known = reference.mark_ns != UNKNOWN, rank.mark_ns != UNKNOWN
    ref_ns, own_ns = reference.mark_ns[ref_known], rank.mark_ns[own_known] + clock_shift_ns
    if min(ref_ns.size, own_ns.size) < MIN_MATCHES:
        return None
    if not _rises(ref_ns) or not _rises(own_ns):
        return None
    after = np.clip(np.searchsorted(ref_ns, own_ns), 1, ref_ns.size - 1)
    before_is_nearer = own_ns - ref_ns[after - 1] < ref_ns[after] - own_ns
    nearest = after - before_is_nearer
    near = np.abs(ref_ns[nearest] - own_ns) <= NEAR_SHARE * _usual_gap(ref_ns)
    overlap = (own_ns >= ref_ns[0]) & (own_ns <= ref_ns[-1])
    if near.sum() < MIN_MATCHES or near.sum() < 0.5 * overlap.sum():
        return None  # the ends fall anywhere within a step: these ranks do not step together
    return _vote(reference.step[ref_known][nearest[near]] - rank.step[own_known][near])


def _equal_lengths(reference: RankSteps, rank: RankSteps, offset: int) -> bool:
    """Whether steps are long and short together at this offset: those that wall clocks apart bring together are not."""
    _, ref_at, own_at = np.intersect1d(reference.step, rank.step + offset, return_indices=True)
    ref_ns, own_ns = reference.mark_ns[ref_at], rank.mark_ns[own_at]
    known = (ref_ns != UNKNOWN) & (own_ns != UNKNOWN)
    ref, own = np.diff(ref_ns[known]).astype(np.float64), np.diff(own_ns[known]).astype(np.float64)
    if ref.size < MIN_LENGTHS:
        return False
    return mad_sigma(ref - own) <= MAX_UNLIKE * max(mad_sigma(ref), mad_sigma(own))


def is_out_of_step(reference: RankSteps, rank: RankSteps) -> bool:
    """Whether a rank that has a place on the job's axis no longer keeps it: its steps are fewer or more than others'.

    Both in job steps. Equal sequence numbers then fall on steps apart, for whole stretches by as many: of a rank whose
    numbers are another group's they meet by chance, now here, now there.
    """
    theirs, own = _advances(reference), _advances(rank)
    if theirs is None or own is None:
        return False
    _, ref_at, own_at = np.intersect1d(theirs[1], own[1], assume_unique=True, return_indices=True)
    apart = theirs[0][ref_at] - own[0][own_at]
    if apart.size < MIN_LENGTHS or np.count_nonzero(apart) < MIN_MATCHES:
        return False
    return bool(np.mean(np.diff(apart) == 0) >= MIN_SUPPORT)


def steps_by_number(reference: RankSteps, rank: RankSteps) -> tuple[Ints, Ints] | None:
    """(steps of the reference, the rank's own there) that ended at one number, of a rank that left the job's axis.

    None unless that holds for most steps of whoever makes fewer. A group numbers its collectives alike on all members,
    and under Join who has run out of batches takes part in those of the others. The step in which it does so lasts as
    long as several of theirs, and is none of them.
    """
    theirs, own = _advances(reference), _advances(rank)
    if theirs is None or own is None or not theirs[1].size or not own[1].size:
        return None
    _, ref_at, own_at = np.intersect1d(theirs[1], own[1], assume_unique=True, return_indices=True)
    begin, end = max(theirs[1][0], own[1][0]), min(theirs[1][-1], own[1][-1])
    fewest = min(np.count_nonzero((seq >= begin) & (seq <= end)) for seq in (theirs[1], own[1]))
    if ref_at.size < max(MIN_LENGTHS, MIN_SUPPORT * fewest):
        return None
    steps, own_steps = theirs[0][ref_at], own[0][own_at]
    is_next = (np.diff(steps, prepend=steps[0]) == 1) & (np.diff(own_steps, prepend=own_steps[0]) == 1)
    return steps[is_next], own_steps[is_next]


def num_steps_within(reference: RankSteps, rank: RankSteps, at: Ints) -> float:
    """Median number of the rank's steps that fall into one of these steps of the reference, or the one after it.

    Of ranks in step it is 1. Both in job steps and numbered by the same group; 0 where that does not tell.
    """
    theirs, own = _advances(reference), _advances(rank)
    if theirs is None or own is None or not own[1].size:
        return 0.0
    found = []
    for step in at.tolist():
        ends = theirs[1][
            np.searchsorted(theirs[0], [step - 1, step, step + 1, step + 2])[:3].clip(0, theirs[1].size - 1)
        ]
        passed = np.searchsorted(own[1], ends, "right")
        found.append(int(np.diff(passed).max()))
    return float(np.median(found)) if found else 0.0


def _overlap(reference: RankSteps, rank: RankSteps) -> bool:
    ref, own = reference.mark_ns[reference.mark_ns != UNKNOWN], rank.mark_ns[rank.mark_ns != UNKNOWN]
    return bool(ref.size and own.size and ref.max() >= own.min() and own.max() >= ref.min())


def _alike(one: RankSteps, other: RankSteps) -> tuple[RankSteps, RankSteps]:
    """Both by the ends of their steps where only one is seen to be released: that is earlier in a step than its end."""
    if (one.end_ns is None) == (other.end_ns is None):
        return one, other
    return _by_ends(one), _by_ends(other)


def _by_ends(steps: RankSteps) -> RankSteps:
    return steps if steps.end_ns is None else replace(steps, mark_ns=steps.end_ns, end_ns=None)


def align(
    reference: RankSteps,
    rank: RankSteps,
    *,
    same_clock: bool,
    clock_shift_ns: int | None = None,
    runs_ahead: bool = False,
) -> Alignment:
    """The rank's offset on the reference's axis.

    same_clock: both ran on one host. Otherwise clock_shift_ns (from wall clocks) may bring the rank's clock
    near the reference's; wall clocks may be off by more than a step, so there the sequence decides alone. runs_ahead:
    the ranks launch work for devices, each as many steps ahead as it likes: the sequence decides alone, if it can.
    """
    reference, rank = _alike(reference, rank)
    by_seq = offset_by_sequence(reference, rank)
    if runs_ahead:
        same_clock, clock_shift_ns = same_clock and by_seq is None, None
    is_too_soon = min(reference.step.size, rank.step.size) < MIN_MATCHES
    by_clock, why = None, NOT_YET if is_too_soon else NOTHING_COMMON
    if same_clock and not _overlap(reference, rank):
        return Alignment(None, "", "it has no steps at the same time as other ranks")
    if same_clock:
        by_clock = offset_by_clock(reference, rank)
    elif clock_shift_ns is not None and by_seq is None:
        by_clock = offset_by_clock(reference, rank, clock_shift_ns)
        if by_clock is not None and not _equal_lengths(reference, rank, by_clock):
            by_clock, why = None, "its steps are not as long as those at the same time on other hosts"
    if by_seq is not None and by_clock is not None:
        if by_seq != by_clock:
            why = f"its collectives' sequence and its clock disagree by {abs(by_seq - by_clock)} steps"
            return Alignment(None, "", why)
        return Alignment(by_seq, "sequence and clock", "")
    if by_seq is not None:
        return Alignment(by_seq, "sequence", "")
    if by_clock is not None:
        return Alignment(by_clock, "clock", "")
    return Alignment(None, "", why)


def likely_offsets(
    reference: RankSteps, last_step_R: Ints, seq_R: Ints, mark_R: Ints | None
) -> tuple[Ints, Bools]:
    """(offset at which each rank's newest step has the reference's sequence number, or ends with it; known).

    A guess to be confirmed: one step proves nothing. mark_R: on the reference's clock, None without one.
    """
    offsets, known = np.zeros_like(last_step_R), np.zeros(last_step_R.shape, dtype=np.bool_)
    if mark_R is not None and _rises(reference.mark_ns):
        after = np.clip(np.searchsorted(reference.mark_ns, mark_R), 1, reference.mark_ns.size - 1)
        nearer = mark_R - reference.mark_ns[after - 1] < reference.mark_ns[after] - mark_R
        offsets, known = reference.step[after - nearer] - last_step_R, np.ones_like(known)
    if _rises(reference.seq):
        at = np.clip(np.searchsorted(reference.seq, seq_R), 0, reference.seq.size - 1)
        same = (reference.seq[at] == seq_R) & (seq_R != UNKNOWN)
        offsets, known = np.where(same, reference.step[at] - last_step_R, offsets), known | same
    return offsets, known


def confirm(
    reference: RankSteps,
    ranks: RankBlock,
    *,
    same_clock: bool,
    clock_shift_ns: int | None = None,
    runs_ahead: bool = False,
) -> Bools:
    """Ranks whose offset stands beyond doubt, at once: all that both counted or timed agrees with the reference.

    The others are not refused: `align` has to weigh what they have. Arguments as there.
    """
    both = ranks.present & (ranks.seq != UNKNOWN) & (reference.seq != UNKNOWN)
    num_counted = both.sum(axis=1)
    counted = (num_counted >= MIN_MATCHES) & ~(both & (ranks.seq != reference.seq)).any(axis=1)
    if not _rises(reference.seq[reference.seq != UNKNOWN]):
        counted = np.zeros_like(counted)
    if clock_shift_ns is None or runs_ahead:
        return np.asarray(counted)
    timed = ranks.present & (ranks.mark_ns != UNKNOWN) & (reference.mark_ns != UNKNOWN)
    num_timed = timed.sum(axis=1)
    gap_ns = _usual_gap(reference.mark_ns)
    near = timed & (np.abs(ranks.mark_ns + clock_shift_ns - reference.mark_ns) <= NEAR_SHARE * gap_ns)
    together = (num_timed >= MIN_MATCHES) & (near.sum(axis=1) >= MIN_SUPPORT * num_timed)
    if same_clock:
        return np.asarray(together & (counted | (num_counted == 0)))
    return np.asarray(counted)  # by wall clocks alone `align` has to look at the lengths of the steps, too
