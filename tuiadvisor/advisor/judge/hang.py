"""Whether the job stands still, from what the ranks' rings say of their training threads.

In: roster, steps.  Out: Subject for the rule on hangs, or None while anything moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.judge.evidence import PHASE_WORDS, Subject, rank_words
from tuiadvisor.metrics.hang.detection import MIN_STILL_S, RankNow, Standstill, standstill
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.cluster.rank_facts import RankFacts
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.step_table import StepTable


# Completes "waits for rank 2, in backward and ..."
THREAD_WORDS: Final = {
    "stopped": "stopped by a signal or a debugger",
    "running": "still computing",
    "blocked": "blocked on a device or a file system",
    "asleep": "asleep in a system call that is no collective's",
}


def standing(roster: Roster, store: StepStore, table: StepTable | None) -> Subject | None:
    """What the rule is judged on."""
    if any(_was_live(facts) and (facts.still_s or 0.0) < MIN_STILL_S for facts in roster.ranks.values()):
        return None  # one that moves is enough, and most often the first of thousands does
    offsets = store.job_offsets()
    silent = roster.silent_agents()
    places = []
    for _, facts in sorted(roster.ranks.items()):
        if facts.source in silent:
            return None  # what its ranks do now is not known
        step = None
        own_step = facts.step if facts.state == "killed" else facts.still_step
        if own_step is not None and facts.rank in offsets:
            step = own_step + offsets[facts.rank]
        state = "live" if _was_live(facts) else facts.state
        places.append(
            RankNow(
                facts.rank,
                state,
                facts.still_phase,
                facts.still_s,
                step,
                thread=facts.still_thread,
                waits_asleep=facts.texts.get("backend") == "gloo",
            )
        )
    found = standstill(places, _longest_step_s(table))
    return None if found is None else _subject(found, roster)


def _was_live(facts: RankFacts) -> bool:
    """A probe that was taken out of a standing rank leaves the rank as it was."""
    return facts.state in {"live", "detached"} and facts.still_phase is not None


def _longest_step_s(table: StepTable | None) -> float | None:
    if table is None or table.num_steps < 2:
        return None
    at_rest = np.nansum(table.phase_s_PRK[[PHASE_INDEX["checkpoint"], PHASE_INDEX["eval"]]], axis=0)
    working = (table.step_s_RK - at_rest)[:, 1:]
    known = working[np.isfinite(working)]
    return float(known.max()) if known.size else None


def _subject(found: Standstill, roster: Roster) -> Subject:
    values: dict[str, object] = {
        "still_s": found.for_s,
        "still_words": _words(found, len(roster.ranks), roster.world_size()),
        "num_still_missing": len(found.missing),
        "still_since": found.step,
    }
    hosts = tuple(sorted({roster.ranks[rank].host for rank in found.missing}))
    waiting = rank_words(found.waiting) if found.waiting and found.missing else None
    return Subject(
        "standstill", values, found.missing, hosts, found.phase, None, {"waiting": waiting} if waiting else {}
    )


def _words(found: Standstill, num_known: int, world_size: int | None) -> str:
    since = "" if found.step is None else f", at step {found.step}"
    if found.is_death:
        verb = "is" if len(found.missing) == 1 else "are"
        return f"{rank_words(found.missing)} {verb} gone, {rank_words(found.waiting)} still wait{since}"
    place = PHASE_WORDS.get(found.phase or "", "in different phases")
    if found.missing:
        verb = "waits" if len(found.waiting) == 1 else "wait"
        thread = f" and {THREAD_WORDS[found.thread]}" if found.thread else ""
        return f"{rank_words(found.waiting)} {verb} for {rank_words(found.missing)}, {place}{thread}{since}"
    if num_known == 1 and world_size in {None, 1}:
        return f"{rank_words(found.waiting)} is {place}{since}"
    unseen = max((world_size or 0) - num_known, 0)
    who = "who has not come was not observed" if not unseen else f"{unseen} of the ranks were not recorded"
    return f"all {len(found.waiting)} ranks are {place}{since}; {who}"
