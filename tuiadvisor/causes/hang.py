"""No rank makes progress: who waits, for whom, and where. Judged without a single steady step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import PHASE_WORDS, Cause, Details, Measured, rank_words
from tuiadvisor.causes.collectives import (
    evidence_words,
    no_dump_words,
    which_has_not_entered,
    why_unknown,
)
from tuiadvisor.metrics.hang.detection import COMPUTING, LONGER_THAN_USUAL, MIN_STILL_S
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.hang.detection import Awaited, Departure, Standstill, Unmoved

# Completes "waits for rank 2, in backward and ..."
THREAD_WORDS: Final = {
    "stopped": "stopped by a signal or a debugger",
    "running": "still computing",
    "blocked": "blocked on a device or a file system",
    "asleep": "asleep in a system call that is no collective's",
}
RULE: Final = "hang"
WORTH_SAYING_S: Final = 1.0  # of a phase of the step under way


def measured(
    found: Standstill, host_of: Mapping[int, str], world_size: int | None, *, is_over: bool
) -> Measured:
    """host_of: rank -> its host, of every rank that was heard of. is_over: its processes were ended meanwhile."""
    return Measured(
        "standstill",
        values={
            "still_s": found.for_s,
            "still_words": _words(found, len(host_of), world_size),
            "num_still_missing": len(found.missing),
            "is_still_stopped": int(found.thread == "stopped"),
            "is_still_computing": int(found.thread == COMPUTING),
            "is_still_dumped": int(found.is_dumped),
            "is_still_over": int(is_over),
            "still_since": found.step,
        },
        ranks=found.missing,
        hosts=tuple(sorted({host_of[rank] for rank in found.missing})),
        phase=found.phase,
        details=_details(found),
    )


def _details(found: Standstill) -> Details:
    details: Details = {}
    if found.waiting and found.missing:
        details["waiting"] = rank_words(found.waiting)
    if known := evidence_words(found):
        details["collectives"] = known
    elif why := why_unknown(found):
        details["collectives"] = f"unknown: {why}"
    return details


def waiting_words(found: Standstill) -> str:
    """Who waits for whom; the banner and the verdict say it alike."""
    verb = "waits" if len(found.waiting) == 1 else "wait"
    return f"{rank_words(found.waiting)} {verb} for {rank_words(found.missing)}"


def all_stopped_words(found: Standstill) -> str:
    """Where nobody is left to wait for them."""
    verb = "is" if len(found.missing) == 1 else "are"
    return f"{rank_words(found.missing)} {verb} {THREAD_WORDS['stopped']}"


def who_waits_words(found: Standstill) -> str:
    """Who waits for whom, and in what the missing have not come."""
    known = evidence_words(found)
    if found.evidence is not None and found.is_dumped:
        known += no_dump_words(found.evidence) if found.missing else ""
    if not found.missing and found.is_dumped:
        return known
    if not found.missing:
        verb = "makes" if len(found.waiting) == 1 else "make"
        return f"{rank_words(found.waiting)} {verb} no progress; {known or 'who is missing was not observed'}"
    if not found.waiting:
        return all_stopped_words(found) if found.thread == "stopped" else known
    why = "gone" if found.is_death and not found.how_ended else THREAD_WORDS.get(found.thread or "", "")
    call = "" if found.how_ends else which_has_not_entered(found)
    if call and found.evidence is not None and found.is_dumped:
        call += no_dump_words(found.evidence)
    who = rank_words(found.waiting)
    if len(found.missing) == 1 < len(found.waiting) and known.startswith(f"{who} are "):
        known = f"they{known.removeprefix(who)}"
    more = f", {call}" if call else f"; {known}" if known else ""
    ended = found.how_ended or found.how_ends
    how = f", which {ended}" if ended else f", {why}" if why else ""
    return f"{waiting_words(found)}{how}{more}"


def departure_words(found: Departure) -> str:
    """Who is gone, and that nobody has moved since."""
    others = f"{rank_words(found.others)} {'has' if len(found.others) == 1 else 'have'}"
    return f"rank {found.rank} {found.how_ended}; {others} made no step since, in code without a hook"


def awaited_words(found: Awaited) -> str:
    """Who waits for whom, and what they do meanwhile."""
    verb = "waits" if len(found.waiting) == 1 else "wait"
    who = f"{rank_words(found.waiting)} {verb} for {rank_words(found.missing)}"
    are = "is" if len(found.missing) == 1 else "are"
    spent = ", ".join(
        f"{for_s:.0f} s {PHASE_WORDS[name]}" for name, for_s in found.in_s if for_s >= WORTH_SAYING_S
    )
    work = "in evaluation" if found.evaluates else "at work"
    return f"{who}, which {are} {work}" + (f" ({spent} so far)" if spent else "")


def unmoved_words(found: Unmoved, used_to_s: float | None) -> str:
    """Where who stands is, and why that is no hang yet; used_to_s: the longest step this run is used to."""
    if found.phase is not None:
        return (
            f"{rank_words(found.ranks)} {'is' if len(found.ranks) == 1 else 'are'} {PHASE_WORDS[found.phase]}"
        )
    if used_to_s is None or used_to_s * LONGER_THAN_USUAL <= MIN_STILL_S:
        return "no rank was seen to move since"
    return f"no rank was seen to move since; some steps of this run take {seconds(used_to_s)}"


def ending_words(ranks: tuple[int, ...]) -> str:
    """Of ranks that clean up before they end."""
    return f"{rank_words(ranks)} {how_ends_words(len(ranks))}"


def how_ends_words(num: int, inside: str = "") -> str:
    """Of `num` ranks that clean up before they end; inside: the collective that they stand in meanwhile."""
    is_, have, stand = ("is", "has", "stands") if num == 1 else ("are", "have", "stand")
    then = f"{stand} in {inside}" if inside else f"{have} not finished"
    return f"{is_} ending (KeyboardInterrupt or SystemExit) and {then}"


def exiting_words(num: int) -> str:
    """Of `num` processes that are past the program's last line."""
    return "is exiting and has not ended" if num == 1 else "are exiting and have not ended"


