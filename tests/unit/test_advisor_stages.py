"""Pipelines whose chunks the devices timed: kept where all of a step is accounted for, never beside what is slow."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from simulated_devices import EVENT_NAMES, Ints, edited, folded
from simulated_stages import MS, StageJob, frames, simulate
from thinned import crossed, thinned

from tuiadvisor.metrics.pipeline.stage_account import MAX_REST
from tuiadvisor.views.run_view import RunView

JOB = StageJob(num_micro_batches=24, num_steps=32, detail=tuple(range(4, 32)))
INTERLEAVED = replace(JOB, schedule="interleaved", per_rank=2)
GPIPE = replace(JOB, schedule="gpipe")


def view_of(job: StageJob) -> RunView:
    """At its end."""
    return folded(frames(job))


def step_s(job: StageJob) -> float:
    """Mean of the steady steps."""
    return float(np.mean(simulate(job).step_s[10:]))


@pytest.mark.parametrize(
    ("look", "job"),
    crossed([1, 10, 0], [JOB, GPIPE, INTERLEAVED, replace(JOB, num_ranks=2, num_micro_batches=16)]),
)
def test_equal_stages_and_the_schedules_own_bubble_are_kept(job: StageJob, look: int) -> None:
    """Whether or not the threads run ahead, for each schedule."""
    view = view_of(replace(job, look_every=look))
    assert "keep" == view.verdict.decision
    assert "the pipeline's stages take equally long" in view.verdict.sentence
    assert [] == [found.id for found in view.findings if found.severity != "info"]


def test_replicas_that_exchange_gradients_are_kept() -> None:
    """Two pipelines of four stages."""
    assert "keep" == view_of(replace(JOB, num_pipelines=2, exchange_s=2 * MS)).verdict.decision


def test_too_few_micro_batches_are_told_of_devices_as_of_threads() -> None:
    """Four for four stages leave ranks idle for three of seven slots."""
    view = view_of(replace(JOB, num_micro_batches=4))
    assert ("tune", "pipeline_bubble") == (view.verdict.decision, view.verdict.finding)


@pytest.mark.parametrize(("job", "rank"), crossed([JOB, GPIPE, INTERLEAVED], [0, 1, 3]))
def test_a_slow_device_is_never_kept(job: StageJob, rank: int) -> None:
    """By an eighth: its stages are the heavy ones."""
    view = view_of(replace(job, slow_rank=((rank, 1.125),)))
    assert "tune" == view.verdict.decision
    assert {rank} == {one for found in view.findings if found.severity != "info" for one in found.ranks}


@pytest.mark.parametrize("factor", [1.09, 1.1])
@pytest.mark.parametrize("job", [JOB, replace(JOB, num_ranks=2, num_micro_batches=16)])
def test_a_stage_that_is_about_a_tenth_slower_is_not_kept(job: StageJob, factor: float) -> None:
    """On the border of what is called heavy it is told or doubted."""
    view = view_of(replace(job, slow_rank=((1, factor),)))
    assert "keep" != view.verdict.decision
    assert "stage 1 on rank 1 takes" in view.verdict.sentence


def test_three_slow_devices_of_four_are_not_kept() -> None:
    """The typical stage is a slow one then."""
    view = view_of(replace(JOB, slow_rank=((0, 1.1), (1, 1.1), (3, 1.1))))
    assert view.verdict.decision is None
    assert "longer than the lightest one" in view.verdict.sentence


def test_a_stage_slow_in_every_third_step_is_not_kept() -> None:
    """By a third: the typical step shows nothing."""
    view = view_of(replace(JOB, slow_rank=((2, 1.35),), slow_every=3, num_steps=60, detail=tuple(range(60))))
    assert "keep" != view.verdict.decision


def test_a_slow_replica_is_not_kept() -> None:
    """Its stages are alike, and unlike the other's."""
    view = view_of(
        replace(JOB, num_pipelines=2, exchange_s=2 * MS, slow_rank=tuple((rank, 1.1) for rank in range(4, 8)))
    )
    assert "keep" != view.verdict.decision


@pytest.mark.slow
@pytest.mark.parametrize("look", thinned([1, 0], [1]))
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"slow_link": ((1, 2.5 * MS),)}, "pass between chunks"),
        ({"send_s": 3 * MS}, "pass between chunks"),
        ({"pause_s": ((0, 60 * MS),)}, "around them"),
        ({"slow_optimizer": ((0, 20.0),)}, "around them"),
        ({"num_pipelines": 2, "exchange_s": 55 * MS}, "around them"),
    ],
)
def test_a_slow_link_thread_or_exchange_is_not_kept(fault: dict[str, object], told: str, look: int) -> None:
    """Each costs a tenth of the step and more, and lies in what is neither work nor bubble."""
    job = replace(JOB, look_every=look)
    slow = replace(job, **fault)  # type: ignore[arg-type]
    if step_s(slow) < 1.1 * step_s(job):
        assert look == 0, "a thread that runs ahead hides its pause"
        return
    view = view_of(slow)
    assert view.verdict.decision is None
    assert told in view.verdict.sentence
    assert "a capture of kernels tells" in view.verdict.sentence


