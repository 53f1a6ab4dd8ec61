"""Lateness explained from outside: the rank was ready and got no core, hit its CPU limit, or was stopped.

In: stragglers, what the kernel and the agents saw of each rank.  Out: the same, with that as the cause. One external
cause is one diagnosis, whatever phase it catches a rank in.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.lateness.late_phase import COMPUTE_PHASES, Priority
from tuiadvisor.metrics.series.change_points import MIN_SEGMENT_STEPS
from tuiadvisor.metrics.series.what_if import least_of_events
from tuiadvisor.metrics.steps.arrays import lower_quartile
from tuiadvisor.metrics.steps.step_table import OTHER
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.metrics.lateness.late_phase import Cause, HeldReason, OffCoreReason, StorageWait
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable

    # Seconds -> what was seen of each row over its last so many seconds.
    OffCoreOf = Callable[[float], list["OffCore"]]

# Chosen: of 40 looks (4 s, ten a second; older agents: one) a rank that is stopped for 40 % of the time is met in
# 16 +- 3, so half of what explains the lateness is two standard deviations below; fewer than three looks are chance.
MIN_STOPS: Final = 3
MIN_STOPPED: Final = 0.5
# Chosen: some three of the spans from which on the kernel's count is no chance (run_delay.MIN_SPAN_S), for within one
# of them who is last on a crowded host is chance too.
PAST_S: Final = 10.0
MIN_LATE_BEFORE: Final = 0.5  # chosen: of its lateness now, in most steps of that time
MIN_THROTTLED: Final = (
    0.2  # of the periods; chosen: a limit that is hit less often is not what a core is waited for
)
# Measured, 2 ranks on 2 cores with 20 to 40 threads ready: over 15 s they are alike within 0.11, over 8 s within 0.22;
# one that is reniced waits for 0.57 to 0.71 more of its time.
LACKS_CORE: Final = 0.3
CHANCE_WAIT_S: Final = (
    1.7  # measured, the same: 8 s x 0.22 and 15 s x 0.11, so seconds of waiting and no share
)
SETTLED_S: Final = 15.0  # measured, the same: by then everybody had its turn at the cores
MIN_HELD: Final = (
    0.1  # of its time, as communication_bound: from there on a loss of all ranks deserves a look
)
# Measured, 2 ranks on 2 cores that four to eight others want: a rank of three times the work runs 2.8 times as long as
# the other and waits 1.6 times as long for each second of it; one that is reniced 1.05 and 7.8 times, one with a CPU
# limit 1.1 and 2.2 times.
MORE_WORK: Final = (
    1.5  # times: who runs so much longer does other work, or spins while it waits for the others
)
MOSTLY_LATE: Final = 0.67  # chosen, of the steps: by lot a rank of two is the later one in half
# What runs on the host, so that a core which is not there explains it.
_ON_HOST: Final = frozenset({*COMPUTE_PHASES, "data_wait", "unknown", "host", "other", PHASES[OTHER]})


class OffCore(NamedTuple):  # a view makes one a rank, twice: four times as fast as a frozen dataclass
    """Shares of a rank's time; None where it was not observed."""

    wait: float | None = (
        None  # ready to run, and no core (the kernel's run delay, which a CPU limit is part of)
    )
    stopped: float | None = None  # of the looks at its process
    num_stopped: int = 0  # looks
    throttled: float | None = None  # of the periods of its CPU limit; None without one
    limit_cores: float | None = None
    run: float | None = None  # its training thread had a core
    is_counted: bool = False  # the kernel's run delay is being read, if too briefly yet for `wait`
    most_wait: float | None = None  # then: `wait` is no more than that
    nice: float | None = None  # of its training thread: the higher, the sooner it yields to others
    storage: float | None = None  # of the looks at whoever reads for it, that found it waiting for storage
    num_looks: int = 0  # moments of these
    reads_in_workers: bool = False  # else it is the training thread that was looked at
    running: float | None = None  # of the looks at its loader's workers, that found one on a core or ready to
    num_workers: float | None = None  # processes of its loaders
    is_gone: bool = False  # the run delay was read then, and is no longer held: waiting brings no `wait`


