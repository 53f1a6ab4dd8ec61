"""What holds a pipeline up, on schedules whose every chunk is known; and on what no schedule can have been."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from synthetic_pipeline import MS, Pipeline, run_step

from tuiadvisor.events import EventKind
from tuiadvisor.metrics.pipeline.pipeline_balance import PipelineEvents, ideal_bubble
from tuiadvisor.metrics.pipeline.pipeline_limits import (
    MIN_STEPS,
    SMALL_BUBBLE,
    PipelineLimits,
    RankWork,
    pipeline_limits,
)

KINDS = {"F": EventKind.STAGE_FORWARD, "B": EventKind.STAGE_BACKWARD}
OUTSIDE_S = 2 * MS  # of a step around its chunks
JOB = Pipeline()  # four stages of 4 ms and 8 ms a micro-batch, eight micro-batches
SPAN_S = 11 * 12 * MS
HEAVY = 1.5
LATER = np.arange(1000, 1000 + MIN_STEPS)
Factor = Callable[[int, int, str], float]  # step, stage, F or B


def even(_step: int, _stage: int, _kind: str) -> float:
    return 1.0


def heavy(_step: int, stage: int, _kind: str) -> float:
    return HEAVY if stage == 2 else 1.0


def ran(factor: Factor, steps: Iterable[int], job: Pipeline = JOB) -> PipelineEvents:
    """The chunks of these steps, simulated one by one."""
    rows, start_s = [], 1.0
    whole = {"F": job.forward_s, "B": job.backward_s}
    for step in steps:
        seconds = {
            (stage, kind): np.full(job.num_micro_batches, whole[kind] * factor(step, stage, kind))
            for stage in range(job.num_ranks)
            for kind in "FB"
        }
        for rank, chunks in run_step(job, seconds, start_s).items():
            for kind, chunk, begin_s, end_s, _ in chunks:
                rows.append((rank, KINDS[kind], step, round(begin_s * 1e9), round(end_s * 1e9), rank, chunk))
        start_s = max(row[4] for row in rows) * 1e-9 + OUTSIDE_S
    return PipelineEvents(*np.array(rows, dtype=np.int64).T)


def worked(factor: Factor, num_steps: int, job: Pipeline = JOB, span_s: float = SPAN_S) -> RankWork:
    """What the ranks' records of all steps say of the same work."""
    each = {"F": job.forward_s * job.num_micro_batches, "B": job.backward_s * job.num_micro_batches}

    def of(kind: str) -> np.ndarray:
        steps = range(num_steps)
        return np.array(
            [[each[kind] * factor(step, rank, kind) for step in steps] for rank in range(job.num_ranks)]
        )

    every = np.arange(num_steps)
    lengths = np.full(num_steps, span_s + OUTSIDE_S)
    return RankWork(tuple(range(job.num_ranks)), every, of("F"), of("B"), every, every, lengths)


def limits(events: PipelineEvents, work: RankWork | None = None) -> PipelineLimits:
    found = pipeline_limits(events, work)
    assert found is not None
    return found


def test_equal_stages_lose_what_filling_and_draining_costs() -> None:
    """3/11 of the ranks' time, none of it to a stage or between chunks; who was recorded whole tells it alone."""
    found = limits(ran(even, range(MIN_STEPS)))
    assert ideal_bubble(4, 8) == pytest.approx(found.bubble)
    assert (found.bubble, 0.0, 0.0) == pytest.approx(
        (found.fill_share, found.imbalance_share, found.delay_share), abs=1e-6
    )
    assert ((), None, None) == (found.heavy_stages, found.phase, found.heavy_gain)
    assert SPAN_S == pytest.approx(found.span_s)
    # (p-1)/(m+p-1) below a tenth from 27 micro-batches on, of equal work together.
    assert 27 == found.micro_batches_for[SMALL_BUBBLE]
    assert found.fill_gain is not None
    busy_s = 8 * 12 * MS
    assert SPAN_S - busy_s * (1 + 3 / 27) == pytest.approx(found.fill_gain.loss_s)


def test_records_of_all_steps_tell_the_same_of_the_steps_between() -> None:
    """Two steps chunk by chunk and forty by their totals: the same shares as of steps all recorded whole."""
    whole = limits(ran(heavy, range(MIN_STEPS)))
    span_s = whole.span_s
    found = limits(ran(heavy, (3, 4)), worked(heavy, 40, span_s=span_s))
    assert tuple(range(40)) == found.steps
    assert (2,) == whole.heavy_stages == found.heavy_stages
    for name in ("bubble", "fill_share", "imbalance_share", "delay_share", "span_s"):
        assert getattr(whole, name) == pytest.approx(getattr(found, name), abs=1e-6), name
    assert [0.0, 0.0, HEAVY - 1, 0.0] == pytest.approx(found.excess_S.tolist())
    assert found.bubble == pytest.approx(
        (found.fill_share or 0) + (found.imbalance_share or 0) + (found.delay_share or 0)
    )
    assert found.heavy_gain is not None
    assert span_s - SPAN_S == pytest.approx(found.heavy_gain.loss_s, rel=1e-3)


