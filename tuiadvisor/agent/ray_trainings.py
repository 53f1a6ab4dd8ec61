"""Workers of several Ray trainings below one raylet, told apart by whom they are connected to.

In: processes and the ends of their TCP connections.  Out: those that belong together. Ray gives its workers their
numbers inside the process, where nobody outside can read them, and all have the same parent: but the ranks of one
training hold a connection of its rendezvous or of each other. What the raylet itself is connected to tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RAYLET: Final = "raylet"
_MAPPED: Final = b"0000000000000000FFFF0000"  # an IPv4 address within IPv6, as the kernel writes it
End = tuple[bytes, int]  # address as the kernel writes it, port
Ends = frozenset[tuple[End, End]]  # own end and the other's of each connection of a process


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


def _is_linked(one: Ends, other: Ends, common: set[End], here: set[bytes]) -> bool:
    """Whether they hold both ends of a connection, or are connected to the same place on another machine."""
    if any((remote, local) in other for local, remote in one):
        return True
    theirs = {remote for _, remote in other}
    return any(remote in theirs and remote not in common and remote[0] not in here for _, remote in one)
