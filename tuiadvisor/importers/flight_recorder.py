"""`import flight-recorder DIR`: PyTorch's flight-recorder dumps in JSON, one file a rank.

In: a folder of .json dumps.  Out: what `metrics.hang.missing_ranks` needs, and a line for each unusable file.
Pickled dumps are never opened: unpickling runs whatever the file says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np
import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import listed, plain_name, rank_in_name, read_whole
from tuiadvisor.metrics.hang.dump_consistency import contradicting
from tuiadvisor.metrics.hang.missing_ranks import COLLECTIVE, P2P, Dump, Group, Operation, Progress
from tuiadvisor.metrics.series.plausible import together

if TYPE_CHECKING:
    from pathlib import Path

MAX_DUMP_BYTES: Final = 64 << 20
MAX_ENTRIES: Final = 1_000_000
MAX_MEMBERS: Final = 1 << 20
LARGEST: Final = 1 << 62
MAX_DIGITS: Final = 19
UNDEFINED: Final = "undefined"  # torch's description of a group that was given none
DEFAULT_GROUP: Final = "default_pg"  # of all ranks, by torch's own name for it
NUMBER_IN_NAME: Final = re.compile(r"(?<!\d)(\d{1,8})$")  # as PyTorch writes it: a prefix, then the rank
P2P_NAME: Final = re.compile(r"(send|recv)\s+(\d{1,8})\s*(->|<-)\s*(\d{1,8})")
RANK_LIST: Final = re.compile(r"\[\s*\d+(\s*,\s*\d+)*\s*\]")
PICKLE_START: Final = b"\x80"
JSON_HOW: Final = (
    "write JSON instead with torch._C._distributed_c10d._dump_nccl_trace_json(), or convert it on a machine where "
    "you trust the file: python -c 'import json,pickle,sys; "
    'json.dump(pickle.load(open(sys.argv[1],"rb")), open(sys.argv[2],"w"))\' IN OUT.json'
)


@dataclass(frozen=True, slots=True)
class DumpFolder:
    """Usable dumps by rank, all groups they speak of, and what was not usable."""

    dumps: tuple[Dump, ...]
    groups: dict[str, Group]
    losses: tuple[str, ...]
    world_size: int | None
    missing_ranks: tuple[int, ...]  # ranks of the job without a usable dump


def read_flight_recorder(folder: Path) -> DumpFolder:
    """All dumps of a folder. TuiadvisorError when not one is usable."""
    read: list[tuple[str, Dump, dict[str, Group]]] = []
    losses: list[str] = []
    for path in _files(folder):
        try:
            read.append((path.name, *read_dump(path)))
        except TuiadvisorError as error:
            losses.append(str(error).replace(f"{folder}/", ""))
    one_each = _of_one_time(_one_a_rank(read, losses), losses)
    dumps, groups = _told_apart(one_each)
    stale = contradicting(list(dumps.values()), groups)
    dumps, groups = _told_apart([(dump, its) for dump, its in one_each if dump.rank not in stale])
    groups = {name: _with_members(group, dumps) for name, group in groups.items()}
    losses += [f"the dump of rank {rank} is not of this hang, not used: {why}" for rank, why in stale.items()]
    if not dumps:
        more = f" (and {len(losses) - 1} more files)" if len(losses) > 1 else ""
        raise TuiadvisorError(f"no usable dump in {folder}: {losses[0]}{more}")
    everyone = {rank for group in groups.values() for rank in group.members}
    world = max(everyone, default=-1) + 1
    return DumpFolder(
        dumps=tuple(dumps[rank] for rank in sorted(dumps)),
        groups=groups,
        losses=tuple(losses),
        world_size=world or None,
        missing_ranks=tuple(sorted(everyone - dumps.keys())),
    )


def _one_a_rank(
    read: list[tuple[str, Dump, dict[str, Group]]], losses: list[str]
) -> list[tuple[Dump, dict[str, Group]]]:
    """Of two different dumps of one rank one is stale, and which one is not said: neither is used."""
    by_rank: dict[int, list[tuple[str, Dump, dict[str, Group]]]] = {}
    for name, dump, groups in read:
        by_rank.setdefault(dump.rank, []).append((name, dump, groups))
    kept = []
    for rank, files in by_rank.items():
        _, dump, groups = files[0]
        if all((other, its) == (dump, groups) for _, other, its in files):
            kept.append((dump, groups))
        else:
            names = ", ".join(name for name, _, _ in files)
            losses.append(f"{names}: different dumps of rank {rank}, none used; keep the last one")
    return kept


def _of_one_time(
    read: list[tuple[Dump, dict[str, Group]]], losses: list[str]
) -> list[tuple[Dump, dict[str, Group]]]:
    """Times that lie far from most others, in a dump that has others, are wrong: those calls have none."""
    times = [op.created_ns for dump, _ in read for op in dump.operations if op.created_ns is not None]
    all_ns = np.array(times, dtype=np.int64)
    near = together(all_ns)
    if not near.any():
        return read
    first, last = int(all_ns[near].min()), int(all_ns[near].max())
    kept = []
    for dump, groups in read:
        known = [op for op in dump.operations if op.created_ns is not None]
        far = {op.order for op in known if not first <= (op.created_ns or 0) <= last}
        if far and len(far) < len(known):
            losses.append(
                f"times of {len(far)} of {len(known)} calls in the dump of rank {dump.rank} are not used: they lie "
                "more than half a day from the others"
            )
            timed = [replace(op, created_ns=None) if op.order in far else op for op in dump.operations]
            kept.append((replace(dump, operations=tuple(timed)), groups))
        else:
            kept.append((dump, groups))
    return kept


def _told_apart(read: list[tuple[Dump, dict[str, Group]]]) -> tuple[dict[int, Dump], dict[str, Group]]:
    """Dumps and groups with one name a group: PyTorch 2.4 and 2.5 number the groups of one split alike."""
    variants: dict[str, set[tuple[int, ...]]] = {}
    for _, its in read:
        for group in its.values():
            if group.members:
                variants.setdefault(group.name, set()).add(group.members)
    dumps: dict[int, Dump] = {}
    groups: dict[str, Group] = {}
    for dump, its in read:
        names = {name: _full_name(group, variants.get(name, set())) for name, group in its.items()}
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


def _full_name(group: Group, variants: set[tuple[int, ...]]) -> str:
    return group.name if len(variants) < 2 else f"{group.name}{list(group.members)}"


def _files(folder: Path) -> list[Path]:
    """.json files, and files without a JSON name that PyTorch itself writes (nccl_trace_rank_3)."""
    found = listed(folder, ("",))
    return [path for path in found if not path.name.startswith(".")]


def read_dump(path: Path) -> tuple[Dump, dict[str, Group]]:
    """One rank's dump. TuiadvisorError when it is pickled, damaged, or its rank cannot be told."""
    data = read_whole(path, MAX_DUMP_BYTES)
    if data.startswith(PICKLE_START):
        raise TuiadvisorError(f"{path} is a pickled dump, which is never opened: {JSON_HOW}")
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or no JSON ({error}); dump it again") from None
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise TuiadvisorError(f"{path} has no list of entries: this is no flight-recorder dump")
    groups = _groups(content.get("pg_config"))
    rank = _rank(path, groups)
    entries = [entry for entry in content["entries"] if isinstance(entry, dict)]
    if len(entries) > MAX_ENTRIES:
        raise TuiadvisorError(f"{path} has more than {MAX_ENTRIES} entries: dump fewer")
    operations = []
    for order, entry in enumerate(entries):
        operation = _operation(entry, order, groups)
        if operation is not None:
            operations.append(operation)
    progress = _progress(content.get("pg_status"), entries, groups)
    return Dump(rank, tuple(operations), progress or {}, bool(progress)), _called(entries) | groups


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
    for name, about in config.items() if isinstance(config, dict) else ():
        if isinstance(name, str) and isinstance(about, dict):
            description = about.get("desc")
            members = _members(about.get("ranks"))
            groups[name[:200]] = Group(
                name[:200], description[:200] if isinstance(description, str) else "", members
            )
    return groups


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str) and RANK_LIST.fullmatch(ranks):
        ranks = [int(part) for part in ranks.strip("[] ").split(",") if len(part) < 12]
    if not isinstance(ranks, list) or len(ranks) > MAX_MEMBERS:
        return ()
    if not all(
        isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MAX_MEMBERS for rank in ranks
    ):
        return ()
    return tuple(dict.fromkeys(ranks))  # the group's own order: p2p names count in it


