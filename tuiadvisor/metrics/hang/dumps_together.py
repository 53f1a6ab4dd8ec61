"""The dumps of all ranks of a job side by side: one name a group, and none that is not of this hang.

In: each rank's dump with the groups it speaks of.  Out: what `missing_ranks.diagnose` needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.hang.dump_consistency import contradicting
from tuiadvisor.metrics.hang.missing_ranks import COLLECTIVE, Dump, Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LISTED: Final = 16  # members in a group's name
DEFAULT_GROUP: Final = "default_pg"  # of all ranks, by torch's own name for it


def side_by_side(
    read: Sequence[tuple[Dump, dict[str, Group]]],
) -> tuple[dict[int, Dump], dict[str, Group], dict[int, str]]:
    """(dumps by rank, groups by name, why the dumps of ranks are left out)."""
    dumps, groups = _told_apart(read)
    stale = contradicting(list(dumps.values()), groups)
    dumps, groups = _told_apart([(dump, its) for dump, its in read if dump.rank not in stale])
    return dumps, {name: _with_members(group, dumps) for name, group in groups.items()}, stale


def _told_apart(read: Sequence[tuple[Dump, dict[str, Group]]]) -> tuple[dict[int, Dump], dict[str, Group]]:
    """Dumps and groups with one name a group: PyTorch 2.4 and 2.5 number the groups of one split alike."""
    variants: dict[str, dict[tuple[int, ...], int]] = {}  # by name: members, numbered
    for _, its in read:
        for group in its.values():
            if group.members:
                those = variants.setdefault(group.name, {})
                those.setdefault(group.members, len(those))
    dumps: dict[int, Dump] = {}
    groups: dict[str, Group] = {}
    for dump, its in read:
        names = {name: _full_name(group, variants.get(name, {})) for name, group in its.items()}
        for name, group in its.items():
            known = groups.get(names[name])
            if known is None or len(group.members) > len(known.members):
                groups[names[name]] = replace(group, name=names[name])
        dumps[dump.rank] = replace(
            dump,
            operations=tuple(replace(op, group=names.get(op.group, op.group)) for op in dump.operations),
            progress={names.get(name, name): counters for name, counters in dump.progress.items()},
        )
    return dumps, groups


def _with_members(group: Group, dumps: dict[int, Dump]) -> Group:
    """A group of which the dumps tell no members: who called in it, where one of them is behind the others.

    Only then: whether somebody is missing who never called is not known.
    """
    if group.members:
        return group
    entered: dict[int, int] = {}
    for rank, dump in dumps.items():
        calls = [op.seq for op in dump.operations if op.group == group.name and op.kind == COLLECTIVE]
        progress = dump.progress.get(group.name)
        if progress is not None and progress.entered is not None:
            calls.append(progress.entered)
        if calls:
            entered[rank] = max(calls)
    if len(set(entered.values())) < 2:
        return group
    known = set(entered) | (set(range(max(dumps) + 1)) if group.description == DEFAULT_GROUP else set())
    return replace(group, members=tuple(sorted(known)))


def _full_name(group: Group, variants: Mapping[tuple[int, ...], int]) -> str:
    if len(variants) < 2:
        return group.name
    if len(group.members) <= MAX_LISTED:
        return f"{group.name}{list(group.members)}"
    first = ", ".join(map(str, group.members[:MAX_LISTED]))
    return f"{group.name}[{first}, ...]#{variants[group.members]}"
