"""Signals of a single training process, against what its own loop measures, on the kinds of loops people write."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from probing import Observed, assert_sums_to_step, is_close, observed_phases, probed

from tuiadvisor.events import UNKNOWN, EventKind, StepFlag

torch = pytest.importorskip("torch")
from torch import nn, save  # noqa: E402 - `save` is the reference taken before the probe comes
from torch.utils.data import DataLoader, Dataset  # noqa: E402

FEATURES = 8


def stand_still(seconds: float) -> None:
    """Sleep for as long as the operating system makes of it."""
    time.sleep(seconds)


class Samples(Dataset):  # type: ignore[type-arg]
    """A batch is one slow read."""

    def __init__(self, seconds: float = 0.0, kind: str = "floats") -> None:
        self.seconds = seconds
        self.kind = kind

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        if self.kind == "tokens":
            return {"labels": torch.zeros(3), "input_ids": torch.zeros(16, dtype=torch.long)}
        return torch.ones(FEATURES) * (index % 7)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        stand_still(self.seconds)
        return [self[index] for index in indices]


class SlowGradient(torch.autograd.Function):
    """Identity with a backward that takes its time."""

    @staticmethod
    def forward(ctx: Any, value: Any, seconds: float) -> Any:
        ctx.seconds = seconds
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        stand_still(ctx.seconds)
        return gradient, None


class Model(nn.Module):
    """A layer with places to stand still."""

    def __init__(self, forward_s: float = 0.0, backward_s: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU())
        self.head = nn.Linear(FEATURES, 2)
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, value: Any) -> Any:
        stand_still(self.forward_s)
        hidden = SlowGradient.apply(self.body(value), self.backward_s)
        return self.head(hidden)


class SlowSGD(torch.optim.SGD):
    """An optimizer that takes its time, and knows how much."""

    seconds = 0.0
    last_ns = 0

    def step(self, closure: Any = None) -> Any:
        begin = time.monotonic_ns()
        stand_still(self.seconds)
        result = super().step(closure)
        self.last_ns = time.monotonic_ns() - begin
        return result


def train_steps(model: Any, optimizer: Any, num_steps: int, value: Any = None) -> None:
    """A plain loop without a loader."""
    value = torch.ones(4, FEATURES) if value is None else value
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(value).square().mean().backward()
        optimizer.step()


class OwnClock:
    """The loop's own stopwatch: phases of each step, nanoseconds."""

    def __init__(self) -> None:
        self.steps: list[dict[str, int]] = []
        self.now: dict[str, int] = {}

    def run(self, phase: str, function: Callable[[], Any]) -> Any:
        """Time one call."""
        begin = time.monotonic_ns()
        result = function()
        self.now[phase] = self.now.get(phase, 0) + time.monotonic_ns() - begin
        return result

    def close(self) -> None:
        """Next step."""
        self.steps.append(self.now)
        self.now = {}


