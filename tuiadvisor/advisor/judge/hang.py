"""Whether the job stands still, from what the ranks' rings say of their training threads.

In: roster, steps.  Out: what is measured for the rule on hangs, and what an alert says; None while anything moves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.ends import how_ended, vanished
from tuiadvisor.advisor.cluster.leaving import END_GRACE_S
from tuiadvisor.advisor.cluster.membership import ENDED
from tuiadvisor.advisor.judge.imports import OF_DUMPS
from tuiadvisor.causes.collectives import different_words, evidence_words
from tuiadvisor.causes.hang import (
    awaited_words,
    barrier_words,
    departure_words,
    ending_words,
    exiting_words,
    how_ends_words,
    measured,
    unmoved_words,
    who_waits_words,
)
from tuiadvisor.events import EXITING
from tuiadvisor.metrics.hang.collective_evidence import (
    collective_evidence,
    dumped_evidence,
    is_recorded,
    never_ends,
    waiting_ranks,
)
from tuiadvisor.metrics.hang.detection import (
    LONGER_THAN_USUAL,
    MIN_STILL_S,
    RankNow,
    Standstill,
    awaited,
    departure,
    informed,
    outside_s,
    standstill,
    unmoved,
)
from tuiadvisor.metrics.hang.used_to import used_to_s
from tuiadvisor.metrics.steps.step_table import NS, PHASE_INDEX
from tuiadvisor.phases import PAUSES
from tuiadvisor.views.deaths import WITH_CODE
from tuiadvisor.views.stall import NoStep, Stall, StalledCollective

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.advisor.steps.wall_time import WallTime
    from tuiadvisor.causes.cause import Measured
    from tuiadvisor.metrics.hang.asked_recorder import Asked
    from tuiadvisor.metrics.lateness.witnesses import WasStopped
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.views.run_view import RankRow


NO_ANSWER: Final = "it has not answered"
NO_DUMP: Final = "there is no usable dump of it"
BARRIER: Final = "barrier"  # ends the name of each kind: "monitored_barrier", NCCL's "all_reduce_barrier"
OUTSIDE: Final = "all ranks are in code without a hook, where a thread also waits for its device"


def standing(roster: Roster, store: StepStore, wall: WallTime, table: StepTable | None) -> Standstill | None:
    """What stands still, since when, and for whom."""
    imported = roster.header.imported
    if imported is not None:
        return _dumped(roster) if imported.kind == OF_DUMPS else None
    if any((facts.still_s or 0.0) < MIN_STILL_S for facts in _standing_ranks(roster).values()):
        return None  # one that moves is enough, and most often the first of thousands does
    places = _places(roster, store)
    if not places or (_ending(roster) and _still_s(roster) < END_GRACE_S):
        return None
    found = _judged(roster, places, _longest_step_s(table, wall, roster, places))
    return None if found is None or found.is_at_work else found


def _judged(roster: Roster, places: Sequence[RankNow], longest_s: float | None) -> Standstill | None:
    """What stands still, also where those whom the others wait for may be at work."""
    before_s = max(MIN_STILL_S, LONGER_THAN_USUAL * (longest_s or 0.0))
    answers = _answers(roster)
    found = standstill(
        places,
        longest_s,
        is_recorded=is_recorded(answers, before_s),
        never_ends=never_ends(answers),
    )
    return None if found is None else _with_ends(_with_recorders(found, roster, places), roster)


def _dumped(roster: Roster) -> Standstill | None:
    """By imported dumps alone: since when it stands, and in which step, they do not tell."""
    answers = roster.recorder_answers.of_dumps()
    if not answers:
        return None
    heard = {answer.rank for answer in answers}
    silent = tuple((rank, NO_DUMP) for rank in range(roster.world_size() or 0) if rank not in heard)
    evidence = dumped_evidence(answers, silent)
    missing = evidence.hang.missing
    waiting = tuple(rank for rank in waiting_ranks(answers) if rank not in missing)
    if not waiting and not missing:
        return None
    return Standstill(None, None, waiting, missing, None, is_death=False, evidence=evidence)


def no_step(roster: Roster, store: StepStore, wall: WallTime, table: StepTable | None) -> NoStep | None:
    """Of a job that makes no step and is not seen to hang; else None."""
    if store.span() is None:
        return _from_the_start(roster)
    if not any((facts.still_s or 0.0) >= MIN_STILL_S for facts in _standing_ranks(roster).values()):
        return None
    places = _places(roster, store)
    if ending := _ending(roster):
        still_s = _still_s(roster)
        left = tuple(rank for rank in ending if roster.ranks[rank].state not in ENDED)
        return NoStep(still_s, ending_words(left), is_at_work=still_s < END_GRACE_S) if left else None
    longest_s = _longest_step_s(table, wall, roster, places)
    if waits := _awaiting(roster, places, longest_s):
        return waits
    stand = unmoved(places, None if table is None else _typical_step_s(table))
    return None if stand is None else NoStep(stand.for_s, unmoved_words(stand, longest_s), is_at_work=True)


def _from_the_start(roster: Roster) -> NoStep | None:
    """Where all ranks have done nothing since the attach: what their flight recorders tell of it.

    It may hang, or one of them prepares elsewhere what the others wait for: whatever a step takes is not known.
    """
    live = [facts for facts in roster.ranks.values() if facts.state == "live"]
    answers = roster.recorder_answers.from_the_start(live)
    heard_ns = [roster.last_heard_ns(answer.rank) for answer in answers]
    if not live or len(answers) < len(live) or None in heard_ns:
        return None
    told = stall_of_answers(answers, ())
    if not told.collectives and not told.different:
        return None
    stood_s = min(
        ((heard or 0) - answer.still_since_ns) * NS for heard, answer in zip(heard_ns, answers, strict=True)
    )
    return NoStep(stood_s, told.words, is_at_work=False)


def _typical_step_s(table: StepTable) -> float | None:
    known = table.step_s_RK[table.is_whole_RK]
    return float(np.median(known)) if known.size else None


def _awaiting(roster: Roster, places: Sequence[RankNow], longest_s: float | None) -> NoStep | None:
    """Where nobody is on its way out: for whom the others wait, as far as anything tells."""
    if gone := departure(places, longest_s):
        return NoStep(gone.for_s, departure_words(gone), is_at_work=False)
    if at_work := awaited(places, longest_s):
        return NoStep(at_work.for_s, awaited_words(at_work), is_at_work=True)
    found = _judged(roster, places, longest_s) if places else None
    if found is not None and found.at_barrier and found.for_s is not None:
        return NoStep(found.for_s, barrier_words(found), is_at_work=False)
    if (for_s := outside_s(places, longest_s)) is not None:
        return NoStep(for_s, OUTSIDE, is_at_work=False)
    return None


def _places(roster: Roster, store: StepStore) -> list[RankNow]:
    """Where each rank is; empty where what some of them do now is not known."""
    standing_ranks = _standing_ranks(roster)
    answers = _answers(roster)
    evaluating = {answer.rank for answer in answers if answer.evaluates}
    offsets, last = store.job_offsets(), store.last_job_steps()
    silent = roster.silent_agents()
    places = []
    for _, facts in sorted(roster.ranks.items()):
        if facts.source in silent:
            return []  # what its ranks do now is not known
        has_ended = facts.state in ENDED and facts.rank not in standing_ranks
        own_step = facts.step if has_ended else facts.still_step
        step = None
        if own_step is not None and facts.rank in offsets:
            step = own_step + offsets[facts.rank]
        if has_ended and facts.rank in last:  # its ring was read once more after it was last heard
            step = max(step or 0, last[facts.rank])
        state = "live" if facts.rank in standing_ranks else facts.state
        places.append(
            RankNow(
                facts.rank,
                state,
                facts.still_phase,
                facts.still_s,
                step,
                thread=facts.still_thread,
                waits_asleep=facts.texts.get("backend") == "gloo" and not _on_device(facts),
                on_device=_on_device(facts),
                how_ended=how_ended(facts) if has_ended else "",
                vanished=vanished(facts),
                evaluates=facts.rank in evaluating,
                so_far_s=facts.so_far_s,
            )
        )
    return places


def _with_recorders(found: Standstill, roster: Roster, places: Sequence[RankNow]) -> Standstill:
    """With what the ranks' flight recorders say, where they have been asked in this standstill."""
    answers = _answers(roster)
    heard = {answer.rank for answer in answers}
    silent = [(rank, NO_ANSWER) for rank in sorted({*found.waiting, *found.missing} - heard)]
    evidence = collective_evidence(answers, tuple(silent))
    return informed(found, evidence, {now.rank: now for now in places if now.state == "live"})


