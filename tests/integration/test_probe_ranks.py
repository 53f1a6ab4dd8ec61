"""Signals of several ranks: sharded and accumulated training names its slow rank, pipelines show stages and bubble."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probing import assert_sums_to_step, is_close, observed_phases
from ranks import LATE_S, LOSS_S, NUM_CHUNKS, NUM_STEPS, NUM_TRUTH_STEPS, TRUTH_S, run

from tuiadvisor.events import UNKNOWN, EventKind
from tuiadvisor.metrics.pipeline.pipeline_balance import PipelineEvents, PipelineTimes, pipeline_times

pytest.importorskip("torch")


def median(rank: dict[str, Any], value: str) -> float:
    """Median nanoseconds over a rank's steps but the first two."""
    return statistics.median(step[value] for step in rank["steps"][2:])


def waits(ranks: list[dict[str, Any]]) -> list[float]:
    """Median ns each rank spent between its arrival at the barrier and the release."""
    return [
        statistics.median(step["release_ns"] - step["arrive_ns"] for step in rank["steps"][2:-1])
        for rank in ranks
    ]


@pytest.mark.parametrize(
    ("scenario", "late_rank", "late_phase"),
    [
        ("fsdp2", 1, "forward"),
        ("fsdp1", 1, "backward"),
        ("ddp_buffers", 0, "other"),
        ("ddp_accumulation", 1, "forward"),
        ("ddp_wrapper_evaluates", 1, "forward"),
        ("ddp_frozen", 1, "backward"),
        ("by_hand", 1, "forward"),
        ("ddp_gathers", 1, "forward"),
    ],
)
def test_late_rank_and_its_phase(tmp_path: Path, scenario: str, late_rank: int, late_phase: str) -> None:
    """Who arrives last waits least, by what it was late, and the phase it lost that in is longer by as much."""
    ranks = run(scenario, 2, tmp_path)
    on_time = ranks[1 - late_rank]
    late = ranks[late_rank]
    waited = waits(ranks)
    assert waited[1 - late_rank] - waited[late_rank] > 0.6e9 * LATE_S
    assert median(late, f"{late_phase}_ns") - median(on_time, f"{late_phase}_ns") > 0.6e9 * LATE_S
    for rank in ranks:
        assert NUM_STEPS == len(rank["steps"])
        assert 0 == rank["errors"]
        for step in rank["steps"]:
            assert_sums_to_step(step)
        last = rank["steps"][-2]
        assert {"forward", "backward", "comm_exposed", "optimizer"} <= observed_phases(last)
        assert (4 if scenario == "ddp_accumulation" else 1) == last["micro_steps"]


def test_who_waits_within_tensor_parallel_layers_waits(tmp_path: Path) -> None:
    """Its forward is as short as the work in it; the late rank's is longer, and that one waits for nobody."""
    on_time, late = run("tensor_parallel", 2, tmp_path)
    assert median(on_time, "comm_exposed_ns") - median(late, "comm_exposed_ns") > 0.6e9 * LATE_S
    assert median(late, "forward_ns") - median(on_time, "forward_ns") > 0.6e9 * LATE_S


def test_a_wait_behind_the_exchange_of_gradients_counts_once(tmp_path: Path) -> None:
    """Within the backward that DDP's own exchange ends: on the rank that waits it was taken off backward twice."""
    for rank in run("ddp_behind_prompt", 2, tmp_path):
        for step in rank["steps"]:
            assert_sums_to_step(step)


@pytest.mark.alone
def test_sharded_phases_are_what_the_loop_measures(tmp_path: Path) -> None:
    """Forward and backward of FSDP2 with their waits are the loop's own, and each all-gather has its event."""
    for rank in run("fsdp2", 2, tmp_path):
        good = 0
        for mine, theirs in zip(rank["own"][2:], rank["steps"][2:], strict=False):
            # The loop cannot tell waiting from computing: compare the sum.
            names = ("forward", "backward", "comm_exposed")
            good += is_close(mine["forward"] + mine["backward"], sum(theirs[f"{name}_ns"] for name in names))
        assert good > (NUM_STEPS - 2) // 2  # a rank may lose its core between the two clocks' reads
        kinds = [event["kind"] for event in rank["events"]]
        # Two layers with parameters of their own: gathered in forward and again in backward.
        assert 4 * NUM_STEPS == kinds.count(EventKind.ALL_GATHER)
        assert 2 * NUM_STEPS == kinds.count(EventKind.REDUCE_SCATTER)


def times_of(ranks: list[dict[str, Any]]) -> PipelineTimes:
    """The pipeline metric of what the rings said."""
    names = ("kind", "step", "begin_ns", "end_ns", "group", "seq")
    rows = [
        (number, *(event[name] for name in names))
        for number, rank in enumerate(ranks)
        for event in rank["events"]
    ]
    times = pipeline_times(PipelineEvents(*np.array(rows, dtype=np.int64).T))
    assert times is not None
    return times


def assert_pipeline_seen(ranks: list[dict[str, Any]], per_rank: int) -> None:
    """Every rank tells its layout, sums its phases to the step and saw its receives complete."""
    for rank in ranks:
        assert {"forward", "backward", "pipeline_idle", "optimizer"} <= observed_phases(rank["steps"][-2])
        assert_sums_to_step(rank["steps"][-2])
        told = rank["info"]["pipeline"]
        assert len(ranks) * per_rank == told["stages"]
        assert (NUM_CHUNKS, len(ranks), 0) == (told["micro_batches"], told["ranks"], told["first_rank"])
        assert NUM_CHUNKS * per_rank == rank["steps"][-2]["micro_steps"]
        assert rank["errors"] == 0
        received = [event for event in rank["events"] if event["kind"] == EventKind.RECV]
        assert sum(event["end_ns"] != UNKNOWN for event in received) >= 0.9 * len(received)