@pytest.mark.parametrize("workers", [0, 2])
def test_phases_are_what_the_loop_itself_measures(tmp_path: Path, workers: int) -> None:
    """Each phase within 2 % or 100 us of the loop's own clock, and the parts sum to the step."""
    model, clock = Model(forward_s=0.003, backward_s=0.004), OwnClock()
    optimizer = SlowSGD(model.parameters(), lr=0.1)
    optimizer.seconds = 0.002
    loader = DataLoader(Samples(0.005), batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    batches = iter(loader)

    def step() -> None:
        batch = clock.run("data_wait", lambda: next(batches))
        loss = clock.run("forward", lambda: model(batch)).square().mean()
        clock.run("backward", loss.backward)
        optimizer.step()
        clock.now["optimizer"] = optimizer.last_ns  # torch's profiler wraps it in 50 to 150 us of its own
        clock.run("other", lambda: stand_still(0.001))
        clock.close()

    for _ in range(3):
        step()
    with probed(tmp_path) as observed:
        clock.steps.clear()
        for _ in range(20):
            step()
    steps = observed.steps[4:]
    assert len(steps) == 16
    wanted = ("data_wait", "forward", "backward", "optimizer", "other")
    outliers: Counter[str] = Counter()
    for mine, theirs in zip(clock.steps[4:], steps, strict=True):
        assert set(wanted) <= observed_phases(theirs)
        assert_sums_to_step(theirs)
        # The loop's own bookkeeping between its phases is no part of what it measures.
        outliers.update(name for name in wanted[:-1] if not is_close(mine[name], theirs[f"{name}_ns"]))
        # The last one ends with its optimizer, the last that was seen of it.
        assert theirs is steps[-1] or theirs["other_ns"] >= mine["other"] - 100_000
        assert theirs["samples"] == 4
    # A step may lose the processor exactly between the two clocks' reads; loader workers make that frequent, and on a
    # core that is shared with others it is the usual case. A wrong clock would be wrong in every step.
    assert all(num <= 0.75 * len(steps) for num in outliers.values()), outliers


def test_a_hidden_phase_is_unknown_not_zero(tmp_path: Path) -> None:
    """No loader, no group, no device: those phases are not observed and the hooks say why."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 8)
    last = observed.steps[-1]
    assert observed_phases(last) == {"forward", "backward", "optimizer", "checkpoint", "eval", "other"}
    assert (UNKNOWN, UNKNOWN) == (last["samples"], last["arrive_ns"])
    assert "no device" == observed.info["hooks"]["h2d"]
    assert observed.info["hooks"]["data_wait"]


def test_evaluation_is_a_span_of_its_own(tmp_path: Path) -> None:
    """All time from the first evaluating forward to the last is eval, in one event, and only that step is flagged."""
    model = Model(forward_s=0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 6)
        begin = time.monotonic_ns()
        model.eval()
        with torch.no_grad():
            for batch in DataLoader(Samples(0.003), batch_size=4, sampler=range(20)):
                model(batch)
                last = time.monotonic_ns()
        model.train()
        train_steps(model, optimizer, 4)
    flagged = [step["step"] for step in observed.steps if step["flags"] & StepFlag.EVAL]
    assert len(flagged) == 1
    (event,) = observed.events(EventKind.EVAL)
    assert (5, flagged[0]) == (event["detail"], event["step"])
    (step,) = [step for step in observed.steps if step["step"] == flagged[0]]
    span = event["end_ns"] - event["begin_ns"]
    assert is_close(span, step["eval_ns"])
    assert begin < event["begin_ns"] < event["end_ns"] <= last
    assert_sums_to_step(step)


def test_no_grad_forward_in_training_mode_is_evaluation(tmp_path: Path) -> None:
    """A validation that forgets eval() is evaluation all the same."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 5)
        with torch.no_grad():
            model(torch.ones(4, FEATURES))
        train_steps(model, optimizer, 3)
    assert 1 == len(observed.events(EventKind.EVAL))
    assert 1 == sum(bool(step["flags"] & StepFlag.EVAL) for step in observed.steps)


def test_training_in_eval_mode_is_training(tmp_path: Path) -> None:
    """Frozen statistics: module.eval() and a backward; after the first step it counts as forward, unflagged."""
    model = Model(forward_s=0.001).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 8)
    assert [] == [step for step in observed.steps if step["flags"] & StepFlag.EVAL]
    assert [] == observed.events(EventKind.EVAL)
    assert observed.steps[-1]["forward_ns"] > 900_000