def _ending(roster: Roster) -> tuple[int, ...]:
    """Ranks that were on their way out when they were first asked: nothing stood before the end began.

    Not one that waits for others meanwhile, in a barrier of its `finally`: it ends no sooner than they come.
    """
    return tuple(answer.rank for answer in _answers(roster) if answer.ends and not answer.stands_in)


def _still_s(roster: Roster) -> float:
    """Since the last of the standing ranks moved."""
    return min((facts.still_s or 0.0 for facts in _standing_ranks(roster).values()), default=0.0)


def _with_ends(found: Standstill, roster: Roster) -> Standstill:
    """With who is on its way out and does not get there, and whether the others may meet it behind the loop."""
    answer_of = {answer.rank: answer for answer in _answers(roster)}
    found = replace(found, at_barrier=_is_at_barrier(found, answer_of))
    exiting = {
        rank
        for rank, facts in roster.ranks.items()
        if facts.state == "detached" and facts.detail == EXITING and roster.leaving.is_overdue
    }
    ending = {rank for rank, answer in answer_of.items() if answer.ends and _may_be_missing(found, answer)}
    missing = found.missing or tuple(sorted(ending | exiting))
    waiting = tuple(rank for rank in found.waiting if rank not in missing)
    is_theirs = set(missing) <= ending | exiting and not found.is_death and found.thread != "stopped"
    if not missing or not waiting or not is_theirs:
        return found
    insides = {answer_of[rank].stands_in for rank in missing if rank in ending}
    inside = insides.pop() if len(insides) == 1 and exiting.isdisjoint(missing) else ""
    how = exiting_words(len(missing)) if exiting.issuperset(missing) else how_ends_words(len(missing), inside)
    phases = {roster.ranks[rank].still_phase for rank in missing}
    phase = phases.pop() if len(phases) == 1 else None
    return replace(found, missing=missing, waiting=waiting, phase=phase, how_ends=how)


