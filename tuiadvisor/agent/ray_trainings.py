"""Workers of several Ray trainings, told apart by whom they are connected to: below one raylet, and across several.

In: processes and the ends of their TCP connections.  Out: those that belong together. Ray gives its workers their
numbers inside the process, where nobody outside can read them, and all have the same parent: but the ranks of one
training hold a connection of its rendezvous or of each other. What the raylet itself is connected to tells nothing.
Between raylets, of one cluster or of several, only a connection of which both ends are held joins; and only who holds
a rendezvous of its own is told apart, for where addresses are translated a connection has other ends on each side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

RAYLET: Final = "raylet"
_MAPPED: Final = b"0000000000000000FFFF0000"  # an IPv4 address within IPv6, as the kernel writes it
End = tuple[bytes, int]  # address as the kernel writes it, port
Ends = frozenset[tuple[End, End]]  # own end and the other's of each connection of a process


@dataclass(frozen=True, slots=True)
class Workers:
    """Ranks below one raylet."""

    ends: dict[int, Ends]  # of each process
    raylet: Ends


def ends_of(lines: Iterable[list[bytes]]) -> Ends:
    """Connections by the kernel's lines of one process's TCP sockets; one that listens has no other end."""
    both = ((_end(fields[1]), _end(fields[2])) for fields in lines)
    return frozenset((local, remote) for local, remote in both if remote[1])


def _end(text: bytes) -> End:
    address, _, port = text.rpartition(b":")
    return address.removeprefix(_MAPPED), int(port, 16)


def apart(workers: Mapping[int, Ends], raylet: Ends) -> list[frozenset[int]]:
    """Groups of workers that are connected; all of them in one where that of any could not be seen."""
    pids = sorted(workers)
    if not all(workers[pid] for pid in pids):
        return [frozenset(pids)]
    common = {remote for _, remote in raylet}
    here = {local[0] for ends in (*workers.values(), raylet) for local, _ in ends}
    groups: list[set[int]] = []
    for pid in pids:
        linked = [
            group
            for group in groups
            if any(_is_linked(workers[pid], workers[other], common, here) for other in group)
        ]
        groups = [group for group in groups if group not in linked] + [{pid}.union(*linked)]
    return [frozenset(group) for group in groups]


def across(raylets: Mapping[int, Workers]) -> list[frozenset[tuple[int, int]]]:
    """Groups of (raylet, worker) that belong together, whichever raylets they are below; raylets by any number."""
    groups: list[set[tuple[int, int]]] = []
    for raylet, workers in raylets.items():
        for group in apart(workers.ends, workers.raylet):
            ends = _ends_together(raylets, [(raylet, pid) for pid in group])
            both = {(remote, local) for local, remote in ends}
            linked = [found for found in groups if not both.isdisjoint(_ends_together(raylets, found))]
            groups = [found for found in groups if found not in linked]
            groups.append({(raylet, pid) for pid in group}.union(*linked))
    return [frozenset(group) for group in groups]


def on_their_own(
    groups: Iterable[frozenset[tuple[int, int]]], raylets: Mapping[int, Workers]
) -> list[frozenset[tuple[int, int]]]:
    """Those of them that hold their rendezvous: one of them listens where all are connected, itself included."""
    return [group for group in groups if _meets_itself([raylets[where].ends[pid] for where, pid in group])]


def _meets_itself(members: list[Ends]) -> bool:
    met = frozenset.intersection(*(frozenset(remote for _, remote in ends) for ends in members))
    return any(remote in met and (remote, local) in ends for ends in members for local, remote in ends)


def _ends_together(
    raylets: Mapping[int, Workers], group: Collection[tuple[int, int]]
) -> frozenset[tuple[End, End]]:
    return frozenset[tuple[End, End]]().union(*(raylets[where].ends[pid] for where, pid in group))


def _is_linked(one: Ends, other: Ends, common: set[End], here: set[bytes]) -> bool:
    """Whether they hold both ends of a connection, or are connected to the same place on another machine."""
    if any((remote, local) in other for local, remote in one):
        return True
    theirs = {remote for _, remote in other}
    return any(remote in theirs and remote not in common and remote[0] not in here for _, remote in one)