def _rank(path: Path, groups: dict[str, Group]) -> int:
    """The rank by the file's name, checked against the groups: every group of a rank has it as a member."""
    sets = [set(group.members) for group in groups.values() if group.members]
    common = set.intersection(*sets) if sets else set()
    rank = _rank_in_name(plain_name(path.name).removesuffix(".json"))
    if rank is None:
        if len(common) == 1:
            return common.pop()
        raise TuiadvisorError(
            f"{path}: cannot tell its rank: put the rank into the file's name, as in rank07.json"
        )
    if sets and rank not in common:
        raise TuiadvisorError(
            f"{path}: its name says rank {rank}, its groups say otherwise: name it after its rank"
        )
    return rank


def _rank_in_name(stem: str) -> int | None:
    """rank07, rank7_node1, prefix_7; None where the name does not say, or says two."""
    if "rank" in stem.lower():
        return rank_in_name(stem)
    last = NUMBER_IN_NAME.search(stem)
    return int(last.group(1)) if last else None


def _operation(entry: dict[str, Any], order: int, groups: dict[str, Group]) -> Operation | None:
    group = _group_name(entry)
    is_p2p = entry.get("is_p2p") is True
    seq = entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id"))
    if group is None or not _is_count(seq):
        return None
    name = entry.get("profiling_name")
    name = name[:200] if isinstance(name, str) else "unnamed operation"
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
    )


def _group_name(entry: dict[str, Any]) -> str | None:
    group = entry.get("process_group")
    if isinstance(group, list) and group and isinstance(group[0], str):
        return group[0][:200]
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _count(value: Any) -> int | None:
    """A number from 0 on, which newer JSON writes as text; None for everything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < MAX_DIGITS:
        return int(value)
    return value if _is_count(value) else None


def _sizes(sizes: Any) -> str:
    if not isinstance(sizes, list) or not sizes or not isinstance(sizes[0], list):
        return ""
    return "x".join(str(size) for size in sizes[0][:8] if _is_count(size))


def _first_text(values: Any) -> str:
    return values[0][:40] if isinstance(values, list) and values and isinstance(values[0], str) else ""


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
    for number, name in name_of.items():
        counters = status.get(str(number))
        if isinstance(counters, dict):
            entered, done = (
                counters.get("last_enqueued_collective"),
                counters.get("last_completed_collective"),
            )
            progress[name] = Progress(_count(entered), _count(done))
    return progress if len(name_of) == len(numbers) else None
