"""Pipeline metrics on schedules drawn by hand, whose bubble is known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.events import UNKNOWN, EventKind
from tuiadvisor.metrics.pipeline.pipeline_balance import (
    PipelineEvents,
    PipelineTimes,
    ideal_bubble,
    pipeline_times,
    timed_by_devices,
)
from tuiadvisor.metrics.pipeline.pipeline_simulation import Replay, replay_of
from tuiadvisor.phases import PHASES

FORWARD, BACKWARD, WAIT = EventKind.STAGE_FORWARD, EventKind.STAGE_BACKWARD, EventKind.P2P_WAIT
MS = 1_000_000
Row = tuple[int, int, int, int, int, int, int]  # rank, kind, step, begin, end, stage, micro-batch


def events_of(rows: list[Row]) -> PipelineEvents:
    """Columns of rows."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    return PipelineEvents(*columns)


def gpipe(num_ranks: int, num_chunks: int, forward: int, backward: int, num_steps: int = 2) -> list[Row]:
    """Equal stages, free communication: all forwards, then all backwards."""
    rows: list[Row] = []
    length = (num_chunks + num_ranks - 1) * (forward + backward)
    for step in range(num_steps):
        start = step * length + step * 5
        turn = start + (num_chunks + num_ranks - 1) * forward
        for rank in range(num_ranks):
            for chunk in range(num_chunks):
                begin = start + (rank + chunk) * forward
                rows.append((rank, FORWARD, step, begin, begin + forward, rank, chunk))
                begin = turn + (num_ranks - 1 - rank + chunk) * backward
                rows.append((rank, BACKWARD, step, begin, begin + backward, rank, chunk))
    return rows


def times_of(rows: list[Row]) -> PipelineTimes:
    """The metric, which must not be None."""
    times = pipeline_times(events_of(rows))
    assert times is not None
    return times


def test_launched_chunks_take_the_times_of_their_devices_in_order() -> None:
    """A step in which a device was seen to do one forward more, and one that no device timed, are left out."""
    launched, timed = gpipe(2, 3, 1, 1, num_steps=4), []
    for row in gpipe(2, 3, 40 * MS, 80 * MS, num_steps=4):
        phase = PHASES.index("forward" if row[1] == FORWARD else "backward")
        timed.append((*row[:5], phase, UNKNOWN))
    timed = [row for row in timed if row[2] != 2]
    timed.append((1, 0, 3, 1, 2, PHASES.index("forward"), UNKNOWN))
    found = timed_by_devices(events_of(launched), events_of(timed))
    pairs = set(zip(found.rank.tolist(), found.step.tolist(), strict=True))
    assert {(0, 0), (1, 0), (0, 1), (1, 1), (0, 3)} == pairs
    times = pipeline_times(found)
    assert times is not None
    assert (0, 1) == times.steps
    assert (3 * 0.04, 3 * 0.08) == pytest.approx((times.forward_s_S[1], times.backward_s_S[0]))
    nothing = events_of([])
    assert 0 == timed_by_devices(events_of(launched), nothing).step.size
    assert 0 == timed_by_devices(nothing, events_of(timed)).step.size


def test_of_clocks_apart_the_longest_span_of_a_rank_is_the_pipelines() -> None:
    """Rank 1 of two is a second ahead: who begins a step also ends it."""
    rows = gpipe(2, 3, 4 * MS, 8 * MS)
    apart = [(*row[:3], row[3] + 1000 * MS * row[0], row[4] + 1000 * MS * row[0], *row[5:]) for row in rows]
    together, found = pipeline_times(events_of(rows)), pipeline_times(events_of(apart), own_clocks=True)
    assert together is not None
    assert found is not None
    assert together.span_s_K == pytest.approx(found.span_s_K)
    assert together.bubble_K == pytest.approx(found.bubble_K)


