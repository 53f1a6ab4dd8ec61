"""Flight-recorder dumps as a run: a job that hangs, of which no step is known.

In: a folder's path.  Out: ImportedRun whose ranks have no steps, only what tells of the hang in their recorders, in the
form in which ranks are asked for it live; NoStepsError where no rank waits in anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.flight_recorder import DumpFolder, read_flight_recorder
from tuiadvisor.importers.hangreport import document_of
from tuiadvisor.importers.imported import ImportedRank, ImportedRun, NoStepsError
from tuiadvisor.metrics.hang.asked_recorder import BACKENDS, MAX_ASKED_CHARS, MAX_ASKED_GROUPS
from tuiadvisor.metrics.hang.missing_ranks import COLLECTIVE, P2P, diagnose
from tuiadvisor.metrics.hang.recorder_dump import GLOO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.metrics.hang.missing_ranks import Dump, Group, Operation

KIND: Final = "flight-recorder"
WORDS: Final = "flight-recorder dumps, which hold the last collectives of each rank and no steps"
UNKNOWN: Final = -1
MAX_NOTED: Final = 4  # ranks without a dump, a sentence each
Key = tuple[str, str, int]  # group, kind, sequence number


def hang_run(path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:  # noqa: ARG001
    """(the import's document, the run)."""
    folder = read_flight_recorder(path)
    found = diagnose(folder.dumps, folder.groups)
    document = document_of(path, folder, found)
    if not any(not op.completed for dump in folder.dumps for op in dump.operations):
        raise NoStepsError(f"{path}: {found.because}, so no recording", document)
    recorder = _recorder(folder.dumps)
    on_cpu = BACKENDS[recorder] == "gloo"
    entries = recorder_entries(folder)
    notes = [f"no usable dump of rank {rank}" for rank in folder.missing_ranks[:MAX_NOTED]]
    notes += [f"lost: {loss}" for loss in folder.losses]
    return document, ImportedRun(
        kind=KIND,
        source=path.name or str(path),
        words=WORDS,
        ranks=tuple(
            ImportedRank(
                dump.rank,
                (),
                (),
                "cpu" if on_cpu else "cuda",
                software={"backend": BACKENDS[recorder]},
                detail=_where(dump, folder.groups),
                recorder=entries[dump.rank],
            )
            for dump in folder.dumps
        ),
        world_size=folder.world_size,
        late_ranks=None,
        because=found.because,
        says=found.because,
        notes=tuple(notes),
        last_wall_ns=max(
            (op.created_ns for dump in folder.dumps for op in dump.operations if op.created_ns is not None),
            default=None,
        ),
    )


def _where(dump: Dump, groups: Mapping[str, Group]) -> str:
    """The call that the rank is in, by its own dump."""
    op = _first_pending(dump)
    if op is None:
        return "in no call that its recorder holds"
    name = op.name.rpartition(":")[2]
    group = groups.get(op.group)
    purpose = f" ({group.description})" if group is not None and group.description else ""
    if op.kind == COLLECTIVE:
        return f"in {name}, collective {op.seq} of group {op.group}{purpose}"
    verb = name.partition(" ")[0]
    peer = "" if op.peer is None else f" {'from' if verb == 'recv' else 'to'} rank {op.peer}"
    return f"in {verb}{peer}, number {op.seq} of group {op.group}{purpose}"


def recorder_entries(folder: DumpFolder) -> dict[int, dict[str, Any]]:
    """By rank: what tells of the hang, as `asked_recorder.asked` reads it."""
    recorder = _recorder(folder.dumps)
    name_of = _short_names(folder.groups)
    heads, different = _heads(folder.dumps), _different(folder.dumps)
    groups = {op.group for dump in folder.dumps for op in dump.operations if not op.completed}
    entries = {}
    for dump in folder.dumps:
        calls = _telling(dump, groups, heads, different)
        own = [
            folder.groups[name]
            for name in sorted(groups & folder.groups.keys())
            if dump.rank in folder.groups[name].members or any(op.group == name for op in calls)
        ][: MAX_ASKED_GROUPS - 1]
        entry: dict[str, Any] = {
            "rank": dump.rank,
            "groups": [_group(group, name_of, BACKENDS[recorder]) for group in own],
            "recorders": [{"name": recorder, "entries": [_call(op, name_of, folder.groups) for op in calls]}],
        }
        if dump.has_status:
            entry["counters"] = [
                [name_of[name], *(UNKNOWN if seq is None else seq for seq in (of.entered, of.completed))]
                for name, of in sorted(dump.progress.items())
                if name in groups and name in name_of
            ]
        entries[dump.rank] = entry
    return entries


def _recorder(dumps: Iterable[Dump]) -> str:
    """Torch's own records Gloo's calls, NCCL's its own; of one job there is one of them."""
    on_gloo = any(op.name.startswith(GLOO) for dump in dumps for op in dump.operations)
    return next(name for name, backend in BACKENDS.items() if (backend == "gloo") == on_gloo)


def _short_names(groups: Mapping[str, Group]) -> dict[str, str]:
    """A name that says all its members is cut, and stays its own."""
    return {
        name: name if len(name) <= MAX_ASKED_CHARS else f"{name[: MAX_ASKED_CHARS - 12]}...#{number}"
        for number, name in enumerate(groups)
    }


def _first_pending(dump: Dump) -> Operation | None:
    return min((op for op in dump.operations if not op.completed), key=lambda op: op.order, default=None)


def _key(op: Operation) -> Key:
    return op.group, op.kind, op.seq


def _heads(dumps: Iterable[Dump]) -> set[Key]:
    """What ranks wait in."""
    return {_key(op) for dump in dumps if (op := _first_pending(dump)) is not None}


def _different(dumps: Sequence[Dump]) -> set[Key]:
    """Pending collectives that ranks call by different names."""
    pending = {_key(op) for dump in dumps for op in dump.operations if not op.completed}
    names: dict[Key, set[str]] = {}
    for dump in dumps:
        for op in dump.operations:
            if op.kind == COLLECTIVE and _key(op) in pending:
                names.setdefault(_key(op), set()).add(op.name)
    return {key for key, those in names.items() if len(those) > 1}


def _telling(dump: Dump, groups: set[str], heads: set[Key], different: set[Key]) -> list[Operation]:
    """The calls that the judgement rests on: of thousands some ten. Those first that it cannot do without."""
    within = [op for op in dump.operations if op.group in groups]
    first = _first_pending(dump)
    kept = [first] if first is not None else []
    for group in sorted({op.group for op in within}):
        calls = [op for op in within if op.group == group]
        collectives = [op for op in calls if op.kind == COLLECTIVE]
        kept += _newest(collectives)
        kept += _newest([op for op in collectives if op.completed])
        kept += _newest([op for op in calls if op.kind == P2P])
        kept += [op for op in calls if op.beside_messages][:1]
        kept += sorted((op for op in collectives if not op.completed), key=lambda op: op.seq)[:1]
    kept += [op for op in within if not op.completed and _key(op) in heads]
    kept += [op for op in within if _key(op) in different]
    return list(dict.fromkeys(kept))


def _newest(calls: Sequence[Operation]) -> list[Operation]:
    return [max(calls, key=lambda op: op.seq)] if calls else []


def _group(group: Group, name_of: Mapping[str, str], backend: str) -> dict[str, Any]:
    return {
        "name": name_of[group.name],
        "purpose": group.description,
        "backend": backend,
        "spans": _spans(group.members),
    }


def _spans(members: Sequence[int]) -> list[list[int]]:
    """[first, distance, how many], in the order of the members."""
    spans: list[list[int]] = []
    for rank in members:
        last = spans[-1] if spans else None
        if last is not None and last[2] == 1 and rank > last[0]:
            last[1:] = [rank - last[0], 2]
        elif last is not None and last[2] > 1 and rank == last[0] + last[1] * last[2]:
            last[2] += 1
        else:
            spans.append([rank, 1, 1])
    return spans


def _call(op: Operation, name_of: Mapping[str, str], groups: Mapping[str, Group]) -> dict[str, Any]:
    """As torch writes it."""
    group = groups.get(op.group)
    entry: dict[str, Any] = {
        "process_group": [name_of.get(op.group, op.group), group.description if group else ""],
        "p2p_seq_id" if op.kind == P2P else "collective_seq_id": op.seq,
        "record_id": op.order,
        "profiling_name": op.name,
        "state": "completed" if op.completed else "scheduled",
    }
    if op.kind == P2P:
        entry["is_p2p"] = True
    if op.sizes:
        entry["input_sizes"] = [[int(size) for size in op.sizes.split("x")]]
    if op.dtype:
        entry["input_dtypes"] = [op.dtype]
    if op.created_ns is not None:
        entry["time_created_ns"] = op.created_ns
    if op.beside_messages:
        entry["op_id"] = op.seq + 1
    return entry