def test_an_evaluation_in_every_step_is_work_not_an_interruption(tmp_path: Path) -> None:
    """A rollout each step: its time is eval, but after three steps in a row none is flagged any more."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 4)
        for _ in range(10):
            with torch.no_grad():
                model(torch.ones(4, FEATURES))
            train_steps(model, optimizer, 1)
    assert 3 == sum(bool(step["flags"] & StepFlag.EVAL) for step in observed.steps)
    assert observed.steps[-1]["eval_ns"] > 0


def test_scaler_skip_ends_a_step_and_is_marked(tmp_path: Path) -> None:
    """A step with infinite gradients does not update, but is one step of work with its own mark."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")

    def step(value: Any) -> None:
        optimizer.zero_grad()
        scaler.scale(model(value).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()

    with probed(tmp_path) as observed:
        for number in range(8):
            step(torch.ones(4, FEATURES) * (float("inf") if number == 4 else 1.0))
    assert [4] == [step["step"] for step in observed.steps if step["flags"] & StepFlag.SCALER_SKIP]
    assert [4] == [event["step"] for event in observed.events(EventKind.SCALER_SKIP)]
    assert 8 == len(observed.steps)


def test_accumulation_counts_micro_steps(tmp_path: Path) -> None:
    """Four backwards and one optimizer step are one step of four micro-steps."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        for _ in range(5):
            optimizer.zero_grad()
            for _ in range(4):
                model(torch.ones(4, FEATURES)).square().mean().backward()
            optimizer.step()
    assert [4] * 5 == [step["micro_steps"] for step in observed.steps]


def test_two_models_with_their_optimizers_make_one_step(tmp_path: Path) -> None:
    """A generator and a discriminator, each with its optimizer: both forwards are seen."""
    first, second = Model(forward_s=0.001), nn.Sequential(nn.Linear(FEATURES, 2))
    optimizers = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters())]

    def step() -> None:
        loss = (
            first(torch.ones(4, FEATURES)).square().mean() + second(torch.ones(4, FEATURES)).square().mean()
        )
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    with probed(tmp_path) as observed:
        for _ in range(8):
            step()
    assert 8 == len(observed.steps)
    assert [1] * 8 == [step["micro_steps"] for step in observed.steps]
    assert type(second).__call__ is nn.Module.__call__


class Policy(nn.Module):
    """As stable-baselines3's: trained by a method of its own, never called."""

    def __init__(self, depth: int = 0) -> None:
        super().__init__()
        self.actor, self.critic = Model(forward_s=0.002), Model(forward_s=0.001)
        self.unused = nn.Dropout()
        for _ in range(depth):
            self.actor, self.critic = Holder(self.actor), Holder(self.critic)  # type: ignore[assignment]

    def evaluate(self, value: Any) -> Any:
        """Both parts."""
        return called_of(self.actor)(value) + called_of(self.critic)(value)


class Holder(nn.Module):
    """Holds a module and is not called itself."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


def called_of(module: Any) -> Any:
    """The innermost one."""
    return called_of(module.held) if isinstance(module, Holder) else module


@pytest.mark.parametrize("depth", [0, 1])
def test_the_forward_of_a_model_that_is_called_by_parts_is_theirs(
    tmp_path: Path, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PPO of stable-baselines3: 61 % of the step was code that no hook sees, its policy's evaluate_actions."""
    # Where compiled code runs parts are not looked for, and other tests of this process may have compiled some.
    if (dynamo := sys.modules.get("torch._dynamo.utils")) is not None:
        monkeypatch.setattr(dynamo, "counters", {})
    policy, clock = Policy(depth), OwnClock()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)

    def step() -> None:
        loss = clock.run("forward", lambda: policy.evaluate(torch.ones(4, FEATURES))).square().mean()
        loss.backward()
        optimizer.step()
        clock.close()

    with probed(tmp_path) as observed:
        for _ in range(16 * (depth + 1)):
            step()
        clock.steps.clear()
        for _ in range(10):
            step()
    assert "ok" == observed.info["hooks"]["forward_root"]
    for mine, theirs in zip(clock.steps, observed.steps[-10:], strict=True):
        # Between its parts a method does work of its own, which no hook sees.
        assert 3_000_000 <= theirs["forward_ns"] <= mine["forward"]
    assert type(policy.actor).__call__ is nn.Module.__call__


