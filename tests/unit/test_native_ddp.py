"""DDP's forward and backward in the native core: the same records as Python's hooks, without a call of theirs."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import native_core
import pytest
from probing import assert_same_step, assert_sums_to_step, probed

from tuiadvisor.agent.payload import PRIVATE_NAME
from tuiadvisor.events import EventKind, StepFlag
from tuiadvisor_probes import phases

torch = pytest.importorskip("torch")
NUM_STEPS = 24
EXCHANGE_S = 0.003
# Steps in which the kernel may stop the thread between a forward's end and its hook for longer than the exchange takes.
MAX_STOPPED = 2


@pytest.fixture(autouse=True)
def alone_in_a_group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    if why_not := native_core.why_not():
        pytest.skip(f"no native core: {why_not}")
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def replica() -> Any:
    """A small model in DDP, whose exchange takes a while."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    )

    def exchange(_state: None, bucket: Any) -> Any:
        time.sleep(EXCHANGE_S)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    exchange.__annotations__.clear()  # DDP would have them be the classes themselves
    model.register_comm_hook(None, exchange)
    return model


class Training:
    """A model and its optimizer; each program below is what one step does."""

    def __init__(self) -> None:
        self.make()
        self.number = 0

    def make(self) -> None:
        """Anew."""
        self.model, self.other = replica(), None
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def loss(self) -> Any:
        """Of a batch."""
        return self.model(torch.ones(4, 4)).sum()


def plain(one: Training) -> None:
    one.loss().backward()


def accumulates(one: Training) -> None:
    with one.model.no_sync():
        one.loss().backward()
        one.loss().backward()
    one.loss().backward()


def two_forwards(one: Training) -> None:
    (one.loss() + one.loss()).backward()


def two_backwards(one: Training) -> None:
    """The first is of no module of DDP's, so that none of its gradients became ready: the second is still awaited."""
    loss = one.loss()
    torch.ones(3, requires_grad=True).sum().backward()
    time.sleep(
        EXCHANGE_S
    )  # the times that the reducer still tells, of the step before, are none of the first one's
    loss.backward()


def checkpoints(one: Training) -> None:
    """Reentrant ones, whose backwards lie within the loss's own, which is the one that exchanges."""
    entered = torch.ones(4, 4, requires_grad=True)
    checkpoint = torch.utils.checkpoint.checkpoint
    hidden = checkpoint(lambda batch: batch * 2, entered, use_reentrant=True)
    one.model(hidden).sum().backward()


def evaluates(one: Training) -> None:
    one.loss().backward()
    if one.number % 7 == 3:
        one.model.eval()
        with torch.no_grad():
            one.loss()
        one.model.train()


def rolls_out(one: Training) -> None:
    """Of DDP's module and of DDP itself in turns, before an exchange and between a forward and its backward."""
    with torch.no_grad():
        for _ in range(5):
            one.loss()
            one.model.module(torch.ones(4, 4))
    loss = one.loss()
    if one.number % 2:
        with torch.no_grad():
            for _ in range(3):
                one.loss()
    loss.backward()


class Wrapped(torch.nn.parallel.DistributedDataParallel):  # type: ignore[misc]
    """A root with DDP's own forward inside."""

    def forward(self, batch: Any) -> Any:
        return super().forward(batch)


def rolls_out_one_of_two(one: Training) -> None:
    """Of two subclasses of DDP: what lies inside of an evaluating forward says nothing of the forwards behind it."""
    if one.other is None:
        one.other = [Wrapped(torch.nn.Linear(4, 4)) for _ in range(2)]
    with torch.no_grad():
        for _ in range(3):
            one.other[0](torch.ones(4, 4))
    (one.loss() + sum(model(torch.ones(4, 4)).sum() for model in one.other)).backward()


def only_inside_in_training(one: Training) -> None:
    """As Lightning sets it: DDP itself says that it evaluates."""
    one.model.eval()
    one.model.module.train()
    one.loss().backward()


def two_models(one: Training) -> None:
    """As a generator and its discriminator: whose backward it was is told by their books."""
    one.other = one.other or replica()
    loss, other = one.loss(), one.other(torch.ones(4, 4)).sum()
    loss.backward()
    other.backward()


def another_model(one: Training) -> None:
    """From the middle on, while the first one is gone."""
    if one.number == NUM_STEPS // 2:
        one.make()
    one.loss().backward()


def raises(one: Training) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        one.model(torch.ones(4, 5))
    one.loss().backward()


PROGRAMS = {
    one.__name__: one
    for one in (
        plain,
        accumulates,
        two_forwards,
        two_backwards,
        checkpoints,
        evaluates,
        rolls_out,
        rolls_out_one_of_two,
        only_inside_in_training,
        two_models,
        another_model,
        raises,
    )
}


