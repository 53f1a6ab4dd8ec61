"""Which collective each standing rank waits in and who has not entered it, from sequence numbers read on every rank.

In: of each rank its call in torch.distributed, if it is in one, and the last sequence number it entered in each of its
process groups.  Out: the collectives that are waited for. A rank is named as missing only where its own number says
that it has not entered what others have; one that could not be asked is said to be unknown. On a device a collective
is entered and left at once and waited for anywhere later: then it is said who has entered it, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MESSAGES: Final = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)


@dataclass(frozen=True, slots=True)
class GroupPlace:
    """How far one rank got in one process group."""

    name: str
    purpose: str
    members: tuple[int, ...]
    seq: int  # of the last collective it entered


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where one rank is."""

    rank: int
    call: str | None  # of torch.distributed, or "backward"; None: in other code
    call_group: str | None  # None where the call does not tell
    groups: tuple[GroupPlace, ...]
    stack: tuple[str, ...]  # innermost first
    for_s: float | None  # in the phase it is in, None where no probe says so


@dataclass(frozen=True, slots=True)
class StuckCall:
    """A collective that some wait in and some have not entered, or that all have entered and none leaves."""

    group: str
    purpose: str
    seq: int
    call: str | None  # what the ranks that have entered it are in; None: in other code
    is_certain: bool  # that they are in this very collective, and not in another one's or a message's wait
    waiting: tuple[int, ...]  # have entered it
    missing: tuple[int, ...]
    unknown: tuple[int, ...]  # members that could not be asked
    for_s: float | None  # how long the first of the waiting has waited


def stuck_calls(places: Sequence[RankPlace]) -> tuple[StuckCall, ...]:
    """Collectives that are waited for, those with missing ranks first. Ranks must stand still while they are asked."""
    groups: dict[tuple[str, tuple[int, ...]], dict[int, GroupPlace]] = {}
    for place in places:
        for group in place.groups:
            groups.setdefault((group.name, group.members), {})[place.rank] = group
    by_rank = {place.rank: place for place in places}
    found = [
        call
        for (_, members), seen in groups.items()
        if (call := _stuck_call(members, seen, by_rank)) is not None
    ]
    if any(call.call for call in found):
        found = [
            call for call in found if call.call
        ]  # numbers of the groups nobody is in follow from the others
    if any(call.missing or call.unknown for call in found) or len(found) > 1:
        # In which of several groups all wait cannot be told, and where somebody is missing, that is the reason.
        found = [call for call in found if call.missing or call.unknown or call.is_certain]
    # A rank that waits in one group is missing in others, where it will come once it gets on: an effect, no cause.
    waiting = {rank for call in found for rank in call.waiting if call.missing}
    found.sort(key=lambda call: (not set(call.missing) - waiting, not call.missing, call.group))
    return tuple(found)


def _stuck_call(
    members: tuple[int, ...], seen: dict[int, GroupPlace], by_rank: dict[int, RankPlace]
) -> StuckCall | None:
    furthest = max(place.seq for place in seen.values())
    behind = tuple(sorted(rank for rank, place in seen.items() if place.seq < furthest))
    ahead = [rank for rank in sorted(seen) if rank not in behind]
    inside = [rank for rank in ahead if _may_be_in(by_rank[rank], seen[rank].name)]
    if furthest < 1 or len(members) < 2 or (not behind and len(inside) < len(seen)):
        return None
    calls = [by_rank[rank].call for rank in inside]
    waiting = tuple(inside or ahead)
    first = seen[waiting[0]]
    since = [seconds for rank in inside if (seconds := by_rank[rank].for_s) is not None]
    return StuckCall(
        group=first.name,
        purpose=first.purpose,
        # Calls may be issued ahead and wait in line: the first that a missing rank has not entered holds them all.
        seq=min((seen[rank].seq for rank in behind), default=furthest - 1) + 1,
        call=max(calls, key=calls.count, default=None),
        is_certain=any(by_rank[rank].call_group == first.name for rank in inside),
        waiting=waiting,
        missing=behind,
        unknown=tuple(rank for rank in members if rank not in seen),
        for_s=max(since, default=None),
    )


def _may_be_in(place: RankPlace, group: str) -> bool:
    if place.call is None or place.call in MESSAGES:
        return False
    return place.call_group is None or place.call_group == group


def in_words(call: StuckCall, stopped: Collection[int] = ()) -> str:
    """One sentence: who has entered what, since when they wait in it, and who has not come.

    stopped: ranks that could not be asked because somebody stopped them.
    """
    one = len(call.waiting) == 1
    group = f"group {call.group}" + (f" ({call.purpose})" if call.purpose else "")
    if call.is_certain:
        words = f"{_ranks(call.waiting)} {'waits' if one else 'wait'} in {call.call} of {group}, sequence {call.seq}"
    else:
        words = f"{_ranks(call.waiting)} {'has' if one else 'have'} entered sequence {call.seq} of {group}"
        words += f" and {'stands' if one else 'stand'} in {call.call}" if call.call else ""
    if call.for_s is not None:
        words += f", for {call.for_s:.0f} s"
    if call.missing:
        words += f"; {_ranks(call.missing)} {'has' if len(call.missing) == 1 else 'have'} not entered it"
    elif not call.unknown:
        words += "; nobody is behind: look at the network and the devices"
    halted = [rank for rank in call.unknown if rank in stopped]
    silent = [rank for rank in call.unknown if rank not in stopped]
    if halted:
        words += f"; {_ranks(halted)} {'is' if len(halted) == 1 else 'are'} stopped"
    if silent:
        words += f"; {_ranks(silent)} could not be asked"
    return words


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