def test_the_parts_of_a_model_that_is_called_are_left_alone(tmp_path: Path) -> None:
    """One hook is enough, and a layer's would be asked in each of its calls."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path):
        train_steps(model, optimizer, 30)
        assert nn.Linear.__call__ is nn.Module.__call__
        assert type(model).__call__ is not nn.Module.__call__


def test_closure_keeps_forward_and_backward_apart(tmp_path: Path) -> None:
    """LBFGS and Lightning run the model inside optimizer.step(closure): its phases stay what they are."""
    model = Model(forward_s=0.002, backward_s=0.003)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(4, FEATURES)).square().mean()
        loss.backward()
        return loss

    with probed(tmp_path) as observed:
        for _ in range(6):
            optimizer.step(closure)
    steps = observed.steps[3:]  # by then the model is known
    for step in steps:
        assert step["micro_steps"] >= 2
        assert step["forward_ns"] >= step["micro_steps"] * 2_000_000
        assert step["backward_ns"] >= step["micro_steps"] * 3_000_000
        assert_sums_to_step(step)
    # Where the processor is lost in the optimizer's own part that may last longer, but not in every step.
    assert any(step["optimizer_ns"] < step["forward_ns"] for step in steps)


def test_a_step_that_was_under_way_is_known_by_its_optimizer(tmp_path: Path) -> None:
    """The attach may come in the middle of it: its closures alone look like a loop that never steps."""
    model = Model()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2)
    said: list[str] = []

    def closure() -> Any:
        if not said:
            with probed(tmp_path) as observed:
                pass
            said.append(observed.info.get("stepping", ""))
        optimizer.zero_grad()
        loss = model(torch.ones(4, FEATURES)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert ["LBFGS"] == said
    with probed(tmp_path) as observed:
        train_steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    assert "stepping" not in observed.info


def test_optimizer_that_raises_leaves_no_step_open(tmp_path: Path) -> None:
    """Torch calls no post hook then; the next step finds the clock in order again."""
    model = Model()
    optimizer = SlowSGD(model.parameters(), lr=0.1)

    def fail(*_: Any) -> None:
        raise RuntimeError("theirs")

    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 4)
        handle = optimizer.register_step_pre_hook(fail)
        with pytest.raises(RuntimeError, match="theirs"):
            optimizer.step()
        handle.remove()
        train_steps(model, optimizer, 6)
    last = observed.steps[-1]
    assert last["forward_ns"] > 0
    assert len(observed.steps) >= 8
    assert_sums_to_step(last)


def test_optimizer_in_backward_ends_the_step(tmp_path: Path) -> None:
    """One optimizer a parameter, stepped by a gradient hook: a backward is a step, not one a parameter."""
    model = Model()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda which: optimizers[which].step())
    with probed(tmp_path) as observed:
        for _ in range(6):
            model(torch.ones(4, FEATURES)).square().mean().backward()
    assert 6 == len(observed.steps)
    assert observed.steps[-1]["optimizer_ns"] > 0


def test_checkpoint_through_an_early_reference(tmp_path: Path) -> None:
    """`from torch import save`, bound before the probe came, is seen; one event for torch.save however it nests."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 4)
        save(model.state_dict(), tmp_path / "early.pt")
        train_steps(model, optimizer, 2)
        torch.save(model.state_dict(), tmp_path / "late.pt")
        train_steps(model, optimizer, 2)
    assert 2 == len(observed.events(EventKind.CHECKPOINT))
    assert 2 == sum(bool(step["flags"] & StepFlag.CHECKPOINT) for step in observed.steps)
    assert 2 == sum(step["checkpoint_ns"] > 0 for step in observed.steps)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_distributed_checkpoint_is_a_checkpoint(tmp_path: Path) -> None:
    """torch.distributed.checkpoint.save, imported after the probe came, is one event."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 3)
        import torch.distributed.checkpoint as dcp

        train_steps(model, optimizer, 2)
        dcp.save({"model": model.state_dict()}, checkpoint_id=tmp_path / "dcp", no_dist=True)
        train_steps(model, optimizer, 2)
    assert 1 == len(observed.events(EventKind.CHECKPOINT))


class _HeldUp(io.BytesIO):
    """A disk that takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.let_go = threading.Event(), threading.Event()

    def write(self, data: Any) -> int:
        self.reached.set()
        self.let_go.wait(60)
        return super().write(data)


