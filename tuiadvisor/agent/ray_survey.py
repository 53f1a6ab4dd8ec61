"""What ranks run below a node's raylet and whom they are connected to, before anything is put into a process.

In: `python -m tuiadvisor.agent.ray_survey PID`: the raylet's process id; without one, a line of standard input for each
node: its name, a tab, what its survey said (which comes from another machine and may be anything).  Out: on standard
output the survey, one JSON document; or what to say where the nodes' ranks are of several trainings, or nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tuiadvisor import expendable
from tuiadvisor.agent import procfs
from tuiadvisor.agent.candidates import Scanner
from tuiadvisor.agent.discovery import label_of
from tuiadvisor.agent.ray_trainings import Ends, Workers, across, on_their_own

MAX_WORKERS: Final = 1 << 10
MAX_ENDS: Final = 1 << 16
MAX_LABEL_CHARS: Final = 80
_PORTS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a cluster."""

    host: str
    workers: Workers
    labels: dict[int, str]  # what runs in each worker


def survey(raylet: int) -> dict[str, object]:
    """Of this machine."""
    scanner = Scanner()
    scanner.scan()
    found = scanner.below_raylets().get(raylet)
    ends = found.ends if found is not None else {}
    return {
        "workers": {str(pid): _document(held) for pid, held in ends.items()},
        "raylet": _document(found.raylet) if found is not None else [],
        "labels": {str(pid): label_of(procfs.arguments(pid)) for pid in ends},
    }


def _document(ends: Ends) -> list[list[object]]:
    return [[local[0].decode(), local[1], remote[0].decode(), remote[1]] for local, remote in sorted(ends)]


def node_of(host: str, raw: bytes) -> Node | None:
    """What a node has said; None where that is no survey."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    told, raylet, labels = found.get("workers"), _ends(found.get("raylet")), found.get("labels")
    if (
        not isinstance(told, dict)
        or len(told) > MAX_WORKERS
        or raylet is None
        or not isinstance(labels, dict)
    ):
        return None
    ends = {int(pid): _ends(held) for pid, held in told.items() if pid.isascii() and pid.isdigit()}
    known = {pid: held for pid, held in ends.items() if held is not None}
    names = {pid: str(labels.get(str(pid), "?"))[:MAX_LABEL_CHARS] for pid in known}
    return Node(host, Workers(known, raylet), names) if len(known) == len(told) else None


def _ends(value: Any) -> Ends | None:
    if not isinstance(value, list) or len(value) > MAX_ENDS:
        return None
    if not all(isinstance(row, list) and len(row) == 4 and _is_end(*row) for row in value):
        return None
    return frozenset(((row[0].encode(), row[1]), (row[2].encode(), row[3])) for row in value)


def _is_end(local: object, port: object, remote: object, other_port: object) -> bool:
    ports = (port, other_port)
    return all(isinstance(one, str) for one in (local, remote)) and all(
        type(one) is int and 0 <= one < _PORTS for one in ports
    )


def why_several(nodes: list[Node]) -> str:
    """What to say where the ranks of a cluster are of several trainings; empty where they may be one's."""
    raylets = {number: node.workers for number, node in enumerate(nodes) if node.workers.ends}
    own = on_their_own(across(raylets), raylets)
    if len(own) < 2:
        return ""
    listed = "; ".join(_described(nodes, sorted(group)) for group in own)
    return (
        f"{len(own)} trainings run on this cluster: {listed}; watch one where it runs, with --pid, or the hosts of one "
        "with --hosts"
    )


def _described(nodes: list[Node], group: list[tuple[int, int]]) -> str:
    number, pid = group[0]
    size = f"{len(group)} rank{'s' if len(group) > 1 else ''}"
    places = [
        f"{nodes[where].host} (--pid {' '.join(str(pid) for at, pid in group if at == where)})"
        for where in sorted({where for where, _ in group})
    ]
    return f"{nodes[number].labels[pid]}, {size} on {', '.join(places)}"


def main(arguments: list[str]) -> None:
    """One node's survey, or what follows from those of all."""
    expendable.go_first()
    if arguments:
        sys.stdout.buffer.write(orjson.dumps(survey(int(arguments[0]))))
        return
    lines = (line.rstrip(b"\n").partition(b"\t") for line in sys.stdin.buffer)
    told = [node_of(host.decode(errors="replace"), raw) for host, _, raw in lines]
    print(why_several([node for node in told if node is not None]))


if __name__ == "__main__":
    main(sys.argv[1:])
