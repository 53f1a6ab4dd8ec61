"""Flight-recorder dumps as one JSON document and as a few lines for people.

In: a folder's path.  Out: which collective hangs, who is missing from it, and what is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuiadvisor.importers.flight_recorder import DumpFolder, read_flight_recorder
from tuiadvisor.metrics.hang.missing_ranks import Hang, Waiting, diagnose
from tuiadvisor.metrics.traces.op_table import counted, named

if TYPE_CHECKING:
    from pathlib import Path


def hang_document(path: Path) -> dict[str, Any]:
    """Read all dumps and say who has not entered what."""
    folder = read_flight_recorder(path)
    return document_of(path, folder, diagnose(folder.dumps, folder.groups))


def document_of(path: Path, folder: DumpFolder, found: Hang) -> dict[str, Any]:
    """The document of dumps that were read."""
    return {
        "schema": 1,
        "source": {"kind": "flight-recorder", "path": str(path), "files": len(folder.dumps)},
        "run": {"world_size": folder.world_size, "missing_ranks": list(folder.missing_ranks)},
        "hang": _hang(found),
        "unknown": _unknown(folder, found),
        "losses": list(folder.losses),
    }


def _hang(found: Hang) -> dict[str, Any]:
    return {
        "missing_ranks": list(found.missing),
        "because": found.because,
        "mismatch": found.mismatch or None,
        "collectives": [_waiting(wait) for wait in found.waits],
        "stopped_devices": [
            {
                "rank": device.rank,
                "group": device.operation.group,
                "seq": device.operation.seq,
                "peer": device.peer,
                "peer_completed_seq": device.peer_completed,
            }
            for device in found.stopped
        ],
    }


def _waiting(wait: Waiting) -> dict[str, Any]:
    return {
        "group": wait.group.name,
        "description": wait.group.description,
        "operation": wait.operation.name,
        "size": wait.operation.sizes,
        "dtype": wait.operation.dtype,
        "seq": wait.operation.seq,
        "waiting_ranks": list(wait.waiting),
        "missing_ranks": list(wait.missing),
        "unrecorded_ranks": list(wait.unrecorded),
        "origin": wait.origin,
        "since_wall_ns": wait.since_ns,
    }


def _unknown(folder: DumpFolder, found: Hang) -> list[dict[str, str]]:
    unknown = []
    if folder.missing_ranks:
        num = len(folder.missing_ranks)
        who = f"{num} ranks: {named(folder.missing_ranks)}" if num > 1 else f"rank {folder.missing_ranks[0]}"
        why = f"no usable dump of {who}"
        unknown.append({"metric": "progress", "why": why})
    if found.waits and not found.missing:
        unknown.append({"metric": "missing ranks", "why": found.because})
    return unknown


def _num_dumps(num: int) -> str:
    return f"{num} dump{'' if num == 1 else 's'}"


def hang_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    world, hang = document["run"]["world_size"], document["hang"]
    lines = [
        f"{document['source']['path']}: {_num_dumps(document['source']['files'])}"
        + (f" of {counted(world, 'rank')}" if world else ""),
        hang["because"],
    ]
    if hang["mismatch"] and hang["mismatch"] != hang["because"]:
        lines.append(hang["mismatch"])
    stopped = {device["rank"]: device for device in hang["stopped_devices"]}
    for wait in hang["collectives"]:
        mark = "hangs" if wait["origin"] else "waits"
        devices = [stopped[rank] for rank in wait["waiting_ranks"] if rank in stopped]
        missing = [f"missing {_ranks(wait['missing_ranks'])}"] if wait["missing_ranks"] else []
        missing += [
            f"rank {device['peer']} has completed it, the device of rank {device['rank']} stopped"
            for device in devices
        ]
        lines.append(
            f"{mark}: {wait['operation']} {wait['size']} {wait['dtype']}, group {wait['group']} "
            f"{wait['description']}, sequence {wait['seq']}: waiting {_ranks(wait['waiting_ranks'])}; "
            f"{'; '.join(missing) or 'missing none known'}"
        )
    lines += [f"unknown {item['metric']}: {item['why']}" for item in document["unknown"]]
    lines += [f"lost: {loss}" for loss in document["losses"]]
    return "\n".join(lines)


def _ranks(numbers: list[int]) -> str:
    """As numbers alone they read like counts."""
    return f"rank{'s' * (len(numbers) > 1)} {named(numbers)}"