def _saving(observed: Observed) -> list[int]:
    return [step["step"] for step in observed.steps if step["flags"] & StepFlag.SAVING]


def test_steps_beside_a_save_in_a_thread_of_the_user_are_flagged(tmp_path: Path) -> None:
    """All of them and no other; the training thread itself writes nothing, so no step has a checkpoint."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    disk = _HeldUp()
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 5)
        writer = threading.Thread(target=torch.save, args=(copy.deepcopy(model.state_dict()), disk))
        writer.start()
        assert disk.reached.wait(60)
        train_steps(model, optimizer, 4)
        disk.let_go.set()
        writer.join()
        train_steps(model, optimizer, 6)
    assert 4 <= len(_saving(observed)) <= 6, _saving(observed)
    assert 5 <= max(_saving(observed)) <= 9
    assert 0 == sum(step["checkpoint_ns"] for step in observed.steps)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_steps_after_async_save_has_returned_are_flagged_until_it_is_done(tmp_path: Path) -> None:
    """The call is a checkpoint; what goes on behind it is said of the steps beside it."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    held = threading.Event()

    class Writer(dcp.FileSystemWriter):
        def write_data(self, plan: Any, planner: Any) -> Any:
            held.wait(60)
            return super().write_data(plan, planner)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        with probed(tmp_path) as observed:
            train_steps(model, optimizer, 5)
            future = dcp.async_save({"model": model.state_dict()}, storage_writer=Writer(tmp_path / "dcp"))
            train_steps(model, optimizer, 4)
            held.set()
            future.result()
            train_steps(model, optimizer, 6)
    finally:
        dist.destroy_process_group()
    (called,) = (step["step"] for step in observed.steps if step["flags"] & StepFlag.CHECKPOINT)
    assert [*range(called, called + 4)] == _saving(observed)[:4]
    assert max(_saving(observed)) <= called + 5


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_save_functions_go_to_another_process_while_attached(tmp_path: Path) -> None:
    """`pool.submit(torch.save, ...)`: pickle wants the very object that it finds under the function's name."""
    import torch.distributed.checkpoint as dcp

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path):
        train_steps(model, optimizer, 2)
        for function in (save, torch.save, torch.serialization.save, torch.load, dcp.save, dcp.async_save):
            assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 - our own bytes


@pytest.mark.parametrize(("kind", "samples", "tokens"), [("tokens", 4, 64), ("floats", 4, UNKNOWN)])
def test_samples_and_tokens_of_a_batch(tmp_path: Path, kind: str, samples: int, tokens: int) -> None:
    """A dict with token ids counts 4 x 16 tokens; features have no tokens, which is unknown and not 0."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(DataLoader(Samples(kind=kind), batch_size=4))
    with probed(tmp_path) as observed:
        for _ in range(4):
            next(batches)
            train_steps(model, optimizer, 1)
    assert (samples, tokens) == (observed.steps[-1]["samples"], observed.steps[-1]["tokens"])


def test_workers_never_touch_the_ring(tmp_path: Path) -> None:
    """Forked loader workers that save, run a model and collect garbage leave parent's phase and events alone."""

    class Busy(Samples):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            torch.save(torch.ones(3), io.BytesIO())
            nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
            gc.collect()
            next(iter(DataLoader([1, 2, 3])))
            return super().__getitems__(indices)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        batches = iter(DataLoader(Busy(0.001), batch_size=4, num_workers=2, multiprocessing_context="fork"))
        for _ in range(8):
            train_steps(model, optimizer, 1, next(batches))
        del batches
        assert [] == observed.events(EventKind.CHECKPOINT)
        assert 0 == observed.reader.num_lost_events
    assert [1] * 8 == [step["micro_steps"] for step in observed.steps]


