"""What a recorder and a viewer keep of a run has a ceiling: its second half adds nothing to what the first left."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import Job, encoded, frames, simulate
from thinned import num_examples

from tuiadvisor.advisor.detail import bucket_store, pipeline_store
from tuiadvisor.advisor.detail.event_blocks import EventBlocks
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, EventKind
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.stream.source import SourceStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("rank", "kind", *EVENT_COLUMNS)
STEPS_A_FRAME = 20
FRAMES_A_VIEW = 24
JOB = Job(num_ranks=2, num_steps=4400)
NUM_PIECES = 8
# Full well before the first half is over, as the latest 2,048 steps of each rank are.
BUCKET_ROWS, CHUNK_ROWS, MEETING_ROWS = 1 << 10, 1 << 11, 1 << 7
MIB = 1 << 20
SPARE_BYTES = 64 << 10  # two blocks of numbers differ by up to a frame's rows
END = STEP_COLUMNS.index("end_ns") + 1
RELEASE, ARRIVE = (STEP_COLUMNS.index(name) + 1 for name in ("release_ns", "arrive_ns"))


class Told:
    """A source that hands out frames in batches, as a hub does."""

    status = SourceStatus("live", connected=True, bytes_behind=0, note="", ended=False)

    def __init__(self, batches: Iterator[list[bytes]]) -> None:
        self._batches = batches

    def read(self, _timeout_s: float) -> list[bytes]:
        return next(self._batches, [])

    def close(self) -> None:
        """Nothing to close."""


def events_of(row: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Everything a probe tells of a step in detail: buckets, chunks of a pipeline, device times, collectives."""
    rank, step = row[:2]
    arrive, release = row[ARRIVE], row[RELEASE]
    pieces = [
        (
            rank,
            EventKind.BUCKET_PIECE,
            step,
            arrive - place,
            arrive - place,
            0,
            NUM_PIECES - 1 - place,
            MIB,
            1,
        )
        for place in reversed(range(NUM_PIECES))
    ]
    closing = (
        rank, EventKind.GRADIENT_BUCKETS, step, arrive - 9_000_000, release, 1, NUM_PIECES, NUM_PIECES * MIB, 1
    )  # fmt: skip
    chunks = [
        (rank, kind, step, arrive - 1000 + chunk, arrive + chunk, rank, chunk, -1, -1)
        for chunk in range(8)
        for kind in (EventKind.STAGE_FORWARD, EventKind.STAGE_BACKWARD)
    ]
    device = (rank, EventKind.DEVICE_PHASE, step, arrive, release, 1, 1000, -1, 1000)
    called = (rank, EventKind.ALL_REDUCE, step, arrive, release, 0, step, MIB, -1)
    return [*pieces, closing, *chunks, device, called]


def told() -> Iterator[bytes]:
    """All frames of the job's one agent: steps, events, and a sample of the host a frame."""
    run = simulate(JOB)
    seq = 0

    def numbered(frame: Frame) -> bytes:
        nonlocal seq
        seq += 1
        return encoded(Frame(frame.kind, frame.source, seq, frame.time_ns, frame.payload))

    for frame in frames(JOB, STEPS_A_FRAME, run):
        yield numbered(frame)
        if frame.kind != FrameKind.STEPS:
            continue
        newest = [records[min(STEPS_A_FRAME * frame.seq, JOB.num_steps) - 1] for records in run.rows.values()]
        rows = [event for row in newest for event in events_of(row)]
        yield numbered(Frame(FrameKind.EVENTS, frame.source, 0, frame.time_ns, pack_columns(rows, NAMES)))
        common = {"host": "node0", "mono_ns": frame.time_ns, "wall_ns": frame.time_ns + 10**18}
        entries = [
            {"rank": row[0], "run_delay_s": frame.time_ns * 1e-12, "rss_bytes": 1 << 30} for row in newest
        ]
        host = {**common, "memory": 0.3, "memory_total_bytes": 1 << 36, "ranks": entries}
        yield numbered(Frame(FrameKind.HOST, frame.source, 0, frame.time_ns, host))
        states = [
            {"rank": row[0], "state": "live", "thread": "stopped", "phase": "backward"} for row in newest
        ]
        yield numbered(Frame(FrameKind.STATUS, frame.source, 0, frame.time_ns, {**common, "ranks": states}))


def kept_bytes(feed: LiveFeed, num_batches: int) -> int:
    """What is held after so many more batches, each with a picture of its own."""
    for _ in range(num_batches):
        feed._view_due_s = 0.0
        feed._cycle()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.slow
def test_the_second_half_of_a_run_adds_nothing_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder grew by 31 MB an hour: tables joined for a picture were never shortened again."""
    monkeypatch.setattr(bucket_store, "MAX_ROWS", BUCKET_ROWS)
    monkeypatch.setattr(pipeline_store, "MAX_ROWS", CHUNK_ROWS)
    monkeypatch.setattr(pipeline_store, "MAX_MEETINGS", MEETING_ROWS)
    all_frames = list(told())
    batches = [all_frames[at : at + FRAMES_A_VIEW] for at in range(0, len(all_frames), FRAMES_A_VIEW)]
    feed = LiveFeed(Told(iter(batches)), lambda: None)
    half = len(batches) // 2
    tracemalloc.start()
    try:
        first = kept_bytes(feed, half)
        second = kept_bytes(feed, len(batches) - half)
    finally:
        tracemalloc.stop()
    assert JOB.num_steps - 1 == feed.advisor.view().last_step
    assert BUCKET_ROWS <= feed.advisor.buckets._held.num_rows
    assert CHUNK_ROWS <= feed.advisor.chunks._held.num_rows
    assert MEETING_ROWS <= feed.advisor.chunks._meetings.num_rows
    assert first + SPARE_BYTES > second


@settings(max_examples=num_examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=40))
def test_reading_the_rows_does_not_change_which_are_held(sizes: list[tuple[int, bool]]) -> None:
    """Whole frames go, the oldest first; whether anybody looked in between does not show."""
    read, unread, taken = EventBlocks(("step",), 50), EventBlocks(("step",), 50), 0
    for size, is_looked_at in sizes:
        columns = {"step": np.arange(taken, taken + size)}
        taken += size
        for held in (read, unread):
            held.add(columns, np.ones(size, dtype=np.bool_), "node0")
        if is_looked_at:
            read.table()
        assert sum(block.shape[1] for block in read._blocks) < 2 * (50 + 30)
    assert np.array_equal(unread.table(), read.table())
    assert list(range(taken - read.num_rows, taken)) == read.table()[0].tolist()
    assert read.num_rows == taken or 50 <= read.num_rows < 50 + 30