@pytest.mark.parametrize(
    ("ranks", "chunks", "per_rank", "expected"),
    [(4, 8, 1, 3 / 11), (4, 8, 2, 3 / 19), (1, 8, 1, 0.0), (2, 1, 1, 0.5)],
)
def test_ideal_bubble(ranks: int, chunks: int, per_rank: int, expected: float) -> None:
    """(p-1)/(m+p-1), and (p-1)/(v*m+p-1) where stages are interleaved."""
    assert expected == pytest.approx(ideal_bubble(ranks, chunks, per_rank))


def test_ideal_bubble_refuses_no_pipeline() -> None:
    """Nothing divides into no micro-batches."""
    with pytest.raises(ValueError, match="no pipeline"):
        ideal_bubble(4, 0)


@given(st.integers(2, 6), st.integers(1, 12), st.integers(1, 9), st.integers(1, 9))
def test_bubble_of_a_perfect_schedule_is_the_ideal(
    ranks: int, chunks: int, forward: int, backward: int
) -> None:
    """Whatever forward and backward take, equal stages without communication idle (p-1)/(m+p-1)."""
    times = times_of(gpipe(ranks, chunks, forward * MS, backward * MS))
    assert ideal_bubble(ranks, chunks) == pytest.approx(times.bubble)
    assert times.ideal_bubble == pytest.approx(times.bubble)
    assert [chunks * (forward + backward) * 1e-3] * ranks == pytest.approx(list(times.work_s_SK.mean(axis=1)))


def test_a_slow_stage_takes_its_time() -> None:
    """A stage of twice the work takes twice as long as the others."""
    rows = gpipe(3, 4, 2 * MS, 4 * MS)
    slow = [
        (rank, kind, step, begin, begin + 2 * (end - begin), stage, chunk) if rank == 1 else row
        for row in rows
        for rank, kind, step, begin, end, stage, chunk in (row,)
    ]
    times = times_of(slow)
    assert [4 * 6e-3, 2 * 4 * 6e-3, 4 * 6e-3] == pytest.approx(list(times.work_s_SK.mean(axis=1)))
    assert [4 * 2e-3, 2 * 4 * 2e-3, 4 * 2e-3] == pytest.approx(list(times.forward_s_S))


def test_wait_belongs_to_the_chunk_after_it() -> None:
    """Before a forward it waits for the stage before, before a backward for the one after; at the end for neither."""
    unknown = UNKNOWN
    rows = gpipe(2, 2, 10 * MS, 10 * MS, num_steps=1)
    first_forward = min(row[3] for row in rows if row[0] == 1)
    first_backward = min(row[3] for row in rows if row[0] == 0 and row[1] == BACKWARD)
    end = max(row[4] for row in rows)
    rows += [
        (1, WAIT, 0, first_forward - 3 * MS, first_forward, unknown, unknown),
        (0, WAIT, 0, first_backward - 7 * MS, first_backward, unknown, unknown),
        (0, WAIT, 0, end, end + 9 * MS, unknown, unknown),
    ]
    times = times_of(rows)
    assert [[0.0], [0.003]] == pytest.approx(times.wait_previous_s_RK)
    assert [[0.007], [0.0]] == pytest.approx(times.wait_next_s_RK)


def test_incomplete_steps_are_left_out() -> None:
    """A rank attached in the middle of a step lacks chunks there: it would look idle."""
    rows = [
        row for row in gpipe(2, 4, MS, MS, num_steps=4) if not (row[0] == 1 and row[2] == 0 and row[6] < 2)
    ]
    assert (1, 2, 3) == times_of(rows).steps


def test_zero_bubble_has_no_fixed_ideal() -> None:
    """Weight gradients on their own fill the bubble: there is a measured one and no formula."""
    rows = gpipe(2, 4, MS, MS)
    last = max(row[4] for row in rows if row[2] == 1)
    extra: list[Row] = [
        (rank, EventKind.STAGE_WEIGHT_GRAD, step, last + step * 9 * MS, last + step * 9 * MS + MS, rank, 0)
        for rank in range(2)
        for step in range(2)
    ]
    assert times_of(rows + extra).ideal_bubble is None


