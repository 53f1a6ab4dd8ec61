"""`import flight-recorder DIR`: PyTorch's flight-recorder dumps in JSON, one file a rank.

In: a folder of .json dumps.  Out: what `metrics.hang.missing_ranks` needs, and a line for each unusable file.
Pickled dumps are never opened: unpickling runs whatever the file says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import listed, plain_name, rank_in_name, read_whole
from tuiadvisor.importers.jsontext import parsed
from tuiadvisor.metrics.hang.dumps_together import side_by_side
from tuiadvisor.metrics.hang.recorder_dump import dump_of, groups_of
from tuiadvisor.metrics.series.plausible import together

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.metrics.hang.missing_ranks import Dump, Group

MAX_DUMP_BYTES: Final = 64 << 20
MAX_ENTRIES: Final = 1_000_000
NUMBER_IN_NAME: Final = re.compile(r"(?<!\d)(\d{1,8})$")  # as PyTorch writes it: a prefix, then the rank
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
    dumps, groups, stale = side_by_side(one_each)
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
        content = parsed(data)
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or no JSON ({error}); dump it again") from None
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise TuiadvisorError(f"{path} has no list of entries: this is no flight-recorder dump")
    groups = groups_of(content)
    rank = _rank(path, groups)
    if sum(isinstance(entry, dict) for entry in content["entries"]) > MAX_ENTRIES:
        raise TuiadvisorError(f"{path} has more than {MAX_ENTRIES} entries: dump fewer")
    return dump_of(content, rank, groups)


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
