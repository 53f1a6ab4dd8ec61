"""Pipelines of torch and of DeepSpeed: whose time is forward, backward or waiting, and which chunks are told in detail.

Their modules are imitated, by the names that the hooks look for; what is hooked is called as their schedules call it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from test_probe_clock import Clock, rows

from tuiadvisor.events import EVENT_COLUMNS, EventKind
from tuiadvisor_probes import deepspeed_pipeline, guard, pipeline_hooks, ring, step_clock
from tuiadvisor_probes.eval_span import EvalSpan
from tuiadvisor_probes.guard import Hook
from tuiadvisor_probes.patch import Patch

FORWARD, BACKWARD, WEIGHT_GRAD, WAIT = (
    EventKind.STAGE_FORWARD,
    EventKind.STAGE_BACKWARD,
    EventKind.STAGE_WEIGHT_GRAD,
    EventKind.P2P_WAIT,
)
NONE = step_clock.UNKNOWN


class Process:
    """The part of a probe that these hooks ask, in a time that moves when told."""

    def __init__(self, path: str, time_ns: Clock, modules: dict[str, Any]) -> None:
        ring.create_ring_file(path, 64, 64)
        self.ring, self.reader = ring.RingWriter(path), ring.RingReader(path)
        self.time_ns = time_ns
        self.modules = modules
        self.clock = step_clock.StepClock(self.ring, threading.get_ident(), lambda: None)
        self.eval_span = self.clock.eval_span = EvalSpan(self.clock)
        self.detail = SimpleNamespace(has_point_to_point=False)
        self.pipeline: dict[str, Any] = {}
        self.absences: dict[str, str] = {}
        self.hooks: list[Hook] = []

    def hook(self, name: str) -> Hook:
        self.hooks.append(Hook(name, len(self.hooks), lambda _: None))
        return self.hooks[-1]

    def patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
        return Patch(owner, name, make)

    def absent(self, name: str, why: str) -> None:
        self.absences[name] = why

    def when_loaded(self, name: str, _signal: str | None, install: Callable[[Any], None]) -> None:
        if name in self.modules:
            install(self.modules[name])

    def put_info(self) -> None:
        assert all(hook.active for hook in self.hooks)

    def end_step(self) -> dict[str, int]:
        """The step that ends here."""
        self.clock.stepped = True
        self.clock.flush()
        (step,) = rows(self.reader)
        return step

    def events(self) -> list[tuple[int, int, int, int, int]]:
        """Kind, length, group, seq and detail of each; where all hooks are in order."""
        assert [] == [hook.error for hook in self.hooks if hook.error]
        found = [dict(zip(("kind", *EVENT_COLUMNS), row, strict=True)) for row in self.reader.take_events()]
        return [
            (one["kind"], one["end_ns"] - one["begin_ns"], one["group"], one["seq"], one["detail"])
            for one in found
        ]


@pytest.fixture(name="time_ns")
def _time_ns(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (step_clock, guard):
        monkeypatch.setattr(module, "monotonic_ns", clock)
    return clock


@pytest.fixture(name="started")
def _started(tmp_path: Path, time_ns: Clock) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def start(install: Callable[[Any], None], **modules: Any) -> Process:
        made.append(Process(str(tmp_path / "ring"), time_ns, modules.pop("modules")))
        install(made[-1])
        return made[-1]

    yield start
    for one in made:
        one.ring.close()
        one.reader.close()


# --- torch


def torch_modules(time_ns: Clock, *, is_old: bool = False) -> dict[str, Any]:
    """torch.distributed.pipelining, as of today and of 2.5 and 2.6."""

    class Stage:
        num_stages, group_size, group = 4, 2, "the pipeline's"

        def __init__(self, index: int, *, trains: bool = True) -> None:
            self.stage_index, self.has_backward = index, trains
            self.is_last = index == self.num_stages - 1
            self.dw_runner: dict[int, Any] = {}

        def forward_one_chunk(self, _chunk: int, *_rest: Any) -> None:
            time_ns.now += 20

        def backward_one_chunk(self, _chunk: int, *_rest: Any) -> None:
            time_ns.now += 30

        def backward_weight_one_chunk(self, _chunk: int) -> None:
            time_ns.now += 10

    class Schedule:
        _n_microbatches = 3
        _loss_fn: Any = sum

        def _maybe_compute_loss(self, _stage: Stage, _output: Any, _targets: Any, _chunk: int) -> None:
            time_ns.now += 5

    class Single(Schedule):
        def step(self, work: Callable[[], None]) -> None:
            work()

    def wait(_operations: list[Any]) -> None:
        time_ns.now += 7

    stage, schedules = ModuleType("stage"), ModuleType("schedules")
    dist = SimpleNamespace(get_process_group_ranks=lambda group: [6, 4] if group else [])
    vars(stage).update(_PipelineStageBase=Stage, dist=dist)
    vars(schedules).update(_PipelineSchedule=Schedule, PipelineScheduleSingle=Single)
    if not is_old:
        vars(schedules).update(_wait_batch_p2p=wait)
    prefix = "torch.distributed.pipelining."
    return {prefix + "stage": stage, prefix + "schedules": schedules}


def stage_class(process: Process) -> Any:
    return process.modules["torch.distributed.pipelining.stage"]._PipelineStageBase


def schedules(process: Process) -> Any:
    return process.modules["torch.distributed.pipelining.schedules"]


@pytest.fixture(name="torch_pipeline")
def _torch_pipeline(started: Callable[..., Process], time_ns: Clock) -> Process:
    return started(pipeline_hooks.install, modules=torch_modules(time_ns))


def test_chunks_and_waits_are_booked_by_what_they_are(torch_pipeline: Process) -> None:
    """Without detail: parts of the step, and no event."""
    stage = stage_class(torch_pipeline)(3)
    schedules(torch_pipeline)._wait_batch_p2p(["receive"])
    stage.forward_one_chunk(0)
    schedules(torch_pipeline).PipelineScheduleSingle()._maybe_compute_loss(stage, None, None, 0)
    stage.backward_one_chunk(0)
    stage.backward_weight_one_chunk(0)
    schedules(torch_pipeline)._wait_batch_p2p([])  # nothing to wait for: no wait

    step = torch_pipeline.end_step()
    assert (25, 40, 7) == (step["forward_ns"], step["backward_ns"], step["pipeline_idle_ns"])
    assert [] == torch_pipeline.events()


def test_each_chunk_is_told_in_detail(torch_pipeline: Process) -> None:
    """Stage and micro-batch; a backward that keeps its weights' gradients for later is told from a whole one."""
    torch_pipeline.clock.detail_flag = step_clock.FLAG_DETAIL
    stage = stage_class(torch_pipeline)(3)
    stage.dw_runner[1] = "for later"
    schedules(torch_pipeline)._wait_batch_p2p(["send", "receive"])
    stage.forward_one_chunk(2)
    schedules(torch_pipeline).PipelineScheduleSingle()._maybe_compute_loss(stage, None, None, 2)
    stage.backward_one_chunk(0)
    stage.backward_one_chunk(1)
    stage.backward_weight_one_chunk(1)

    assert [
        (WAIT, 7, NONE, NONE, 2),
        (FORWARD, 20, 3, 2, NONE),
        (FORWARD, 5, 3, 2, 1),
        (BACKWARD, 30, 3, 0, 1),
        (BACKWARD, 30, 3, 1, 0),
        (WEIGHT_GRAD, 10, 3, 1, NONE),
    ] == torch_pipeline.events()


