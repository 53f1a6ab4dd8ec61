"""A trace put beside a recording of the same job: its devices' work in the recording, at the recorded steps.

In: a recording, and a TracedJob.  Out: frames: those of the recording, with what the traces tell in its RUN frame
(`traced`) and their slices as events of the ranks. Whatever was recorded stays as it is, and so does every verdict.
That they are of one job is asked of the world size, the ranks, the wall clock, the processes and the number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_COLUMNS, EVENT_NAMES
from tuiadvisor.exporters.survey import decoded, is_steps, survey
from tuiadvisor.importers.slices import slice_rows
from tuiadvisor.importers.tracework import arithmetic
from tuiadvisor.metrics.traces.op_table import named
from tuiadvisor.metrics.traces.same_training import RankSteps, counts_apart, steps_within
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind, encode, pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.exporters.survey import Reading, Survey
    from tuiadvisor.importers.traced import TracedJob, TracedRank
    from tuiadvisor.metrics.steps.arrays import Ints

ROWS: Final = 4000  # a frame
STEP_NAMES: Final = ("rank", "step", "begin_ns", "end_ns", "micro_steps")
STEP_AT, BEGIN_AT, END_AT = (1 + EVENT_COLUMNS.index(name) for name in ("step", "begin_ns", "end_ns"))
NOT_CHECKED: Final = (
    "was not compared step by step, for it marks none: its ranks and times are those of the recording"
)
MIN_MARKS: Final = 2  # of fewer the number of steps tells nothing
NOT_ONE_JOB: Final = "not of one job"
WORDS: Final = "PyTorch Profiler traces, put at the recorded steps by the wall clock"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the recording says of its ranks. source: by rank, which of the recording's sources spoke for its steps."""

    world_size: int | None
    is_imported: bool
    is_traced: bool  # a trace lies beside it already
    steps: dict[int, RankSteps]
    source: dict[int, str]
    shift_ns: dict[str, int]  # from a source's clock to the wall clock
    hosts: dict[int, str]  # by rank
    in_containers: frozenset[int]  # ranks that may be: their hosts may have names of their own
    pids: dict[int, frozenset[int]]  # by rank, of its processes as they see themselves; empty: unknown


@dataclass(frozen=True, slots=True)
class Beside:
    """What is added: the RUN frame's part, and rows of events by source."""

    about: dict[str, Any]
    events: dict[str, list[tuple[int, ...]]]
    ranks: tuple[int, ...]
    steps: tuple[int, int]


def recorded(reading: Reading) -> Recorded:
    """Read it twice: the job's steps are known after the first time."""
    found = survey(reading)
    roster = found.advisor.roster
    parts: dict[int, list[Ints]] = {}
    source: dict[int, str] = {}
    shift_ns: dict[str, int] = {}
    num_before = 0
    for frame in decoded(reading("placing the trace in")):
        if not is_steps(frame):
            continue
        num_before += 1
        shift = found.clock_shift_ns(frame.source)
        rows = _rows(frame.payload, found, num_before - 1)
        if shift is None or rows is None:
            continue
        shift_ns[frame.source] = shift
        for rank in np.unique(rows[0]).tolist():
            mine = rows[1:, rows[0] == rank]
            mine[1:3] += shift
            parts.setdefault(rank, []).append(mine)
            source[rank] = frame.source
    steps = {rank: RankSteps(*_in_order(each)) for rank, each in parts.items()}
    return Recorded(
        roster.world_size(),
        roster.header.imported is not None,
        roster.header.traced is not None,
        steps,
        source,
        shift_ns,
        {rank: fact.host for rank, fact in roster.ranks.items()},
        frozenset(rank for rank, fact in roster.ranks.items() if fact.pid not in fact.own_pids.values()),
        {rank: fact.known_pids() for rank, fact in roster.ranks.items()},
    )


def _rows(payload: dict[str, object], found: Survey, num_before: int) -> Ints | None:
    """rank, the job's step, begin, end, micro-steps of the rows that are whole."""
    try:
        columns = unpack_columns(payload, STEP_NAMES)
    except TuiadvisorError:
        return None
    job = found.axis.job_steps(num_before, columns["rank"], columns["step"], columns["begin_ns"])
    rows = np.stack([columns["rank"], job, columns["begin_ns"], columns["end_ns"], columns["micro_steps"]])
    return np.asarray(rows[:, (job >= 0) & (rows[2] > 0) & (rows[3] > rows[2])])


