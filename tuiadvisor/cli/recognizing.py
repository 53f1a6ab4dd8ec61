"""What a file or folder is, by its content: a recording of ours, or which import reads it.

Only the first bytes of a file are looked at, unpacked where it is gzip or zstd. A folder is what its files are.
"""

from __future__ import annotations

import csv
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import chakra, chakra_et, nsys, plain_pickle, rocpd, rocprof
from tuiadvisor.importers.files import (
    MAX_FILES,
    files_below,
    is_regular,
    opened,
    rank_folders,
    rank_in_name,
    separator,
)
from tuiadvisor.importers.kinds import KINDS
from tuiadvisor.importers.ops import NAMES, NEXT_STEP
from tuiadvisor.importers.step_logs import ELAPSED, TIMES, no_time
from tuiadvisor.scaling.columns import columns_of
from tuiadvisor.shellword import shell_word
from tuiadvisor.stream.recording import FILE_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD_BYTES: Final = 1 << 16
LOOKED_AT: Final = 256  # files of a folder
SIZES: Final = "sizes"  # what `scale --table` takes
# Whose import takes a single file.
ONE_FILE: Final = frozenset(
    {"serving", SIZES, *(name for name, kind in KINDS.items() if kind.takes_one_file)}
)
RECORDING: Final = "recording"
STEP_LOG: Final = "steplog"
TRACES: Final = "kineto"
EXPORT: Final = "export"  # ours, for other tools: nothing here reads it
WORDS: Final = {
    RECORDING: "a recording of tuiadvisor",
    EXPORT: "what tuiadvisor export wrote",
    **{name: kind.words for name, kind in KINDS.items()},
    "serving": "a metrics page of a serving engine",
    SIZES: "a table of measured sizes",
}
# A key of JSON that only this tool writes at the top, or near it.
KEYS: Final = (
    ("kineto", re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo)"\s*:')),
    ("flight-recorder", re.compile(rb'"(?:pg_config|pg_status|nccl_version|entries)"\s*:')),
    ("fio", re.compile(rb'"fio version"\s*:')),
    ("steplog", re.compile(rb'"log_type_name"\s*:')),
    ("chakra", chakra.SCHEMA),
    ("chakra", chakra.BEFORE),
    ("nccl-inspector", re.compile(rb'"coll_(?:perf|exec_time_us)"\s*:')),
    ("metrics", re.compile(rb'"event_time"\s*:\s*\[')),
)
TIMELINE: Final = re.compile(rb"^\s*\[\s*\[\s*-?\d[\d.]*\s*[,\]]")
LIST_OF_EVENTS: Final = re.compile(rb'^\s*\[\s*\{[^{}]{0,200}"ph"\s*:')
NCCL: Final = re.compile(rb"(?m)^[^\n]{0,200}#.*\b(?:nThread|nccl-tests|algbw)\b")
FIO: Final = re.compile(
    rb'(?m)^\s*"fio version"\s*:'
)  # behind what it prints for people, or each server's lines
COMMS: Final = re.compile(rb"Comm\. Op\s+Message Size\s+Count\s+Total ")
OUR_TRACE: Final = re.compile(rb'"source"\s*:\s*"tuiadvisor export')
# Columns that say which of the tables of `tuiadvisor export --format parquet` it is.
OUR_TABLES: Final = (
    (b"rank_step", b"begin_ns", b"duration_ns"),
    (b"rank_step", b"begin_ns", b"num_bytes"),
    (b"mono_ns", b"cpu_share", b"iowait_share"),
    (b"local_rank", b"world_size", b"git_commit"),
)
MAX_FOOTER_BYTES: Final = 1 << 20
RANKS: Final = re.compile(rb'"distributedInfo"\s*:\s*\{')  # of a trace of several ranks
METRICS_PAGE: Final = re.compile(
    rb"(?m)^(?:# (?:HELP|TYPE) )?(?:vllm|sglang|trtllm|tgi|nv|ray_vllm|ray_sglang|dynamo)[:_]\w"
)
# A line of Megatron-LM's or NeMo's output, and columns of step times.
PRINTED: Final = re.compile(rb"\belapsed time per iteration \(ms\): \d|\btrain_step_timing in s[:=]\s*\d")
STEP_TIMES: Final = tuple(name.encode() for name in (*TIMES, *ELAPSED))
BY_STEPS: Final = frozenset(
    {"step", "iteration", "iter", "global_step", "epoch"}
)  # columns of a training's log
TEXTS: Final = (
    ("serving", METRICS_PAGE),
    ("deepspeed", COMMS),
    ("nccl-tests", NCCL),
    ("fio", FIO),
    ("steplog", PRINTED),
    ("steplog", re.compile(rb":::MLLOG ")),
)
# Of what AMD's profiler writes: the name's end, the first bytes, what is in them.
NOT_READ: Final = (
    (".json", b"{", re.compile(rb'"rocprofiler-sdk-tool"\s*:')),
    (".pftrace", b"\n", re.compile(b"")),
    (".perfetto-trace", b"\n", re.compile(b"")),
)
NOT_READ_WORDS: Final = (
    "JSON or a Perfetto trace of rocprofv3, which is not read; its CSV and its rocpd database are: "
    "rocprofv3 --output-format csv"
)
PICKLED: Final = plain_pickle.BEGINS
# A pickled dict with one of the keys of a flight recorder; whether it is plain data its import says.
PICKLED_DUMP: Final = re.compile(
    rb"\A\x80[\x02-\x05](?:\x95.{8})?\}(?:q.|r.{4}|\x94)?\(?.*?"
    rb"(?:X.\0\0\0|\x8c.)(?:pg_config|pg_status|nccl_version|comm_lib_version|entries)",
    re.DOTALL,
)
# What stands behind more than HEAD_BYTES of other output in logs of trainings.
FURTHER_ON: Final = (
    ("deepspeed", COMMS),
    ("nccl-tests", NCCL),
    ("steplog", re.compile(PRINTED.pattern + rb"|:::MLLOG ")),
)
PIECE_BYTES: Final = 1 << 20
LOG_BYTES: Final = 64 << 20  # of a log that are looked through
LONGEST_LINE: Final = 1 << 12
LOOKED_THROUGH: Final = 16  # files of a folder


