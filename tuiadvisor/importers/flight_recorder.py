"""`import flight-recorder DIR`: PyTorch's flight-recorder dumps, one file a rank, as NCCL leaves them or in JSON.

In: a folder of dumps.  Out: what `metrics.hang.missing_ranks` needs, and a line for each unusable file.
NCCL's are pickles. They are never unpickled, which runs whatever the file says: `plain_pickle` reads plain data alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import listed, plain_name, rank_in_name, read_whole
from tuiadvisor.importers.jsontext import parsed
from tuiadvisor.importers.plain_pickle import BEGINS, PlainPickleError, plain
from tuiadvisor.metrics.hang.dumps_together import side_by_side
from tuiadvisor.metrics.hang.recorder_dump import MAX_MEMBERS, dump_of, groups_of
from tuiadvisor.metrics.series.plausible import together
from tuiadvisor.metrics.traces.op_table import counted

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.metrics.hang.missing_ranks import Dump, Group

MAX_DUMP_BYTES: Final = 64 << 20
MAX_ENTRIES: Final = 1_000_000
NUMBER_IN_NAME: Final = re.compile(r"(?<!\d)(\d{1,8})$")  # as PyTorch writes it: a prefix, then the rank
DIGITS: Final = re.compile(r"\d+")
MAX_NAMED: Final = 8  # files in a line
SUFFIXES: Final = (".json", ".pickle", ".pkl")


class UnusableDumpError(TuiadvisorError):
    """A dump; but whose, or of too much."""


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
    refused: list[tuple[str, TuiadvisorError]] = []
    for path in _files(folder):
        try:
            read.append((path.name, *read_dump(path)))
        except TuiadvisorError as error:
            refused.append((path.name, error))
    losses = _losses(folder, refused, {_series(name) for name, _, _ in read})
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


def _series(name: str) -> str:
    """What the names of one job's dumps have in common."""
    return DIGITS.sub("#", plain_name(name))


def _losses(folder: Path, refused: list[tuple[str, TuiadvisorError]], series: set[str]) -> list[str]:
    """A line each, and one for all that are neither dumps nor named like one: /tmp holds other files, too."""
    others = [
        name
        for name, why in refused
        if series and _series(name) not in series and not isinstance(why, UnusableDumpError)
    ]
    losses = [str(why).replace(f"{folder}/", "") for name, why in refused if name not in others]
    if others:
        more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
        losses.append(f"no dumps, by their names and contents: {', '.join(others[:MAX_NAMED])}{more}")
    return losses


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
                f"times of {len(far)} of {counted(len(known), 'call')} in the dump of rank {dump.rank} are not used: "
                "they lie more than half a day from the others"
            )
            timed = [replace(op, created_ns=None) if op.order in far else op for op in dump.operations]
            kept.append((replace(dump, operations=tuple(timed)), groups))
        else:
            kept.append((dump, groups))
    return kept


def _files(folder: Path) -> list[Path]:
    """.json files, and those that PyTorch itself writes, whose names have no end (nccl_trace_rank_3)."""
    found = listed(folder, ("",))
    return [path for path in found if not path.name.startswith(".")]


def read_dump(path: Path) -> tuple[Dump, dict[str, Group]]:
    """One rank's dump. TuiadvisorError when it is damaged, of more than plain data, or its rank cannot be told."""
    content = _content(path)
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise TuiadvisorError(f"{path} has no list of entries: this is no flight-recorder dump")
    groups = groups_of(content)
    rank = _rank(path, groups)
    num_entries = sum(isinstance(entry, dict) for entry in content["entries"])
    if num_entries > MAX_ENTRIES:
        raise UnusableDumpError(f"{path} has more than {MAX_ENTRIES} entries: dump fewer")
    dump, groups = dump_of(content, rank, groups)
    if num_entries and not dump.operations:
        raise UnusableDumpError(
            f"{path}: none of its calls names its process group and its number there, as newer torch "
            "does: who waits cannot be told"
        )
    return dump, groups


def _content(path: Path) -> Any:
    data = read_whole(path, MAX_DUMP_BYTES)
    try:
        return plain(data) if data.startswith(BEGINS) else parsed(data)
    except PlainPickleError as error:
        raise TuiadvisorError(
            f"{path}: a pickle of more than plain data ({error}): it is never unpickled"
        ) from None
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or not JSON ({error}); dump it again") from None


def _rank(path: Path, groups: dict[str, Group]) -> int:
    """The rank by the file's name, checked against the groups: every group of a rank has it as a member."""
    sets = [set(group.members) for group in groups.values() if group.members]
    common = set.intersection(*sets) if sets else set()
    stem = plain_name(path.name)
    rank = _rank_in_name(next((stem.removesuffix(end) for end in SUFFIXES if stem.endswith(end)), stem))
    if rank is None:
        if len(common) == 1:
            return common.pop()
        raise UnusableDumpError(
            f"{path}: cannot tell its rank: put the rank into the file's name, as in rank07.json"
        )
    if rank >= MAX_MEMBERS:
        raise UnusableDumpError(
            f"{path}: its name says rank {rank}, which no job has: name it after its rank"
        )
    if sets and rank not in common:
        raise UnusableDumpError(
            f"{path}: its name says rank {rank}, its groups say otherwise: name it after its rank"
        )
    return rank


def _rank_in_name(stem: str) -> int | None:
    """rank07, rank7_node1, prefix_7; None where the name does not say, or says two."""
    if "rank" in stem.lower():
        return rank_in_name(stem)
    last = NUMBER_IN_NAME.search(stem)
    return int(last.group(1)) if last else None