@pytest.mark.slow
def test_optimizers_slow_on_most_ranks_are_not_kept() -> None:
    """The typical one is a slow one then."""
    slow = replace(JOB, slow_optimizer=tuple((rank, 20.0) for rank in (0, 1, 3)))
    assert step_s(slow) > 1.1 * step_s(JOB)
    view = view_of(slow)
    assert "keep" != view.verdict.decision
    assert "around them" in view.verdict.sentence


@pytest.mark.slow
def test_a_link_that_costs_next_to_nothing_is_kept() -> None:
    """Twice as slow, a hundredth of the step."""
    slow = replace(JOB, slow_link=((1, 0.05 * MS),))
    assert step_s(slow) < (1 + MAX_REST / 4) * step_s(JOB)
    assert "keep" == view_of(slow).verdict.decision


@pytest.mark.slow
@pytest.mark.parametrize("look", thinned([1, 10, 0], [10]))
def test_threads_that_launch_slowly_make_no_heavy_stage_and_are_not_kept(look: int) -> None:
    """All alike: whoever waits for its input has more of a chunk launched by then, and looks lighter."""
    slow = replace(JOB, look_every=look, slow_thread=tuple((rank, 13.0) for rank in range(4)))
    assert step_s(slow) > 1.1 * step_s(JOB)
    view = view_of(slow)
    assert "keep" != view.verdict.decision
    assert "heavy_stage" not in {found.id for found in view.findings}


SIXTEEN = replace(JOB, num_ranks=16, num_micro_batches=80)
FAULTS = {
    "slow device": {"slow_rank": ((8, 1.12),)},
    "stage of more layers": {"slow_stage": ((8, 1.12),)},
    "stage that computes its forward again": {"slow_backward": ((8, 1.4),)},
    "slow link": {"slow_link": ((8, 1.5 * MS),)},
    "thread that logs": {"pause_s": ((8, 1.1),)},
    "slow optimizer": {"slow_optimizer": ((8, 230.0),)},
    "data of the first stage": {"data_s": ((0, 0.18),)},
    "healthy": {},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "schedule", "look"),
    [
        pytest.param(fault, schedule, look, marks=[] if at % 24 == 5 else [pytest.mark.extended])
        for at, (fault, schedule, look) in enumerate(
            itertools.product(FAULTS, ("1f1b", "gpipe", "interleaved"), (1, 10, 0))
        )
    ],
)
def test_sixteen_stages_name_nobody_wrong(fault: str, schedule: str, look: int) -> None:
    """A slow stage by name, or not decided; what costs a tenth of the step is not kept, and a healthy job is."""
    healthy = replace(
        SIXTEEN, schedule=schedule, look_every=look, per_rank=2 if schedule == "interleaved" else 1
    )
    job = replace(healthy, **FAULTS[fault])  # type: ignore[arg-type]
    view = view_of(job)
    named = {rank for found in view.findings if found.severity != "info" for rank in found.ranks}
    is_dear = step_s(job) > 1.1 * step_s(healthy) or fault.startswith(("slow device", "stage"))

    assert named <= ({0} if fault.startswith("data") else {8} if fault != "healthy" else set())
    assert (view.verdict.decision == "keep") <= (not is_dear), view.verdict.sentence
    assert fault != "healthy" or view.verdict.decision == "keep"


def test_one_stage_that_waits_for_its_loader_does_not_speak_for_one_whose_last_step_is_missing() -> None:
    """Only who was there in every step was asked: "every rank waits for data 62 % of the step", of one rank of two."""
    job = replace(JOB, num_ranks=2, num_micro_batches=16, look_every=0, data_s=((0, 2 * MS), (1, 0.4)))

    def lost(rows: Ints) -> Ints:
        rank, step = (rows[:, EVENT_NAMES.index(name)] for name in ("rank", "step"))
        return rows[(rank != 0) | (step < job.num_steps - 2)]

    view = folded(edited(frames(job), lost))
    assert view.clock == "device"
    assert [] == [found.id for found in view.findings if found.id == "input_bound"]
    named = {rank for found in view.findings if found.severity != "info" for rank in found.ranks}
    assert named <= {1}
    assert "keep" != view.verdict.decision


def test_ranks_that_meet_within_chunks_are_not_kept() -> None:
    """What they wait for there lies in all stages' chunks alike."""
    view = view_of(replace(JOB, in_chunk="ALL_REDUCE"))
    assert view.verdict.decision is None
    assert "ranks meet within the chunks of a pipeline's stages" in view.verdict.sentence


def test_few_steps_that_are_known_chunk_by_chunk_decide_nothing() -> None:
    """All were measured on the devices, and four of them in detail."""
    view = view_of(replace(JOB, detail=tuple(range(24, 28))))
    assert view.verdict.decision is None
    assert "of 4 steps it is known what the devices took for each chunk" in view.verdict.sentence


@pytest.mark.slow
def test_more_pipelines_than_are_looked_at_hide_no_slow_rank() -> None:
    """The last of seventy holds it."""
    few = {"num_ranks": 2, "num_micro_batches": 4, "num_steps": 24, "detail": tuple(range(8, 24))}
    view = view_of(replace(JOB, num_pipelines=70, slow_rank=((139, 1.5),), **few))  # type: ignore[arg-type]
    assert (139,) in {found.ranks for found in view.findings if found.id == "heavy_stage"}