def test_fewer_steps_than_that_call_no_stage_heavy() -> None:
    """Chance may make a stage the longest in a few."""
    assert () == limits(ran(heavy, range(MIN_STEPS - 1))).heavy_stages
    assert (2,) == limits(ran(heavy, range(MIN_STEPS))).heavy_stages


def test_the_heaviest_stage_comes_first() -> None:
    """Stage 3 takes twice as long, stage 1 half more; of two the lighter one is the typical one."""

    def two(_step: int, stage: int, _kind: str) -> float:
        return {1: 1.5, 3: 2.0}.get(stage, 1.0)

    assert (3, 1) == limits(ran(two, range(MIN_STEPS))).heavy_stages


def test_a_heavy_stage_has_no_beginning_where_only_whole_steps_were_seen() -> None:
    """Nor where the records are those of other ranks: nothing is dated on steps between."""
    events = ran(heavy, range(MIN_STEPS))
    assert (None, False) == (limits(events).since_step, limits(events).onset_seen)
    others = replace(worked(heavy, MIN_STEPS), ranks=(4, 5, 6, 7))
    found = limits(events, others)
    assert ((2,), None, False) == (found.heavy_stages, found.since_step, found.onset_seen)
    assert tuple(range(MIN_STEPS)) == found.steps


def test_a_beginning_is_dated_on_the_steps_that_are_known() -> None:
    """Stage 2 grows heavy at step 30 of 60; where no steady step is known of all ranks, nothing is said."""

    def grown(step: int, stage: int, kind: str) -> float:
        return heavy(step, stage, kind) if step >= 30 else 1.0

    work = replace(worked(grown, 60), window_steps=np.arange(30, 60))
    events = ran(grown, range(40, 44))
    found = limits(events, work)
    assert ((2,), 30, True) == (found.heavy_stages, found.since_step, found.onset_seen)
    always = limits(ran(heavy, (3, 4)), worked(heavy, 40))
    assert (0, False) == (always.since_step, always.onset_seen)
    nowhere = limits(events, replace(work, steady_steps=np.arange(0)))
    assert ((2,), None, False) == (nowhere.heavy_stages, nowhere.since_step, nowhere.onset_seen)


@pytest.mark.parametrize(
    ("factor", "phase"),
    [
        (lambda _step, stage, kind: 1.5 if (stage, kind) == (2, "F") else 1.0, "forward"),
        (lambda _step, stage, kind: 1.5 if (stage, kind) == (2, "B") else 1.0, "backward"),
        (heavy, None),
        # Two steps in forward, two in backward, one in neither: most are long, and neither part mostly is.
        (
            lambda step, stage, kind: (
                1.0
                if stage != 2
                else {"F": 3.0, "B": 2.0}[kind]
                if step % 5 in {"F": (0, 1), "B": (2, 3)}[kind]
                else 1.0
            ),
            None,
        ),
    ],
    ids=["forward", "backward", "both", "now this, now that"],
)
def test_the_part_that_is_heavy_is_named_if_it_is_one(factor: Factor, phase: str | None) -> None:
    """Where the excess lies; forward and backward alike are no part."""
    found = limits(ran(factor, range(10)))
    assert ((2,), phase) == (found.heavy_stages, found.phase)


@pytest.mark.parametrize(
    "broken",
    [
        {"step_s_K": np.full(MIN_STEPS, np.nan)},
        {"step_s_K": np.zeros(MIN_STEPS)},
        {"forward_s_RK": np.full((4, MIN_STEPS), np.nan)},
        {"forward_s_RK": np.zeros((4, MIN_STEPS))},
        {"backward_s_RK": np.full((4, MIN_STEPS), -1.0)},
        {"steps": LATER, "window_steps": LATER, "steady_steps": LATER},
    ],
)
def test_records_that_cannot_be_scaled_by_leave_the_steps_seen_whole(broken: dict[str, object]) -> None:
    """Unknown, zero or of other steps: the chunks alone tell what they told without them."""
    events = ran(heavy, range(MIN_STEPS))
    alone = limits(events)
    found = limits(events, replace(worked(heavy, MIN_STEPS), **broken))  # type: ignore[arg-type]
    assert alone.steps == found.steps
    assert (alone.bubble, alone.fill_share, alone.heavy_stages) == (
        found.bubble,
        found.fill_share,
        found.heavy_stages,
    )


