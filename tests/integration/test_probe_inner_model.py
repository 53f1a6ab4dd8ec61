"""Who evaluates what DDP wraps, `model.module`, passes by the wrapper's hook: seen from the second time on."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import assert_sums_to_step, probed

from tuiadvisor.agent.payload import PRIVATE_NAME
from tuiadvisor.events import EventKind, StepFlag

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

NUM_STEPS, EVERY, NUM_BATCHES = 330, 80, 30
LOOKS_EVERY = 64  # steps; the native core once a second, but after 1,024 steps at the latest


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Any]:
    """Of a group of one rank, in a process that has compiled nothing: else no hook is put inside of a wrapper's."""
    if "torch._dynamo.utils" in sys.modules:
        sys.modules["torch._dynamo.utils"].counters.clear()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        yield nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 1)))
    finally:
        dist.destroy_process_group()


def data(num_batches: int) -> Any:
    return DataLoader(TensorDataset(torch.randn(4 * num_batches, 8)), batch_size=4)


def train(model: Any, evaluated: Any, *, inside_no_grad: bool = True, num_batches: int = NUM_BATCHES) -> None:
    """A step a batch; each EVERY steps all of the validation's."""
    optimizer, held_out = torch.optim.SGD(model.parameters(), lr=0.1), data(num_batches)
    for step, (batch,) in enumerate(data(NUM_STEPS)):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if step % EVERY == EVERY - 1:
            evaluated.eval()
            with torch.set_grad_enabled(not inside_no_grad):
                for (one,) in held_out:
                    with torch.no_grad():
                        evaluated(one)
            model.train()


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("inside_no_grad", [True, False])
def test_an_evaluation_of_what_ddp_wraps_is_seen_from_the_second_time_on(
    model: Any, tmp_path: Path, inside_no_grad: bool, one_by_one: bool
) -> None:
    """It was a wait for data before, of a loader that the training does not even use.

    one_by_one: as steps of a second are written, of which none can be compared with its neighbour in the same look.
    """
    with probed(tmp_path, budget_ppm=0) as observed:
        if one_by_one:
            sys.modules[PRIVATE_NAME + ".step_clock"].MAX_ALONE_NS = 0  # type: ignore[attr-defined]
        sys.modules[PRIVATE_NAME + ".install"]._probe.detail.duty.most_together = LOOKS_EVERY
        train(model, model.module, inside_no_grad=inside_no_grad)
    steps = {step["step"]: step for step in observed.steps}
    for step in steps.values():
        assert_sums_to_step(step)
    evaluations = [step for step, row in steps.items() if row["flags"] & StepFlag.EVAL]
    assert [2 * EVERY, 3 * EVERY, 4 * EVERY] == evaluations
    told = [(event["step"], event["detail"]) for event in observed.events(EventKind.EVAL)]
    assert [(step, NUM_BATCHES) for step in evaluations] == told
    assert all(steps[step]["eval_ns"] > 0 for step in evaluations)
    # The first one was not seen, and the steps between are not touched.
    assert all(row["eval_ns"] == 0 for step, row in steps.items() if step not in evaluations)


def test_a_short_evaluation_is_seen_too(model: Any, tmp_path: Path) -> None:
    """Of four batches. Where rank 0 also saves, its steps alone were long enough, and it seemed to evaluate alone."""
    with probed(tmp_path, budget_ppm=0) as observed:
        sys.modules[PRIVATE_NAME + ".install"]._probe.detail.duty.most_together = LOOKS_EVERY
        train(model, model.module, num_batches=4)
    evaluations = [step["step"] for step in observed.steps if step["flags"] & StepFlag.EVAL]
    assert [2 * EVERY, 3 * EVERY, 4 * EVERY] == evaluations


def test_a_training_whose_wrapper_evaluates_gets_no_hook_inside(model: Any, tmp_path: Path) -> None:
    """Its evaluations are seen as it is: nothing is put around the model within."""
    with probed(tmp_path, budget_ppm=0) as observed:
        train(model, model)
        assert "forward_root" not in observed.info["hooks"]
        assert type(model.module).__call__ is nn.Module.__call__
    evaluations = [step["step"] for step in observed.steps if step["flags"] & StepFlag.EVAL]
    assert [EVERY, 2 * EVERY, 3 * EVERY, 4 * EVERY] == evaluations


def test_what_follows_the_last_step_is_none_of_it(model: Any, tmp_path: Path) -> None:
    """A program that is told to end and saves for a minute first: all of that was the length of its last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path, budget_ppm=0) as observed:
        for step, (batch,) in enumerate(data(NUM_STEPS)):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if step == EVERY:
                break
        time.sleep(1.0)
    last = observed.steps[-1]
    assert EVERY - 2 <= last["step"]
    assert (last["end_ns"] - last["begin_ns"]) / 1e9 < 0.9
