"""A run that was imported, as a recording in our own format.

In: ImportedRun.  Out: a file. Its RUN frame says what it was made of; hosts that the source does not name have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor import __version__
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, UNKNOWN, UNNAMED_HOST
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.importers.imported import PART
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind, encode, pack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.importers.imported import ImportedRank, ImportedRun, Row

BASE_NS: Final = 1_000_000_000  # the first step begins here: clocks of recordings are above 0
ROWS: Final = 4000  # a frame: beyond that the fold thins collectives
EPOCH_NS: Final = 10**18  # a later clock counts from 1970
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
    start = min(row[BEGIN_AT] + (rank.shift_ns or 0) for rank in run.ranks for row in rank.steps)
    yield encode(FrameKind.RUN, HUB_SOURCE, 0, BASE_NS, _about(run, start))
    by_host: dict[str, list[ImportedRank]] = {}
    for rank in run.ranks:
        # Ranks without a common clock may not look like ranks of one host, whose clock is one.
        apart = "" if rank.shift_ns is not None else f" of rank {rank.rank}"
        host = rank.host or f"{UNNAMED_HOST}{apart}"
        by_host.setdefault(host, []).append(rank)
    counts = dict.fromkeys(by_host, 0)

    def frame(host: str, kind: FrameKind, time_ns: int, payload: dict[str, object]) -> bytes:
        counts[host] += 1
        return encode(kind, f"{host}/0/0", counts[host] - 1, time_ns, payload)

    for host, ranks in by_host.items():
        entries = [_entry(run, rank) for rank in ranks]
        yield frame(host, FrameKind.HELLO, BASE_NS, {"host": host, "ranks": entries})
    last = BASE_NS
    for host, ranks in by_host.items():
        shifts = {rank.rank: BASE_NS - start + (rank.shift_ns or 0) for rank in ranks}
        if all(rank.shift_ns is None for rank in ranks):  # its own clock begins where it likes
            shifts = {rank.rank: BASE_NS - rank.steps[0][BEGIN_AT] for rank in ranks}
        for steps, events in _chunks(ranks, shifts):
            last = max(last, *(row[1 + END_AT] for row in steps))
            yield frame(host, FrameKind.STEPS, last, pack_columns(steps, ("rank", *STEP_COLUMNS)))
            for at in range(0, len(events), ROWS):
                packed = pack_columns(events[at : at + ROWS], ("rank", "kind", *EVENT_COLUMNS))
                yield frame(host, FrameKind.EVENTS, last, packed)
        for rows in _slices(ranks, shifts):
            packed = pack_columns(rows, ("rank", "kind", *EVENT_COLUMNS))
            yield frame(host, FrameKind.EVENTS, last, packed)
    for host in () if run.kind == PART else by_host:
        yield frame(host, FrameKind.BYE, last, {"reason": "end of the imported trace"})


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
        **({} if run.device is None else {"device": run.device}),
        **({} if run.arithmetic is None else {"arithmetic": run.arithmetic}),
    }
    about: dict[str, object] = {
        "schema": 1,
        "tuiadvisor": __version__,
        "label": f"{run.source} ({'read so far' if run.kind == PART else 'imported'})",
        "imported": imported,
    }
    if start_ns > EPOCH_NS:
        about["created_wall_ns"] = start_ns
    return about


def _entry(run: ImportedRun, rank: ImportedRank) -> dict[str, object]:
    known = {
        "world_size": run.world_size,
        "device": rank.device,
        "parallel": run.parallel or None,
        "pipeline": rank.pipeline or None,
        "schedule": run.schedule,
        **rank.software,
    }
    return {
        "rank": rank.rank,
        "state": "detached",
        "detail": "imported",
        **{name: value for name, value in known.items() if value is not None},
    }


def _chunks(ranks: list[ImportedRank], shifts: dict[int, int]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Rows of all ranks by step, a bounded number of steps at a time."""
    rows = sorted(
        ((row[0], rank.rank, row) for rank in ranks for row in rank.steps), key=lambda entry: entry[:2]
    )
    events: dict[int, list[Row]] = {}
    for rank in ranks:
        for event in rank.events:
            moved = _moved(event, EVENT_CLOCKS, shifts[rank.rank])
            events.setdefault(event[STEP_AT], []).append((rank.rank, *moved))
    at = 0
    while at < len(rows):
        stop = min(at + max(ROWS // 4, 1), len(rows))
        while stop < len(rows) and rows[stop][0] == rows[stop - 1][0]:  # a step's rows stay together
            stop += 1
        chunk = [(rank, *_moved(row, STEP_CLOCKS, shifts[rank])) for _, rank, row in rows[at:stop]]
        own = [event for step in sorted({row[0] for row in rows[at:stop]}) for event in events.pop(step, ())]
        yield chunk, own
        at = stop


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