@pytest.mark.parametrize("rows", [[], gpipe(1, 4, MS, MS)])
def test_no_pipeline_is_none(rows: list[Row]) -> None:
    """No chunks, or one rank alone: nothing to say."""
    assert pipeline_times(events_of(rows)) is None


def replayed(rows: list[Row]) -> Replay:
    """The re-simulation of some rows, which must be possible."""
    columns = np.array(sorted(rows, key=lambda row: row[3]), dtype=np.int64).T
    rank, kind, step, begin, end, stage, chunk = columns
    replay = replay_of(
        rank=rank, kind=kind, stage=stage, micro_batch=chunk, column=step, begin_ns=begin, end_ns=end
    )
    assert replay is not None
    return replay


def test_simulating_a_step_gives_its_span_and_that_of_a_healed_stage() -> None:
    """GPipe with one stage of twice the work runs at the pace of the slow stage; healed, at the others'."""
    rows: list[Row] = []
    for step in range(3):
        for rank, cost in ((0, MS), (1, 2 * MS), (2, MS)):
            for chunk in range(4):
                # Only order within a rank counts, so these clocks may be as wrong as they like between ranks.
                begin = step * 10**9 + chunk * 3 * MS + rank * 7 * MS
                rows.append((rank, FORWARD, step, begin, begin + cost, rank, chunk))
                rows.append((rank, BACKWARD, step, begin + 500 * MS, begin + 500 * MS + cost, rank, chunk))
    replay = replayed(rows)
    assert [2 * (2 + 4 * 2) * 1e-3] * 3 == pytest.approx(list(replay.span_s(replay.seconds_NK)))
    healed = replay.with_stages_like(np.array([1]), np.array([0, 2]))
    assert [2 * 6 * 1e-3] * 3 == pytest.approx(list(replay.span_s(healed)))
    assert 2 * 6 * 4 / 3 * 1e-3 == pytest.approx(float(replay.span_s(replay.equal_N[:, None])[0]))


def test_a_loss_belongs_to_the_forward_before_it() -> None:
    """The last stage's loss counts as its work: equal stages share it, and the backward waits for it."""
    rows = gpipe(2, 4, 10 * MS, 10 * MS, num_steps=1)
    last = [row for row in rows if row[0] == 1 and row[1] == FORWARD]
    rows = [row for row in rows if row not in last]
    for rank, kind, step, begin, end, stage, chunk in last:
        rows += [
            (rank, kind, step, begin, end - 6 * MS, stage, chunk),
            (rank, kind, step, end - 6 * MS, end, stage, chunk),
        ]
    replay = replayed(rows)
    assert 4 == replay.is_extra_N.sum()
    assert [0.1] == pytest.approx(list(replay.span_s(replay.seconds_NK)))
    assert 0.1 == pytest.approx(float(replay.span_s(replay.equal_N[:, None])[0]))


def test_an_order_that_cannot_run_is_not_simulated() -> None:
    """Each of two ranks waits for what the other runs later: clocks or records are wrong."""
    rows = [
        (0, FORWARD, 0, 1, 2, 0, 0),
        (0, BACKWARD, 0, 3, 4, 0, 1),
        (0, FORWARD, 0, 5, 6, 0, 1),
        (1, FORWARD, 0, 1, 2, 1, 0),
        (1, FORWARD, 0, 3, 4, 1, 1),
        (1, BACKWARD, 0, 5, 6, 1, 1),
    ]
    rank, kind, step, begin, end, stage, chunk = np.array(rows, dtype=np.int64).T
    assert None is replay_of(
        rank=rank, kind=kind, stage=stage, micro_batch=chunk, column=step, begin_ns=begin, end_ns=end
    )


def test_more_micro_batches_of_a_schedule_that_is_not_simulated() -> None:
    """Two stages a rank: their order with another number is unknown, the busiest rank's work is a floor."""
    rows = [row if row[4] < 2 else (row[0] - 2, *row[1:]) for row in gpipe(4, 4, 3, 5)]
    replay = replayed(rows)
    assert replay.in_micro_batches(8) is None
    assert replay.busiest_s == pytest.approx(2 * 4 * 8 * 1e-9)