def _may_be_missing(found: Standstill, answer: Asked) -> bool:
    """Whether nothing speaks against that others wait for it: it is not in the very collective that they are in."""
    if not answer.stands_in or found.evidence is None:
        return True
    hang = found.evidence.hang
    return hang.different is not None or any(answer.rank in wait.missing for wait in hang.waits)


def _is_at_barrier(found: Standstill, answer_of: Mapping[int, Asked]) -> bool:
    """Whether the others wait in a barrier for ranks that run code without a hook, and wait for nobody there."""
    if not found.missing or not found.waiting or found.phase != "other" or found.thread == "stopped":
        return False
    inside = [answer_of[rank].stands_in if rank in answer_of else "" for rank in found.waiting]
    is_free = all(not answer_of[rank].call for rank in found.missing if rank in answer_of)
    return is_free and not found.is_death and all(name.endswith(BARRIER) for name in inside)


def _answers(roster: Roster) -> tuple[Asked, ...]:
    """Of this standstill."""
    return roster.recorder_answers.of(list(_standing_ranks(roster).values()))


def measured_of(found: Standstill, roster: Roster) -> Measured:
    """What the rule is judged on."""
    host_of = {rank: facts.host for rank, facts in roster.ranks.items()}
    return measured(found, host_of, roster.world_size(), is_over=is_over(roster))