@dataclass(frozen=True, slots=True)
class HeldRank:
    """One that something outside keeps from going on, and the others not."""

    row: int
    reason: HeldReason
    share: float  # of its time
    others: float  # the same of the typical other
    surely: float = 0.0  # of what it is more: less what chance makes of it
    limit_cores: float | None = None
    in_pauses: bool = False  # the others wait for it mostly in steps that are not steady
    priority: Priority | None = None  # where it lacks a core and yields more than the others
    storage: StorageWait | None = None  # where it waits for its data
    gained: float = 0.0  # of the step: what all surely gain where nobody is held, as `least_gain`


def held_ranks(seen: list[OffCore], span_s: float) -> tuple[HeldRank, ...]:
    """Whom something outside keeps from running; empty where that holds for half of the ranks, or is too soon to tell.

    seen: of each row over these seconds. For ranks of which nobody sees when they arrive: what keeps one off its cores
    is seen nevertheless.
    """
    others = _Others(seen)
    found = [held for row in range(len(seen)) if (held := _held(row, seen, others, span_s)) is not None]
    if not found or 2 * len(found) > len(seen):
        return ()
    gained = least_gain(found, seen, span_s)
    return tuple(replace(one, gained=gained) for one in found)


def least_gain(held: list[HeldRank], seen: list[OffCore], span_s: float) -> float:
    """Share of the step by which it surely gets shorter if none of these is held; 0 where that is not known.

    In a job that keeps pace all take the same time for a step, so who is awake for less of it sleeps for the rest.
    Of ranks alike, whatever the others sleep longer than the held ones they sleep for these; no arrival has to
    be seen for it. It ends where the next rank is awake for as long. Who spins while it waits is awake: then it is 0.
    """
    held_rows = {one.row for one in held}
    awake = [_awake(one) for one in seen]
    most = max((share for row in held_rows if (share := awake[row]) is not None), default=None)
    others = [share for row, share in enumerate(awake) if row not in held_rows]
    if most is None or any(share is None for share in awake):
        return 0.0
    then = [
        share - _surely_awake(one, seen[one.row]) for one in held if (share := awake[one.row]) is not None
    ]
    then += [share + CHANCE_WAIT_S / span_s for share in others if share is not None]
    return max(most - max(then), 0.0)


def _awake(own: OffCore) -> float | None:
    """Share of its time in which it ran, waited for a core or was stopped: all but sleeping; None where unknown."""
    if own.run is None or own.wait is None:
        return None
    return min(own.run + own.wait + (own.stopped or 0.0), 1.0)


def _surely_awake(held: HeldRank, own: OffCore) -> float:
    """Of what surely holds it the share that is no sleep: a signal stops a rank that waits for the others, too."""
    if held.reason != "stopped":
        return held.surely
    going = 1 - (own.stopped or 0.0)
    return (
        held.surely * min(((own.run or 0.0) + (own.wait or 0.0)) / going, 1.0) if going > 0 else held.surely
    )


class _Others:
    """Medians of all rows but one: each sorted once, for 512 rows that each sort the others take longer than the rest
    of a view.
    """

    def __init__(self, seen: list[OffCore]) -> None:
        self.stopped = _Without([one.stopped for one in seen])
        self.wait = _Without([one.wait for one in seen])
        self.run = _Without([one.run for one in seen])
        self.nice = _Without([one.nice for one in seen])

    def priority(self, own: OffCore) -> Priority | None:
        """Of a rank that yields more than the typical other one; None too where that is not known of everybody."""
        return _priority(own.nice, self.nice)


