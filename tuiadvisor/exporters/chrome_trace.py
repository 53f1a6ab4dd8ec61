"""A recording as a Chrome trace: opens in Perfetto (ui.perfetto.dev) and chrome://tracing.

A process per host, a thread per rank; each step a slice with its phases inside. Lengths of phases are measured, and
so is the place of the gradient barrier (category "phase,measured"); the order of the rest is canonical
("phase,canonical").
Single collectives, marks and what the device spent on a phase are async slices beside the thread, findings instant
events, host load counters, and in steps where ranks waited for one an arrow leads from the last arriver to the rank
that waited longest.
A path that ends in .gz is compressed.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.advisor.cluster.payload_fields import number, text
from tuiadvisor.events import UNKNOWN, EventKind
from tuiadvisor.exporters.outfile import new_file
from tuiadvisor.exporters.slices import lay_out
from tuiadvisor.exporters.survey import Reading, Survey, believed, is_steps, next_chunk, survey
from tuiadvisor.exporters.tables import (
    Values,
    event_tables,
    event_values,
    is_events,
    kind_name,
    step_values_of,
)
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import Finding, RunView

Event = dict[str, Any]

NOTE: Final = (
    "Lengths of phases are measured. Their order within a step is the canonical one, not observed, except for slices "
    "of category 'phase,measured', whose begin and end were observed."
)
MIN_ARROW_SHARE: Final = 0.05  # of the step waited: below this an arrow is clutter
MAX_OPEN_STEPS: Final = 4096
MAX_FINDING_RANKS: Final = 16
BATCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Waits:
    """A step's shortest and longest wait at the barrier so far: (wait ns, rank, host, clock in us)."""

    num_ranks: int = 0
    shortest: tuple[int, int, str, float] | None = None
    longest: tuple[int, int, str, float] | None = None


@dataclass(slots=True)
class Written:
    """What was written, for the one line at the end."""

    num_events: int = 0
    num_steps: int = 0
    marks_us: dict[tuple[int, int], float] = field(default_factory=dict)  # (rank, step) of findings -> begin


def export_chrome_trace(reading: Reading, path: Path) -> Written:
    """Write the trace, in bounded memory."""
    with new_file(path) as raw:
        if path.name.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
                return _write(reading, packed)
        return _write(reading, raw)


def _write(reading: Reading, file: IO[bytes] | gzip.GzipFile) -> Written:
    found = survey(reading)
    trace = _Trace(found, file)
    position = 0
    frames = believed(reading("writing"), found)
    while chunk := next_chunk(frames):
        steps = iter(step_values_of([frame for frame in chunk if is_steps(frame)], found, position))
        told = iter(event_tables([frame for frame in chunk if is_events(frame)]))
        for frame in chunk:
            if frame.source == HUB_SOURCE:
                continue
            if is_steps(frame):
                trace.steps(frame, next(steps))
                position += 1
            elif is_events(frame):
                trace.events(frame, event_values(frame, found, position, next(told)))
            elif frame.kind == FrameKind.HOST:
                trace.host(frame)
    trace.findings()
    trace.close()
    return trace.written


_FIGURES: Final = (
    "samples",
    "tokens",
    "micro_steps",
    "comm_bytes",
    "cpu_ns",
    "gc_ns",
    "peak_memory_bytes",
)
_SHOWN: Final = (
    *("rank", "step", "rank_step", "begin_ns", "end_ns", "duration_ns", "arrive_ns", "release_ns"),
    *(f"{phase}_ns" for phase in PHASES),
    *_FIGURES,
)
_TOLD: Final = ("rank", "step", "begin_ns", "end_ns", "group", "seq", "num_bytes")
_PHASE_HEADS: Final = {
    (phase, is_measured): orjson.dumps(
        {"ph": "X", "name": phase, "cat": "phase,measured" if is_measured else "phase,canonical"}
    )[:-1]
    + b',"ts":'
    for phase in PHASES
    for is_measured in (False, True)
}


