"""The dumps of all ranks of a job side by side: one name a group, and none that is not of this hang.

In: each rank's dump with the groups it speaks of.  Out: what `missing_ranks.diagnose` needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.hang.dump_consistency import contradicting
from tuiadvisor.metrics.hang.missing_ranks import COLLECTIVE, Dump, Group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LISTED: Final = 16  # members in a group's name
DEFAULT_GROUP: Final = "default_pg"  # of all ranks, by torch's own name for it


@dataclass(frozen=True, slots=True)
class Life:
    """One of the groups that bore a name in a process; span_ns: its first and last call, None without their times."""

    number: int
    span_ns: tuple[int, int] | None


def side_by_side(
    read: Sequence[tuple[Dump, dict[str, Group]]],
) -> tuple[dict[int, Dump], dict[str, Group], dict[int, str]]:
    """(dumps by rank, groups by name, why the dumps of ranks are left out)."""
    read = _lives_apart(read)
    dumps, groups = _told_apart(read)
    stale = contradicting(list(dumps.values()), groups)
    dumps, groups = _told_apart([(dump, its) for dump, its in read if dump.rank not in stale])
    entered = _entered(dumps)
    named = {name: _with_members(group, entered.get(name, {}), dumps) for name, group in groups.items()}
    return dumps, named, stale


def _lives_apart(read: Sequence[tuple[Dump, dict[str, Group]]]) -> Sequence[tuple[Dump, dict[str, Group]]]:
    """Dumps in which a group that was destroyed and made anew is another one than its namesakes before it.

    Processes number their groups each for itself, so lives are matched by when their calls were made.
    """
    lives_of = [_lives(dump) for dump, _ in read]
    longest: dict[str, list[Life]] = {}
    for lives in lives_of:
        for name, own in lives.items():
            if len(own) > max(len(longest.get(name, ())), 1):
                longest[name] = own
    if not longest:
        return read
    return [
        (
            _with_lives(dump, {name: own for name, own in lives.items() if name in longest}, longest, names),
            names,
        )
        for (dump, its), lives in zip(read, lives_of, strict=True)
        for names in [dict(its)]
    ]


def _lives(dump: Dump) -> dict[str, list[Life]]:
    """By name: each group that bore it, the oldest first."""
    times: dict[str, dict[int, list[int]]] = {}
    for op in dump.operations:
        those = times.setdefault(op.group, {}).setdefault(op.life, [])
        if op.created_ns is not None:
            those.append(op.created_ns)
    return {
        name: [Life(number, (min(at), max(at)) if at else None) for number, at in sorted(of_name.items())]
        for name, of_name in times.items()
    }


def _with_lives(
    dump: Dump, lives: Mapping[str, list[Life]], longest: Mapping[str, list[Life]], names: dict[str, Group]
) -> Dump:
    """The dump with a name for each life; names: its groups, to which its former ones are added.

    What it left pending in a group that it has made anew since it does not wait in any more: whether that was ever
    completed is not known.
    """
    new_name: dict[tuple[str, int], str] = {}
    for name, own in lives.items():
        for place, life in enumerate(own):
            back = _how_far_back(life, len(own) - 1 - place, longest[name])
            new_name[name, life.number] = name if not back else f"{name} (made anew {back}x since)"
            group = names.get(name, Group(name, "", ()))
            names[new_name[name, life.number]] = replace(group, name=new_name[name, life.number])
    newest = {name: new_name[name, own[-1].number] for name, own in lives.items()}
    return replace(
        dump,
        operations=tuple(
            replace(op, group=new_name.get((op.group, op.life), op.group))
            for op in dump.operations
            if op.completed or op.group not in lives or op.life == lives[op.group][-1].number
        ),
        progress={newest.get(name, name): counters for name, counters in dump.progress.items()},
    )


def _how_far_back(life: Life, num_after: int, others: Sequence[Life]) -> int:
    """How many groups of its name were made after it: as of the life of the rank with most of them that is nearest."""
    if life.span_ns is None or any(other.span_ns is None for other in others):
        return num_after
    first, last = life.span_ns
    apart = [
        max(other.span_ns[0] - last, first - other.span_ns[1], 0)
        for other in others
        if other.span_ns is not None
    ]
    nearest = max(place for place, distance in enumerate(apart) if distance == min(apart))
    return len(others) - 1 - nearest


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


def _entered(dumps: Mapping[int, Dump]) -> dict[str, dict[int, int]]:
    """By group and rank: the last collective that it has called there; all calls are gone through once."""
    entered: dict[str, dict[int, int]] = {}
    for rank, dump in dumps.items():
        calls = [(op.group, op.seq) for op in dump.operations if op.kind == COLLECTIVE]
        calls += [(name, of.entered) for name, of in dump.progress.items() if of.entered is not None]
        for name, seq in calls:
            ranks = entered.setdefault(name, {})
            ranks[rank] = max(ranks.get(rank, 0), seq)
    return entered


def _with_members(group: Group, entered: Mapping[int, int], dumps: Mapping[int, Dump]) -> Group:
    """A group of which the dumps tell no members: who called in it, where one of them is behind the others.

    Only then: whether somebody is missing who never called is not known.
    """
    if group.members:
        return group
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