def run_epochs(tmp_path: Path, loader: Any, num_epochs: int) -> tuple[list[dict[str, int]], int]:
    """(steps the probe saw, batches trained on) of `for` loops over a loader that a fast model waits for."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    num_batches = 0
    with probed(tmp_path) as observed:
        for _ in range(num_epochs):
            for batch in loader:
                train_steps(model, optimizer, 1, batch)
                num_batches += 1
    assert observed.errors == 0
    return observed.steps, num_batches


class Few(Samples):
    """Epochs of five batches of four."""

    def __len__(self) -> int:
        return 20


def assert_epochs_seen(steps: list[dict[str, int]], num_batches: int) -> None:
    """A step a batch across the epochs' borders, each with its wait and its samples."""
    assert num_batches == len(steps)
    for step in steps[1:-1]:
        assert "data_wait" in observed_phases(step)
        assert_sums_to_step(step)
        assert 4 == step["samples"]


def test_persistent_workers_across_epochs(tmp_path: Path) -> None:
    """The iterator of the first epoch is used again: no epoch is missed."""
    loader = DataLoader(Few(0.002), batch_size=4, num_workers=2, persistent_workers=True)
    steps, num_batches = run_epochs(tmp_path, loader, 3)
    assert 15 == num_batches
    assert_epochs_seen(steps, num_batches)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore")
def test_stateful_loader(tmp_path: Path, workers: int) -> None:
    """StatefulDataLoader of torchdata, also one that goes on from a saved state."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    loader = stateful.StatefulDataLoader(Few(0.002), batch_size=4, num_workers=workers)
    steps, num_batches = run_epochs(tmp_path, loader, 2)
    assert 10 == num_batches
    assert_epochs_seen(steps, num_batches)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    again = stateful.StatefulDataLoader(Few(0.002), batch_size=4, num_workers=workers)
    again.load_state_dict(state)
    steps, num_batches = run_epochs(tmp_path, again, 1)
    assert 3 == num_batches
    assert_epochs_seen(steps, num_batches)


def test_skip_with_several_optimizers_is_one_step(tmp_path: Path) -> None:
    """Two optimizers on one GradScaler: the second's gradients are infinite, the first steps; still a step a turn."""
    first, second = Model(), Model()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]
    scaler = torch.amp.GradScaler("cpu")
    with probed(tmp_path) as observed:
        for number in range(8):
            value = torch.ones(4, FEATURES)
            loss = first(value).square().mean()
            loss = loss + second(value * (float("inf") if number == 5 else 1.0)).square().mean()
            scaler.scale(loss).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            for optimizer in optimizers:
                optimizer.zero_grad()
    assert 8 == len(observed.steps)
    assert [5] == [step["step"] for step in observed.steps if step["flags"] & StepFlag.SCALER_SKIP]


def owners() -> list[Any]:
    """Everything the probe patches."""
    import torch.distributed._functional_collectives
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.utils.data.dataloader as loader
    from torch._C import _distributed_c10d as c10d

    return [
        loader._BaseDataLoaderIter,
        loader.DataLoader,
        nn.parallel.DistributedDataParallel,
        torch.distributed.fsdp.FullyShardedDataParallel,
        torch.distributed.pipelining.stage._PipelineStageBase,
        torch.distributed.pipelining.schedules,
        torch.distributed.pipelining.schedules.PipelineScheduleSingle,
        torch.distributed.pipelining.schedules.PipelineScheduleMulti,
        torch.autograd,
        torch.serialization,
        torch.serialization._open_zipfile_writer_file,
        torch.serialization._open_zipfile_writer_buffer,
        torch.amp.grad_scaler.GradScaler,
        torch.Tensor,
        c10d.ProcessGroup,
        c10d.Work,
        torch.distributed._functional_collectives,
        torch.distributed._functional_collectives.AsyncCollectiveTensor,
        nn.Module,
        Model,
        torch,
    ]


def test_every_patched_attribute_comes_back_identical(tmp_path: Path) -> None:
    """vars() of all owners before and after are the same names with the identical objects, callbacks too."""
    everything = owners()
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_steps(model, optimizer, 2)
    before = [dict(vars(owner)) for owner in everything]
    callbacks = list(gc.callbacks)
    changed_while_attached = 0
    with probed(tmp_path):
        train_steps(model, optimizer, 5)
        for owner, attributes in zip(everything, before, strict=True):
            changed_while_attached += any(
                vars(owner).get(name) is not value for name, value in attributes.items()
            )
    assert changed_while_attached >= 12
    for owner, attributes in zip(everything, before, strict=True):
        assert list(attributes) == list(vars(owner)), owner
        assert [] == [name for name, value in attributes.items() if vars(owner)[name] is not value], owner
    assert callbacks == gc.callbacks