class _Trace:
    """Turns frames into trace events and streams them out."""

    def __init__(self, found: Survey, file: IO[bytes] | gzip.GzipFile) -> None:
        self.written = Written()
        self._found = found
        self._file = file
        self._view: RunView = found.advisor.view()
        self._buffer: list[bytes] = []
        self._num_buffered = 0
        self._next_id = 0
        self._waits: dict[int, _Waits] = {}
        self._hosts: dict[str, int] = {}
        self._threads: set[tuple[int, int]] = set()
        self._origins: dict[str, int] = {}
        # A rank that nobody recorded may be the last arriver: no arrows then.
        self._num_ranks = (
            0 if self._view.losses.ranks_missing else int(found.advisor.store.tracks.is_aligned.sum())
        )
        self._origin_ns = _origin_ns(found)
        self._wanted = {
            (rank, step) for finding in self._view.findings for rank, step in self._places(finding)
        }
        head = {
            "displayTimeUnit": "ms",
            "otherData": {
                "source": "tuiadvisor export --format chrome-trace",
                "note": NOTE,
                "job": self._view.run.label,
                "verdict": self._view.verdict.sentence,
                "verdict_of": "the steps alone, without a stated intent",
                "origin_wall_ns": str(self._origin_ns),
            },
        }
        self._file.write(orjson.dumps(head)[:-1] + b',"traceEvents":[\n')

    # -- what a frame becomes --------------------------------------------------------------------------------

    def steps(self, frame: Frame, values: Values | None) -> None:
        """Slices of every rank-step."""
        if values is None:
            return
        host = self._found.host(frame.source)
        for cells in zip(*(values[name].tolist() for name in _SHOWN), strict=True):
            row = dict(zip(_SHOWN, cells, strict=True))
            if row["duration_ns"] > 0 and row["rank"] >= 0:
                self._step(frame.source, host, row)

    def _step(self, source: str, host: str, row: dict[str, int]) -> None:
        pid, tid = self._thread(host, row["rank"])
        begin_us = self._us(source, row["begin_ns"])
        where = {"pid": pid, "tid": tid}
        known = {name: row[name] for name in _FIGURES if row[name] != UNKNOWN}
        step = row["step"]
        name = f"step {step}" if step != UNKNOWN else f"step {row['rank_step']} of its own"
        args = {"step": None if step == UNKNOWN else step, "rank_step": row["rank_step"], **known}
        self._put({"ph": "X", "name": name, "cat": "step", "ts": begin_us, "dur": row["duration_ns"] / 1e3, **where,
                   "args": args})  # fmt: skip
        phase_ns = {phase: row[f"{phase}_ns"] for phase in PHASES}
        pieces = lay_out(row["begin_ns"], row["end_ns"], phase_ns, row["arrive_ns"], row["release_ns"])
        origin_ns, end = self._origin(source), b',"pid":%d,"tid":%d}' % (pid, tid)
        for piece in pieces:  # most of a trace: a text with gaps takes a third of the time of a dict
            begin, length = (piece.begin_ns + origin_ns) / 1e3, (piece.end_ns - piece.begin_ns) / 1e3
            head = _PHASE_HEADS[piece.phase, piece.is_measured]
            self._put_data(b'%b%b,"dur":%b%b' % (head, orjson.dumps(begin), orjson.dumps(length), end))
        self.written.num_steps += 1
        if (row["rank"], step) in self._wanted:
            self.written.marks_us[row["rank"], step] = begin_us
        if step != UNKNOWN and self._num_ranks > 1 and any(piece.is_measured for piece in pieces):
            self._barrier(source, host, row)

    def events(self, frame: Frame, values: Values | None) -> None:
        """Collectives and marks, one by one."""
        if values is None:
            return
        host = self._found.host(frame.source)
        cells = zip(*(values[name].tolist() for name in _TOLD), strict=True)
        for kind, those in zip(values["kind"], cells, strict=True):
            row = {name: None if cell == UNKNOWN else cell for name, cell in zip(_TOLD, those, strict=True)}
            if row["begin_ns"] is not None and row["rank"] is not None:
                self._event(frame.source, host, kind, row)

    def _event(self, source: str, host: str, kind: str, row: dict[str, int | None]) -> None:
        rank, begin_ns, end_ns = row["rank"], row["begin_ns"], row["end_ns"]
        if rank is None or begin_ns is None:
            return
        pid, tid = self._thread(host, rank)
        args = {name: row[name] for name in ("step", "group", "seq", "num_bytes") if row[name] is not None}
        category = "collective" if kind in _COLLECTIVES else "mark"
        if kind == _DEVICE_PHASE:
            kind, category, args = (
                _device_phase(row),
                "device",
                {"step": row["step"], "may_be_later_ns": row["seq"]},
            )
        elif kind == _DEVICE_SLICE:
            kind, category = f"stream {row['group']}", "device"
        shown = {"name": kind, "cat": category, "pid": pid, "tid": tid}
        begin_us = self._us(source, begin_ns)
        if end_ns is None or end_ns < begin_ns:
            self._put({"ph": "i", "ts": begin_us, "s": "t", "args": {**args, "end": "not observed"}, **shown})
            return
        self._next_id += 1
        number, same = b"0x%x" % self._next_id, orjson.dumps(shown)[1:]
        begin, end = orjson.dumps(begin_us), orjson.dumps(self._us(source, end_ns))
        self._put_data(
            b'{"ph":"b","id":"%b","ts":%b,"args":%b,%b' % (number, begin, orjson.dumps(args), same)
        )
        self._put_data(b'{"ph":"e","id":"%b","ts":%b,%b' % (number, end, same))

    def host(self, frame: Frame) -> None:
        """A host's load as counters."""
        payload = frame.payload
        mono_ns, host = payload.get("mono_ns"), text(payload, "host")
        if not isinstance(mono_ns, int) or not host:
            return
        pid, at_us = self._process(host), self._us(frame.source, mono_ns)
        for name, key in (("cpu share", "cpu"), ("memory share", "memory"), ("iowait share", "iowait")):
            value = number(payload, key)
            if value is not None:
                self._put({"ph": "C", "name": name, "pid": pid, "ts": at_us, "args": {"share": value}})

    # -- what the whole run says -----------------------------------------------------------------------------

    def _barrier(self, source: str, host: str, row: dict[str, int]) -> None:
        """An arrow from the last arriver to the longest waiter, once all ranks of the step are known.

        The shortest wait marks the last arriver: that needs no common clock.
        """
        step, wait_ns = row["step"], row["release_ns"] - row["arrive_ns"]
        if len(self._waits) >= MAX_OPEN_STEPS and step not in self._waits:
            del self._waits[next(iter(self._waits))]
        waits = self._waits.setdefault(step, _Waits())
        waits.num_ranks += 1
        middle_us = self._us(source, row["arrive_ns"] + wait_ns // 2)
        if waits.shortest is None or wait_ns < waits.shortest[0]:
            waits.shortest = (wait_ns, row["rank"], host, middle_us)
        if waits.longest is None or wait_ns > waits.longest[0]:
            waits.longest = (wait_ns, row["rank"], host, middle_us)
        if waits.num_ranks < self._num_ranks:
            return
        del self._waits[step]
        if waits.longest[0] - waits.shortest[0] < MIN_ARROW_SHARE * row["duration_ns"]:
            return
        self._next_id += 1
        for phase, (_, rank, its_host, at_us), more in (
            ("s", waits.shortest, {}),
            ("f", waits.longest, {"bp": "e"}),
        ):
            pid, tid = self._thread(its_host, rank)
            self._put({"ph": phase, "id": self._next_id, "name": "waits for", "cat": "barrier", "pid": pid, "tid": tid,
                       "ts": at_us, **more})  # fmt: skip

    def _culprits(self, finding: Finding) -> tuple[int, ...]:
        """The ranks a finding is about; none when it is about all of them."""
        is_of_all = len(finding.ranks) == len(self._view.ranks)
        return () if is_of_all else finding.ranks[:MAX_FINDING_RANKS]

    def _places(self, finding: Finding) -> list[tuple[int, int]]:
        """(rank, step) where a finding is shown: the step since which it holds, on its ranks or on the lowest one."""
        step = finding.since_step if finding.since_step is not None else self._view.window.first_step
        lowest = min((row.rank for row in self._view.ranks), default=0)
        return [] if step is None else [(rank, step) for rank in self._culprits(finding) or (lowest,)]

    def findings(self) -> None:
        """An instant event for each, with its sentence."""
        hosts = {row.rank: row.host for row in self._view.ranks}
        for finding in self._view.findings:
            args = {
                "id": finding.id,
                "severity": finding.severity,
                "message": finding.message,
                "since_step": finding.since_step,
                "loss_s_per_step": finding.loss_s_per_step,
            }
            scope = "t" if self._culprits(finding) else "g"
            for rank, step in self._places(finding):
                at_us = self.written.marks_us.get((rank, step))
                if at_us is not None and rank in hosts:
                    pid, tid = self._thread(hosts[rank], rank)
                    self._put({"ph": "i", "name": finding.title, "cat": "finding", "s": scope, "pid": pid, "tid": tid,
                               "ts": at_us, "args": args})  # fmt: skip

    # -- output ----------------------------------------------------------------------------------------------

    def _us(self, source: str, clock_ns: int) -> float:
        """Microseconds since the recording began; hosts by their wall clocks, else each from its own start."""
        return (clock_ns + self._origin(source, clock_ns)) / 1e3

    def _origin(self, source: str, clock_ns: int = 0) -> int:
        """Add to a source's clock to have the time since the recording began; clock_ns: where it said no step."""
        known = self._origins.get(source)
        if known is None:
            shift_ns = self._found.clock_shift_ns(source)
            if shift_ns is None and source not in self._found.first_begin_ns:
                return -clock_ns
            known = (
                shift_ns - self._origin_ns if shift_ns is not None else -self._found.first_begin_ns[source]
            )
            self._origins[source] = known
        return known

    def _process(self, host: str) -> int:
        pid = self._hosts.get(host)
        if pid is None:
            pid = self._hosts[host] = len(self._hosts) + 1
            self._put({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": host}})
        return pid

    def _thread(self, host: str, rank: int) -> tuple[int, int]:
        pid, tid = self._process(host), rank + 1  # thread 0 is the idle thread for some readers
        if (pid, tid) not in self._threads:  # after a restart a rank may be on another host
            self._threads.add((pid, tid))
            where = {"ph": "M", "pid": pid, "tid": tid}
            self._put({"name": "thread_name", "args": {"name": f"rank {rank}"}, **where})
            self._put({"name": "thread_sort_index", "args": {"sort_index": rank}, **where})
        return pid, tid

    def _put(self, event: Event) -> None:
        self._put_data(orjson.dumps(event))

    def _put_data(self, data: bytes) -> None:
        self._buffer.append(data)
        self._num_buffered += len(data)
        self.written.num_events += 1
        if self._num_buffered >= BATCH_BYTES:
            self._file.write(b",\n".join(self._buffer) + b",\n")
            self._buffer, self._num_buffered = [], 0

    def close(self) -> None:
        """The end of the document; the last event is metadata, so that every other one may end in a comma."""
        labels = {"labels": self._view.run.label or "run"}
        last = orjson.dumps({"ph": "M", "name": "process_labels", "pid": 1, "args": labels})
        self.written.num_events += 1
        self._file.write(
            b",\n".join([*self._buffer, last]) + b"\n]}\n"
        )  # not by `_put`, which may end in a comma


def _origin_ns(found: Survey) -> int:
    """The earliest moment that will be shown, on the wall clock: nothing lies before zero."""
    agents = found.advisor.roster.agents
    moments = [(source, begin) for source, begin in found.first_begin_ns.items()]
    moments += [(source, agent.first_ns) for source, agent in agents.items() if agent.first_ns]
    shifted = [at + shift for source, at in moments if (shift := found.clock_shift_ns(source)) is not None]
    return min(shifted, default=0)


_DEVICE_PHASE: Final = kind_name(EventKind.DEVICE_PHASE)
_DEVICE_SLICE: Final = kind_name(EventKind.DEVICE_SLICE)


def _device_phase(row: dict[str, int | None]) -> str:
    """'device: forward'."""
    phase = row["group"]
    known = phase is not None and 0 <= phase < len(PHASES)
    return f"device: {PHASES[phase] if known and phase is not None else 'unknown phase'}"


_COLLECTIVES: Final = frozenset(kind_name(kind) for kind in EventKind if kind < EventKind.CHECKPOINT)