def train(one: Training, program: Callable[[Training], None], num_steps: int) -> None:
    """So many steps."""
    for _ in range(num_steps):
        one.number += 1
        one.optimizer.zero_grad()
        program(one)
        one.optimizer.step()


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_program_makes_the_same_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen, counted and met; and where one barrier ends a step, its wait is the communication there was."""
    seen, told = {}, {}
    for which in ("python", "native"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
        one = Training()
        train(one, PROGRAMS[name], 3)
        with probed(tmp_path, budget_ppm=0) as observed:
            train(one, PROGRAMS[name], NUM_STEPS)
        train(one, PROGRAMS[name], 2)
        assert set(observed.info["hooks"]) >= {"forward_ddp", "backward"}
        assert {"ok"} == {observed.info["hooks"][hook] for hook in ("forward_ddp", "backward", "optimizer")}
        seen[which] = observed.steps
        told[which] = [(event["step"], event["detail"]) for event in observed.events(EventKind.EVAL)]
    assert told["python"] == told["native"]
    assert len(seen["python"]) == len(seen["native"]) >= NUM_STEPS - 1
    num_stopped = 0
    for reference, row in zip(seen["python"], seen["native"], strict=True):
        assert_sums_to_step(row)
        if (reference["flags"] ^ row["flags"]) & StepFlag.NO_SYNC and num_stopped < MAX_STOPPED:
            num_stopped += 1
            continue
        assert_same_step(reference, row, but={"group_seq"})  # of one group, which counts on
        if row["arrive_ns"] >= 0:
            assert row["begin_ns"] <= row["arrive_ns"] <= row["release_ns"] <= row["end_ns"]
    if name in ("plain", "two_backwards", "checkpoints"):
        assert sum(row["flags"] & StepFlag.NO_SYNC > 0 for row in seen["native"][1:]) <= MAX_STOPPED
        for row in seen["native"][1:]:
            assert (
                row["release_ns"] - row["arrive_ns"] == row["comm_exposed_ns"]
                or row["flags"] & StepFlag.NO_SYNC
            )


def test_python_is_asked_for_nothing_in_a_plain_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for the group's sequence number; where a step is out of the ordinary it takes over what the core awaits."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    one = Training()
    with probed(tmp_path, budget_ppm=0) as observed:
        train(one, plain, 40)
        probe = sys.modules[PRIVATE_NAME + ".install"]._probe
        hooks = sys.modules[PRIVATE_NAME + ".model_hooks"]
        asked: list[str] = []
        passed, group_seq = hooks.PendingBarrier.passed, probe.clock.group_seq
        monkeypatch.setattr(
            hooks.PendingBarrier, "passed", lambda *what: (asked.append("passed"), passed(*what))
        )
        probe.clock.group_seq = lambda: (asked.append("group_seq"), group_seq())[1]
        train(one, plain, 20)
        assert [] == asked
        assert probe.clock.awaited is None
        loss = one.loss()
        assert probe.clock.awaited() is one.model
        probe.clock.detail_flag = 1  # as in a burst
        loss.backward()
        probe.clock.detail_flag = 0
        assert probe.clock.awaited is None
        assert ["passed"] == asked
        one.optimizer.step()
        train(one, plain, 3)
    rows = observed.steps[1:]
    assert sum(row["arrive_ns"] < 0 for row in rows) <= MAX_STOPPED
    assert all(
        later["num_collectives"] == later["group_seq"] - row["group_seq"] for row, later in pairwise(rows)
    )
    assert all(row["group_seq"] >= 0 for row in rows)


@pytest.mark.parametrize("which", ["0", "1"])
def test_a_backward_within_a_pipelines_own_exchanges(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time around it is told as backward by another hook, which is none of torch's."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", which)
    one = Training()

    def in_a_chunk(one: Training) -> None:
        clock = sys.modules[PRIVATE_NAME + ".install"]._probe.clock
        loss = one.loss()
        clock.enter(phases.BACKWARD)
        loss.backward()
        clock.leave()

    with probed(tmp_path, budget_ppm=0) as observed:
        train(one, in_a_chunk, NUM_STEPS)
    assert sum(row["arrive_ns"] < 0 for row in observed.steps) <= MAX_STOPPED


def test_a_model_that_is_awaited_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is let go after a forward that no backward follows, as between two models that the device has no room for."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    one = Training()
    with probed(tmp_path, budget_ppm=0) as observed:
        train(one, plain, 40)
        probe = sys.modules[PRIVATE_NAME + ".install"]._probe
        gone = weakref.ref(one.model)
        one.loss()
        is_awaited = probe.clock.awaited() is one.model
        one.make()
        gc.collect()
        assert is_awaited
        assert gone() is None
        train(one, plain, 40)
        assert probe.clock.sole_ddp() is one.model
    rows = [row for row in observed.steps if row["step"] > 50]
    assert all(row["group_seq"] >= 0 for row in rows)
    assert sum(row["arrive_ns"] < 0 for row in rows) <= MAX_STOPPED


def test_the_ranks_are_aligned_by_the_module_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two the larger one has told the last collective's number, until the program dropped it."""
    for which in ("0", "1"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", which)
        one = Training()
        large = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 100))
        with probed(tmp_path, budget_ppm=0) as observed:
            for number in range(NUM_STEPS):
                if large is not None:
                    large(torch.ones(4, 4)).sum().backward()
                train(one, plain, 1)
                if number == NUM_STEPS // 2:
                    large = None
                    gc.collect()
            probe = sys.modules[PRIVATE_NAME + ".install"]._probe
            assert probe.clock.sole_ddp() is one.model
        unknown = [row["step"] for row in observed.steps[2:] if row["group_seq"] < 0]
        assert len(unknown) <= 1, unknown
        assert min(row["num_collectives"] for row in observed.steps) >= -1


@pytest.mark.parametrize("which", ["0", "1"])
def test_what_a_replica_is_given_is_seen(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core's gate of DDP's forward asks nobody by itself; once somebody wants to look, it has to."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", which)
    one = Training()
    with probed(tmp_path) as observed:
        for _ in range(NUM_STEPS):
            one.loss().backward()
            one.optimizer.step()
        told = observed.info["model"]
    assert (told["input"], told["input_dtype"], told["autocast"]) == ("4x4", "float32", "off")