def test_whole_model_is_saved_pickled_and_copied_while_attached(tmp_path: Path) -> None:
    """The patch sits on the class: a copy carries nothing of ours and can be loaded after we left."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path):
        train_steps(model, optimizer, 5)
        torch.save(model, tmp_path / "whole.pt")
        pickled = pickle.dumps(model)
        copied = copy.deepcopy(model)
    value = torch.ones(4, FEATURES)
    loaded = torch.load(tmp_path / "whole.pt", weights_only=False)
    for other in (loaded, pickle.loads(pickled), copied):  # noqa: S301 - our own bytes
        assert torch.equal(model(value), other(value))
    assert b"tuiadvisor" not in pickled


def generated(seconds: float) -> Iterator[Any]:
    """Batches that no loader makes."""
    while True:
        stand_still(seconds)
        yield torch.ones(4, FEATURES)


def own_loop(batches: Any, num_steps: int, observed_by: OwnClock) -> None:
    """A `for` loop over any iterator, with its own stopwatch."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin = time.monotonic_ns()
    for number, batch in enumerate(batches):
        observed_by.now["data_wait"] = time.monotonic_ns() - begin
        train_steps(model, optimizer, 1, batch)
        observed_by.close()
        if number + 1 == num_steps:
            return
        begin = time.monotonic_ns()


def test_generator_is_data_wait_from_python_3_12_on(tmp_path: Path) -> None:
    """With sys.monitoring the generator's own time is data_wait; without, it stays in other, with the reason."""
    import sys

    clock = OwnClock()
    with probed(tmp_path) as observed:
        own_loop(generated(0.004), 16, clock)
    last, mine = observed.steps[-1], clock.steps[-1]
    if sys.version_info >= (3, 12):
        assert "data_wait" in observed_phases(last)
        pairs = list(zip(clock.steps[-9:], observed.steps[-9:], strict=True))
        assert sum(is_close(own["data_wait"], seen["data_wait_ns"]) for own, seen in pairs) > len(pairs) / 2
        assert 4 == last["samples"]
        assert sys.monitoring.get_tool(4) is None  # type: ignore[attr-defined]
    else:
        assert "data_wait" not in observed_phases(last)
        assert observed.steps[-2]["other_ns"] >= mine["data_wait"]  # before the forward that begins the next
        assert "3.12" in observed.info["hooks"]["data_wait"]


