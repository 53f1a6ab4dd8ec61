"""Evaluation within training: what lies between its first and its last forward is evaluation, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_probe_clock import Clock, rows, spend

from tuiadvisor.events import EVENT_COLUMNS, EventKind, StepFlag
from tuiadvisor_probes import eval_span, phases, ring, step_clock
from tuiadvisor_probes.eval_span import EvalSpan


class Training:
    """A clock with a span of evaluation, on a ring, in a time that moves when told."""

    def __init__(self, path: str, time_ns: Clock) -> None:
        from threading import get_ident

        ring.create_ring_file(path, 64, 64)
        self.writer, self.reader = ring.RingWriter(path), ring.RingReader(path)
        self.time_ns = time_ns
        self.clock = step_clock.StepClock(self.writer, get_ident(), lambda: None)
        self.span = self.clock.eval_span = EvalSpan(self.clock)

    def spend(self, phase: int, duration_ns: int) -> None:
        spend(self.clock, self.time_ns, phase, duration_ns)

    def evaluate(self, duration_ns: int, *, grad_enabled: bool = False) -> int:
        """One forward of a model in eval mode, as the hook of forwards books it; the phase it was."""
        phase = self.span.phase(grad_enabled=grad_enabled)
        begin_ns = self.clock.enter(phase)
        self.time_ns.now += duration_ns
        end_ns = self.clock.leave()
        if self.span.inside:
            self.span.after_forward(begin_ns, end_ns)
        return phase

    def train(self) -> None:
        """The rest of a step."""
        self.spend(phases.FORWARD, 20)
        self.spend(phases.BACKWARD, 30)
        self.spend(phases.OPTIMIZER, 5)
        self.clock.stepped = True

    def steps(self) -> list[dict[str, int]]:
        """All that have ended so far."""
        self.clock.flush()
        return rows(self.reader)

    def spans(self) -> list[tuple[int, int, int]]:
        """Step, length and number of forwards of each evaluation that was told."""
        found = [dict(zip(("kind", *EVENT_COLUMNS), row, strict=True)) for row in self.reader.take_events()]
        return [
            (one["step"], one["end_ns"] - one["begin_ns"], one["detail"])
            for one in found
            if one["kind"] == EventKind.EVAL
        ]


@pytest.fixture(name="training")
def _training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    clock = Clock()
    monkeypatch.setattr(step_clock, "monotonic_ns", clock)
    made = Training(str(tmp_path / "ring"), clock)
    yield made
    made.writer.close()
    made.reader.close()


def is_flagged(step: dict[str, int]) -> bool:
    return bool(StepFlag(step["flags"]) & StepFlag.EVAL)


def test_what_lies_between_two_evaluating_forwards_is_evaluation(training: Training) -> None:
    """Loading its batches and computing scores, too; what came before the first belongs to the training."""
    training.spend(phases.DATA_WAIT, 4)
    training.evaluate(10)
    training.spend(phases.DATA_WAIT, 6)
    training.time_ns.now += 3
    training.evaluate(10)
    training.train()
    (step,) = training.steps()

    assert (29, 4, 20, 30) == tuple(step[f"{n}_ns"] for n in ("eval", "data_wait", "forward", "backward"))
    assert is_flagged(step)
    assert [(0, 29, 2)] == training.spans()


def test_a_checkpoint_within_an_evaluation_stays_one(training: Training) -> None:
    """The best model is saved between two evaluations: that time has its own phase and its own findings."""
    training.evaluate(10)
    training.spend(phases.CHECKPOINT, 50)
    training.evaluate(10)
    training.train()
    (step,) = training.steps()

    assert (20, 50) == (step["eval_ns"], step["checkpoint_ns"])


def test_an_evaluation_in_every_step_is_part_of_the_work(training: Training) -> None:
    """A frozen teacher: from the fourth step in a row on no step is set aside for it; after a break it counts anew."""
    flagged = []
    for has_evaluation in (*[True] * 5, False, True):
        training.spend(phases.DATA_WAIT, 1)
        if has_evaluation:
            training.evaluate(10)
        training.train()
        flagged += [is_flagged(step) for step in training.steps()]

    assert [True, True, True, False, False, False, True] == flagged


def test_a_backward_tells_training_in_eval_mode_from_evaluation(training: Training) -> None:
    """Frozen statistics: the first such forward is taken back, and those after it are forward at once."""
    assert phases.EVAL == training.evaluate(20, grad_enabled=True)
    training.spend(phases.BACKWARD, 30)
    training.clock.stepped = True
    assert phases.FORWARD == training.evaluate(20, grad_enabled=True)
    training.spend(phases.BACKWARD, 30)
    training.clock.stepped = True

    steps = training.steps()
    assert [(20, 0), (20, 0)] == [(step["forward_ns"], step["eval_ns"]) for step in steps]
    assert not any(is_flagged(step) for step in steps)
    assert [] == training.spans()
    assert phases.EVAL == training.span.phase(grad_enabled=False)  # an evaluation beside it is one still


@pytest.mark.parametrize("grads", [(False,), (True, True)], ids=["no gradient", "several forwards"])
def test_an_evaluation_before_a_backward_is_no_training(training: Training, grads: tuple[bool, ...]) -> None:
    """The backward is that of a forward in training mode which came before."""
    training.spend(phases.FORWARD, 20)
    for grad_enabled in grads:
        training.evaluate(10, grad_enabled=grad_enabled)
    training.spend(phases.BACKWARD, 30)
    training.clock.stepped = True
    (step,) = training.steps()

    assert (20, 10 * len(grads)) == (step["forward_ns"], step["eval_ns"])
    assert [(0, 10 * len(grads), len(grads))] == training.spans()
    assert not training.span.eval_mode_trains


def test_an_evaluation_after_the_optimizer_begins_the_next_step(training: Training) -> None:
    """Two of them are two spans, each with its own forwards."""
    for _ in range(2):
        training.spend(phases.DATA_WAIT, 1)
        training.train()
        training.evaluate(10)
        training.evaluate(10)
    training.span.close()

    assert [(1, 20, 2), (2, 20, 2)] == training.spans()


def test_a_forked_child_tells_nothing_into_its_parents_ring(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader's worker has inherited a span that was open; the ring is not its own."""
    training.evaluate(10)
    monkeypatch.setattr(eval_span.os, "getpid", lambda: training.clock.pid + 1)
    training.span.close()

    assert [] == training.spans()
    assert 0 == training.span.end_ns