class _Without:
    """The median of all values but one of them; None while one of the others is unknown."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self._known = sorted(value for value in values if value is not None)
        self._num_unknown = len(values) - len(self._known)

    def median(self, own: float | None) -> float | None:
        """own: the value that is left out."""
        known, num_others = self._known, len(self._known) - (own is not None)
        if num_others == 0 or self._num_unknown > (own is None):
            return None
        gap = bisect_left(known, own) if own is not None else num_others
        low, high = ((num_others - 1) // 2, num_others // 2)
        return (known[low + (low >= gap)] + known[high + (high >= gap)]) / 2


def _held(row: int, seen: list[OffCore], others: _Others, span_s: float) -> HeldRank | None:
    own = seen[row]
    usual = others.stopped.median(own.stopped)
    if (
        own.stopped is not None
        and usual is not None
        and own.num_stopped >= MIN_STOPS
        and own.stopped - usual >= MIN_HELD
    ):
        surely = max(own.stopped * least_of_events(own.num_stopped) - usual, 0.0)
        return HeldRank(row, "stopped", own.stopped, usual, surely)
    usual, beyond = others.wait.median(own.wait), _waits_beyond(own, others)
    if own.wait is None or usual is None or beyond is None or span_s < PAST_S:
        return None
    if beyond <= _least_wait(span_s, others.priority(own)):
        return None
    surely = max(beyond - CHANCE_WAIT_S / span_s, 0.0)
    if _is_limited(own):
        return HeldRank(row, "limit", own.wait, usual, surely, own.limit_cores)
    return HeldRank(row, "core", own.wait, usual, surely, priority=others.priority(own))


def lower_priorities(nices: Sequence[float | None]) -> dict[int, Priority]:
    """By row, whoever yields to others' work more than the typical other rank; empty where that is half of them."""
    if len(set(nices)) == 1:  # as of most jobs: asking each of thousands took a hundredth of a view
        return {}
    others = _Without(nices)
    found = {row: told for row, own in enumerate(nices) if (told := _priority(own, others)) is not None}
    return found if 2 * len(found) <= len(nices) else {}


def _priority(own: float | None, others: _Without) -> Priority | None:
    usual = others.median(own)
    return Priority(int(own), int(usual)) if own is not None and usual is not None and own > usual else None


def _waits_beyond(own: OffCore, others: _Others) -> float | None:
    """Share of its time that it waits for a core beyond what the typical other would that had to run as long.

    Where many want the cores, who has more to do waits for them longer, and who spins until the others come does too:
    neither is kept from running more than they are. None of those, and where that is not known of everybody.
    """
    usual_wait, usual_run = others.wait.median(own.wait), others.run.median(own.run)
    if own.wait is None or own.run is None or usual_wait is None or usual_run is None:
        return None
    if own.run > MORE_WORK * usual_run:
        return None
    expected = max(own.run / usual_run, 1.0) * usual_wait if usual_run > 0 else usual_wait
    return own.wait - expected


def _least_wait(span_s: float, priority: Priority | None) -> float:
    """Share of its time from which on a wait for a core beyond the others is this rank's own.

    Who yields more than the others has a reason to wait longer: there only chance is left out.
    """
    return LACKS_CORE if priority is None else min(max(CHANCE_WAIT_S / span_s, MIN_HELD), LACKS_CORE)


def _is_limited(own: OffCore) -> bool:
    """Whether a CPU limit is what it mostly waits for: of the periods, of each of which it can have taken the whole."""
    throttled = own.throttled or 0.0
    return own.limit_cores is not None and throttled >= max(MIN_THROTTLED, MIN_COVER * (own.wait or 0.0))


def least_throttled(seen: list[OffCore]) -> float | None:
    """Share of the periods of whoever feels a limit least, none of them without one; None where nobody has any."""
    if all(one.throttled is None for one in seen):
        return None
    return min(one.throttled or 0.0 for one in seen)