class NotRecognisedError(TuiadvisorError):
    """None of what can be opened."""


@dataclass(frozen=True, slots=True)
class Sniffed:
    """kind: a key of WORDS. num_files: of a folder, how many of those looked at are of it."""

    kind: str
    path: Path  # to open: a folder's only file where the import takes one
    num_files: int


def sniff(path: Path) -> Sniffed:
    """What this is. TuiadvisorError: what it is not, and what would be read."""
    if not path.is_dir():
        kind = kind_of(path) or _kind_further_on(path)
        if kind is None and (columns := _columns_of_steps(path)):
            raise NotRecognisedError(f"{path}: not recognised: a table by steps, but {no_time(columns)}")
        if kind is None:
            raise NotRecognisedError(f"{path}: not recognised; {_readable()}")
        if kind == EXPORT:
            raise _refused(path)
        return Sniffed(kind, path, 1)
    last = _by_kind(_files(path)[:LOOKED_AT], kind_of)
    # What is looked through costs more than a look at its beginning.
    last = last or _by_rank(path) or _by_kind(_files(path)[:LOOKED_THROUGH], _kind_further_on)
    if not last:
        raise NotRecognisedError(f"{path}: nothing recognised in this folder; {_readable()}")
    kind, files = max(last.items(), key=lambda item: len(item[1]))
    count = len(files)
    if kind == EXPORT:
        raise _refused(path)
    if kind in ONE_FILE and count > 1:
        raise TuiadvisorError(f"{path} holds {count} files of {WORDS[kind]}: name one, as {files[-1].name}")
    is_alone = kind in ONE_FILE or (kind == STEP_LOG and count == 1)
    return Sniffed(kind, files[-1] if is_alone else path, count)


def _by_rank(folder: Path) -> dict[str, list[Path]]:
    """The profiler's traces in folders of one rank each; empty where anything else is in them."""
    try:
        files = [file for below in rank_folders(folder) for file in files_below(below, ("",))][:LOOKED_AT]
    except OSError:
        return {}
    found = _by_kind(files, kind_of)
    return found if set(found) in ({TRACES}, {"rocprof"}) else {}


def holds_ranks(folder: Path) -> bool:
    """Whether the folders in it hold one job's traces, a rank each."""
    return bool(_by_rank(folder))


def _by_kind(files: list[Path], kind_of_file: Callable[[Path], str | None]) -> dict[str, list[Path]]:
    """The files of each kind, kinds in the order in which they were met."""
    found: dict[str, list[Path]] = {}
    for file in files:
        with suppress(TuiadvisorError):  # the import that is chosen says what is wrong with it
            if (kind := kind_of_file(file)) is not None:
                found.setdefault(kind, []).append(file)
    return found


def refuse_ours(path: Path) -> None:
    """TuiadvisorError where an import is given what is our own, and nothing else that can be read."""
    if not path.exists():
        return
    kinds = set()
    for file in _files(path)[:LOOKED_AT] if path.is_dir() else [path]:
        with suppress(TuiadvisorError):  # the import says what is wrong with it
            kinds.add(kind_of(file))
    kinds -= {None}
    if kinds == {EXPORT}:
        raise _refused(path)
    if kinds and kinds <= {EXPORT, RECORDING}:
        what = f"holds {WORDS[RECORDING]}" if path.is_dir() else f"is {WORDS[RECORDING]}"
        raise TuiadvisorError(
            f"{path} {what}, which needs no import: tuiadvisor open {shell_word(str(path))}"
        )


