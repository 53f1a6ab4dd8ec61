"""Signals of several ranks: sharded and accumulated training names its slow rank, pipelines show stages and bubble."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probing import assert_sums_to_step, is_close, observed_phases
from ranks import NUM_CHUNKS, NUM_STEPS, run

from tuiadvisor.events import UNKNOWN, EventKind
from tuiadvisor.metrics.pipeline import PipelineEvents, PipelineTimes, pipeline_times

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(170)


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
        ("by_hand", 1, "forward"),
    ],
)
def test_late_rank_and_its_phase(tmp_path: Path, scenario: str, late_rank: int, late_phase: str) -> None:
    """Who arrives last waits least, 20 ms less than the other, and the phase it lost them in is longer by that."""
    ranks = run(scenario, 2, tmp_path)
    on_time = ranks[1 - late_rank]
    late = ranks[late_rank]
    waited = waits(ranks)
    assert waited[1 - late_rank] - waited[late_rank] > 12e6
    assert median(late, f"{late_phase}_ns") - median(on_time, f"{late_phase}_ns") > 12e6
    for rank in ranks:
        assert NUM_STEPS == len(rank["steps"])
        assert 0 == rank["errors"]
        for step in rank["steps"]:
            assert_sums_to_step(step)
        last = rank["steps"][-2]
        assert {"forward", "backward", "comm_exposed", "optimizer"} <= observed_phases(last)
        assert (4 if scenario == "ddp_accumulation" else 1) == last["micro_steps"]


def test_sharded_phases_are_what_the_loop_measures(tmp_path: Path) -> None:
    """Forward and backward of FSDP2 with their waits are the loop's own, and each all-gather has its event."""
    for rank in run("fsdp2", 2, tmp_path):
        good = 0
        for mine, theirs in zip(rank["own"][2:], rank["steps"][2:], strict=False):
            # The loop cannot tell waiting from computing: compare the sum.
            names = ("forward", "backward", "comm_exposed")
            good += is_close(mine["forward"] + mine["backward"], sum(theirs[f"{name}_ns"] for name in names))
        assert good >= 8
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


@pytest.mark.parametrize(
    ("scenario", "num_ranks", "per_rank", "ideal"),
    [("gpipe", 4, 1, 3 / 11), ("1f1b", 2, 1, 1 / 9), ("interleaved", 2, 2, 1 / 17)],
)
def test_pipeline_stages_and_bubble(
    tmp_path: Path, scenario: str, num_ranks: int, per_rank: int, ideal: float
) -> None:
    """Each micro-batch of each stage is seen; equal stages balance; the bubble is the ideal plus what sending costs."""
    ranks = run(scenario, num_ranks, tmp_path)
    times = times_of(ranks)
    assert tuple(range(num_ranks * per_rank)) == times.stages
    assert (NUM_CHUNKS, per_rank) == (times.num_micro_batches, times.chunks_per_rank)
    assert len(times.steps) >= NUM_STEPS - 2
    assert ideal == pytest.approx(times.ideal_bubble)
    assert min(times.balance_S) > 0.85
    assert ideal - 0.03 < times.bubble < ideal + 0.3  # sending through a busy machine is no part of the ideal
    for rank in ranks:
        assert {"forward", "backward", "pipeline_idle", "optimizer"} <= observed_phases(rank["steps"][-2])
        assert_sums_to_step(rank["steps"][-2])
        assert num_ranks * per_rank == rank["info"]["pipeline"]["stages"]
        assert NUM_CHUNKS == rank["info"]["pipeline"]["micro_batches"]
        assert NUM_CHUNKS * per_rank == rank["steps"][-2]["micro_steps"]
        sent = [event for event in rank["events"] if event["kind"] == EventKind.RECV]
        assert sum(event["end_ns"] != UNKNOWN for event in sent) >= 0.9 * len(sent)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["zero_bubble", "zero_bubble_v"])
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
