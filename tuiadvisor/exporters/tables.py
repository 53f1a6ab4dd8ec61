"""The tables of an export: every column with its type and meaning, and the rows of one frame as arrays.

The unit is in the name: _ns nanoseconds, _bytes bytes, _s per second or seconds, _share 0..1. *_ns of begin, end,
arrive and release are readings of the host's monotonic clock; begin_time is the same moment on the wall clock. What
was not observed is null, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from tuiadvisor import phases
from tuiadvisor.advisor.cluster.payload_fields import integer, number, text
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_NAMES, STEP_COLUMNS, STEP_NAMES, UNKNOWN, EventKind, StepFlag
from tuiadvisor.exporters.survey import Survey, is_steps
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind
from tuiadvisor.stream.tables import unpack_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tuiadvisor.metrics.steps.arrays import Ints

Kind = Literal["int64", "int32", "float64", "bool", "text", "time"]
Values = dict[str, Any]  # column -> numpy array (UNKNOWN = null in integers) or list with None


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column of a table."""

    name: str
    kind: Kind
    meaning: str


_WHO: Final = (
    ColumnSpec("host", "text", "machine"),
    ColumnSpec("rank", "int32", "global rank"),
    ColumnSpec(
        "step",
        "int64",
        "step of the job, the same number for all ranks; null where a rank could not be aligned",
    ),
    ColumnSpec("rank_step", "int64", "the rank's own count, from 0 at each installation of its probe"),
)
_CLOCKS: Final = (
    ColumnSpec(
        "begin_time", "time", "begin on the host's wall clock; null where the agent did not say its clocks"
    ),
    ColumnSpec("begin_ns", "int64", "begin on the host's monotonic clock"),
    ColumnSpec("end_ns", "int64", "end on the host's monotonic clock"),
)
_MEANINGS: Final = {
    **{f"{phase.name}_ns": phase.meaning for phase in phases.TABLE},
    "arrive_ns": "clock at which the rank entered the gradient barrier",
    "release_ns": "clock at which it left it",
    "comm_total_ns": "communication including what compute hides; on steps sampled in detail",
    "group_seq": "sequence number of the gradient group at the step's end",
    "num_collectives": "collectives of the gradient group within the step",
    "comm_bytes": "bytes of all gradients of the rank",
    "micro_steps": "backward passes within the step",
    "samples": "samples of the rank's batches",
    "tokens": "tokens of the rank's batches",
    "probe_cost_ns": "time of the probe itself within the step",
    "gc_ns": "garbage collection",
    "peak_memory_bytes": "peak of the device's memory",
    "cpu_ns": "CPU time of the training thread, on sampled steps",
}
_MEASURED: Final = tuple(name for name in STEP_COLUMNS if name in _MEANINGS)
_FLAGS: Final = {f"is_{flag.name.lower()}": flag for flag in StepFlag if flag.name}
_HOST_FIGURES: Final = {
    "cpu_share": ("cpu", "share of all cores busy"),
    "memory_share": ("memory", "share of memory used"),
    "iowait_share": ("iowait", "share of time waiting for disks"),
    "load_1m": ("load_1m", "load average of a minute"),
    "disk_read_bytes_s": ("disk_read_bytes_s", "read from disks"),
    "disk_write_bytes_s": ("disk_write_bytes_s", "written to disks"),
    "disk_reads_s": ("disk_reads_s", "read operations a second"),
    "disk_writes_s": ("disk_writes_s", "write operations a second"),
    "disk_busy_share": ("disk_busy", "of the time, the busiest disk"),
    "net_bytes_s": ("net_bytes_s", "over the network"),
}
_RANK_TEXTS: Final = (
    "state",
    "detail",
    "label",
    "command",
    "torch",
    "python",
    "backend",
    "device",
    "cuda",
    "nccl",
    "git_commit",
)