def test_what_a_pipeline_looks_like_is_learned_from_what_passes(torch_pipeline: Process) -> None:
    """Which stages are here, of how many, and the schedule; its lowest rank names it among several."""
    for index in (3, 1, 3):
        stage_class(torch_pipeline)(index).forward_one_chunk(0)
    schedules(torch_pipeline).PipelineScheduleSingle().step(lambda: None)

    assert {
        "stages": 4,
        "ranks": 2,
        "mine": [1, 3],
        "first_rank": 4,
        "schedule": "Single",
        "micro_batches": 3,
    } == torch_pipeline.pipeline
    assert torch_pipeline.detail.has_point_to_point


def test_a_pipeline_that_evaluates_is_no_forward(torch_pipeline: Process) -> None:
    """Its stages have no backward: one span from the first chunk to the last, its loss within it."""
    torch_pipeline.clock.detail_flag = step_clock.FLAG_DETAIL
    stage = stage_class(torch_pipeline)(3, trains=False)
    for chunk in (0, 1):
        stage.forward_one_chunk(chunk)
        schedules(torch_pipeline).PipelineScheduleSingle()._maybe_compute_loss(stage, None, None, chunk)
    stage.forward_one_chunk(2)
    stage.backward_one_chunk(0)  # of nobody: a schedule asks each stage

    torch_pipeline.eval_span.close()
    assert [(EventKind.EVAL, 70, NONE, NONE, 3)] == torch_pipeline.events()
    assert (70, 0) == tuple(torch_pipeline.end_step()[f"{name}_ns"] for name in ("eval", "forward"))


