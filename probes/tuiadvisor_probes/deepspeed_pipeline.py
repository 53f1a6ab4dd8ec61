"""DeepSpeed's pipeline engine: its chunks and its waits for neighbours, as `pipeline_hooks` has those of torch.

Always: time in a chunk is forward or backward, time in its sends and receives (which return when the neighbour has
taken part) is pipeline_idle. In detail one event a chunk and one a wait. The engine looks its instructions up in a
table of its class, so that is what is replaced. Its schedule takes micro-batches in order, forward and backward: they
are counted. Not seen: engines of subclasses with a table of their own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import phases
from . import step_clock as sc
from .guard import attempt, timed
from .pipeline_hooks import KIND_P2P_WAIT, KIND_STAGE_BACKWARD, KIND_STAGE_FORWARD

if TYPE_CHECKING:
    from .host import Host

FULL_BACKWARD = 1


def install(probe: Host) -> None:
    """Patch the engine once it is loaded; its module of sends and receives is loaded with it."""
    probe.when_loaded(
        "deepspeed.runtime.pipe.engine", "deepspeed_pipeline", lambda module: _patch_engine(probe, module)
    )


class Chunks:
    """What of this rank's stage has passed in the step in the making."""

    def __init__(self, probe: Host) -> None:
        self.probe = probe
        self.hook = probe.hook("deepspeed_pipeline")
        self.is_known = False
        self.step = sc.UNKNOWN
        self.num_of = {KIND_STAGE_FORWARD: 0, KIND_STAGE_BACKWARD: 0}

    def passed(self, kind: int, begin_ns: int, end_ns: int, engine: Any, detail: int) -> None:
        """One more of this kind."""
        clock = self.probe.clock
        if clock.step != self.step:
            self.step = clock.step
            self.num_of = dict.fromkeys(self.num_of, 0)
        micro_batch = self.num_of[kind]
        self.num_of[kind] += 1
        if not self.is_known:
            self.is_known = True
            attempt(self.hook, self.describe, engine)
        if clock.detail_flag and os.getpid() == clock.pid:
            values = (clock.step, begin_ns, end_ns, engine.stage_id, micro_batch, sc.UNKNOWN, detail)
            self.probe.ring.put_event(kind, values)

    def describe(self, engine: Any) -> None:
        """What this pipeline looks like, after its first chunk here."""
        self.probe.detail.has_point_to_point = True
        self.probe.pipeline.update(
            stages=engine.num_stages,
            ranks=engine.num_stages,
            mine=[engine.stage_id],
            first_rank=min(engine.grid.pp_group),  # ranks of one pipeline share it
            micro_batches=engine.micro_batches,
            schedule="TrainSchedule",
        )
        self.probe.put_info()


def _patch_engine(probe: Host, module: Any) -> None:
    clock, span = probe.clock, probe.eval_span
    chunks = Chunks(probe)
    hook = chunks.hook

    def forward_phase(args: tuple[Any, ...]) -> int:
        return phases.FORWARD if args[0].module.training else span.phase(grad_enabled=False)

    def after_forward(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.FORWARD | 1 << phases.EVAL
        if span.inside:
            span.after_forward(begin_ns, end_ns)
        else:
            chunks.passed(KIND_STAGE_FORWARD, begin_ns, end_ns, args[0], sc.UNKNOWN)

    def after_backward(begin_ns: int, end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.BACKWARD
        chunks.passed(KIND_STAGE_BACKWARD, begin_ns, end_ns, args[0], FULL_BACKWARD)

    def table(original: Any) -> Any:
        schedule = module.schedule
        forward, backward = original[schedule.ForwardPass], original[schedule.BackwardPass]
        return {
            **original,
            schedule.ForwardPass: timed(forward, hook, clock, forward_phase, after_forward),
            schedule.BackwardPass: timed(backward, hook, clock, phases.BACKWARD, after_backward),
        }

    probe.patch(module.PipelineEngine, "_INSTRUCTION_MAP", table)

    def after_wait(begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.PIPELINE_IDLE
        if clock.detail_flag and os.getpid() == clock.pid:
            unknown = sc.UNKNOWN
            values = (clock.step, begin_ns, end_ns, unknown, unknown, unknown, 1)
            probe.ring.put_event(KIND_P2P_WAIT, values)

    wait_hook = probe.hook("deepspeed_pipeline_wait")
    for name in ("send", "recv"):
        probe.patch(
            module.p2p,
            name,
            lambda original: timed(original, wait_hook, clock, phases.PIPELINE_IDLE, after_wait),
        )