def stall(found: Standstill, roster: Roster) -> Stall:
    """What an alert says of it."""
    named = [roster.ranks[rank] for rank in found.missing if rank in roster.ranks]
    told = _said(found, named, has_several_hosts=len(roster.hosts_of_ranks()) > 1)
    return replace(told, command="") if is_over(roster) else told  # there is no process any more


def _said(found: Standstill, named: Sequence[RankFacts], *, has_several_hosts: bool) -> Stall:
    """named: what is known of the missing ranks."""
    held = "gone" if found.is_death else "stopped" if found.thread == "stopped" else "missing"
    pids = [str(facts.pid) for facts in named if facts.pid]
    command = f"kill -CONT {' '.join(pids)}" if held == "stopped" and pids else "tuiadvisor stacks"
    command = "" if found.is_dumped else command  # there is no process any more
    hosts = sorted({facts.host for facts in named})
    is_elsewhere = held == "stopped" and has_several_hosts
    return Stall(
        for_s=found.for_s,
        waiting=found.waiting,
        missing=found.missing,
        words=who_waits_words(found),
        held=held,
        command=command,
        where=", ".join(hosts) if is_elsewhere else "",
        evidence=evidence_words(found),
        collectives=_collectives(found),
        different=different_words(found),
        unasked=found.evidence.unasked if found.evidence is not None else (),
        step=found.step,
    )


def stall_of_answers(answers: Sequence[Asked], stopped: Sequence[int]) -> Stall:
    """What ranks that nobody watches said of their flight recorders; since when they stand is not known."""
    waiting = tuple(sorted(answer.rank for answer in answers if answer.rank not in stopped))
    thread = "stopped" if stopped else None
    asked = Standstill(0.0, None, waiting, tuple(sorted(stopped)), None, is_death=False, thread=thread)
    found = informed(asked, collective_evidence(tuple(answers), ()), {})
    if found.evidence is not None and stopped:
        # Who was stopped could not be asked; whom the others miss beside it is a fact all the same.
        missing = tuple(sorted({*stopped, *found.evidence.hang.missing}))
        waiting = tuple(rank for rank in found.waiting if rank not in missing)
        found = replace(found, missing=missing, waiting=waiting)
    return _said(found, (), has_several_hosts=False)


def _collectives(found: Standstill) -> tuple[StalledCollective, ...]:
    if found.evidence is None:
        return ()
    return tuple(
        StalledCollective(
            group=wait.group.name,
            description=wait.group.description,
            members=wait.group.members,
            operation=wait.operation.name,
            seq=wait.operation.seq,
            size=wait.operation.sizes,
            dtype=wait.operation.dtype,
            waiting=wait.waiting,
            missing=wait.missing,
            unknown=wait.unrecorded,
            is_origin=wait.origin,
            stopped=tuple(
                (one.rank, one.peer)
                for one in found.evidence.hang.stopped
                if (one.operation.group, one.operation.seq) == (wait.group.name, wait.operation.seq)
            ),
        )
        for wait in found.evidence.hang.waits
    )


def with_stall(rows: tuple[RankRow, ...], found: Stall | None) -> tuple[RankRow, ...]:
    """The rows of the ranks with what holds each: nobody is live at its usual rate while nothing moves.

    Who stands out is who holds the others up, or was named before; not who waits and came a little late in its steps.
    """
    if found is None:
        return rows
    waiting, missing = set(found.waiting), set(found.missing)
    return tuple(
        replace(row, is_outlier=row.rank in missing)
        if row.state in ENDED  # how it ended is what is known of it now
        else replace(row, held="waits", is_outlier=row.is_culprit)
        if row.rank in waiting
        else replace(row, held=found.held, is_outlier=True)
        if row.rank in missing and found.held != "gone"
        else row
        for row in rows
    )