def own_bubbles(ranks: list[dict[str, Any]], clocks: str) -> list[float]:
    """Idle share of each step by the training's own stopwatches: its layers' or its stages'."""
    bubbles = []
    for step in zip(*(rank["own"] for rank in ranks), strict=True):
        chunks = [chunk for own in step for chunk in own[clocks]]
        span_ns = max(end for _, end in chunks) - min(begin for begin, _ in chunks)
        bubbles.append(1 - sum(end - begin for begin, end in chunks) / (len(ranks) * span_ns))
    return bubbles


@pytest.mark.alone
@pytest.mark.parametrize("scenario", [pytest.param("gpipe", marks=pytest.mark.extended), "1f1b"])
def test_bubble_of_equal_stages_is_the_trainings_own(tmp_path: Path, scenario: str) -> None:
    """4 stages x 8 micro-batches of equal known cost: the bubble is what the stages' own stopwatches show, in 3 points.

    The layers' show somewhat more, since what torch does around a layer is idle to them: on a slow machine 3 points.
    On a machine with nothing beside it that is the ideal, (p-1)/(m+p-1). Other load adds idle time, which stopwatches
    and probe see alike, and takes none away: no step comes out below the ideal.
    """
    ranks = run(scenario, 4, tmp_path)
    times = times_of(ranks)
    assert (0, 1, 2, 3) == times.stages
    assert (NUM_CHUNKS, 1) == (times.num_micro_batches, times.chunks_per_rank)
    assert len(times.steps) >= NUM_TRUTH_STEPS - 1
    assert 3 / 11 == pytest.approx(times.ideal_bubble)
    own = own_bubbles(ranks, "stages")
    assert statistics.median(own) == pytest.approx(times.bubble, abs=0.03)
    assert min(own) == pytest.approx(min(times.bubble_K), abs=0.03)
    assert 0 <= statistics.median(own_bubbles(ranks, "layers")) - times.bubble < 0.1
    assert min(times.bubble_K) > 3 / 11 - 0.03
    assert min(times.work_s_SK.mean(axis=1)) > 0.6 * max(times.work_s_SK.mean(axis=1))
    per_step_s = [NUM_CHUNKS * cost_s for cost_s in TRUTH_S]
    assert (times.forward_s_S >= 0.99 * per_step_s[0]).all()
    assert (times.backward_s_S >= 0.99 * per_step_s[1]).all()
    assert_pipeline_seen(ranks, per_rank=1)


@pytest.mark.parametrize("scenario", ["interleaved", pytest.param("looped_bfs", marks=pytest.mark.extended)])
def test_interleaved_stages(tmp_path: Path, scenario: str) -> None:
    """Two stages a rank are told apart, and the ideal knows of them: (p-1)/(v*m+p-1)."""
    ranks = run(scenario, 2, tmp_path)
    times = times_of(ranks)
    assert (0, 1, 2, 3) == times.stages
    assert (NUM_CHUNKS, 2) == (times.num_micro_batches, times.chunks_per_rank)
    assert 1 / 17 == pytest.approx(times.ideal_bubble)
    assert min(times.bubble_K) > 1 / 17 - 0.03
    assert min(times.work_s_SK.mean(axis=1)) > 0.6 * max(times.work_s_SK.mean(axis=1))
    assert_pipeline_seen(ranks, per_rank=2)


def test_loss_is_work_of_the_last_stage(tmp_path: Path) -> None:
    """A costly loss (a large vocabulary) counts as forward of the stage that computes it; an evaluation's does not."""
    (rank,) = run("loss", 1, tmp_path)
    losses = [
        event for event in rank["events"] if event["kind"] == EventKind.STAGE_FORWARD and event["detail"] == 1
    ]
    steps = {event["step"] for event in losses}
    assert all(sum(event["step"] == step for event in losses) == NUM_CHUNKS for step in sorted(steps)[1:-1])
    assert {0} == {event["group"] for event in losses}
    assert set(range(NUM_CHUNKS)) == {event["seq"] for event in losses}
    assert min(event["end_ns"] - event["begin_ns"] for event in losses) >= 0.95 * LOSS_S * 1e9
    trained = [step for step in rank["steps"][1:-1] if not step["eval_ns"]]
    assert min(step["forward_ns"] for step in trained) >= 0.95 * NUM_CHUNKS * LOSS_S * 1e9
    assert rank["errors"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        "zero_bubble",
        *(pytest.param(name, marks=pytest.mark.extended) for name in ("zero_bubble_v", "dual_pipe_v")),
    ],
)
def test_zero_bubble_splits_the_backward(tmp_path: Path, scenario: str) -> None:
    """Weight gradients are chunks of their own; a fixed ideal does not exist and is not given."""
    ranks = run(scenario, 2, tmp_path)
    times = times_of(ranks)
    assert times.ideal_bubble is None
    assert (0, 1, 2, 3) == times.stages
    for rank in ranks:
        kinds = [event["kind"] for event in rank["events"]]
        assert kinds.count(EventKind.STAGE_WEIGHT_GRAD) > 0
        details = {event["detail"] for event in rank["events"] if event["kind"] == EventKind.STAGE_BACKWARD}
        assert 0 in details