def _in_order(parts: list[Ints]) -> Ints:
    rows = np.concatenate(parts, axis=1)
    return np.asarray(rows[:, np.argsort(rows[1], kind="stable")])


def beside(name: str, job: TracedJob, run: Recorded) -> Beside:
    """name: of the trace. TuiadvisorError: why the two are not of one job, or cannot be brought together."""
    _refuse_other_jobs(job, run)
    ranks = {_rank_of(one, job, run): one for one in job.ranks}
    known = {rank: one for rank, one in ranks.items() if rank in run.steps}
    if not known:
        raise TuiadvisorError(f"{NOT_ONE_JOB}: the traces are of ranks {named(sorted(ranks))}, "
                              f"recorded are {named(sorted(run.steps))}")  # fmt: skip
    within = {
        rank: steps_within(run.steps[rank], one.begin_ns, one.end_ns, is_marked=bool(one.marks))
        for rank, one in known.items()
    }
    chosen = {rank: one for rank, one in known.items() if within[rank].any()}
    if not chosen:
        rank, one = next(iter(known.items()))
        steps = run.steps[rank]
        raise TuiadvisorError(
            f"{NOT_ONE_JOB}, or not of its recorded part: rank {rank} was traced {_span(one.begin_ns, one.end_ns)}, "
            f"recorded {_span(int(steps.begin_ns.min()), int(steps.end_ns.max()))}"
        )
    for rank, one in chosen.items():
        pids = run.pids.get(rank)
        if one.pid is not None and pids and one.pid not in pids:
            raise TuiadvisorError(
                f"{NOT_ONE_JOB}: rank {rank} is process {one.pid} by the trace and {named(sorted(pids))} by the "
                "recording"
            )
        if is_elsewhere(rank, one.machine, run):
            raise TuiadvisorError(
                f"{NOT_ONE_JOB}: rank {rank} is on {one.machine} by the trace and on {run.hosts[rank]} by the recording"
            )
        if apart := counts_apart(one.marks, run.steps[rank]):
            raise TuiadvisorError(
                f"{NOT_ONE_JOB}: in the time that both saw, rank {rank} makes {apart[0]} steps by the trace and "
                f"{apart[1]} by the recording"
            )
    numbers = np.concatenate([run.steps[rank].number[within[rank]] for rank in chosen])
    span = int(numbers.min()), int(numbers.max())
    left = sorted(set(ranks) - set(chosen))
    few = sorted(rank for rank, one in chosen.items() if len(one.marks) < MIN_MARKS)
    whom = f"rank{'s' * (len(few) > 1)} {named(few)}"
    unchecked = [f"the trace of {whom} {NOT_CHECKED}"] if few else []
    notes = [
        *job.notes,
        *unchecked,
        *([f"traces of ranks that were not recorded then: {named(left)}"] if left else []),
    ]
    about = {
        "kind": "kineto",
        "source": name,
        "words": WORDS,
        "because": job.document["stragglers"]["because"],
        "late_ranks": None if job.late_ranks is None else list(job.late_ranks),
        "notes": notes,
        "ranks": sorted(chosen),
        "steps": list(span),
        **_device(job, chosen),
        **({} if (found := arithmetic(job.document)) is None else {"arithmetic": found}),
    }
    return Beside(about, _events(chosen, run), tuple(sorted(chosen)), span)


def is_elsewhere(rank: int, machine: str, run: Recorded) -> bool:
    """Whether a trace of this machine is of another rank: a container's name says nothing, another rank's host does."""
    host, name = _short(run.hosts.get(rank, "")), _short(machine)
    if not host or not name or host == name:
        return False
    return rank not in run.in_containers or name in {_short(other) for other in run.hosts.values()}


def _short(host: str) -> str:
    """Some say the domain, too."""
    return host.partition(".")[0].lower()