class Plain(nn.Module):
    """A user's own module class: dynamo treats torch's classes differently."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU())
        self.head = nn.Linear(FEATURES, 2)

    def forward(self, value: Any) -> Any:
        return self.head(self.body(value))


def counters_of(dynamo: Any, *, with_frames: bool) -> dict[str, Any]:
    """Graphs, frames and breaks so far."""
    counters = dynamo.utils.counters
    names = ["stats", "graph_break", "frames"]
    return {name: dict(counters[name]) for name in (names if with_frames else names[:1])}


@pytest.mark.parametrize("way", ["function", "sequential", "in_place", "optimizer", "whole"])
@pytest.mark.filterwarnings("ignore")  # dynamo's own deprecations
def test_compiled_training_keeps_its_graphs(tmp_path: Path, way: str) -> None:
    """Attaching and leaving compile nothing anew and break no graph; forward is seen or says why not."""
    import torch._dynamo as dynamo

    dynamo.reset()
    dynamo.utils.counters.clear()
    torch_made = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU())
    model: Any = torch_made if way == "sequential" else Plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called, update = model, optimizer.step
    if way in ("function", "sequential"):
        called = torch.compile(model, backend="aot_eager")
    elif way == "in_place":
        model.compile(backend="aot_eager")
    elif way == "optimizer":
        update = torch.compile(optimizer.step, backend="aot_eager")

    def loss_of(value: Any) -> Any:
        return called(value).square().mean()

    if way == "whole":
        loss_of = torch.compile(loss_of, backend="aot_eager")

    def step() -> None:
        optimizer.zero_grad()
        loss_of(torch.ones(4, FEATURES)).backward()
        update()

    for _ in range(4):
        step()
    # A compiled optimizer's glue looks into torch's hook tables: that glue is analysed anew, its graph is kept.
    with_frames = way != "optimizer"
    before = counters_of(dynamo, with_frames=with_frames)
    usual = gc.get_threshold()
    with probed(tmp_path) as observed:
        gc.set_threshold(1, 1, 1)  # below the compiled call, too, where dynamo looks at every frame
        try:
            for _ in range(14):
                step()
        finally:
            gc.set_threshold(*usual)
        during = counters_of(dynamo, with_frames=with_frames)
    step()
    assert before["stats"]
    assert before == during == counters_of(dynamo, with_frames=with_frames)
    hidden = way == "whole"
    assert hidden == ("forward" not in observed_phases(observed.steps[-1]))
    assert hidden == (observed.info["hooks"]["forward_root"] != "ok")
    assert with_frames == (not observed.events(EventKind.COMPILE))


@pytest.mark.filterwarnings("ignore")
def test_compilation_is_marked(tmp_path: Path) -> None:
    """A compilation while attached leaves its mark on the step, and the graph is the one it would be without us."""
    import torch._dynamo as dynamo

    dynamo.reset()
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 4)
        dynamo.utils.counters.clear()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        train_steps(compiled, optimizer, 4)
        assert 1 == dynamo.utils.counters["stats"]["unique_graphs"]
    marked = [step["step"] for step in observed.steps if step["flags"] & StepFlag.COMPILE]
    assert {4} <= set(marked) <= {3, 4}  # before its first forward is entered the former step is still open
    assert observed.events(EventKind.COMPILE)


def test_read_of_observed_is_typed(tmp_path: Path) -> None:
    """The info area stays whole JSON with every reason in it."""
    with probed(tmp_path) as observed:
        pass
    assert isinstance(observed, Observed)
    assert {"hooks", "torch", "pid"} <= set(observed.info)


@pytest.mark.filterwarnings("ignore")
def test_model_compiled_while_attached_is_found_again(tmp_path: Path) -> None:
    """From one step to the next the forward hides in compiled code: unknown there, not 0, and seen again soon."""
    import torch._dynamo as dynamo

    dynamo.reset()
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 6)
        train_steps(torch.compile(model, backend="aot_eager"), optimizer, 40)
    seen = ["forward" in observed_phases(step) for step in observed.steps]
    assert seen[5]
    assert seen[-1]
    assert not all(seen[6:])
    for step in observed.steps:
        assert ("forward" in observed_phases(step)) == (step["forward_ns"] > 0)


class Packed(torch.Tensor):
    """Unpacks itself on `.to`: as quantized tensors do, by the very function that they are handed."""

    HANDLED: ClassVar[dict[Any, str]] = {torch.Tensor.to: "unpacked", torch.Tensor.pin_memory: "pinned"}

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.HANDLED.get(func) or super().__torch_function__(func, types, args, kwargs or {})


def test_tensors_that_look_for_their_own_methods_find_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CUDA in use, as far as the probe can tell: it leaves Tensor's methods alone, and never asks for a driver."""

    def starts_the_driver() -> bool:
        raise AssertionError

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", starts_the_driver)
    before = dict(vars(torch.Tensor))
    packed = torch.ones(4, FEATURES).as_subclass(Packed)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 6)
        assert before == dict(vars(torch.Tensor))
        assert ("unpacked", "pinned") == (packed.to(torch.float64), packed.pin_memory())
        assert torch.float64 == nn.LazyLinear(FEATURES).to(torch.float64).weight.dtype
    assert "cuda" == observed.info["device"]
    assert "h2d" not in observed_phases(observed.steps[-1])