TABLES: Final[dict[str, tuple[ColumnSpec, ...]]] = {
    "steps": (
        *_WHO,
        *_CLOCKS,
        ColumnSpec("duration_ns", "int64", "length of the step; the phases sum to it"),
        *(ColumnSpec(name, "int64", _MEANINGS[name]) for name in _MEASURED),
        *(ColumnSpec(name, "bool", f"flag {flag.name}") for name, flag in _FLAGS.items()),
    ),
    "events": (
        *_WHO,
        ColumnSpec("kind", "text", "kind of collective or mark, lower case"),
        *_CLOCKS,
        ColumnSpec("group", "int64", "number of the process group within its process"),
        ColumnSpec("seq", "int64", "sequence number of the call in its group"),
        ColumnSpec("num_bytes", "int64", "bytes of the call's tensors"),
        ColumnSpec("detail", "int64", "collectives: ns from the call to the wait for it; gc: generation"),
    ),
    "hosts": (
        ColumnSpec("host", "text", "machine"),
        ColumnSpec("time", "time", "wall clock of the sample"),
        ColumnSpec("mono_ns", "int64", "monotonic clock of the sample"),
        ColumnSpec("num_cpus", "int32", "cores"),
        *(ColumnSpec(name, "float64", meaning) for name, (_, meaning) in _HOST_FIGURES.items()),
    ),
    "ranks": (
        ColumnSpec("rank", "int32", "global rank"),
        ColumnSpec("host", "text", "machine"),
        ColumnSpec("local_rank", "int32", "rank on its machine"),
        ColumnSpec("world_size", "int32", "ranks of the job"),
        ColumnSpec("pid", "int64", "process id"),
        *(ColumnSpec(name, "text", f"{name} as last told") for name in _RANK_TEXTS),
    ),
}  # fmt: skip


def step_values(frame: Frame, found: Survey, position: int) -> Values | None:
    """Rows of a STEPS frame, the one at this position among them; None if it cannot be read."""
    return step_values_of([frame], found, position)[0]


def step_values_of(frames: Sequence[Frame], found: Survey, position: int) -> list[Values | None]:
    """The same of STEPS frames that follow one another: a hundred take little longer than one."""
    tables = unpack_tables([frame.payload for frame in frames], STEP_NAMES)
    good = [table for table in tables if not isinstance(table, TuiadvisorError)]
    if not good:
        return [None] * len(tables)
    measured = _measured_values(dict(zip(STEP_NAMES, np.concatenate(good, axis=1), strict=True)))
    result: list[Values | None] = []
    begin = 0
    for at, (frame, table) in enumerate(zip(frames, tables, strict=True), position):
        if isinstance(table, TuiadvisorError):
            result.append(None)
            continue
        rows = slice(begin, begin + table.shape[1])
        begin = rows.stop
        values = _who_and_when(frame, found, at, dict(zip(STEP_NAMES, table, strict=True)))
        result.append(values | {name: column[rows] for name, column in measured.items()})
    return result


def _measured_values(columns: Values) -> Values:
    observed, flags = columns["observed"], columns["flags"]
    begin, end = columns["begin_ns"], columns["end_ns"]
    values: Values = {"duration_ns": np.where((begin > 0) & (end >= begin), end - begin, UNKNOWN)}
    for name in _MEASURED:
        values[name] = np.where(columns[name] >= 0, columns[name], UNKNOWN)
    for index, phase in enumerate(PHASES):
        hooked = np.where(observed == UNKNOWN, columns[f"{phase}_ns"] > 0, (observed >> index) & 1 == 1)
        values[f"{phase}_ns"] = np.where(hooked, values[f"{phase}_ns"], UNKNOWN)
    for flag_name, flag in _FLAGS.items():
        values[flag_name] = (flags != UNKNOWN) & (flags & int(flag) != 0)
    return values


def is_events(frame: Frame) -> bool:
    """Whether an agent's events are in it."""
    return frame.kind == FrameKind.EVENTS and frame.source != HUB_SOURCE