def lacks_core(work_RK: Floats, cycle_K: Floats, span_s: float, off_core: list[OffCore]) -> Floats:
    """Of each row the share of its lateness that is surely for want of a core; 0 of whom that is not known.

    off_core: of each row, over span_s seconds: of steps that are measured now and then, those between them too.
    A rank that is run now and then has steps of any length: by them alone it takes hundreds
    until its lateness is no chance. The kernel's count is no sample; what it may differ by between ranks alike is taken
    off. Who only waits at the barrier with a spinning thread is not late in most steps.
    """
    wait_R = np.array([np.nan if one.wait is None else one.wait for one in off_core])
    if span_s < PAST_S:
        return np.zeros(wait_R.size)
    lower = lower_priorities([one.nice for one in off_core])
    least_R = np.array([_least_wait(span_s, lower.get(row)) for row in range(wait_R.size)])
    return surely_late(work_RK, cycle_K, wait_R, least_R, least_R)


def is_stopped(work_RK: Floats, cycle_K: Floats, off_core: list[OffCore]) -> Floats:
    """Of each row the share of its lateness that is surely for being stopped, as `lacks_core`.

    What looks at its process may find by chance is taken off: two standard deviations of so many looks.
    """
    stopped_R = np.array([np.nan if one.stopped is None else one.stopped for one in off_core])
    num_R = np.array([float(one.num_stopped) for one in off_core])
    # Of n looks a share p: its standard deviation is sqrt(p (1 - p) / n), and n is the number found over p.
    chance_R = 2 * stopped_R * np.sqrt((1 - stopped_R) / np.maximum(num_R, 1.0))
    return surely_late(work_RK, cycle_K, np.where(num_R < MIN_STOPS, 0.0, stopped_R), MIN_HELD, chance_R)


def surely_late(
    work_RK: Floats, cycle_K: Floats, share_R: Floats, least: float | Floats, chance_R: Floats
) -> Floats:
    """Of each row the share of its lateness that is surely for what keeps it waiting.

    share_R: of its time, in which that holds it up; least: so much beyond the others counts. chance_R: how much of it
    may be chance. 0 of rows that are not late in most steps, or late for longer than that.
    """
    nobody = np.zeros(share_R.size)
    if cycle_K.size < MIN_SEGMENT_STEPS or not np.isfinite(share_R).all():
        return nobody
    beyond_R = share_R - lower_quartile(share_R)
    is_held_R = beyond_R > least
    if not is_held_R.any() or is_held_R.all():
        return nobody
    excess_RK = work_RK - np.median(work_RK[~is_held_R], axis=0)
    is_late_R = np.mean(excess_RK > 0, axis=1) >= MOSTLY_LATE
    explains_R = beyond_R * float(cycle_K.mean()) >= MIN_COVER * excess_RK.mean(axis=1)
    sure_R = 1 - chance_R / np.where(is_held_R, beyond_R, 1.0)
    return np.where(is_held_R & is_late_R & explains_R, np.maximum(sure_R, 0.0), 0.0)


def seen_in_steps(
    off_core: OffCoreOf, stopped_at: Callable[[int], Ints], table: StepTable, columns: Ints
) -> OffCoreOf:
    """The same, without looks that found a row stopped in a step that is none of these columns.

    stopped_at: of a rank, when looks found it stopped, ns of its host's clock. A process that once stood for half a
    minute makes one step longer, which is a pause; of why it is late in every other one that says nothing.
    """

    def of(last_s: float) -> list[OffCore]:
        return [
            one
            if not one.num_stopped
            else _without_pauses(one, stopped_at(table.ranks[row]), table, row, columns)
            for row, one in enumerate(off_core(last_s))
        ]

    return of


def _without_pauses(own: OffCore, times_ns: Ints, table: StepTable, row: int, columns: Ints) -> OffCore:
    """Looks at other times than in the other steps of the table stay: of steps that are measured now and then too."""
    others = np.setdiff1d(np.arange(table.begin_s_RK.shape[1]), columns)
    begins_s, ends_s = table.begin_s_RK[row, others], table.end_s_RK[row, others]
    is_known = np.isfinite(begins_s + ends_s)
    times_s = (np.sort(times_ns)[-own.num_stopped :] - int(table.origin_ns_R[row])) / 1e9
    if own.stopped is None or not is_known.any() or not times_s.size:
        return own
    begins_s, ends_s = begins_s[is_known], ends_s[is_known]
    place = np.searchsorted(begins_s, times_s, side="right") - 1
    num_outside = int(np.count_nonzero((place >= 0) & (times_s <= ends_s[np.maximum(place, 0)])))
    num_looks, num_stopped = own.num_stopped / own.stopped, own.num_stopped - num_outside
    return own._replace(stopped=num_stopped / max(num_looks - num_outside, 1.0), num_stopped=num_stopped)


