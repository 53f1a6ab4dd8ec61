"""Who arrives when at the gradient barrier: the only evidence that can name a straggler.

In a synchronous job every rank's step takes the same time, whoever is slow. What differs is the arrival: the
LAST to arrive is the culprit, the others wait and are victims.
In: StepTable.  Out: Barrier: work between barriers, lateness, transfer (release minus last arrival, free of
skew) and the cycle, seconds, R ranks x K steps. Sources: NVRx and TraceLens (arrival skew), What-if analysis
(OSDI'25, transfer time).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, column_max, column_median, median, row_median
from tuiadvisor.metrics.steps.step_table import COMM, OTHER, PHASE_INDEX, cells, consecutive, picked
from tuiadvisor.metrics.steps.stood_clocks import stood_HK
from tuiadvisor.metrics.steps.who_meets import LEAVES_AS_COME, have_mates, meet, meet_each_step
from tuiadvisor.phases import AFTER_BARRIER, PHASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.metrics.steps.step_table import StepTable

MIN_KNOWN_SHARE: Final = 0.5  # of the steps must show a barrier before it is believed to be the job's rhythm
# Leaving before the last has come shows that it was not waited for. By more than 5 % of the step, which clocks of one
# host and late records do not make: measured in at most 5 % of the steps of 180 runs of DDP and FSDP on crowded hosts,
# in 61 to 83 % of those of ranks that average their parameters every four.
EARLY_LEAVE: Final = 0.05  # of the step
MAX_EARLY_LEAVES: Final = 0.25  # of the steps
MIN_APART: Final = (
    0.1  # of the steps; chosen: fewer may be single steps without a meeting, as the last one of an epoch
)
MIN_ROUNDS: Final = (
    4  # meetings, of ranks that meet every few steps only; chosen: three stretches between them
)
SAME_ROUND: Final = 0.1  # of a round: so equally long it is on all ranks if they have met at both its ends
AT_MEETINGS: Final = 0.5  # of how far ranks are from each other at other steps: chosen, half-way
STANDS_OUT: Final = (
    0.5  # of a step: what is so much longer on a rank than its usual one is a pause, as periodic ones are
)
MIN_BREAK: Final = (
    1.5  # the shortest wait at a meeting over the longest at none, of ranks that communicate in between
)
CLOCK_BLOCK_STEPS: Final = 64  # hosts' clocks are compared anew this often: 20 ppm drift 1 ms in 50 s

Evidence = Literal["arrival", "wait", "none"]


@dataclass(frozen=True, slots=True)
class Barrier:
    """R x K seconds. evidence says what the order of arrival rests on.

    arrival: clocks at the barrier. wait: only how long each rank waited; the shortest wait marks the last
    arriver. Of ranks that meet every few steps only, each step has its share of the wait at the next meeting.
    none: nothing tells the ranks apart, and nobody may be named or cleared.
    """

    evidence: Evidence
    work_RK: Floats  # from the previous release to this arrival: everything that can make a rank late
    lateness_RK: Floats  # after the first arrival
    wait_RK: Floats  # until the last arrival
    transfer_K: Floats
    cycle_K: Floats
    complete_K: Bools  # every expected rank is known in this step
    last_K: Floats  # row of the last arriver; NaN where not complete
    gap_K: Ints | None = None  # steps from each to the next one of the table; None: they follow one another
    are_apart: bool = False  # no evidence because the ranks are seen not to wait for each other
    meets_K: Bools | None = None  # steps that end in a meeting of all ranks; None: each does
    # Seconds that even whoever waits least waits for others, who come last at other places of the step; None: nobody.
    turns_K: Floats | None = None

    def until_met_K(self, columns_K: Bools) -> Bools:
        """These steps and those after each, as far as the meeting at which what passes in it is waited for."""
        if self.meets_K is None:
            return columns_K
        met_K: Ints = np.cumsum(self.meets_K) - self.meets_K  # which meeting each step is followed by
        begun_K = np.where(columns_K, met_K, -1)
        return np.asarray(np.maximum.accumulate(begun_K) == met_K)

    @property
    def span_K(self) -> Floats:
        """Seconds that each step stands for: of those that were measured, until the next one is.

        What the kernel, a device or an agent counts goes on between them, so it is asked for that long.
        """
        return self.cycle_K if self.gap_K is None else self.cycle_K * self.gap_K


def records_before(table: StepTable, barrier: Barrier, phase: str, *, is_of_some: bool) -> tuple[int, ...]:
    """By how many records before a long step the time of a phase may have passed that made it long.

    Between releases a step ends where the barrier does: what follows that is paid for by the next one. Without arrivals
    it is as long as its record, and what all ranks do after their barrier, or a process that meets none, is in it.
    `other` is what is left, on either side of the barrier. is_of_some: only some ranks do it, and the others wait.
    """
    is_next = barrier.evidence == "arrival" or (
        barrier.evidence == "wait" and (is_of_some or table.tells_releases)
    )
    if not is_next or phase not in (AFTER_BARRIER if table.tells_releases else table.paid_later):
        return (0,)
    return (0, 1) if phase == PHASES[OTHER] else (1,)


def least_wait_K(table: StepTable, barrier: Barrier) -> Floats:
    """Seconds a step in the exchange of whoever waits least: after the last arrival, where arrivals are known.

    Where all of those seen wait, it is for a rank that was not, or for the exchange itself.
    """
    if barrier.evidence != "none":
        return barrier.transfer_K
    return np.asarray(-column_max(-table.phase_s_PRK[COMM]))


def _none(table: StepTable, *, are_apart: bool = False) -> Barrier:
    shape = table.present_RK.shape
    empty_RK = np.full(shape, np.nan)
    empty_K = np.full(shape[1], np.nan)
    cycle = column_median(table.step_s_RK)
    return Barrier(
        evidence="none",
        work_RK=empty_RK,
        lateness_RK=empty_RK,
        wait_RK=empty_RK,
        transfer_K=empty_K,
        cycle_K=cycle,
        complete_K=np.zeros(shape[1], dtype=bool),
        last_K=empty_K,
        are_apart=are_apart,
    )


def unordered(barrier: Barrier) -> Barrier:
    """The same steps, of which nothing tells who arrives when."""
    empty_RK, empty_K = np.full_like(barrier.work_RK, np.nan), np.full_like(barrier.cycle_K, np.nan)
    return replace(
        barrier,
        evidence="none",
        work_RK=empty_RK,
        lateness_RK=empty_RK,
        wait_RK=empty_RK,
        transfer_K=empty_K,
        last_K=empty_K,
        turns_K=None,
    )


def expected_RK(table: StepTable) -> Bools:
    """Ranks that should appear in a step: from their first seen step to their last one."""
    present = table.present_RK
    from_first = np.maximum.accumulate(present, axis=1)
    to_last = np.maximum.accumulate(present[:, ::-1], axis=1)[:, ::-1]
    return from_first & to_last


def has_stages(table: StepTable) -> bool:
    """Whether ranks wait for neighbour stages: then they do different work, and who waits least is not late."""
    idle = table.phase_s_PRK[PHASE_INDEX["pipeline_idle"]]
    return bool((idle > 0).any())  # nor is what was not observed


def find_barrier(table: StepTable, alive_R: Bools, *, is_unordered: bool = False) -> Barrier:
    """The best evidence of arrival order this table holds; none among the stages of a pipeline.

    is_unordered: nothing tells who arrives when, whatever the table shows: steps may be of other moments on each rank,
    or the ranks hold stages of a pipeline. Those meet within forward and backward, all of a replica
    come to the gradients when its slowest does, and where replicas are alike nobody waits there.
    alive_R: ranks still running; their newest records may still be under way, so a step without them is
    incomplete rather than theirs to miss.
    """
    found = _best(table, alive_R, is_unordered=is_unordered)
    return found if table.gap_K is None else replace(found, gap_K=table.gap_K)


def _best(table: StepTable, alive_R: Bools, *, is_unordered: bool) -> Barrier:
    if table.num_ranks < 2 or table.num_steps < 2 or is_unordered or has_stages(table):
        return _none(table)
    present = table.present_RK
    expected = present
    if not present.all():
        expected = expected_RK(table) | (alive_R[:, None] & np.maximum.accumulate(present, axis=1))
    whole_K = (present == expected).all(axis=0) & (expected.sum(axis=0) >= 2)
    arrive_known = np.isfinite(table.arrive_s_RK) & np.isfinite(table.release_s_RK)
    num_present = max(int(present.sum()), 1)
    complete_K = whole_K & (arrive_known == expected).all(axis=0)
    if not complete_K.any() and _some_arrive(arrive_known[:, whole_K], present[:, whole_K]):
        return _none(table)
    arrivals_seen = (arrive_known & present).sum() >= MIN_KNOWN_SHARE * num_present
    comm = table.phase_s_PRK[COMM]
    comm_known = np.isfinite(comm)
    seen_s_RK = np.where(comm_known, comm, 0.0)
    are_apart = False
    if arrivals_seen:
        steps = _by_releases(table, complete_K)
        are_apart = meet(*steps) is False
        if not are_apart and not _leave_early(table, complete_K) and meet_each_step(*steps, MIN_APART):
            return _by_arrival(table, complete_K)
    waits = (seen_s_RK > 0) & present
    # Of arrivals that were no meetings each rank waits for its own gradients: that says nothing of the others.
    if not arrivals_seen and waits.sum() >= MIN_KNOWN_SHARE * num_present:
        complete_K = whole_K & (comm_known == expected).all(axis=0)
        # Groups that never meet keep a pace each, and within one who waits least is still its last.
        is_told = not table.is_sampled  # of steps that do not follow each other the ends do not cancel
        columns = np.flatnonzero(complete_K & np.isfinite(table.step_s_RK).all(axis=0) & is_told)
        are_apart = meet(table.step_s_RK, comm, columns) is False
        meets_seldom = are_apart or not _is_one_pace(table, complete_K)
        meets_seldom |= table.steps is None and not meet_each_step(table.step_s_RK, comm, columns)
        rounds = _by_round(table, seen_s_RK, whole_K) if meets_seldom else None
        if rounds is None and are_apart and not have_mates(table.step_s_RK, comm, columns):
            return _none(table, are_apart=True)
        return rounds or _by_wait(table, comm, complete_K)
    return _by_round(table, seen_s_RK, whole_K) or _none(table, are_apart=are_apart)


def _some_arrive(arrive_known: Bools, present: Bools) -> bool:
    """Whether some ranks end their steps at a barrier and others never do, as the stages of a pipeline without a hook.

    One stage sums up the loss, the other sends and receives: what each waits for is of its place, and names nobody.
    """
    num_steps_R = present.sum(axis=1)
    num_known_R = (arrive_known & present).sum(axis=1)
    return bool(((num_known_R >= MIN_KNOWN_SHARE * num_steps_R) & (num_steps_R > 0)).any())


def _by_arrival(table: StepTable, complete_K: Bools) -> Barrier:
    shift_RK = _clock_shift(table, complete_K)
    arrive = table.arrive_s_RK - shift_RK
    arrive -= _waited_before_s(table)
    release_K = column_median(table.release_s_RK - shift_RK)
    last_arrival_K = column_max(arrive)
    previous_K = np.concatenate(([np.nan], release_K[:-1]))
    # Work is counted from a release common to all, so that ranks differ by their arrival and nothing else.
    work = arrive - previous_K
    cycle = release_K - previous_K
    complete = complete_K & np.isfinite(previous_K) & (cycle > 0)
    complete[1:] &= complete_K[:-1]
    complete &= np.isfinite(last_arrival_K)
    transfer = np.maximum(release_K - last_arrival_K, 0.0)
    return _assemble("arrival", work=work, order=arrive, transfer=transfer, cycle=cycle, complete=complete)


def _leave_early(table: StepTable, complete_K: Bools) -> bool:
    """Whether ranks of a host often leave before its last one has come: then they do not meet there (local SGD).

    Or leave as far apart as they have come: who is in a long exchange of its own is still there when the last one
    comes. A thread that launches work for a device leaves before anybody has come, and is not asked.
    """
    columns = np.flatnonzero(complete_K)
    if table.is_of_launches or columns.size < 2:
        return False
    _, host_R = np.unique(np.array(table.hosts), return_inverse=True)
    order = np.argsort(host_R, kind="stable")
    begins = np.flatnonzero(np.diff(host_R[order], prepend=-1))
    arrive, release = (cells(values, order, columns) for values in (table.arrive_s_RK, table.release_s_RK))
    cycle_s = median(np.diff(column_median(release)))
    last = np.maximum.reduceat(np.where(np.isnan(arrive), -np.inf, arrive), begins, axis=0)
    first = np.minimum.reduceat(np.where(np.isnan(release), np.inf, release), begins, axis=0)
    comes_first = np.minimum.reduceat(np.where(np.isnan(arrive), np.inf, arrive), begins, axis=0)
    is_early = last - first > EARLY_LEAVE * cycle_s
    is_apart = last - comes_first > EARLY_LEAVE * cycle_s
    if np.mean(is_early.any(axis=0)) > MAX_EARLY_LEAVES:
        return True
    if np.mean(is_apart.any(axis=0)) < MIN_APART:
        return False
    # Who always leaves an exchange later than others begins its next step later, and comes later by as much.
    arrive, release = (
        values - row_median(values - column_median(values))[:, None] for values in (arrive, release)
    )
    return median(_left_as_come(arrive, release, begins)[is_apart]) >= LEAVES_AS_COME


def _by_releases(table: StepTable, complete_K: Bools) -> tuple[Floats, Floats, Ints]:
    """(from each release to the next by its own rank's clock, waits in between, columns of all ranks).

    Hosts need no clock in common for it, and neither does a rank that is alone on its host.
    """
    step_RK = np.diff(table.release_s_RK, axis=1, prepend=np.nan)
    wait_RK = np.maximum(table.release_s_RK - table.arrive_s_RK, 0.0) + _waited_before_s(table)
    known_K = (np.isfinite(step_RK) & np.isfinite(wait_RK)).all(axis=0)
    is_told = not table.is_of_launches and not table.is_sampled
    return step_RK, wait_RK, np.flatnonzero(known_K & complete_K & is_told)


def _left_as_come(arrive: Floats, release: Floats, begins: Ints) -> Floats:
    """By how much later whoever comes later leaves, of what it comes later: 0 of a meeting, 1 where each leaves alone.

    Of each host, rows from `begins` on, in each column.
    """
    known = np.isfinite(arrive) & np.isfinite(release)
    of_row = np.repeat(np.arange(begins.size), np.diff(np.append(begins, known.shape[0])))
    num = np.maximum(np.add.reduceat(known.astype(np.int64), begins, axis=0), 1)

    def beyond_mean(values: Floats) -> Floats:
        mean = np.add.reduceat(np.where(known, values, 0.0), begins, axis=0) / num
        return np.where(known, values - mean[of_row], 0.0)

    came, left = beyond_mean(arrive), beyond_mean(release)
    spread = np.add.reduceat(came * came, begins, axis=0)
    return np.asarray(np.add.reduceat(came * left, begins, axis=0) / np.maximum(spread, 1e-18))


def _waited_before_s(table: StepTable) -> Floats:
    """Communication of each step outside the gradient barrier: a barrier per batch, buffers broadcast in forward.

    Whoever is late there has made the others wait already, and all reach the gradients together. Without that waiting
    a rank would have arrived so much earlier: subtracting it leaves each rank's own work. An arrival before its record
    begins shows that this has been done, down to waits behind the last gradients (a barrier after a checkpoint).
    """
    if (table.arrive_s_RK < table.begin_s_RK).any():
        return np.zeros_like(table.arrive_s_RK)
    at_barrier = table.release_s_RK - table.arrive_s_RK
    np.maximum(at_barrier, 0.0, out=at_barrier)
    elsewhere: Floats = table.phase_s_PRK[COMM] - at_barrier
    unknown = np.isnan(elsewhere)
    np.maximum(elsewhere, 0.0, out=elsewhere)
    np.copyto(elsewhere, 0.0, where=unknown)
    return elsewhere


def _is_one_pace(table: StepTable, complete_K: Bools) -> bool:
    """Whether a step is as long on one rank as on the others, whoever is late, as where they meet in each."""
    step_RK = np.where(complete_K, table.step_s_RK, np.nan)
    step_RK = step_RK[np.isfinite(step_RK).any(axis=1)][:, complete_K]
    if not step_RK.size:
        return True
    beyond_R = row_median(step_RK / column_median(step_RK))
    return bool(np.ptp(beyond_R) <= SAME_ROUND)


def _by_wait(table: StepTable, comm_RK: Floats, complete_K: Bools) -> Barrier:
    work = table.step_s_RK - comm_RK
    cycle = column_median(_from_release(table, _by_clocks_that_went(table, complete_K)))
    least = -column_max(-comm_RK)
    # The most that the network can have cost: what is waited beyond it is for whoever is last elsewhere in the step.
    transfer = least if table.shared_wait_K is None else np.fmin(table.shared_wait_K, least)
    complete = complete_K & (cycle > 0)
    found = _assemble("wait", work=work, order=-comm_RK, transfer=transfer, cycle=cycle, complete=complete)
    return found if table.shared_wait_K is None else replace(found, turns_K=least - transfer)


def _from_release(table: StepTable, step_RK: Floats) -> Floats:
    """From one release to the next, R x K, where each record tells when its own was, as a device's does.

    What a rank does after its release makes its own record longer and the next one of all others: of two ranks the
    middle of both was half a pause in either step. No two records' clocks are compared.
    """
    if not table.tells_releases:
        return step_RK
    after_RK = table.end_s_RK - table.release_s_RK
    before_RK = np.concatenate((np.full((after_RK.shape[0], 1), np.nan), after_RK[:, :-1]), axis=1)
    from_release_RK = step_RK - after_RK + before_RK
    known_K = (np.isfinite(from_release_RK) | ~np.isfinite(step_RK)).all(axis=0)
    return np.where(known_K, from_release_RK, step_RK)


def _by_clocks_that_went(table: StepTable, complete_K: Bools) -> Floats:
    """How long each rank's steps took, NaN where its host's clock stood in one: by that they were over at once."""
    stood = _stood_RK(table, complete_K)
    if stood is None:
        return table.step_s_RK
    lost_RK = np.diff(stood, axis=1, prepend=stood[:, :1]) < 0
    return np.where(lost_RK, np.nan, table.step_s_RK)


def _stood_RK(table: StepTable, complete_K: Bools) -> Floats | None:
    """`stood_HK` of each rank's host, by when it left the exchange: a device is then at what follows in its step."""
    hosts, host_R = _hosts(table)
    if len(hosts) < 2:
        return None
    after = [table.phase_s_PRK[PHASE_INDEX[name]] for name in AFTER_BARRIER if name != PHASES[OTHER]]
    left_RK = table.end_s_RK - np.nansum(after, axis=0)
    stood = stood_HK(np.where(complete_K, _group_medians(left_RK, host_R, len(hosts)), np.nan))
    return None if stood is None else np.asarray(stood[host_R])


def _hosts(table: StepTable) -> tuple[list[str], Ints]:
    """(each host once, which of them each rank's is)."""
    hosts = sorted(set(table.hosts))
    number = {host: index for index, host in enumerate(hosts)}
    return hosts, np.array([number[host] for host in table.hosts])


def _by_round(table: StepTable, comm_RK: Floats, whole_K: Bools) -> Barrier | None:
    """Of ranks that meet every few steps only (local SGD): between two meetings each goes at its own pace.

    None where the stretches between meetings are not as long on one rank as on the other: then those were no meetings
    of all.
    """
    step_RK = np.where(whole_K, table.step_s_RK, np.nan)
    at = _where_all_wait(comm_RK, whole_K)
    rounds = None if at is None else _rounds(step_RK, comm_RK, at, exact=False)
    if rounds is None:
        meetings = _where_some_wait_long(step_RK, comm_RK, whole_K)
        found = (_rounds(step_RK, comm_RK, each, exact=True) for each in meetings)
        rounds = next((each for each in found if each is not None), None)
    if rounds is None:
        return None
    wait_RK, known, at = rounds
    # Each step has its own work, which is what tells noise from a change, and its share of the meeting's waits.
    work_RK = _before_exchange(table, step_RK - comm_RK)
    # Of a round the job takes what whoever is last takes: two ranks' middle step was half a pause of one of them.
    last_K = np.argmin(np.where(np.isnan(wait_RK), np.inf, wait_RK), axis=0)
    cycle_K = (work_RK + wait_RK)[last_K, np.arange(last_K.size)]
    # The others wait for a pause until the meeting, but it is late in the step in which it passes.
    longer_RK = work_RK - row_median(work_RK)[:, None]
    pause_RK = np.where(longer_RK > STANDS_OUT * median(cycle_K[np.isfinite(cycle_K)]), longer_RK, 0.0)
    meets_K = np.isin(np.arange(whole_K.size), at)
    # One in the record of a meeting may have passed after it: then whoever is last at the next one did it.
    next_K, each_K = np.append(last_K[1:], last_K[-1:]), np.arange(last_K.size)
    cycle_K = cycle_K + np.where(meets_K & (next_K != last_K), pause_RK[next_K, each_K], 0.0)
    barrier = _assemble(
        "wait",
        work=work_RK,
        order=pause_RK - _of_rounds(pause_RK, at) - wait_RK,
        transfer=-column_max(-wait_RK),
        cycle=cycle_K,
        complete=known & whole_K,
    )
    return replace(barrier, meets_K=meets_K)


def _before_exchange(table: StepTable, work_RK: Floats) -> Floats:
    """The work of records that tell no release, from one exchange to the next: as `late_phase.phases_before_barrier`.

    What is done after the exchange, as far as it is seen, is late for the next one.
    """
    after = [table.phase_s_PRK[PHASE_INDEX[name]] for name in sorted(table.paid_later)]
    if not after:
        return work_RK
    after_RK: Floats = np.nansum(after, axis=0)
    result: Floats = work_RK - after_RK
    result[:, 1:] += after_RK[:, :-1]
    result[:, 0] = np.nan
    return result


def _where_all_wait(comm_RK: Floats, whole_K: Bools) -> Ints | None:
    """Columns in which all ranks communicate; None where they are too few, or some do without the others.

    Nor where that is in most steps, as they have been seen not to wait for each other there.
    """
    waits_RK = (comm_RK > 0) & whole_K
    at = np.flatnonzero(waits_RK.all(axis=0))
    is_of_all = at.size >= waits_RK.any(axis=0).sum() * (1 - SAME_ROUND)
    is_now_and_then = MIN_ROUNDS <= at.size <= MIN_KNOWN_SHARE * whole_K.size
    return at if is_of_all and is_now_and_then else None


def _where_some_wait_long(step_RK: Floats, comm_RK: Floats, whole_K: Bools) -> Iterator[Ints]:
    """Columns in which somebody waits far longer than all do elsewhere, or that keep the distance of the longest waits.

    Ranks that communicate within groups of their own in each step meet the others at a few of them, in half at most.
    The second, where waits of other reasons are as long as those at meetings.
    """
    usual_R = row_median(np.where(whole_K, comm_RK, np.nan))
    beyond_K = np.where(whole_K, (comm_RK - usual_R[:, None]).max(axis=0), 0.0)
    columns = np.argsort(-beyond_K, kind="stable")
    waits = np.maximum(beyond_K[columns], EARLY_LEAVE * median(step_RK[np.isfinite(step_RK)]))
    half = waits.size // 2
    ratios = waits[MIN_ROUNDS - 1 : half] / waits[MIN_ROUNDS : half + 1]
    if not ratios.size:
        return
    if ratios.max() >= MIN_BREAK:
        yield np.sort(columns[: MIN_ROUNDS + int(np.argmax(ratios))])
    long = np.sort(columns[waits >= waits[MIN_ROUNDS - 1] / MIN_BREAK])
    for distance in np.unique(np.diff(long)).tolist():
        hits = np.bincount(long % distance)
        comb = np.arange(int(hits.argmax()), beyond_K.size, distance)
        if distance > 1 and comb.size >= MIN_ROUNDS and hits.max() >= MIN_KNOWN_SHARE * comb.size:
            yield comb


def _rounds(step_RK: Floats, comm_RK: Floats, at: Ints, *, exact: bool) -> tuple[Floats, Bools, Ints] | None:
    """(waits at the meeting, a step's share of them, R x K; columns of rounds known whole; at); None if they are none.

    exact: as equally long on all ranks as what they wait asks for. Two ranks of one pace are within a tenth of it
    anyway, and a wait now and then would make the other one late.
    """
    pace_RK, wait_RK = _of_rounds(step_RK, at), _of_rounds(comm_RK, at)
    pace_K = column_median(pace_RK)
    # Of a rank that came amid a round nothing is known of that one; before, it is not asked for.
    is_whole_K = (np.isfinite(pace_RK) | np.isnan(step_RK)).all(axis=0)
    known = is_whole_K & np.isfinite(pace_K) & (pace_K > 0)
    if not known.any():
        return None
    wait_RK = np.where(np.isfinite(pace_RK), wait_RK, np.nan)
    usual_K = _spread(wait_RK[:, known]) if exact else pace_K[known]
    apart_K = _spread(pace_RK[:, known]) / np.maximum(usual_K, 1e-12)
    are_rounds = float(np.median(apart_K)) <= SAME_ROUND and (not exact or _come_apart(step_RK, at))
    return (wait_RK, known, at) if are_rounds else None


def _come_apart(step_RK: Floats, at: Ints) -> bool:
    """Whether ranks are further from each other between meetings than at them: where they meet in each step any are."""
    at = at[at >= np.argmax(np.isfinite(step_RK).all(axis=0))]  # since all of them are there
    if at.size < 2:
        return False
    since_K = np.arange(at[0] + 1, at[-1] + 1)
    apart_RK = np.cumsum(np.nan_to_num(step_RK[:, since_K] - step_RK[:, since_K].mean(axis=0)), axis=1)
    is_meeting_K = np.isin(since_K, at)
    begun_RK = np.concatenate((np.zeros((apart_RK.shape[0], 1)), apart_RK[:, is_meeting_K]), axis=1)
    round_K: Ints = np.cumsum(is_meeting_K) - is_meeting_K
    apart_K = np.ptp(apart_RK - begun_RK[:, round_K], axis=0)
    if is_meeting_K.all():
        return False
    return median(apart_K[is_meeting_K]) <= AT_MEETINGS * median(apart_K[~is_meeting_K])


def _spread(values_RK: Floats) -> Floats:
    """Between the ranks that are known, in each column."""
    return np.asarray(column_max(values_RK) + column_max(-values_RK))


def keeps_pace(table: StepTable, columns: Ints, row: int) -> bool:
    """Whether the mean step of a rank was as long as the typical other's: else they do not wait for each other.

    columns: steps. Ranks that meet, seen or not, take equally long from meeting to meeting, whoever is late.
    """
    step_RK = table.step_s_RK[:, columns]
    known_RK = np.isfinite(step_RK)
    is_seen_R: Bools = np.any(known_RK, axis=1)
    is_other_R = is_seen_R & (np.arange(is_seen_R.size) != row)
    if not is_seen_R[row] or not is_other_R.any():
        return False
    mean_R = np.where(known_RK, step_RK, 0.0).sum(axis=1) / np.maximum(known_RK.sum(axis=1), 1)
    usual_s = float(np.median(mean_R[is_other_R]))
    return bool(abs(float(mean_R[row]) - usual_s) <= SAME_ROUND * usual_s)


def _of_rounds(values_RK: Floats, at: Ints) -> Floats:
    """Mean over the round that a step belongs to, R x K; NaN outside of them and where something is unknown.

    at: columns that end a round, of which the first begins none that is known whole.
    """
    result = np.full(values_RK.shape, np.nan)
    for before, last in itertools.pairwise(at.tolist()):
        result[:, before + 1 : last + 1] = values_RK[:, before + 1 : last + 1].mean(axis=1, keepdims=True)
    return result


def _assemble(
    evidence: Evidence, *, work: Floats, order: Floats, transfer: Floats, cycle: Floats, complete: Bools
) -> Barrier:
    unknown = np.isnan(order)
    ranked = np.where(unknown, -np.inf, order)
    last, first = _finite(ranked.max(axis=0)), _finite(np.where(unknown, np.inf, order).min(axis=0))
    return Barrier(
        evidence=evidence,
        work_RK=np.where(complete, work, np.nan),
        lateness_RK=np.where(complete, order - first, np.nan),
        wait_RK=np.where(complete, last - order, np.nan),
        transfer_K=np.where(complete, transfer, np.nan),
        cycle_K=np.where(complete, cycle, np.nan),
        complete_K=complete,
        last_K=np.where(complete, np.argmax(np.ascontiguousarray(ranked.T), axis=1), np.nan),
    )


def _finite(values_K: Floats) -> Floats:
    return np.where(np.isfinite(values_K), values_K, np.nan)


def _clock_shift(table: StepTable, usable_K: Bools) -> Floats:
    """Seconds to subtract from each rank's clock so that common releases coincide across hosts.

    Zero within a single host. Leaving a collective is common to all within fractions of a millisecond,
    whatever the clocks say; a median over a block of steps removes who happened to be woken first.
    """
    num_steps = table.num_steps
    hosts, host_R = _hosts(table)
    if len(hosts) < 2:
        return np.zeros(table.present_RK.shape)
    release_HK = _group_medians(table.release_s_RK, host_R, len(hosts))
    num_blocks = -(-num_steps // CLOCK_BLOCK_STEPS)
    usable_HK = np.where(usable_K, release_HK, np.nan)
    stood = stood_HK(usable_HK)
    if stood is not None:
        usable_HK -= stood
    padded = np.full((len(hosts), num_blocks * CLOCK_BLOCK_STEPS), np.nan)
    padded[:, :num_steps] = usable_HK - usable_HK[0]
    blocks_HB = row_median(padded.reshape(-1, CLOCK_BLOCK_STEPS)).reshape(len(hosts), num_blocks)
    known_HB = np.isfinite(blocks_HB)
    for host in np.flatnonzero(known_HB.any(axis=1) & ~known_HB.all(axis=1)).tolist():
        known = np.flatnonzero(known_HB[host])
        blocks_HB[host] = np.interp(np.arange(num_blocks), known, blocks_HB[host, known])
    # No common release at all leaves NaN: that host's arrivals cannot be compared.
    blocks_HB[~known_HB.any(axis=1)] = np.nan
    blocks_HB[0] = 0.0
    shift_HK = blocks_HB[:, np.arange(num_steps) // CLOCK_BLOCK_STEPS]
    return np.asarray((shift_HK if stood is None else shift_HK + stood)[host_R])


def _group_medians(values_RK: Floats, group_R: Ints, num_groups: int) -> Floats:
    """`column_median` of the rows of each group, at once for all groups of one size: thousands of hosts have 8 each."""
    order, size_G = np.argsort(group_R, kind="stable"), np.bincount(group_R, minlength=num_groups)
    start_G = np.cumsum(size_G) - size_G
    result = np.empty((num_groups, values_RK.shape[1]))
    for size in np.unique(size_G).tolist():
        groups = np.flatnonzero(size_G == size)
        rows = order[start_G[groups][:, None] + np.arange(size)]
        block = values_RK[rows].transpose(1, 0, 2).reshape(size, -1)
        result[groups] = column_median(block).reshape(groups.size, -1)
    return result


def select_steps(barrier: Barrier, columns: Bools | Ints) -> Barrier:
    """The barrier of some columns, not to be written to."""
    which = consecutive(columns)

    return Barrier(
        evidence=barrier.evidence,
        work_RK=picked(barrier.work_RK, which),
        lateness_RK=picked(barrier.lateness_RK, which),
        wait_RK=picked(barrier.wait_RK, which),
        transfer_K=picked(barrier.transfer_K, which),
        cycle_K=picked(barrier.cycle_K, which),
        complete_K=picked(barrier.complete_K, which),
        last_K=picked(barrier.last_K, which),
        gap_K=None if barrier.gap_K is None else picked(barrier.gap_K, which),
        are_apart=barrier.are_apart,
        meets_K=None if barrier.meets_K is None else picked(barrier.meets_K, which),
        turns_K=None if barrier.turns_K is None else picked(barrier.turns_K, which),
    )
