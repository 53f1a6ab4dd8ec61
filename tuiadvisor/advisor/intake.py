"""Frames into what is held of them: who takes part, their steps, events and times.

In: frames as bytes or decoded, in the order they were recorded.  Out: the stores that a view is made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

from tuiadvisor.advisor.cluster.membership import Roster
from tuiadvisor.advisor.cluster.payload_fields import integer
from tuiadvisor.advisor.detail.bucket_store import BucketStore
from tuiadvisor.advisor.detail.collectives import Collectives
from tuiadvisor.advisor.detail.device_times import DeviceTimes
from tuiadvisor.advisor.detail.loader_store import LoaderStore
from tuiadvisor.advisor.detail.pipeline_store import PipelineStore
from tuiadvisor.advisor.steps.course import CourseHistory
from tuiadvisor.advisor.steps.step_store import FOLDED, StepStore
from tuiadvisor.advisor.steps.trend import TrendHistory
from tuiadvisor.advisor.steps.wall_time import WallTime
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_NAMES
from tuiadvisor.paused_gc import collector_off
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, decode, unpack_columns
from tuiadvisor.stream.tables import unpack_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tuiadvisor.metrics.steps.arrays import Ints

# Folded in one go: enough frames that numpy's calls cost little, few enough that their rows stay in the cache.
CHUNK_FRAMES: Final = 256
CHUNK_ROWS: Final = 1 << 15  # a small frame can promise a quarter of a million rows: bound what lies unfolded


class Intake:
    """Feed frames in the order they were recorded."""

    def __init__(self) -> None:
        self.roster = Roster()
        self.store = StepStore()
        self.chunks = PipelineStore()
        self.buckets = BucketStore()
        self.loaders = LoaderStore()
        self.trend = TrendHistory()
        self.course = CourseHistory()
        self.wall = WallTime()
        self.device_times = DeviceTimes()
        self.collectives = Collectives()
        self.num_frames = 0
        self.num_bad_frames = 0

    def is_past(self, job_step: int) -> bool:
        """Whether a later step than this one was seen."""
        span = self.store.span()
        return span is not None and span[1] - self.store.axis_shift() > job_step

    def held_steps(self) -> tuple[int, int] | None:
        """(oldest, newest) job step that `view_at` can show; None before the first."""
        span = self.store.span()
        if span is None:
            return None
        shift = self.store.axis_shift()
        oldest, newest = max(span[0], span[1] - self.store.capacity + 1) - shift, span[1] - shift
        return max(
            oldest, min(0, newest)
        ), newest  # one rank's steps may begin before those of all are counted

    def most_steps(self) -> int:
        """How many job steps one view is made of at most."""
        return self.store.table_width

    def feed(self, frame: bytes, *, with_steps: bool = True) -> None:
        """Take one encoded frame; one that cannot be decoded is counted and otherwise ignored."""
        self.feed_many((frame,), with_steps=with_steps)

    def feed_many(self, frames: Iterable[bytes], *, with_steps: bool = True) -> None:
        """Take encoded frames in order: what `feed` does with each, several times as fast."""
        left = iter(frames)
        while self._take_chunk(left, with_steps=with_steps):
            pass

    @collector_off()
    def _take_chunk(self, frames: Iterator[bytes], *, with_steps: bool) -> bool:
        """Decode and fold the next frames, a bounded number; False when there were none."""
        chunk: list[Frame | TuiadvisorError] = []
        num_rows = 0
        for frame in frames:
            try:
                decoded = decode(frame)
            except TuiadvisorError as error:
                chunk.append(error)
            else:
                chunk.append(decoded)
                if decoded.kind == FrameKind.STEPS:
                    num_rows += integer(decoded.payload, "rows") or 0
            if len(chunk) >= CHUNK_FRAMES or num_rows >= CHUNK_ROWS:
                break
        self._take(chunk, with_steps=with_steps)
        return bool(chunk)

    def fed(self, frames: Iterable[bytes]) -> Iterator[tuple[bytes, Frame]]:
        """Take encoded frames one by one, as `feed` does, and hand out each with what it says; bad ones are counted."""
        for data in frames:
            try:
                frame = decode(data)
            except TuiadvisorError as error:
                self._take((error,))
                continue
            self.feed_frame(frame)
            yield data, frame

    def feed_frame(self, frame: Frame) -> None:
        """Take one decoded frame."""
        self._take((frame,))

    def number_alike(self) -> None:
        """What is said of a rank's steps has the job's numbers, as far as they are known by now."""
        offsets = self.store.job_offsets()
        for rank, facts in self.roster.ranks.items():
            facts.step_shift = offsets.get(rank, 0)

    def _take(self, frames: Sequence[Frame | TuiadvisorError], *, with_steps: bool = True) -> None:
        """Fold frames in order, their steps in one go wherever the order does not show."""
        steps = [frame.payload for frame in frames if with_steps and _has_steps(frame)]
        tables = iter(unpack_tables(steps, FOLDED))
        waiting: list[tuple[Ints, str, int]] = []
        for frame in frames:
            if isinstance(frame, TuiadvisorError):
                self._note_bad(frame)
                continue
            if waiting and self.roster.learns_clock(frame):  # clocks decide how steps are aligned
                self._add_steps(waiting, self.roster.owners.lend())
                waiting = []
            self.num_frames += with_steps or frame.kind != FrameKind.STEPS
            owners, num_restarts = self.roster.owners.lend(), self.roster.restarts.num_begun
            if frame.kind == FrameKind.HELLO and self.roster.begins_restart(frame.payload):
                self.number_alike()  # those that ended told their end by their own count
            self.roster.take(frame)
            self.device_times.of_trace = self.roster.header.imported is not None
            is_restart = self.roster.restarts.num_begun != num_restarts
            if waiting and (is_restart or self.roster.owners.lend() is not owners):
                self._add_steps(waiting, owners)
                waiting = []
            if is_restart:
                self.roster.restarts.place(self.held_steps())
            if frame.source == HUB_SOURCE:
                continue
            if frame.kind == FrameKind.EVENTS:
                self._take_events(frame)
            elif frame.kind == FrameKind.STEPS and with_steps:
                waiting += self._table_of(frame, next(tables))
        self._add_steps(waiting, self.roster.owners.lend())

    def _table_of(self, frame: Frame, table: Ints | TuiadvisorError) -> list[tuple[Ints, str, int]]:
        agent = self.roster.agent_of(frame.source)
        if isinstance(table, TuiadvisorError):
            self._note_bad(table)
        elif agent is not None:
            return [(table, agent.host, agent.number)]
        return []

    @property
    def on_device(self) -> bool:
        """Whether any rank computes on a device that has a clock of its own."""
        return self.roster.is_on_devices()

    def _note_bad(self, error: TuiadvisorError) -> None:
        self.num_bad_frames += 1
        self.roster.note(f"bad frame: {error}")

    def _take_events(self, frame: Frame) -> None:
        try:
            columns = unpack_columns(frame.payload, EVENT_NAMES)
        except TuiadvisorError as error:
            self._note_bad(error)
            return
        agent = self.roster.agent_of(frame.source)
        columns = self.roster.own_columns(frame.source, columns)
        self.device_times.take(columns, "" if agent is None else agent.host)
        self.collectives.take(columns)
        self.roster.host_use.take_events(columns)
        if agent is not None:
            self.chunks.add(columns, agent.host)
            self.buckets.add(columns, agent.host)
            self.loaders.add(columns, agent.host)

    def _add_steps(self, waiting: Sequence[tuple[Ints, str, int]], owners: Ints) -> None:
        """owners: whose the ranks were when these frames came."""
        if waiting:
            self.store.alignments.runs_ahead = self.on_device
            own = self.roster.owners.own_tables(owners, waiting)
            self.wall.take(own)
            self.store.add_many(own, self.roster.clocks.shift)
        for job_steps, durations_ns in self.store.take_aligned():
            self.trend.add(job_steps, durations_ns)
        for job_steps, parts in self.store.take_parts():
            self.course.add(job_steps, parts)


def _has_steps(frame: Frame | TuiadvisorError) -> TypeGuard[Frame]:
    """Whether an agent's steps are in it."""
    return isinstance(frame, Frame) and frame.kind == FrameKind.STEPS and frame.source != HUB_SOURCE
