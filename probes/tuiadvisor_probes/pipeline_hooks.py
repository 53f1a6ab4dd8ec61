"""Pipeline parallelism (torch.distributed.pipelining): forward and backward of each micro-batch, waits for neighbours.

Always: time in a chunk is forward or backward, time in `_wait_batch_p2p` is pipeline_idle. In detail (see `detail`):
one event a chunk (group: stage index, seq: micro-batch; detail of a backward: 1 full, 0 input gradients only; detail of
a forward: 1 for the loss of a micro-batch, which is the last stage's work too) and one a wait (group and seq unknown: a
wait belongs to the chunk that follows it on the same rank). Not seen: torch without that function (2.4 to 2.6 at
least), whose waits are exposed communication; schedules of other libraries.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import phases
from . import step_clock as sc
from .guard import STAY_OUT, attempt, timed

if TYPE_CHECKING:
    from .host import Host

KIND_STAGE_FORWARD, KIND_STAGE_BACKWARD, KIND_STAGE_WEIGHT_GRAD, KIND_P2P_WAIT = 64, 65, 66, 67
DETAIL_LOSS = 1


def install(probe: Host) -> None:
    """Patch stages and schedules once they are loaded."""
    probe.when_loaded(
        "torch.distributed.pipelining.stage", "pipeline", lambda module: _patch_stage(probe, module)
    )
    probe.when_loaded(
        "torch.distributed.pipelining.schedules",
        "pipeline_wait",
        lambda module: _patch_schedules(probe, module),
    )


class Stages:
    """What this rank's pipeline looks like, learned from the chunks that pass."""

    def __init__(self, probe: Host, distributed: Any) -> None:
        self.probe = probe
        self.distributed = distributed  # torch.distributed
        self.hook = probe.hook("pipeline_group")
        self.known: set[int] = set()  # stage indices

    def met(self, stage: Any) -> None:
        """A stage ran its first chunk here."""
        self.known.add(stage.stage_index)
        self.probe.detail.has_point_to_point = True
        pipeline = self.probe.pipeline
        pipeline["stages"] = stage.num_stages
        pipeline["ranks"] = stage.group_size
        pipeline["mine"] = sorted(self.known)
        # Ranks of one pipeline share a group: its lowest rank names it where there are several (data parallelism).
        pipeline["first_rank"] = attempt(self.hook, _first_rank, self.distributed, stage)
        self.probe.put_info()


def _first_rank(distributed: Any, stage: Any) -> int:
    return min(distributed.get_process_group_ranks(stage.group)) if stage.group is not None else 0


def _patch_stage(probe: Host, module: Any) -> None:
    clock = probe.clock
    hook = probe.hook("pipeline")
    stages = Stages(probe, module.dist)
    span = probe.eval_span

    def write(kind: int, begin_ns: int, end_ns: int, args: tuple[Any, ...], detail: int) -> None:
        chunk = args[1] if len(args) > 1 else sc.UNKNOWN
        if os.getpid() == clock.pid:
            stage_index = args[0].stage_index
            probe.ring.put_event(kind, (clock.step, begin_ns, end_ns, stage_index, chunk, sc.UNKNOWN, detail))

    def forward_phase(args: tuple[Any, ...]) -> int:
        return phases.FORWARD if args[0].has_backward else span.phase(grad_enabled=False)

    def after_forward(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.FORWARD | 1 << phases.EVAL
        if args[0].stage_index not in stages.known:
            stages.met(args[0])
        if span.inside:
            span.after_forward(begin_ns, end_ns)
        elif clock.detail_flag:
            write(KIND_STAGE_FORWARD, begin_ns, end_ns, args, sc.UNKNOWN)

    def backward_phase(args: tuple[Any, ...]) -> int:
        return phases.BACKWARD if args[0].has_backward else STAY_OUT

    def after_backward(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.BACKWARD
        clock.micro_steps += 1
        if clock.detail_flag:
            # Zero-bubble schedules keep the weights' gradients for backward_weight_one_chunk.
            write(KIND_STAGE_BACKWARD, begin_ns, end_ns, args, int(args[1] not in args[0].dw_runner))

    def after_weight(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        if clock.detail_flag:
            write(KIND_STAGE_WEIGHT_GRAD, begin_ns, end_ns, args, sc.UNKNOWN)

    stage_class = module._PipelineStageBase

    def patch(name: str, phase: Any, after: Any) -> None:
        if hasattr(stage_class, name):
            probe.patch(stage_class, name, lambda original: timed(original, hook, clock, phase, after))

    patch("forward_one_chunk", forward_phase, after_forward)
    patch("backward_one_chunk", backward_phase, after_backward)
    patch("backward_weight_one_chunk", backward_phase, after_weight)


def _patch_schedules(probe: Host, module: Any) -> None:
    _patch_waits(probe, module)
    clock = probe.clock
    hook = probe.hook("pipeline_schedule")
    known: set[int] = set()  # ids of schedules

    def look(args: tuple[Any, ...]) -> int:
        schedule = args[0]
        if id(schedule) not in known:
            known.add(id(schedule))
            probe.pipeline["schedule"] = type(schedule).__name__
            probe.pipeline["micro_batches"] = schedule._n_microbatches
            probe.put_info()
        return STAY_OUT

    for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
        owner = getattr(module, name, None)
        if owner is not None:
            probe.patch(owner, "step", lambda original: timed(original, hook, clock, look))

    def loss_phase(args: tuple[Any, ...]) -> int:
        schedule, stage = args[0], args[1]
        # An evaluation's loss belongs to its span, whose time is one piece.
        has_loss = stage.is_last and stage.has_backward and schedule._loss_fn is not None
        return phases.FORWARD if has_loss else STAY_OUT

    def after_loss(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        if clock.detail_flag and os.getpid() == clock.pid:
            probe.ring.put_event(
                KIND_STAGE_FORWARD,
                (clock.step, begin_ns, end_ns, args[1].stage_index, args[4], sc.UNKNOWN, DETAIL_LOSS),
            )

    base = getattr(module, "_PipelineSchedule", None)
    if base is not None and hasattr(base, "_maybe_compute_loss"):
        loss_hook = probe.hook("pipeline_loss")
        probe.patch(
            base,
            "_maybe_compute_loss",
            lambda original: timed(original, loss_hook, clock, loss_phase, after_loss),
        )


def _patch_waits(probe: Host, module: Any) -> None:
    clock = probe.clock
    if not hasattr(module, "_wait_batch_p2p"):
        probe.absent("pipeline_wait", "this torch waits for neighbours without a function of its own")
        return
    hook = probe.hook("pipeline_wait")

    def phase(args: tuple[Any, ...]) -> int:
        return phases.PIPELINE_IDLE if args[0] else STAY_OUT

    def after(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.PIPELINE_IDLE
        if clock.detail_flag and os.getpid() == clock.pid:
            unknown = sc.UNKNOWN
            probe.ring.put_event(
                KIND_P2P_WAIT, (clock.step, begin_ns, end_ns, unknown, unknown, unknown, len(args[0]))
            )

    probe.patch(module, "_wait_batch_p2p", lambda original: timed(original, hook, clock, phase, after))