def test_a_torch_that_waits_without_a_function_of_its_own_is_said_to(
    started: Callable[..., Process], time_ns: Clock
) -> None:
    """Waits are exposed communication there; chunks, the loss and the schedule are known as ever."""
    process = started(pipeline_hooks.install, modules=torch_modules(time_ns, is_old=True))
    stage, schedule = stage_class(process)(3), schedules(process).PipelineScheduleSingle()
    stage.forward_one_chunk(0)
    schedule._maybe_compute_loss(stage, None, None, 0)
    schedule.step(lambda: None)
    assert ["pipeline_wait"] == list(process.absences)
    assert ("Single", 3) == (process.pipeline["schedule"], process.pipeline["micro_batches"])
    assert 25 == process.end_step()["forward_ns"]


# --- DeepSpeed


class Instructions(SimpleNamespace):
    """deepspeed.runtime.pipe.schedule."""

    ForwardPass = "forward pass"
    BackwardPass = "backward pass"
    LoadMicroBatch = "load"


@pytest.fixture(name="deepspeed")
def _deepspeed(started: Callable[..., Process], time_ns: Clock) -> Process:
    class Engine:
        """Looks its instructions up in a table."""

        num_stages, stage_id, micro_batches = 2, 1, 4
        grid = SimpleNamespace(pp_group=[5, 3])

        def __init__(self, *, trains: bool = True) -> None:
            self.module = SimpleNamespace(training=trains)

        def forward(self, _buffer: int) -> None:
            time_ns.now += 20

        def backward(self, _buffer: int) -> None:
            time_ns.now += 30

        def load(self, _buffer: int) -> None:
            time_ns.now += 3

        _INSTRUCTION_MAP: Any = {"forward pass": forward, "backward pass": backward, "load": load}  # noqa: RUF012

        def run(self, *instructions: str) -> None:
            for instruction in instructions:
                self._INSTRUCTION_MAP[instruction](self, 0)

    def pass_on(_tensor: Any, _stage: int) -> None:
        time_ns.now += 7

    module = ModuleType("engine")
    p2p = ModuleType("p2p")
    vars(p2p).update(send=pass_on, recv=pass_on)
    vars(module).update(PipelineEngine=Engine, schedule=Instructions, p2p=p2p)
    return started(deepspeed_pipeline.install, modules={"deepspeed.runtime.pipe.engine": module})


def engine_module(process: Process) -> Any:
    return process.modules["deepspeed.runtime.pipe.engine"]


def test_deepspeeds_instructions_and_waits_are_booked(deepspeed: Process) -> None:
    """What is no chunk stays what it was."""
    module = engine_module(deepspeed)
    module.p2p.recv(None, 0)
    module.PipelineEngine().run("load", "forward pass", "backward pass")
    module.p2p.send(None, 0)

    step = deepspeed.end_step()
    names = ("forward", "backward", "pipeline_idle", "other")
    assert (20, 30, 14, 3) == tuple(step[f"{name}_ns"] for name in names)
    assert {
        "stages": 2,
        "ranks": 2,
        "mine": [1],
        "first_rank": 3,
        "micro_batches": 4,
        "schedule": "TrainSchedule",
    } == deepspeed.pipeline


def test_deepspeeds_micro_batches_are_counted_anew_in_each_step(deepspeed: Process) -> None:
    """Its schedule takes them in order, forward and backward each."""
    deepspeed.clock.detail_flag = step_clock.FLAG_DETAIL
    module = engine_module(deepspeed)
    for _ in range(2):
        module.PipelineEngine().run("forward pass", "forward pass", "backward pass", "backward pass")
        module.p2p.send(None, 0)
        deepspeed.end_step()

    one_step = [
        (FORWARD, 20, 1, 0, NONE),
        (FORWARD, 20, 1, 1, NONE),
        (BACKWARD, 30, 1, 0, 1),
        (BACKWARD, 30, 1, 1, 1),
        (WAIT, 7, NONE, NONE, 1),
    ]
    assert 2 * one_step == deepspeed.events()


def test_deepspeeds_evaluation_is_no_forward(deepspeed: Process) -> None:
    """By the module's own mode; nothing of it is a chunk."""
    deepspeed.clock.detail_flag = step_clock.FLAG_DETAIL
    engine_module(deepspeed).PipelineEngine(trains=False).run("forward pass", "forward pass")
    deepspeed.eval_span.close()
    assert [(EventKind.EVAL, 40, NONE, NONE, 2)] == deepspeed.events()
    assert 0 == deepspeed.end_step()["forward_ns"]
