"""One rank's flight recorder as PyTorch writes it, from a file or from a rank that was asked.

In: the document of a stranger, decoded from JSON, or from a pickle's plain data, which has tuples.  Out: its operations
and counters, and the process groups it speaks of. What cannot be believed is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from tuiadvisor.errors import one_line
from tuiadvisor.metrics.hang.missing_ranks import COLLECTIVE, P2P, Dump, Group, Operation, Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_MEMBERS: Final = 1 << 20  # ranks of a group; more are not believed
MAX_LISTED: Final = 1 << 22  # members of all groups of a dump; of further groups they are not told
CHARACTERS_A_MEMBER: Final = 8  # or more, of long lists that are text: "100000, "
LARGEST: Final = 1 << 62  # number that is believed
MAX_CHARS: Final = 200  # of a name
MAX_CHARS_OF_TYPE: Final = 40  # of a type of data in a dump: torch's longest name has 13
MAX_DIGITS: Final = 19  # of a number that is written as text
GLOO: Final = "gloo:"  # before the names of its operations
UNDEFINED: Final = "undefined"  # torch's description of a group that was given none
P2P_NAME: Final = re.compile(r"(send|recv)\s+(\d{1,8})\s*(->|<-)\s*(\d{1,8})")
RANK_LIST: Final = re.compile(
    r"\[ *[0-9]+( *, *[0-9]+)* *\]"
)  # what else is a blank or a digit int() may not know


def groups_of(document: dict[str, Any]) -> dict[str, Group]:
    """The process groups that the document describes, by name."""
    return _groups(document.get("pg_config"))


def dump_of(document: dict[str, Any], rank: int, groups: dict[str, Group]) -> tuple[Dump, dict[str, Group]]:
    """The rank's dump, and `groups` with those that only its calls speak of."""
    entries = [entry for entry in document["entries"] if isinstance(entry, dict)]
    operations = operations_of(entries, groups)
    progress = _progress(document.get("pg_status"), entries, groups)
    return Dump(rank, operations, progress or {}, bool(progress)), _called(entries) | groups


def operations_of(entries: Sequence[dict[str, Any]], groups: dict[str, Group]) -> tuple[Operation, ...]:
    """The calls among the entries, in their order."""
    found = (_operation(entry, order, groups) for order, entry in enumerate(entries))
    return tuple(operation for operation in found if operation is not None)


def _called(entries: list[dict[str, Any]]) -> dict[str, Group]:
    """The groups of the calls: Gloo's dumps describe none."""
    groups = {}
    for entry in entries:
        name = _group_name(entry)
        if name is not None and name not in groups:
            description = _first_text(entry["process_group"][1:2])
            groups[name] = Group(name, "" if description == UNDEFINED else description, ())
    return groups


def _groups(config: Any) -> dict[str, Group]:
    groups = {}
    left = MAX_LISTED * CHARACTERS_A_MEMBER
    for name, about in config.items() if isinstance(config, dict) else ():
        if isinstance(name, str) and isinstance(about, dict):
            description = about.get("desc")
            ranks = about.get("ranks")
            left -= _length(ranks)
            members = _members(ranks) if left >= 0 else ()
            called = _line(name, MAX_CHARS)
            purpose = _line(description, MAX_CHARS) if isinstance(description, str) else ""
            groups[called] = Group(called, purpose, members)
    return groups


def _length(ranks: Any) -> int:
    """In characters of text: a pickle says a list once and uses it in every group."""
    if isinstance(ranks, str):
        return len(ranks)
    return len(ranks) * CHARACTERS_A_MEMBER if isinstance(ranks, list | tuple) else 0


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str) and RANK_LIST.fullmatch(ranks):
        ranks = [int(part) for part in ranks.strip("[] ").split(",") if len(part) < 12]
    if not isinstance(ranks, list | tuple) or len(ranks) > MAX_MEMBERS:
        return ()
    if not all(
        isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MAX_MEMBERS for rank in ranks
    ):
        return ()
    return tuple(dict.fromkeys(ranks))  # the group's own order: p2p names count in it