def _on_device(facts: RankFacts) -> bool:
    return facts.texts.get("device", "cpu") != "cpu"


def _standing_ranks(roster: Roster) -> dict[int, RankFacts]:
    """Those whose place was known when they were last heard alive, and that may stand there still.

    A probe that was taken out of a standing rank leaves the rank as it was. Of a job all of whose processes were ended
    it is where they stood until then: whoever ends a job that hangs does not make it one that worked. While ranks go
    one after another because somebody asked, it is where all of them stood when the first one went.
    """
    known = {rank: facts for rank, facts in roster.ranks.items() if facts.still_phase is not None}
    if is_over(roster):
        was_ended = all(
            rank in known and (facts.state == "killed" or WITH_CODE in facts.detail)
            for rank, facts in roster.ranks.items()
        )
        return known if was_ended else {}
    return {
        rank: facts
        for rank, facts in known.items()
        if facts.state in {"live", "detached"} or roster.leaving.holds(facts)
    }


def is_over(roster: Roster) -> bool:
    """Whether every process of the job has ended."""
    return bool(roster.ranks) and all(facts.state in ENDED for facts in roster.ranks.values())


def _longest_step_s(
    table: StepTable | None, wall: WallTime, roster: Roster, places: Sequence[RankNow]
) -> float | None:
    """That this run is used to, without what somebody else did to it: steps in which a process was seen stopped.

    Nor is the step in which ranks stand, be it one behind the others': the end of their processes closes it, as long as
    they stood.
    """
    if table is None or table.num_steps < 2:
        return None
    at_rest = np.nansum(table.phase_s_PRK[[PHASE_INDEX[name] for name in PAUSES]], axis=0)
    working = (table.step_s_RK - at_rest)[:, 1:]
    longest_K = np.max(np.where(np.isfinite(working), working, -1.0), axis=0)
    at = [now.step for now in places if now.step is not None and now.state == "live"]
    if at:
        stands_in = max(min(at), max(at) - 1)
        longest_K[table.steps_of(np.arange(1, table.num_steps)) >= stands_in] = -1.0
    was_stopped = roster.stops.within(dict(zip(table.ranks, table.hosts, strict=True)))
    earlier_s = _earlier_s(table, wall, was_stopped)
    return used_to_s(longest_K, lambda column: _is_stop(table, column + 1, was_stopped), earlier_s)


def _earlier_s(table: StepTable, wall: WallTime, was_stopped: WasStopped) -> list[float]:
    """Long steps of this run from before the table's, by the one rank whose whole time is held."""
    if wall.rank not in table.ranks:
        return []
    row = table.ranks.index(wall.rank)
    begins_s = table.begin_s_RK[row, 1:]
    if not np.isfinite(begins_s).any():
        return []
    first_ns = int(table.origin_ns_R[row]) + int(np.nanmin(begins_s) / NS)
    return [
        worked_ns * NS
        for life in wall.lives
        if life.host == table.hosts[row]
        for begin_ns, end_ns, worked_ns in life.long_ns
        if end_ns <= first_ns and not was_stopped(wall.rank, begin_ns, end_ns)
    ]


def _is_stop(table: StepTable, column: int, was_stopped: WasStopped) -> bool:
    """Whether any rank stood stopped in this step, or between the one before and this one."""
    for row, rank in enumerate(table.ranks):
        begin_s, end_s = table.begin_s_RK[row, column], table.end_s_RK[row, column]
        if np.isfinite(begin_s) and np.isfinite(end_s):
            origin_ns = int(table.origin_ns_R[row])
            if was_stopped(rank, origin_ns + int(begin_s * 1e9), origin_ns + int(end_s * 1e9)):
                return True
    return False
