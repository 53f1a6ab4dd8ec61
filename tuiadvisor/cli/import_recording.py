"""A run that was imported, as a recording in our own format.

In: ImportedRun.  Out: a file. Its RUN frame says what it was made of; hosts that the source does not name have none.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tuiadvisor import __version__
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, UNKNOWN, UNNAMED_HOST
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.importers.imported import PART
from tuiadvisor.importers.trace_header import EPOCH_NS
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind, encode, pack_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tuiadvisor.importers.imported import ImportedRank, ImportedRun, Row

BASE_NS: Final = 1_000_000_000  # the first step begins here: clocks of recordings are above 0
ROWS: Final = 4000  # a frame: beyond that the fold thins collectives
CLOCKS: Final = frozenset(("begin_ns", "end_ns", "arrive_ns", "release_ns"))
STEP_CLOCKS: Final = tuple(STEP_COLUMNS.index(name) for name in STEP_COLUMNS if name in CLOCKS)
EVENT_CLOCKS: Final = tuple(1 + EVENT_COLUMNS.index(name) for name in EVENT_COLUMNS if name in CLOCKS)
STEP_AT: Final = EVENT_COLUMNS.index("step") + 1
BEGIN_AT: Final = STEP_COLUMNS.index("begin_ns")
END_AT: Final = STEP_COLUMNS.index("end_ns")


def write_imported(path: str, run: ImportedRun) -> int:
    """Write the recording; its bytes."""
    return write_recording(path, imported_frames(run))


def imported_frames(run: ImportedRun) -> Iterator[bytes]:
    """The run as frames in order; of a part of one nothing says that it ends."""
    start = min(
        (row[BEGIN_AT] + (rank.shift_ns or 0) for rank in run.ranks for row in rank.steps), default=BASE_NS
    )
    yield encode(FrameKind.RUN, HUB_SOURCE, 0, BASE_NS, _about(run, start))
    by_host: dict[str, list[ImportedRank]] = {}
    for rank in run.ranks:
        # Ranks without a common clock may not look like ranks of one host, whose clock is one.
        apart = "" if rank.shift_ns is not None else f" of rank {rank.rank}"
        host = rank.host or f"{UNNAMED_HOST}{apart}"
        by_host.setdefault(host, []).append(rank)
    writer = _Writer(by_host)
    for host, ranks in by_host.items():
        entries = [_entry(run, rank) for rank in ranks]
        yield writer.frame(host, FrameKind.HELLO, {"host": host, "ranks": entries})
        recorders = [rank.recorder for rank in ranks if rank.recorder is not None]
        if recorders:
            yield writer.frame(host, FrameKind.STATUS, {"host": host, "recorders": recorders})
    shifts = {host: _shifts(ranks, start) for host, ranks in by_host.items()}
    held = {host: _Held(ranks, shifts[host]) for host, ranks in by_host.items()}
    for numbers in _stretches(run.ranks):
        yield from writer.stretch(numbers, held)
    for host, ranks in by_host.items():
        for sliced in _slices(ranks, shifts[host]):
            yield writer.events(host, sliced)
    for host in () if run.kind == PART else by_host:
        yield writer.frame(host, FrameKind.BYE, {"reason": "end of the imported trace"})


class _Writer:
    """Frames of each host, at the time of the last step that was written. Mutable."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._counts = dict.fromkeys(hosts, 0)
        self._last_ns = BASE_NS

    def frame(self, host: str, kind: FrameKind, payload: dict[str, object]) -> bytes:
        """The host's next one."""
        self._counts[host] += 1
        return encode(kind, f"{host}/0/0", self._counts[host] - 1, self._last_ns, payload)

    def events(self, host: str, rows: list[Row]) -> bytes:
        """One of what happened."""
        return self.frame(host, FrameKind.EVENTS, pack_columns(rows, ("rank", "kind", *EVENT_COLUMNS)))

    def stretch(self, numbers: frozenset[int], held: dict[str, _Held]) -> Iterator[bytes]:
        """Some steps of all hosts.

        A replay that goes to a step stands behind the frames of steps that hold it: what happened in them is there by
        then, and the steps of every host lie in a row.
        """
        steps = {host: rows.steps(numbers) for host, rows in held.items()}
        ends = (row[1 + END_AT] for rows in steps.values() for row in rows)
        self._last_ns = max(self._last_ns, *ends)
        for host, rows in held.items():
            events = rows.events(numbers)
            for at in range(0, len(events), ROWS):
                yield self.events(host, events[at : at + ROWS])
        for host, of_host in steps.items():
            if of_host:
                yield self.frame(host, FrameKind.STEPS, pack_columns(of_host, ("rank", *STEP_COLUMNS)))