def with_time_off_core(
    stragglers: tuple[LateRank, ...],
    rows: Ints,
    barrier: Barrier,
    off_core: OffCoreOf | None,
    past: tuple[Floats, Floats, Floats] | None = None,
) -> tuple[LateRank, ...]:
    """Each straggler with what kept it off its cores beyond its peers, where that covers the window.

    past: work of `rows`, cycle and span of all steps known, the window's last; they tell where the window is too short.
    """
    if off_core is None or not stragglers:
        return stragglers
    span_s = float(barrier.span_K.sum())
    seen = off_core(span_s)
    late_rows = {entry.late.row for entry in stragglers}
    steps = _Steps(
        span_s, float(barrier.cycle_K.mean()), [seen[row] for row in rows.tolist() if row not in late_rows]
    )
    explained = tuple(
        replace(entry, cause=_explained(entry.cause, seen[entry.late.row], steps, entry.late.mean_excess_s))
        for entry in stragglers
    )
    if past is None or not any(entry.cause.is_open for entry in explained):
        return explained
    return _with_past(explained, rows, past, off_core)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps over which ranks are compared."""

    span_s: float
    step_s: float  # mean
    peers: list[OffCore]  # of who is not late

    def priority(self, own: OffCore) -> Priority | None:
        """Of a rank that yields more than the typical peer; None too where that is not known of all."""
        return _Others([own, *self.peers]).priority(own)

    def beyond_s(self, own: float | None, peers: list[float | None]) -> float | None:
        """Seconds a step beyond the typical peer; None unless every one of them is known."""
        known = [value for value in peers if value is not None]
        if own is None or not known or len(known) < len(peers):
            return None
        return (own - float(np.median(known))) * self.step_s

    def core_wait_s(self, own: OffCore) -> float | None:
        """Seconds a step that it waits for a core beyond the typical peer."""
        return self.beyond_s(own.wait, [peer.wait for peer in self.peers])

    def has_more_to_do(self, own: OffCore) -> bool:
        """Whether its thread ran much longer than the typical peer's; False unless that is known of all."""
        runs = [peer.run for peer in self.peers]
        known = [run for run in runs if run is not None]
        return (
            own.run is not None
            and len(known) == len(runs) > 0
            and own.run > MORE_WORK * float(np.median(known))
        )

    def may_settle(self, own: OffCore, excess_s: float) -> bool:
        """Whether that it was last may be chance: where many want the cores, until each had its turn at them."""
        wait_s = self.core_wait_s(own)
        if own.is_gone and wait_s is None and self.span_s >= SETTLED_S:
            return False  # no chance any more, and of the past nothing more will be known
        if own.wait is None or wait_s is None:
            most_s = None if own.most_wait is None else own.most_wait * self.step_s
        elif self.span_s >= SETTLED_S:
            return False
        else:  # its peers may have been lucky by as much, and nobody has waited for less than no time
            most_s = min(own.wait, wait_s / self.step_s + CHANCE_WAIT_S / self.span_s) * self.step_s
        return most_s is None or most_s >= MIN_COVER * excess_s

    def is_by_lot(self, wait_s: float) -> bool:
        """Whether ranks alike may have waited for a core so many seconds a step apart, in so short a time."""
        return self.span_s < SETTLED_S and wait_s / self.step_s <= CHANCE_WAIT_S / self.span_s