def _operation(entry: dict[str, Any], order: int, groups: dict[str, Group]) -> Operation | None:
    group = _group_name(entry)
    is_p2p = entry.get("is_p2p") is True
    seq = entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id"))
    if group is None or not _is_count(seq):
        return None
    name = entry.get("profiling_name")
    name = _line(name, MAX_CHARS) if isinstance(name, str) else "unnamed operation"
    record = entry.get("record_id")
    created = entry.get("time_created_ns")
    completed = (
        entry.get("state") == "completed"
        or entry.get("retired") is True
        # In JSON 0 stands where it was not discovered.
        or (_count(entry.get("time_discovered_completed_ns")) or 0) > 0
    )
    known = groups.get(group)
    return Operation(
        group=group,
        kind=P2P if is_p2p else COLLECTIVE,
        seq=seq,
        name=name,
        sizes=_sizes(entry.get("input_sizes")),
        dtype=_first_text(entry.get("input_dtypes")),
        order=record if _is_count(record) else order,
        completed=completed,
        created_ns=created if _is_count(created) and created else None,  # 0: not recorded
        peer=_peer(name, known.members if known else ()) if is_p2p else None,
        life=_count(entry.get("pg_id")) or 0,
        timeout_ns=_timeout_ns(entry.get("timeout_ms")),
        beside_messages=name.startswith(GLOO) and (_count(entry.get("op_id")) or 0) > seq,
    )


def _group_name(entry: dict[str, Any]) -> str | None:
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and group and isinstance(group[0], str):
        return _line(group[0], MAX_CHARS)
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _count(value: Any) -> int | None:
    """A number from 0 on, which newer JSON writes as text; None for everything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < MAX_DIGITS:
        return int(value)
    return value if _is_count(value) else None


def _timeout_ns(timeout_ms: Any) -> int | None:
    count = _count(timeout_ms)
    return count * 1_000_000 if count and count < LARGEST // 1_000_000 else None


def _sizes(sizes: Any) -> str:
    if not isinstance(sizes, list | tuple) or not sizes or not isinstance(sizes[0], list | tuple):
        return ""
    return "x".join(str(size) for size in sizes[0][:8] if _is_count(size))


def _first_text(values: Any) -> str:
    is_text = isinstance(values, list | tuple) and values and isinstance(values[0], str)
    return _line(values[0], MAX_CHARS_OF_TYPE) if is_text else ""


def _line(text: str, most: int) -> str:
    """As it may be printed: what a stranger calls something is part of a sentence."""
    return one_line(text[:most], " ")


def _peer(name: str, members: tuple[int, ...]) -> int | None:
    """The global rank behind "send 0->1", whose numbers count within the group."""
    found = P2P_NAME.search(name)
    if found is None:
        return None
    place = int(found.group(4))
    return members[place] if place < len(members) else None


def _progress(
    status: Any, entries: list[dict[str, Any]], groups: dict[str, Group]
) -> dict[str, Progress] | None:
    """Counters by group name. They are kept by a local number; None when numbers cannot be told to names."""
    if not isinstance(status, dict) or not status:
        return None
    numbers = [
        int(key)
        for key in status
        if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10
    ]
    if len(numbers) != len(status):
        return None
    seen = {}
    for entry in entries:
        name, number = _group_name(entry), entry.get("pg_id")
        if name is not None and _is_count(number):
            seen[number] = name
    name_of = dict(seen)
    names = [name for name in groups if name.isascii() and name.isdigit() and len(name) < 10]
    if len(names) == len(groups) == len(numbers):
        # Both count up as groups are made, so the i-th number is the i-th name; entries must agree.
        in_order = dict(zip(sorted(numbers), sorted(names, key=int), strict=True))
        if all(in_order.get(number) == name for number, name in seen.items()):
            name_of = in_order
    progress = {}
    for number, name in sorted(name_of.items()):  # of a name that was given again, the newest group's
        counters = status.get(str(number))
        if isinstance(counters, dict):
            entered = _count(counters.get("last_enqueued_collective"))
            done = _count(counters.get("last_completed_collective"))
            is_possible = entered is None or done is None or done <= entered
            progress[name] = Progress(entered, done) if is_possible else Progress(None, None)
    return progress if len(name_of) == len(numbers) else None