def _about(run: ImportedRun, start_ns: int) -> dict[str, object]:
    """What the recording says of itself."""
    imported = {
        "kind": run.kind,
        "source": run.source,
        "words": run.words,
        "because": run.because,
        "says": run.says,
        "notes": list(run.notes),
        "late_ranks": None if run.late_ranks is None else list(run.late_ranks),
        **({"uncompared": list(run.uncompared)} if run.uncompared else {}),
        **({"steps_tell": True} if run.steps_tell else {}),
        **({"cause_ranks": list(run.cause_ranks)} if run.cause_ranks else {}),
        **({} if run.waits_share is None else {"waits_share": run.waits_share}),
        **({} if run.device is None else {"device": run.device}),
        **({} if run.arithmetic is None else {"arithmetic": run.arithmetic}),
    }
    about: dict[str, object] = {
        "schema": 1,
        "tuiadvisor": __version__,
        "label": f"{run.source} ({'read so far' if run.kind == PART else 'imported'})",
        "imported": imported,
    }
    wall_ns = start_ns if run.last_wall_ns is None else run.last_wall_ns
    if wall_ns > EPOCH_NS:
        about["created_wall_ns"] = wall_ns
    return about


def _entry(run: ImportedRun, rank: ImportedRank) -> dict[str, object]:
    known = {
        "world_size": run.world_size,
        "device": rank.device,
        "parallel": run.parallel or None,
        "pipeline": rank.pipeline or None,
        "schedule": run.schedule,
        "compute_device": rank.compute_device or None,
        **rank.software,
    }
    return {
        "rank": rank.rank,
        "state": "detached",
        "detail": rank.detail,
        **{name: value for name, value in known.items() if value is not None},
    }


def _shifts(ranks: list[ImportedRank], start_ns: int) -> dict[int, int]:
    """What is added to the times of each rank of a host."""
    if all(rank.shift_ns is None for rank in ranks):  # its own clock begins where it likes
        return {rank.rank: BASE_NS - rank.steps[0][BEGIN_AT] for rank in ranks}
    return {rank.rank: BASE_NS - start_ns + (rank.shift_ns or 0) for rank in ranks}


def _stretches(ranks: Iterable[ImportedRank]) -> Iterator[frozenset[int]]:
    """All steps in order, so many at a time that their rows of all ranks are bounded."""
    counts = Counter(row[0] for rank in ranks for row in rank.steps)
    steps: list[int] = []
    num_rows = 0
    for step in sorted(counts):
        steps.append(step)
        num_rows += counts[step]
        if num_rows >= ROWS // 4:
            yield frozenset(steps)
            steps, num_rows = [], 0
    if steps:
        yield frozenset(steps)


class _Held:
    """Rows of the ranks of one host by step. Mutable: a step is given out once, on the clock of all."""

    def __init__(self, ranks: list[ImportedRank], shifts: dict[int, int]) -> None:
        self._shifts = shifts
        self._steps: dict[int, list[tuple[int, Row]]] = {}
        self._events: dict[int, list[tuple[int, Row]]] = {}
        for rank in ranks:
            for row in rank.steps:
                self._steps.setdefault(row[0], []).append((rank.rank, row))
            for event in rank.events:
                self._events.setdefault(event[STEP_AT], []).append((rank.rank, event))

    def steps(self, steps: Iterable[int]) -> list[Row]:
        """Rows of these steps, by step and rank."""
        held = [each for step in sorted(steps) for each in sorted(self._steps.pop(step, ()))]
        return [(rank, *_moved(row, STEP_CLOCKS, self._shifts[rank])) for rank, row in held]

    def events(self, steps: Iterable[int]) -> list[Row]:
        """What happened in these."""
        held = [each for step in sorted(steps) for each in self._events.pop(step, ())]
        return [(rank, *_moved(event, EVENT_CLOCKS, self._shifts[rank])) for rank, event in held]


def _slices(ranks: list[ImportedRank], shifts: dict[int, int]) -> Iterator[list[Row]]:
    """Their slices on the clock of all, a frame at a time; each is of known time."""
    held = [(rank.rank, rank.slices) for rank in ranks if rank.slices is not None]
    for rank, slices in held:
        for at in range(0, len(slices), ROWS):
            part = slices[at : at + ROWS].copy()
            part[:, EVENT_CLOCKS] += shifts[rank]
            yield [(rank, *row) for row in part.tolist()]


def _moved(row: Row, clocks: tuple[int, ...], shift_ns: int) -> Row:
    moved = list(row)
    for at in clocks:
        if moved[at] != UNKNOWN:
            moved[at] += shift_ns
    return tuple(moved)
