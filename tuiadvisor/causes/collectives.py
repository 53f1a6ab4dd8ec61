"""What the flight recorders of a standing job say, in words: who has not entered which collective of which group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import rank_words
from tuiadvisor.metrics.hang.missing_ranks import nothing_known_words

if TYPE_CHECKING:
    from tuiadvisor.metrics.hang.collective_evidence import CollectiveEvidence
    from tuiadvisor.metrics.hang.detection import Standstill
    from tuiadvisor.metrics.hang.missing_ranks import Group, Operation, Waiting

MAX_SAID: Final = 3  # collectives of one sentence


def which_has_not_entered(found: Standstill) -> str:
    """To follow the missing ranks; "" where that is not all there is to say."""
    named = found.evidence.named() if found.evidence is not None else []
    is_all = found.evidence is not None and not found.evidence.hang.stopped and not different_words(found)
    if len(named) != 1 or named[0][1] != found.missing or not is_all:
        return ""
    return f"which {_have(found.missing)} not entered {_call(named[0][0])}"


def evidence_words(found: Standstill) -> str:
    """One sentence; "" where nobody was asked, or what was answered says nothing."""
    evidence = found.evidence
    if evidence is None:
        return ""
    if evidence.is_moving:
        return "collectives were still being entered when the flight recorders were read"
    parts = [_named_words(wait, ranks) for wait, ranks in evidence.named()[:MAX_SAID]]
    parts += [
        f"the device of rank {one.rank} has not completed {_name(one.operation)} (collective {one.operation.seq}), "
        f"which rank {one.peer} has"
        for one in evidence.hang.stopped[:MAX_SAID]
    ]
    if different := different_words(found):
        parts.append(different)
    return "; ".join(parts or _unnamed(found, evidence))


def no_dump_words(evidence: CollectiveEvidence) -> str:
    """To follow who is missing: whom else it may be; "" where all that belong there were dumped."""
    unseen = tuple(sorted({rank for wait in evidence.hang.waits for rank in wait.unrecorded}))
    untold = tuple(sorted({rank for wait in evidence.hang.waits for rank in wait.untold}))
    return f"; {nothing_known_words(unseen, untold, rank_words)}" if unseen else ""


def different_words(found: Standstill) -> str:
    """Who calls what as one collective; "" where all call the same."""
    different = found.evidence.hang.different if found.evidence is not None else None
    if different is None:
        return ""
    calls = ", ".join(f"{rank_words(ranks)} {name.rpartition(':')[2]}" for name, ranks in different.calls)
    return (
        f"ranks call different operations as collective {different.seq} of {_group(different.group)}: {calls}"
    )


def why_unknown(found: Standstill) -> str:
    """Why nothing is known of collectives; "" where something is, or nobody was asked."""
    evidence = found.evidence
    if evidence is None or evidence.hang.waits or not evidence.unasked:
        return ""
    whys = dict.fromkeys(why for _, why in evidence.unasked)
    return "; ".join(list(whys)[:MAX_SAID])


def _unnamed(found: Standstill, evidence: CollectiveEvidence) -> list[str]:
    """Where nobody is named: who is in which collective, and what that leaves open."""
    waits = evidence.hang.waits
    if evidence.is_dumped:
        return [evidence.hang.because]
    if not waits:
        return ["no collective is under way on any rank"] if evidence.is_whole else []
    first = waits[0]
    if evidence.is_whole and not any(wait.missing for wait in waits):
        return [
            f"all ranks of {_group(first.group)} are in {_call(first)} and none leaves it: look at the network"
        ]
    inside = [
        f"{rank_words(wait.waiting)} {_are(wait.waiting)} in {_call(wait)}" for wait in waits[:MAX_SAID]
    ]
    if evidence.is_whole:
        return [f"ranks wait for each other: {'; '.join(inside)}: compare the order of their collectives"]
    why_of: dict[str, list[int]] = {}
    for rank, why in evidence.unasked:
        if rank not in found.missing or not (found.is_death or found.thread == "stopped"):
            why_of.setdefault(why, []).append(rank)
    unread = [
        f"the flight recorder of {rank_words(tuple(ranks))} could not be used: {why}"
        for why, ranks in list(why_of.items())[:MAX_SAID]
    ]
    return inside + _beside_words(evidence) + unread


def _beside_words(evidence: CollectiveEvidence) -> list[str]:
    ranks_of: dict[str, list[int]] = {}
    for rank, what in evidence.hang.beside:
        ranks_of.setdefault(what, []).append(rank)
    return [
        f"{rank_words(tuple(ranks))} may {'itself' if len(ranks) == 1 else 'themselves'} wait in {what}, of which no "
        "flight recorder tells"
        for what, ranks in list(ranks_of.items())[:MAX_SAID]
    ]


def _named_words(wait: Waiting, ranks: tuple[int, ...]) -> str:
    verb = "waits" if len(wait.waiting) == 1 else "wait"
    inside = f"in which {rank_words(wait.waiting)} {verb}"
    return f"{rank_words(ranks)} {_have(ranks)} not entered {_call(wait)}, {inside}"


def _call(wait: Waiting) -> str:
    return f"{_name(wait.operation)} (collective {wait.operation.seq} of {_group(wait.group)})"


def _name(operation: Operation) -> str:
    return operation.name.rpartition(":")[2]


def _group(group: Group) -> str:
    """As in: group default_pg; group 3, ranks 0 and 1."""
    if group.description == "default_pg":
        return f"group {group.description}"
    name = f"group {group.description or group.name}"
    return f"{name}, {rank_words(tuple(sorted(group.members)))}" if group.members else name


def _have(ranks: tuple[int, ...]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _are(ranks: tuple[int, ...]) -> str:
    return "is" if len(ranks) == 1 else "are"