def _refuse_other_jobs(job: TracedJob, run: Recorded) -> None:
    if run.is_imported:
        raise TuiadvisorError("the recording was itself imported from a trace: open both as a folder instead")
    if run.is_traced:
        raise TuiadvisorError(
            "a trace lies beside this recording already: take the recording as it was recorded"
        )
    if not run.steps:
        raise TuiadvisorError("the recording has no step with a known wall clock, so no place for a trace")
    if job.world_size is not None and run.world_size is not None and job.world_size != run.world_size:
        raise TuiadvisorError(
            f"{NOT_ONE_JOB}: the traces are of {job.world_size} ranks, the recording of {run.world_size}"
        )


def _rank_of(one: TracedRank, job: TracedJob, run: Recorded) -> int:
    """A single trace that does not say its rank is the only recorded one's, else nobody's."""
    if one.rank is not None:
        return one.rank
    if len(job.ranks) == len(run.steps) == 1:
        return next(iter(run.steps))
    raise TuiadvisorError(f"{one.file} does not say which rank it is of: name it by its rank, as rank0.json")


def _device(job: TracedJob, chosen: dict[int, TracedRank]) -> dict[str, Any]:
    found = job.work({one.file: rank for rank, one in chosen.items()})
    if found is None:
        return {}
    resolution_ns = max(one.slices.resolution_ns for one in chosen.values())
    return {"device": {**found, "names": list(job.names), "resolution_ns": resolution_ns}}


def _events(chosen: dict[int, TracedRank], run: Recorded) -> dict[str, list[tuple[int, ...]]]:
    """The slices on each host's clock, with the job's steps; what lies between two steps is of the one before."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for rank, one in chosen.items():
        if not len(one.slices.rows):
            continue
        source, steps = run.source[rank], run.steps[rank]
        rows = slice_rows(one.slices)
        wall = rows[:, BEGIN_AT] + one.wall_ns
        rows[:, STEP_AT] = steps.number[
            np.maximum(np.searchsorted(steps.begin_ns, wall, side="right") - 1, 0)
        ]
        rows[:, [BEGIN_AT, END_AT]] += one.wall_ns - run.shift_ns[source]
        rows = rows[rows[:, BEGIN_AT] > 0]
        found.setdefault(source, []).extend((rank, *row) for row in rows.tolist())
    return found


def _span(begin_ns: int, end_ns: int) -> str:
    """The wall clock, as every machine tells it."""
    begin, end = (datetime.fromtimestamp(at / 1e9, UTC) for at in (begin_ns, end_ns))
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    return f"{begin:%Y-%m-%d %H:%M:%S} to {until} UTC"


def with_trace(reading: Reading, added: Beside) -> Iterator[bytes]:
    """The recording's frames with what is added, each source's before it says good-bye."""
    last: dict[str, tuple[int, int]] = {}  # source -> number and time of its last frame
    more: dict[str, int] = {}  # source -> frames that were put in before
    has_run = False
    waiting = dict(added.events)
    for frame in decoded(reading("writing")):
        payload = frame.payload
        if not has_run:
            about = {**(payload if frame.kind == FrameKind.RUN else {"schema": 1}), "traced": added.about}
            if frame.kind != FrameKind.RUN:  # its first frame is damaged
                yield encode(FrameKind.RUN, HUB_SOURCE, 0, frame.time_ns, about)
            payload, has_run = about if frame.kind == FrameKind.RUN else payload, True
        if frame.kind == FrameKind.BYE and frame.source in waiting:
            yield from _frames(frame.source, waiting.pop(frame.source), last, more)
        seq = frame.seq + more.get(frame.source, 0)
        if frame.source != HUB_SOURCE:
            last[frame.source] = seq, frame.time_ns
        yield encode(frame.kind, frame.source, seq, frame.time_ns, payload)
    for source, rows in waiting.items():
        yield from _frames(source, rows, last, more)


def _frames(
    source: str, rows: list[tuple[int, ...]], last: dict[str, tuple[int, int]], more: dict[str, int]
) -> Iterator[bytes]:
    seq, time_ns = last.get(source, (-1, 0))
    for at in range(0, len(rows), ROWS):
        seq += 1
        more[source] = more.get(source, 0) + 1
        packed = pack_columns(rows[at : at + ROWS], EVENT_NAMES)
        yield encode(FrameKind.EVENTS, source, seq, time_ns, packed)
