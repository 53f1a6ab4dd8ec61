"""Trainers that keep a phase to themselves: DeepSpeed's engine, Lightning's strategies, evaluation loops.

Each is one method on a class, patched once its module is loaded; everything else of these libraries passes the hooks
on torch itself. Lightning calls `training_step`, not the module, and DeepSpeed's optimizers are its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import phases
from .guard import timed
from .optimizer_hook import skipped

if TYPE_CHECKING:
    from .host import Host

STRATEGIES = ("lightning.pytorch.strategies.strategy", "pytorch_lightning.strategies.strategy")
EVALUATIONS = (  # (module, class, method): everything inside is evaluation
    ("transformers.trainer", "Trainer", "evaluation_loop"),
    ("lightning.pytorch.loops.evaluation_loop", "_EvaluationLoop", "run"),
    ("pytorch_lightning.loops.evaluation_loop", "_EvaluationLoop", "run"),
)


def install(probe: Host) -> None:
    """Register each place for the moment its module is loaded."""

    def wait_for(module_name: str, class_name: str, name: str) -> None:
        probe.when_loaded(
            module_name, None, lambda module: _patch_evaluation(probe, getattr(module, class_name), name)
        )

    for place in EVALUATIONS:
        wait_for(*place)
    for module_name in STRATEGIES:
        probe.when_loaded(module_name, None, lambda module: _patch_strategy(probe, module.Strategy))
    probe.when_loaded(
        "deepspeed.runtime.engine", None, lambda module: _patch_deepspeed(probe, module.DeepSpeedEngine)
    )


def _patch_evaluation(probe: Host, owner: Any, name: str) -> None:
    clock, span = probe.clock, probe.eval_span
    hook = probe.hook("evaluation")

    def phase(_args: tuple[Any, ...]) -> int:
        return span.phase(grad_enabled=False)

    def after(begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.EVAL
        span.after_forward(begin_ns, end_ns)

    probe.patch(owner, name, lambda original: timed(original, hook, clock, phase, after))


def _patch_strategy(probe: Host, strategy: Any) -> None:
    """Lightning's training_step: the forward, whatever module calls the user makes in it."""
    clock = probe.clock
    hook = probe.hook("lightning")

    def phase(_args: tuple[Any, ...]) -> int:
        if probe.eval_span.end_ns:
            probe.eval_span.close()
        return phases.FORWARD

    def after(_begin_ns: int, _end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.FORWARD

    probe.patch(strategy, "training_step", lambda original: timed(original, hook, clock, phase, after))


def _patch_deepspeed(probe: Host, engine: Any) -> None:
    """The engine's forward, backward and step; an overflow skips the update."""
    clock, forwards = probe.clock, probe.forwards
    hook = probe.hook("deepspeed")
    probe.patch(engine, "__call__", lambda original: forwards.timed(original, hook, forwards.phase))

    def backward_phase(_args: tuple[Any, ...]) -> int:
        if probe.eval_span.end_ns:
            probe.eval_span.before_backward()
        return phases.BACKWARD

    def after_backward(_begin_ns: int, _end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.BACKWARD
        clock.micro_steps += 1

    probe.patch(
        engine, "backward", lambda original: timed(original, hook, clock, backward_phase, after_backward)
    )
    num_skipped = [0]

    def step_phase(args: tuple[Any, ...]) -> int:
        num_skipped[0] = args[0].skipped_steps
        return phases.OPTIMIZER

    def after_step(_begin_ns: int, _end_ns: int, args: tuple[Any, ...], _result: Any) -> None:
        clock.said |= 1 << phases.OPTIMIZER
        if args[0].skipped_steps > num_skipped[0]:
            skipped(probe)

    probe.patch(engine, "step", lambda original: timed(original, hook, clock, step_phase, after_step))