def test_no_pipeline_has_no_limits() -> None:
    """No events, one rank alone, chunks that took no time, and a window in which no work was done."""
    events = ran(heavy, range(MIN_STEPS))
    assert pipeline_limits(PipelineEvents(*(np.zeros(0, dtype=np.int64),) * 7), None) is None
    one = events.rows(events.rank == 0)
    assert pipeline_limits(one, None) is None
    assert pipeline_limits(replace(events, end_ns=events.begin_ns), None) is None
    work = worked(heavy, 40)
    idle = {
        name: np.where(np.arange(40) < MIN_STEPS, getattr(work, name), 0.0)
        for name in ("forward_s_RK", "backward_s_RK")
    }
    assert pipeline_limits(events, replace(work, **idle, window_steps=np.arange(20, 40))) is None


def test_an_order_that_contradicts_itself_leaves_the_bubble_without_its_parts() -> None:
    """Clocks apart put a gradient before what it is of: nothing is simulated, so nothing is promised."""
    events = ran(heavy, range(MIN_STEPS))
    forward = events.kind == EventKind.STAGE_FORWARD
    turned = (events.rank == 0) & ~forward  # rank 0 ends with its last gradient: it would begin with it
    moved = np.where(turned, -300_000_000, 0)
    found = limits(replace(events, begin_ns=events.begin_ns + moved, end_ns=events.end_ns + moved))
    assert (None, None, None) == (found.fill_share, found.imbalance_share, found.delay_share)
    assert (None, None, None, {}) == (
        found.heavy_gain,
        found.even_s,
        found.fill_gain,
        found.micro_batches_for,
    )
    assert (2,) == found.heavy_stages
    assert found.bubble > 0


def interleaved(num_steps: int, num_micro_batches: int = 4, chunk_ns: int = 1_000_000) -> PipelineEvents:
    """Two ranks with stages 0 and 2, 1 and 3: all forwards of a stage, then of the next, and back again."""
    depth, chunks = 4, range(num_micro_batches)
    orders = {
        rank: [("F", stage, chunk) for stage in (rank, rank + 2) for chunk in chunks]
        + [("B", stage, chunk) for stage in (rank + 2, rank) for chunk in chunks]
        for rank in (0, 1)
    }
    rows: list[tuple[int, ...]] = []
    start = 1_000_000_000
    for step in range(num_steps):
        done: dict[tuple[str, int, int], int] = {}
        free, left = [start, start], {rank: list(order) for rank, order in orders.items()}
        while any(left.values()):
            for rank, order in left.items():
                while order:
                    kind, stage, chunk = order[0]
                    source = (kind, stage + (-1 if kind == "F" else 1), chunk)
                    if 0 <= source[1] < depth and source not in done:
                        break
                    begin = max(free[rank], done.get(source, start))
                    free[rank] = done[order.pop(0)] = begin + chunk_ns
                    rows.append((rank, KINDS[kind], step, begin, free[rank], stage, chunk))
        start = max(free) + chunk_ns
    return PipelineEvents(*np.array(rows, dtype=np.int64).T)


def test_of_two_stages_a_rank_more_micro_batches_save_no_more_than_what_fills() -> None:
    """Their order with another number is unknown: as much as equal stages save, and none of the work itself."""
    found = limits(interleaved(MIN_STEPS))
    assert 2 == found.times.chunks_per_rank
    assert ideal_bubble(2, 4, 2) == pytest.approx(found.bubble)
    wanted = found.micro_batches_for[SMALL_BUBBLE]
    assert 5 == wanted  # (p-1)/(v*m+p-1) is 1/11 then
    assert found.fill_gain is not None
    fill_s = found.bubble * found.span_s
    assert fill_s * (1 - 4 / wanted) == pytest.approx(found.fill_gain.loss_s)
    enough = limits(interleaved(MIN_STEPS, wanted))
    assert (None, wanted) == (enough.fill_gain, enough.micro_batches_for[SMALL_BUBBLE])


def test_a_last_step_without_any_work_promises_nothing() -> None:
    """Its order is the one that is simulated; hostile records may make it another than that of the steps before."""
    events = ran(heavy, range(MIN_STEPS))
    last = events.step == MIN_STEPS - 1
    stop_ns = np.where(last, events.begin_ns, events.end_ns)
    # The last step's micro-batches are counted from the other end.
    chunk = np.where(last, 7 - events.micro_batch, events.micro_batch)
    found = limits(replace(events, end_ns=stop_ns, micro_batch=chunk))
    assert {} == found.micro_batches_for
    assert found.fill_gain is None
    assert np.isfinite([found.bubble, found.span_s, found.fill_share or 0.0]).all()
