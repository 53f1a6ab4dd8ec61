"""A job that no longer moves: since when, who waits, and who has not come.

In: where each rank's training thread is and for how long, the longest step of the run.  Out: Standstill or None.
A rank is named only where its place in the step shows that it cannot be waiting itself; else nobody is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor import phases as phase_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.hang.collective_evidence import CollectiveEvidence

MIN_STILL_S: Final = 5.0  # a step of a few milliseconds that takes this long is no jitter
LONGER_THAN_USUAL: Final = 3.0  # times the longest step seen: the run's own pattern
# All ranks in code without a hook: the loop may be over. On devices that is where `.item()` waits for a collective: it
# takes no longer than elsewhere then if the flight recorders tell of one that some have entered and others not.
OUTSIDE_PATIENCE_S: Final = 60.0
PATIENCE_S: Final = 600.0  # while a checkpoint or an evaluation is under way, or before the first steps
# Flight recorders are asked after 5 s and answer within one: who computes is not called hung before they tell what in,
# nor who is in code without a hook before they tell whether it is on its way out.
ASKED_BY_S: Final = 10.0
STEPS_AFTER_DEATH: Final = 2  # that the others may still count: the one it died in, and one begun
COMPUTING: Final = "running"  # of events.THREAD_STATES
EVAL: Final = "eval"
MAY_EVALUATE: Final = frozenset(
    {EVAL, "other", "data_wait"}
)  # phases of a training's own are none of an evaluation
AT_REST: Final = frozenset(phase_names.PAUSES)
WAITING: Final = frozenset(
    {*phase_names.of_kind("sync", "idle"), "backward"}
)  # a gradient barrier is within backward


@dataclass(frozen=True, slots=True)
class RankNow:
    """Where one rank is."""

    rank: int
    state: str  # RankState in lower case
    phase: str | None
    for_s: float | None  # in this phase without a break
    step: int | None  # on the job's axis where known
    thread: str | None = None  # of events.THREAD_STATES
    waits_asleep: bool = False  # its collectives run on the CPU: who waits in one uses no processor
    # Its thread launches collectives and waits for them wherever it next needs the device: in any phase.
    on_device: bool = False
    how_ended: str = ""  # "left with exit code 0 after step 120", where it has
    vanished: bool = False  # past its exit hooks, by no signal that is known
    # Its thread was asked inside: it computes without gradients, or with no model but such in eval mode.
    evaluates: bool = False
    so_far_s: Mapping[str, float] = field(default_factory=dict)  # of a long step under way, by phase


@dataclass(frozen=True, slots=True)
class Standstill:
    """missing: ranks the others wait for, empty when nothing observed tells. for_s: None: nobody saw since when."""

    for_s: float | None
    step: int | None
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    phase: str | None  # of the missing, else of all
    is_death: bool  # the missing ranks are gone
    thread: str | None = None  # what the missing do, where that is why they are named, or all were stopped
    evidence: CollectiveEvidence | None = None  # of the ranks' flight recorders, where they were asked
    how_ended: str = ""  # of the missing rank, where one alone is gone
    evaluates: bool = False  # the missing do
    # The others wait in a barrier that the missing, in code without a hook, have not entered: no step's own collective.
    at_barrier: bool = False
    how_ends: str = ""  # "is exiting and has not ended", where the missing are on their way out

    @property
    def is_dumped(self) -> bool:
        """Whether imported dumps alone tell of it."""
        return self.evidence is not None and self.evidence.is_dumped

    @property
    def is_at_work(self) -> bool:
        """Whether whom the others wait for is seen to evaluate, or was not yet asked whether it does, or ends.

        Or may write a report or upload the last checkpoint behind the loop, while the others meet it in a barrier.
        """
        if not self.missing or self.is_death:
            return False
        if self.at_barrier and self.for_s is not None and self.for_s < OUTSIDE_PATIENCE_S:
            return True
        computes = self.thread == COMPUTING
        unasked = {rank for rank, _ in self.evidence.unasked} if self.evidence else {*self.missing}
        # Who was interrupted cleans up in code without a hook.
        may_end = self.phase == "other" and self.thread != "stopped"
        is_open = (may_end or (computes and self.phase in MAY_EVALUATE)) and not unasked.isdisjoint(
            self.missing
        )
        return (computes and self.evaluates) or (
            is_open and self.for_s is not None and self.for_s < ASKED_BY_S
        )


@dataclass(frozen=True, slots=True)
class Departure:
    """A rank that vanished in the middle, and nobody has made a step since; whether they wait for it is not seen."""

    for_s: float
    rank: int
    how_ended: str
    others: tuple[int, ...]


def standstill(
    ranks: Sequence[RankNow],
    longest_step_s: float | None,
    *,
    is_recorded: bool = False,
    never_ends: bool = False,
) -> Standstill | None:
    """What stands still now; None while anything moves, or not for long enough.

    longest_step_s: without checkpoint and evaluation; None before the first steps. is_recorded: flight recorders tell
    of a collective that some ranks have entered and others not. never_ends: of what goes on by no patience.
    """
    live = [now for now in ranks if now.state == "live"]
    dead = _dead(ranks, live) or _left(ranks, live)
    if not live:
        return None
    stills = [now.for_s for now in live]
    phases = {now.phase for now in live}
    if None in stills or None in phases:
        return None
    for_s = min(still for still in stills if still is not None)
    step = max((now.step for now in live if now.step is not None), default=None)
    if all(now.thread == "stopped" for now in live):
        # Wherever it met them: nobody waits for anybody, and each of them has to go on.
        stopped = tuple(now.rank for now in live)
        found = Standstill(for_s, step, (), stopped, None, is_death=False, thread="stopped")
        return found if for_s >= MIN_STILL_S else None
    on_device = any(now.on_device for now in live)
    is_outside = phases == {"other"} and not (on_device and len(live) > 1) and not never_ends
    limit_s = MIN_STILL_S if never_ends else _patience_s(live, longest_step_s, is_recorded=is_recorded)
    if for_s < limit_s or is_outside:
        return None
    missing = dead or (() if on_device else _not_arrived(live))
    by_thread = () if missing else _elsewhere(live)
    missing = missing or by_thread
    named = [now.phase for now in live if now.rank in missing] if not dead else []
    phase = named[0] if named and len(set(named)) == 1 else None
    return Standstill(
        for_s=for_s,
        step=step,
        waiting=tuple(now.rank for now in live if now.rank not in missing),
        missing=missing,
        phase=phase or (next(iter(phases)) if len(phases) == 1 else None),
        is_death=bool(dead),
        thread=_thread_of(live, missing, by_thread),
        how_ended=_how_ended(ranks, dead),
    )


def _patience_s(live: Sequence[RankNow], longest_step_s: float | None, *, is_recorded: bool) -> float:
    """How long this job may stand before that is told: by what its ranks are in, and by what its steps took."""
    limit_s = MIN_STILL_S
    # Whoever stands stopped in an evaluation or a checkpoint does not work at it.
    is_at_rest = any(now.phase in AT_REST for now in live if now.thread != "stopped")
    if longest_step_s is None or is_at_rest:
        limit_s = PATIENCE_S if longest_step_s is None or not _all_wait(live) else OUTSIDE_PATIENCE_S
    elif not _is_held_by_stop(live):
        limit_s = max(limit_s, LONGER_THAN_USUAL * longest_step_s)
    # All ranks in code without a hook: the loop may be over, or a report is being written.
    if all(now.phase == "other" for now in live) and not is_recorded:
        limit_s = max(limit_s, OUTSIDE_PATIENCE_S)
    return limit_s


@dataclass(frozen=True, slots=True)
class Awaited:
    """Ranks that work while all others wait for them."""

    for_s: float  # the others wait
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    evaluates: bool  # all of the missing do
    in_s: tuple[
        tuple[str, float], ...
    ]  # seconds of the step under way by phase, the longest first, of one alone


def awaited(ranks: Sequence[RankNow], longest_step_s: float | None) -> Awaited | None:
    """Whom all others wait for, where those are seen to work: they move, evaluate, or write a checkpoint.

    longest_step_s: as of `standstill`, which comes first. None on devices, whose threads wait in any phase.
    """
    live = [now for now in ranks if now.state == "live"]
    limit_s = max(MIN_STILL_S, LONGER_THAN_USUAL * (longest_step_s or 0.0))
    waiting = [now for now in live if now.phase in WAITING and (now.for_s or 0.0) >= limit_s]
    missing = [now for now in live if now not in waiting]
    if not waiting or not missing or len(live) < len(ranks) or any(now.on_device for now in live):
        return None
    if longest_step_s is None or not all(_is_seen_to_work(now) for now in missing):
        return None
    only = missing[0].so_far_s if len(missing) == 1 else {}
    return Awaited(
        for_s=min(now.for_s or 0.0 for now in waiting),
        waiting=tuple(now.rank for now in waiting),
        missing=tuple(now.rank for now in missing),
        evaluates=all(_evaluates(now) for now in missing),
        in_s=tuple(sorted(only.items(), key=lambda one: (-one[1], one[0]))),
    )


def outside_s(ranks: Sequence[RankNow], longest_step_s: float | None) -> float | None:
    """For how long all ranks of a job on devices have been in code without a hook; None where they are not.

    That is where a loop ends, a report is written, and a thread waits for its device: too soon to call it a hang.
    """
    live = [now for now in ranks if now.state == "live"]
    stills = [now.for_s for now in live if now.for_s is not None and now.phase == "other" and now.on_device]
    if len(live) < 2 or len(stills) < len(live) or longest_step_s is None:
        return None
    return min(stills) if min(stills) >= max(MIN_STILL_S, LONGER_THAN_USUAL * longest_step_s) else None


@dataclass(frozen=True, slots=True)
class Unmoved:
    """Ranks that stand for less than this run is given: no hang yet, and no pace either."""

    for_s: float
    ranks: tuple[int, ...]  # in this phase; all where none of them saves or evaluates
    phase: str | None  # of PAUSES or "other"; None: wherever a step has its time


def unmoved(ranks: Sequence[RankNow], typical_step_s: float | None) -> Unmoved | None:
    """Who stands longer than a step takes; None while one of them moves, and before the first steps.

    typical_step_s: most steps take about so long. `standstill` comes first.
    """
    live = [now for now in ranks if now.state == "live"]
    stills = [now.for_s for now in live if now.for_s is not None and now.phase is not None]
    if not live or len(stills) < len(live) or typical_step_s is None:
        return None
    if min(stills) < max(MIN_STILL_S, LONGER_THAN_USUAL * typical_step_s):
        return None
    phases = {now.phase for now in live}
    found = next((name for name in phase_names.PAUSES if name in phases), None)
    found = "other" if phases == {"other"} else found
    there = tuple(now.rank for now in live if found is None or now.phase == found)
    return Unmoved(min(stills), there, found)


def _is_seen_to_work(now: RankNow) -> bool:
    if now.thread == "stopped" or now.phase is None or now.for_s is None or not now.so_far_s:
        return False
    is_moving = now.for_s < MIN_STILL_S
    return is_moving or now.phase in AT_REST or (now.thread == COMPUTING and now.evaluates)


def _evaluates(now: RankNow) -> bool:
    """By the forwards that were seen, or by its own word."""
    if now.evaluates or now.phase == EVAL:
        return True
    return bool(now.so_far_s) and max(now.so_far_s, key=lambda name: now.so_far_s[name]) == EVAL


def departure(ranks: Sequence[RankNow], longest_step_s: float | None) -> Departure | None:
    """The rank that vanished first to be told of, where the others are in code in which nobody sees whether they wait.

    longest_step_s: as of `standstill`, which comes first: there the others are seen to wait.
    """
    live = [now for now in ranks if now.state == "live"]
    stills = [now.for_s for now in live if now.for_s is not None]
    gone = [now for now in ranks if now.vanished and now.rank in _gone_with(ranks, live, now.state)]
    if not gone or not live or len(stills) < len(live):
        return None
    if min(stills) < max(MIN_STILL_S, LONGER_THAN_USUAL * (longest_step_s or 0.0)):
        return None
    first = min(gone, key=lambda now: now.rank)
    return Departure(min(stills), first.rank, first.how_ended, tuple(now.rank for now in live))


def informed(
    found: Standstill, evidence: CollectiveEvidence | None, live: Mapping[int, RankNow]
) -> Standstill:
    """The standstill with what the ranks' flight recorders add. live: where each rank is.

    They win over phases: a phase says that a rank is in no collective that we know of, a recorder that it is in one,
    or is not. Who is dead or stopped could not be asked and stays named.
    """
    if evidence is None:
        return found
    missing = _missing(found, evidence)
    if missing == found.missing:
        return replace(
            found,
            evidence=evidence,
            evaluates=bool(missing) and all(rank in live and _evaluates(live[rank]) for rank in missing),
        )
    waiting = tuple(rank for rank in sorted({*found.waiting, *found.missing}) if rank not in missing)
    phases = {live[rank].phase if rank in live else None for rank in missing or waiting}
    return replace(
        found,
        missing=missing,
        waiting=waiting,
        phase=phases.pop() if len(phases) == 1 else None,
        thread=COMPUTING if _all_are(live, missing, COMPUTING) else None,
        evaluates=bool(missing) and all(rank in live and _evaluates(live[rank]) for rank in missing),
        evidence=evidence,
    )


def _missing(found: Standstill, evidence: CollectiveEvidence) -> tuple[int, ...]:
    if found.is_death or found.thread == "stopped":
        return found.missing
    if evidence.hang.missing:
        return evidence.hang.missing
    if evidence.hang.waits and evidence.is_whole:
        return ()
    return tuple(rank for rank in found.missing if rank not in evidence.waiting)


def _thread_of(live: Sequence[RankNow], missing: Sequence[int], by_thread: Sequence[int]) -> str | None:
    """What the missing do: why they are named, or that all of them were stopped, whatever phase that met them in."""
    if by_thread:
        return next(now.thread for now in live if now.rank in by_thread)
    threads = {now.thread for now in live if now.rank in missing}
    return threads.pop() if threads in ({"stopped"}, {COMPUTING}) else None


def _all_are(live: Mapping[int, RankNow], ranks: Sequence[int], thread: str) -> bool:
    return bool(ranks) and all(rank in live and live[rank].thread == thread for rank in ranks)


def _all_wait(live: Sequence[RankNow]) -> bool:
    """Whether every thread is seen to wait: who evaluates may have met a collective that the others do not enter.

    Or one in which it waits for a rank that stands stopped.
    """
    return all(now.thread == "stopped" or (now.thread == "waiting" and now.waits_asleep) for now in live)


def _is_held_by_stop(live: Sequence[RankNow]) -> bool:
    """Whether a process stands stopped: however long a step has ever taken, this one takes until somebody goes on."""
    return any(now.thread == "stopped" for now in live)


def _dead(ranks: Sequence[RankNow], live: Sequence[RankNow]) -> tuple[int, ...]:
    """Ranks that were killed or vanished, as far as the others stopped with them."""
    return _gone_with(ranks, live, "killed")


def _left(ranks: Sequence[RankNow], live: Sequence[RankNow]) -> tuple[int, ...]:
    """Ranks that ended by themselves while all others wait: who is done earlier leaves them in their next collective.

    At the end of a job ranks end at different moments, and who still saves or evaluates waits for none of them.
    """
    is_waiting = bool(live) and all(now.phase in WAITING for now in live)
    return _gone_with(ranks, live, "exited") if is_waiting else ()


def _gone_with(ranks: Sequence[RankNow], live: Sequence[RankNow], state: str) -> tuple[int, ...]:
    """Ranks in this state, but not those without which the others went on: a smaller job waits for none of them."""
    reached = max((now.step for now in live if now.step is not None), default=None)
    return tuple(
        now.rank
        for now in ranks
        if now.state == state
        and (reached is None or now.step is None or reached - now.step <= STEPS_AFTER_DEATH)
    )


def _how_ended(ranks: Sequence[RankNow], gone: Sequence[int]) -> str:
    return next((now.how_ended for now in ranks if now.rank in gone), "") if len(gone) == 1 else ""


def _not_arrived(live: Sequence[RankNow]) -> tuple[int, ...]:
    """Ranks that are behind in steps, else ranks in a phase in which nobody waits for others."""
    steps = [now.step for now in live]
    if None not in steps and len(set(steps)) > 1:
        last = min(step for step in steps if step is not None)
        behind = tuple(now.rank for now in live if now.step == last)
        return behind if all(now.phase in WAITING for now in live if now.rank not in behind) else ()
    apart = tuple(now.rank for now in live if now.phase not in WAITING)
    if not apart and any(now.phase == "comm_exposed" for now in live):
        apart = tuple(now.rank for now in live if now.phase != "comm_exposed")
    return apart if len(apart) < len(live) else ()


def _elsewhere(live: Sequence[RankNow]) -> tuple[int, ...]:
    """Ranks whose thread cannot be in a collective while those of all others are: stopped, computing, or asleep.

    All of them stand in backward, where the phase does not tell who has arrived. One rank of which nothing is known
    may be the one: then nobody is named.
    """
    if any(now.thread is None for now in live):
        return ()
    stopped = tuple(now.rank for now in live if now.thread == "stopped")
    if stopped:
        return stopped
    if not all(now.waits_asleep for now in live):
        return ()
    apart = {now.thread for now in live if now.thread != "waiting"}
    ranks = tuple(now.rank for now in live if now.thread != "waiting")
    return ranks if len(apart) == 1 and len(ranks) < len(live) else ()
