"""What to say of processes of a job that are there and not watched.

In: HELLO and STATUS frames' payloads.  Out: sentences; none where all are.
"""

from __future__ import annotations

from typing import Final

from tuiadvisor.advisor.cluster.host_clocks import NOT_READY
from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, objects, text
from tuiadvisor.causes.cause import rank_words

WAITING_FOR_INTERPRETER: Final = "waiting for the interpreter"  # as an agent says it
NO_STEP: Final = "attached, but no training step was seen"
TO_DO: Final = "; "  # between why and what to do about it; what passes by itself has neither


def is_held_up(state: str, detail: str) -> bool:
    """Whether a rank cannot be entered for a reason that stays until somebody does something, as a stop."""
    return state == "waiting_to_attach" and says_what_to_do(detail)


def left_out(payload: Payload, host: str) -> str:
    """What to say of ranks that run beside those that were named; empty without any."""
    ranks = [integer(entry, "rank") for entry in objects(payload, "left_out")]
    pids = [pid for entry in objects(payload, "job_pids") if (pid := integer(entry, "pid")) is not None]
    if not ranks or not pids:
        return ""
    known = tuple(sorted({rank for rank in ranks if rank is not None}))
    many = len(ranks) > 1
    who = rank_words(known) if len(known) == len(ranks) else f"{len(ranks)} further rank{'s' * many}"
    return (
        f"{who} of the same job run{'s' * (not many)} on {host}, too, and {'are' if many else 'is'} not watched: "
        f"--pid {' '.join(map(str, pids))} names all"
    )


def unplaced(payload: Payload, former: tuple[str, ...]) -> tuple[str, ...]:
    """Why processes of a STATUS frame that have no rank number are not watched, each reason once.

    former: what was said before; it stays where a probe was taken out again without a step.
    """
    reasons: list[str] = []
    for entry in objects(payload, "ranks"):
        state = text(entry, "state")
        if integer(entry, "rank") is not None:
            continue
        if state == "live":  # of a training of one process the first step tells that it is one
            why = text(entry, "no_step")
            reasons.append(f"not watched yet: {NO_STEP}" + (f": {why}" if why else ""))
        elif state == "detached":
            reasons += [one for one in former if NO_STEP in one]
        elif (why := text(entry, "detail")) and (
            state in {"waiting_to_attach", "refused"} or why in NOT_READY
        ):
            reasons.append(f"not watched: {why}" if state == "refused" else f"not watched yet: {why}")
    return tuple(dict.fromkeys(reasons))


def why_stepless(reasons: tuple[str, ...]) -> str:
    """What was found of processes without a rank number that make no step; empty where several things were, or none.

    reasons: of `unplaced`. Behind what was found stands a command for one process.
    """
    found = {_found(one) for one in reasons}
    return f"What was found: {found.pop()}" if len(found) == 1 and "" not in found else ""


def _found(reason: str) -> str:
    if NO_STEP in reason:
        return reason.partition(f"{NO_STEP}: ")[2].partition(" (")[0]
    why = reason.partition(": ")[2]
    return why if says_what_to_do(why) else ""


def says_what_to_do(why: str) -> bool:
    """Whether a reason why a process is not watched stays until somebody does something: as refusals put it."""
    return TO_DO in why