def _with_past(
    stragglers: tuple[LateRank, ...], rows: Ints, past: tuple[Floats, Floats, Floats], off_core: OffCoreOf
) -> tuple[LateRank, ...]:
    """None is open that was as late before its window began anew, by which it is known whether it lacked a core.

    Others' work changes a job's pace, so on a crowded host windows are short; who is late stays so.
    """
    work_RK, cycle_K, span_K = past
    left_s_K = np.cumsum(span_K[::-1])[::-1]  # from each step's begin to the end
    if not cycle_K.size or left_s_K[0] < PAST_S:
        return stragglers
    begin = int(np.flatnonzero(left_s_K >= min(SETTLED_S, left_s_K[0]))[-1])
    late_rows = [entry.late.row for entry in stragglers]
    is_peer = ~np.isin(rows, late_rows)
    if not is_peer.any():
        return stragglers
    excess_RK = work_RK[:, begin:] - np.median(work_RK[is_peer, begin:], axis=0)
    span_s = float(span_K[begin:].sum())
    seen = off_core(span_s)
    steps = _Steps(span_s, float(cycle_K[begin:].mean()), [seen[row] for row in rows[is_peer].tolist()])

    def settled(entry: LateRank) -> Cause:
        (index,) = np.flatnonzero(rows == entry.late.row)
        excess_s = float(np.median(excess_RK[index]))
        own = seen[entry.late.row]
        wait_s = steps.core_wait_s(own)
        is_untold = wait_s is None and not own.is_gone
        if not entry.cause.is_open or is_untold or excess_s < MIN_LATE_BEFORE * entry.late.mean_excess_s:
            return entry.cause
        if wait_s is None or wait_s < MIN_COVER * excess_s:
            return replace(entry.cause, is_open=steps.may_settle(own, excess_s))
        if steps.has_more_to_do(own):
            return entry.cause
        return _for_want_of_a_core(replace(entry.cause, is_open=False), own, steps, wait_s, excess_s)

    return tuple(replace(entry, cause=settled(entry)) for entry in stragglers)


def _explained(cause: Cause, own: OffCore, steps: _Steps, excess_s: float) -> Cause:
    stopped_s = steps.beyond_s(own.stopped, [peer.stopped for peer in steps.peers])
    wait_s = steps.core_wait_s(own)
    cause = replace(cause, core_wait_s=wait_s)
    if cause.more is not None or cause.clock is not None or cause.is_collecting:
        return cause  # what it does then was seen
    if own.num_stopped >= MIN_STOPS and stopped_s is not None and stopped_s >= MIN_STOPPED * excess_s:
        return _from_outside(cause, "stopped", own, stopped_s / excess_s)
    if cause.name not in _ON_HOST:
        return cause
    # Of its peers not all are counted; or it runs longer, so it waits for a core longer where many want it, and is late
    # for what it runs.
    if (own.wait is not None and wait_s is None) or steps.has_more_to_do(own):
        return cause
    if wait_s is None or wait_s < MIN_COVER * excess_s:
        return replace(cause, is_open=own.is_counted and steps.may_settle(own, excess_s))
    return _for_want_of_a_core(cause, own, steps, wait_s, excess_s)


def _for_want_of_a_core(cause: Cause, own: OffCore, steps: _Steps, wait_s: float, excess_s: float) -> Cause:
    """Its waiting explains the lateness; open while ranks alike may wait as long as it does."""
    if _is_limited(own):
        return _from_outside(cause, "limit", own, wait_s / excess_s)
    if steps.is_by_lot(wait_s):
        return replace(cause, is_open=True)
    return replace(_from_outside(cause, "core", own, wait_s / excess_s), priority=steps.priority(own))


def _from_outside(cause: Cause, reason: OffCoreReason, own: OffCore, cover: float) -> Cause:
    """cover: share of the lateness that it explains, whatever the phases show of it: in short ones next to nothing."""
    limit = own.limit_cores if reason == "limit" else None
    return replace(
        cause, name="host", off_core=reason, limit_cores=limit, cover=max(cause.cover, min(cover, 1.0))
    )