def kind_of(path: Path) -> str | None:
    """The kind of one file; None: none of ours."""
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
        is_parquet = head.startswith(b"PAR1")
        footer = _footer(file) if is_parquet else b""
    if head.startswith(FILE_MAGIC):
        return RECORDING
    if is_parquet:
        return EXPORT if any(all(name in footer for name in names) for names in OUR_TABLES) else "ops"
    if head.startswith(nsys.MAGIC):
        return "rocprof" if rocpd.is_rocpd(head) else "nsys"
    if chakra_et.is_et(head):
        return "chakra"
    if PICKLED_DUMP.match(head):
        return "flight-recorder"
    if head.startswith(PICKLED):
        raise TuiadvisorError(
            f"{path}: a pickle, and no flight recorder's dump: not opened, for unpickling runs what it says"
        )
    for name, begins, what in NOT_READ:
        if head.startswith(begins) and path.name.endswith(name) and what.search(head):
            raise TuiadvisorError(f"{path}: {NOT_READ_WORDS}")
    # A launcher's "[0] " before each line of a text begins like a list.
    found = _of_json(head) if head.lstrip()[:1] in (b"{", b"[") else None
    return found or _of_text(head)


def _kind_further_on(path: Path) -> str | None:
    """Of a text whose beginning is a program's own output: what a logger or a test printed between it."""
    try:
        with opened(path) as file:
            held, size = b"", 0
            while (piece := file.read(PIECE_BYTES)) and size < LOG_BYTES:
                if b"\0" in piece:
                    return None
                size += len(piece)
                text = held + piece
                for kind, printed in FURTHER_ON:
                    if printed.search(text):
                        return kind
                held = text[-LONGEST_LINE:]
    except TuiadvisorError:
        return None  # the beginning was readable; whoever reads it whole says what is wrong
    return None


def are_of_one_job(kind: str, paths: list[Path]) -> bool:
    """Whether files of a kind that has one a rank say whose they are, in their names or, of profiler traces, in them.

    Those that do not are runs of their own, which lie in one folder and have nothing else in common.
    """
    named = [rank_in_name(path.name) for path in paths]
    if kind == "nsys":
        return None not in named and len(set(named)) == len(named)
    return kind != "kineto" or any(rank is not None for rank in named) or any(map(_says_rank, paths))


def _says_rank(path: Path) -> bool:
    """Before its events, or behind them, as some tools that rewrite traces put it."""
    with opened(path) as file:
        return RANKS.search(file.read(HEAD_BYTES)) is not None or RANKS.search(_footer(file)) is not None


def _footer(file: IO[bytes]) -> bytes:
    """The last bytes, where a Parquet file names its columns; empty of one that is packed, or packed again."""
    try:
        file.seek(max(file.seek(0, os.SEEK_END) - MAX_FOOTER_BYTES, 0))
        return file.read(MAX_FOOTER_BYTES)
    except (ValueError, OSError):
        return b""


def _refused(path: Path) -> TuiadvisorError:
    """Why an export of ours is not opened, and what is."""
    return TuiadvisorError(
        f"{path}: {WORDS[EXPORT]}, for other tools (Parquet: DuckDB, Polars, Spark; a trace: ui.perfetto.dev); "
        "open the recording that it was made of: tuiadvisor open RUN"
    )


def _of_json(head: bytes) -> str | None:
    if OUR_TRACE.search(head):
        return EXPORT
    found = [(match.start(), kind) for kind, key in KEYS if (match := key.search(head))]
    if found:
        return min(found)[1]
    if TIMELINE.match(head):
        return "memory"
    return "kineto" if LIST_OF_EVENTS.search(head) else None


def _of_text(head: bytes) -> str | None:
    for kind, pattern in TEXTS:
        if pattern.search(head):
            return kind
    if any(name in head.split(b"\n", 1)[0] for name in STEP_TIMES):
        return STEP_LOG
    if rocprof.is_rocprof(head):
        return "rocprof"
    if _is_table(head):
        return "ops"
    return SIZES if _is_of_sizes(head) else None


def _is_table(head: bytes) -> bool:
    return all(set(_header(head)) & set(NAMES[name]) for name in NEXT_STEP)


def _header(head: bytes) -> list[str]:
    """The names of a table's columns, behind its comments; empty of what is none."""
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    line = next((line for line in lines if line and not line.startswith("#")), "")
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=separator(line)), [])]
    except csv.Error:
        return []


def _is_of_sizes(head: bytes) -> bool:
    header = _header(head)
    try:
        return len(header) > 1 and columns_of(header, "") is not None
    except TuiadvisorError:
        return False


def _columns_of_steps(path: Path) -> list[str]:
    """The columns of a table that counts steps or epochs; empty of anything else."""
    with opened(path) as file:
        header = _header(file.read(HEAD_BYTES))
    return header if len(header) > 1 and BY_STEPS & {name.lower() for name in header} else []


def _files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if is_regular(entry))[:MAX_FILES]
    except OSError as error:
        raise TuiadvisorError(f"cannot open {folder}: {error.strerror}") from None
    return [folder / name for name in names]


def _readable() -> str:
    return "what can be opened: " + ", ".join(words for kind, words in WORDS.items() if kind != EXPORT)