def barrier_words(found: Standstill) -> str:
    """Who waits for whom at a barrier, where the others may be at work."""
    verb = "waits" if len(found.waiting) == 1 else "wait"
    are = "is" if len(found.missing) == 1 else "are"
    who = f"{rank_words(found.waiting)} {verb} at a barrier for {rank_words(found.missing)}"
    return f"{who}, which {are} in code without a hook"


def _still_wait(found: Standstill) -> str:
    return f"{rank_words(found.waiting)} still {'waits' if len(found.waiting) == 1 else 'wait'}"


def _words(found: Standstill, num_known: int, world_size: int | None) -> str:
    if found.is_dumped:
        return who_waits_words(found)
    if not found.waiting:
        return all_stopped_words(found) + ("" if found.step is None else f", at step {found.step:,}")
    known = evidence_words(found)
    words = _without_evidence(found, num_known, world_size, has_more=bool(known))
    return f"{words}; {known}" if known else words


def _without_evidence(found: Standstill, num_known: int, world_size: int | None, *, has_more: bool) -> str:
    since = "" if found.step is None else f", at step {found.step:,}"
    if found.is_death:
        how = found.how_ended or ("is gone" if len(found.missing) == 1 else "are gone")
        return f"{rank_words(found.missing)} {how}; {_still_wait(found)}{since}"
    place = PHASE_WORDS.get(found.phase or "", "in different phases")
    if len(found.missing or found.waiting) > 1:
        place = place.replace(" its ", " their ")
    if found.missing:
        thread = THREAD_WORDS.get(found.thread or "", "")
        alone = thread if found.thread == "stopped" else f"which {found.how_ends}" if found.how_ends else ""
        if alone:  # where it was met by the signal, or by its end, explains nothing
            return f"{waiting_words(found)}, {alone}{since}"
        return f"{waiting_words(found)}, {place}{f' and {thread}' if thread else ''}{since}"
    if num_known == 1 and world_size in {None, 1}:
        return f"{rank_words(found.waiting)} is {place}{since}"
    unseen = max((world_size or 0) - num_known, 0)
    if has_more and not unseen:
        return f"all {len(found.waiting)} ranks are {place}{since}"
    who = (
        "which rank is missing was not observed" if not unseen else f"{unseen} of the ranks were not recorded"
    )
    return f"all {len(found.waiting)} ranks are {place}{since}; {who}"


HANG: Final = Cause(
    rules=(RULE,),
    metrics="""
standstill still_s s since any rank's training thread went from one phase to another
standstill still_words text who waits, for whom, where and since which step
standstill still_since steps job step at which the ranks hang
standstill is_still_stopped flag 1 if they are stopped by a signal or a debugger
standstill is_still_dumped flag 1 if flight-recorder dumps alone tell of it, and so neither since when nor in which step
standstill is_still_over flag 1 if the processes of all ranks were ended while nothing moved
standstill is_still_computing flag 1 if the training threads of those the others wait for use their cores
standstill num_still_missing count ranks the others wait for, as far as it was observed
""",
    scope="standstill",
    limits_by_finding=True,
    needs_device=False,
)
