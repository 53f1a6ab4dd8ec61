"""The recent chunks of every pipeline stage, bounded in memory.

In: EVENTS frames, of which all but pipeline events are left out here, and of ranks with stages what their devices took
for forward and backward.  Out: columns with job steps and the clock of one host, or of each device its own, for
metrics.pipeline. Records that cannot be true are dropped and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.detail.collectives import MEETING
from tuiadvisor.advisor.detail.event_blocks import EventBlocks, have_a_place
from tuiadvisor.events import PIPELINE_KINDS, UNKNOWN, EventKind
from tuiadvisor.metrics.pipeline.pipeline_balance import PipelineEvents, chunks_of, timed_by_devices
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.arrays import Bools, Ints

MAX_ROWS: Final = 1 << 18  # 17 MB: 2000 steps of 4 stages and 8 micro-batches, 8 of 64 stages and 128
READ_STEPS: Final = 160  # what a view looks at: the last so many that were recorded, one in 4 to 64 of all
LOOK_BACK_STEPS: Final = 64 * READ_STEPS
MAX_STAGE: Final = 1 << 14
MAX_STAGES_A_RANK: Final = 16
MAX_MICRO_BATCH: Final = 1 << 20
_KINDS: Final = np.array([int(kind) for kind in PIPELINE_KINDS])
_OF_CHUNKS: Final = np.array([PHASES.index("forward"), PHASES.index("backward")])
_KEPT: Final = ("rank", "kind", "step", "begin_ns", "end_ns", "group", "seq")
_OF_SPANS: Final = (*_KEPT[:-1], "detail")  # how far the device was behind its thread
_MEETINGS: Final = np.array([int(kind) for kind in MEETING])
MAX_MEETINGS: Final = 1 << 12  # rows: whether ranks meet within chunks shows in any few steps


@dataclass(frozen=True, slots=True)
class HeldEvents:
    """events: job steps; clocks_known: begins and ends of all ranks are on one clock."""

    events: PipelineEvents
    clocks_known: bool


class PipelineStore:
    """Mutable: feed it columns, ask for events."""

    def __init__(self) -> None:
        self.num_rows = 0  # ever taken: changes when there is something new
        self.num_bad_rows = 0
        self._held = EventBlocks(_KEPT, MAX_ROWS)
        self._meetings = EventBlocks(_KEPT, MAX_MEETINGS)  # collectives of ranks with stages
        self._timed = EventBlocks(
            _OF_SPANS, MAX_ROWS
        )  # forward and backward on the devices of ranks with stages
        self.stages: dict[int, tuple[int, ...]] = {}  # of each rank, those whose chunks were seen there

    def add(self, columns: Mapping[str, Ints], host: str) -> None:
        """Take the pipeline's rows of one frame."""
        self._add_chunks(columns, host)
        if self.stages:
            is_timed = (columns["kind"] == int(EventKind.DEVICE_PHASE)) & np.isin(
                columns["group"], _OF_CHUNKS
            )
            is_timed &= np.isin(columns["rank"], list(self.stages))
            self._timed.add(columns, is_timed & _plausible(columns), host)
            meets = np.isin(columns["kind"], _MEETINGS) & np.isin(columns["rank"], list(self.stages))
            self._meetings.add(columns, meets & _plausible(columns), host)

    def _add_chunks(self, columns: Mapping[str, Ints], host: str) -> None:
        is_ours = np.isin(columns["kind"], _KINDS)
        if not is_ours.any():
            return
        good = (
            is_ours & _plausible(columns) & (columns["seq"] >= UNKNOWN) & (columns["seq"] < MAX_MICRO_BATCH)
        )
        self.num_bad_rows += int(is_ours.sum() - good.sum())
        num = int(good.sum())
        if not num:
            return
        self._held.add(columns, good, host)
        self._note_stages(columns["rank"][good], columns["group"][good])
        self.num_rows += num

    def _note_stages(self, ranks: Ints, stages: Ints) -> None:
        pairs = np.unique(ranks[stages >= 0] * MAX_STAGE + stages[stages >= 0])
        for rank, stage in zip((pairs // MAX_STAGE).tolist(), (pairs % MAX_STAGE).tolist(), strict=True):
            known = self.stages.get(rank, ())
            if stage not in known and len(known) < MAX_STAGES_A_RANK:
                self.stages[rank] = tuple(sorted((*known, stage)))

    def held(
        self, store: StepStore, clock_shift: Callable[[str, str], int | None], until_step: int | None = None
    ) -> HeldEvents | None:
        """The events of the last steps of each aligned rank; None without any.

        clock_shift(host, other) is added to host's clock to read other's. until_step: nothing after that job step.
        """
        found = _of_job(self._held, store, until_step)
        if found is None:
            return None
        events, host = found
        chosen = events.step >= np.unique(events.step)[-READ_STEPS:][0]
        events, host = events.rows(chosen), host[chosen]
        shift, known = self._shifts(np.unique(host), clock_shift)
        begin_ns, end_ns = events.begin_ns + shift[host], events.end_ns + shift[host]
        return HeldEvents(replace(events, begin_ns=begin_ns, end_ns=end_ns), known)

    def held_on_devices(self, store: StepStore, until_step: int | None = None) -> PipelineEvents | None:
        """The chunks of steps that were also measured on the devices, by each device's own clock; None without any."""
        chunks, timed = (_of_job(blocks, store, until_step) for blocks in (self._held, self._timed))
        if chunks is None or timed is None:
            return None
        steps = np.intersect1d(chunks[0].step, timed[0].step)[-READ_STEPS:]
        launched, spans = (events.rows(np.isin(events.step, steps)) for events, _ in (chunks, timed))
        spans = replace(spans, behind_ns=spans.micro_batch)
        events = timed_by_devices(launched, spans)
        return events if events.step.size else None

    def meet_within_chunks(self, store: StepStore) -> bool:
        """Whether a rank was seen to launch a collective within a chunk: what it waits for there lies in that chunk."""
        chunks, meetings = (_of_job(blocks, store, None) for blocks in (self._held, self._meetings))
        if chunks is None or meetings is None:
            return False
        held, met = chunks[0].rows(chunks_of(chunks[0])), meetings[0]
        for rank in np.unique(met.rank).tolist():
            mine = held.rows(held.rank == rank)
            mine = mine.rows(np.argsort(mine.begin_ns, kind="stable"))
            at_ns = met.begin_ns[met.rank == rank]
            before = np.searchsorted(mine.begin_ns, at_ns, side="right") - 1
            if mine.step.size and ((before >= 0) & (at_ns < mine.end_ns[before])).any():
                return True
        return False

    def _shifts(self, hosts: Ints, clock_shift: Callable[[str, str], int | None]) -> tuple[Ints, bool]:
        """What to add to each host's clock to read the first one's, and whether that is known of all."""
        shift = np.zeros(len(self._held.hosts), dtype=np.int64)
        known = True
        for host in hosts[1:].tolist():
            found = clock_shift(self._held.hosts[host], self._held.hosts[int(hosts[0])])
            known &= found is not None
            shift[host] = found or 0
        return shift, known


def _of_job(
    blocks: EventBlocks, store: StepStore, until_step: int | None
) -> tuple[PipelineEvents, Ints] | None:
    """(rows of aligned ranks with their job steps, the index of each one's host); None without any."""
    tracks = store.tracks
    if not blocks or not tracks.num:
        return None
    rank, kind, step, begin, end, stage, micro_batch, host = blocks.table()
    rows = tracks.rows_of(rank)
    offset_of = np.where(tracks.is_aligned, tracks.offset - store.axis_shift(), 0)
    # A probe that was installed anew counts its steps again: what it wrote before belongs to another count.
    good = (rows >= 0) & tracks.is_aligned[rows] & (begin >= tracks.born_ns[rows])
    good &= step > tracks.last_step[rows] - LOOK_BACK_STEPS if until_step is None else True
    job = step + offset_of[rows]
    if until_step is not None:
        good &= job <= until_step
    if not good.any():
        return None
    return PipelineEvents(rank, kind, job, begin, end, stage, micro_batch).rows(good), host[good]


def _plausible(columns: Mapping[str, Ints]) -> Bools:
    group = columns["group"]
    return np.asarray(have_a_place(columns) & (group >= UNKNOWN) & (group < MAX_STAGE))