def event_tables(frames: Sequence[Frame]) -> list[Ints | None]:
    """What `event_values` needs of each of these EVENTS frames, read in one go; None where it cannot be read."""
    tables = unpack_tables([frame.payload for frame in frames], EVENT_NAMES)
    return [None if isinstance(table, TuiadvisorError) else table for table in tables]


def event_values(frame: Frame, found: Survey, position: int, table: Ints | None) -> Values | None:
    """Rows of an EVENTS frame that has so many STEPS frames before it; table: as `event_tables` read it."""
    if table is None:
        return None
    columns = dict(zip(EVENT_NAMES, table, strict=True))
    values = _who_and_when(frame, found, position, columns)
    values["kind"] = [kind_name(kind) for kind in columns["kind"].tolist()]
    for name in ("group", "seq", "num_bytes", "detail"):
        values[name] = np.where(columns[name] >= 0, columns[name], UNKNOWN)
    return values


def kind_name(kind: int) -> str:
    """'all_reduce'; a kind that this version does not know keeps its number."""
    try:
        return EventKind(kind).name.lower()
    except ValueError:
        return f"kind {kind}"


def _who_and_when(frame: Frame, found: Survey, position: int, columns: Values) -> Values:
    begin, end = columns["begin_ns"], columns["end_ns"]
    shift_ns = found.clock_shift_ns(frame.source)
    return {
        "host": [found.host(frame.source)] * begin.size,
        "rank": columns["rank"],
        "step": found.axis.job_steps(position, columns["rank"], columns["step"], begin),
        "rank_step": columns["step"],
        "begin_time": np.where(begin > 0, begin + (shift_ns or 0), UNKNOWN)
        if shift_ns is not None
        else np.full(begin.size, UNKNOWN),
        "begin_ns": np.where(begin > 0, begin, UNKNOWN),
        "end_ns": np.where(end > 0, end, UNKNOWN),
    }


def host_values(frame: Frame) -> Values:
    """One row of a HOST frame."""
    payload = frame.payload
    return {
        "host": [text(payload, "host")],
        "time": [integer(payload, "wall_ns")],
        "mono_ns": [integer(payload, "mono_ns")],
        "num_cpus": [integer(payload, "num_cpus")],
        **{name: [number(payload, key)] for name, (key, _) in _HOST_FIGURES.items()},
    }


def rank_values(found: Survey) -> Values:
    """One row a rank, as the recording left it."""
    facts = [found.advisor.roster.ranks[rank] for rank in sorted(found.advisor.roster.ranks)]
    return {
        "rank": [fact.rank for fact in facts],
        "host": [fact.host for fact in facts],
        "local_rank": [fact.local_rank for fact in facts],
        "world_size": [fact.world_size for fact in facts],
        "pid": [fact.pid for fact in facts],
        "state": [fact.state for fact in facts],
        "detail": [fact.detail or None for fact in facts],
        **{name: [fact.texts.get(name) for fact in facts] for name in _RANK_TEXTS[2:]},
    }


def tables_of(frames: Iterator[Frame], found: Survey) -> Iterator[tuple[str, Values]]:
    """(table, rows) of every frame that has rows, in the order of the recording; the ranks come last."""
    position = 0
    for frame in frames:
        if frame.source == HUB_SOURCE:
            continue
        values = None
        table = frame.kind.name.lower()
        if is_steps(frame):
            values = step_values(frame, found, position)
            position += 1
        elif is_events(frame):
            values = event_values(frame, found, position, event_tables([frame])[0])
        elif frame.kind == FrameKind.HOST:
            table, values = "hosts", host_values(frame)
        if values is not None:
            yield table, values
    yield "ranks", rank_values(found)


def schema_document() -> str:
    """The tables as Markdown: what lies beside the files, so that nobody has to ask."""
    lines = ["# Tables of this export", "", (__doc__ or "").split("\n\n", 1)[1].strip(), ""]
    for name, columns in TABLES.items():
        lines += [f"## {name}.parquet", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| {column.name} | {column.kind} | {column.meaning} |" for column in columns]
        lines.append("")
    return "\n".join(lines)
