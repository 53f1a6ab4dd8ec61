"""Waits for functional collectives: communication wherever they lie, once, and nothing that torch.compile sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import native_core
import pytest
from probing import assert_same_step, assert_sums_to_step, observed_phases, probed

from tuiadvisor.events import StepFlag

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torch.distributed._functional_collectives")
pytestmark = pytest.mark.filterwarnings("ignore")  # dynamo's own deprecations
FEATURES = 8
WAIT_S = 0.004
NUM_STEPS = 12
MAX_STOPPED = (
    2  # steps in which the kernel may stop the thread between DDP's forward and its hook for that long
)


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[Any]:
    """A process group of this process, and a dynamo that has seen nothing."""
    import torch._dynamo as dynamo
    import torch.distributed as dist

    dynamo.reset()
    dynamo.utils.counters.clear()
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()
    dynamo.config.error_on_recompile = False
    dynamo.reset()


def slow_waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each wait takes a while, as where another rank is late; how long each of them took."""
    usual, took = functional.wait_tensor, []

    def wait(tensor: Any) -> Any:
        begin_ns = time.monotonic_ns()
        time.sleep(WAIT_S)
        result = usual(tensor)
        took.append(time.monotonic_ns() - begin_ns)
        return result

    monkeypatch.setattr(functional, "wait_tensor", wait)
    return took


class SummedGradient(torch.autograd.Function):  # type: ignore[misc]
    """A value that each rank has; its gradient is all ranks' sum."""

    @staticmethod
    def forward(ctx: Any, value: Any, group: Any, by_work: bool) -> Any:  # type: ignore[override]
        ctx.group, ctx.by_work = group, by_work
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        if ctx.by_work:
            work = torch.distributed.all_reduce(gradient, group=ctx.group, async_op=True)
            time.sleep(WAIT_S)
            work.wait()
            return gradient, None, None
        return functional.all_reduce(gradient, "sum", ctx.group) * 1, None, None


def in_forward(model: Any, value: Any, group: Any) -> Any:
    """What was gathered is used twice."""
    gathered = functional.all_gather_tensor(model(value).detach(), 0, group)
    return model(value) + gathered + gathered


def before_forward(model: Any, value: Any, group: Any) -> Any:
    return model(functional.all_reduce(value.detach(), "sum", group) * 1)


def by_method(model: Any, value: Any, group: Any) -> Any:
    return model(functional.all_reduce(value.detach(), "sum", group).wait())


def behind_exchange(model: Any, value: Any, group: Any) -> Any:
    """In backward, once all gradients of the model itself are there."""
    return model(SummedGradient.apply(value, group, False))


def behind_exchange_by_work(model: Any, value: Any, group: Any) -> Any:
    return model(SummedGradient.apply(value, group, True))


PROGRAMS = (in_forward, before_forward, by_method, behind_exchange, behind_exchange_by_work)


def train(model: Any, group: Any, program: Callable[[Any, Any, Any], Any], num_steps: int) -> None:
    """A plain loop."""
    value = torch.nn.Parameter(torch.ones(4, FEATURES))
    optimizer = torch.optim.SGD([value, *model.parameters()], lr=0.01)
    for _ in range(num_steps):
        optimizer.zero_grad()
        program(model, value, group).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("is_replica", [True, False])
def test_each_wait_is_communication_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: Any,
    program: Callable[..., Any],
    *,
    is_replica: bool,
) -> None:
    """The same with either core: no phase has less than nothing, and none but communication has the waits."""
    took = slow_waits(monkeypatch)
    seen = {}
    for which in ("0",) if native_core.why_not() else ("0", "1"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", which)
        model: Any = torch.nn.Linear(FEATURES, FEATURES)
        model = torch.nn.parallel.DistributedDataParallel(model) if is_replica else model
        train(model, group, program, 2)
        took.clear()
        with probed(tmp_path, budget_ppm=0) as observed:
            train(model, group, program, NUM_STEPS)
            assert observed.info["hooks"]["functional_waits"] == "ok"
        seen[which] = rows = observed.steps[1:]
        assert len(rows) >= NUM_STEPS - 2
        assert all("comm_exposed" in observed_phases(row) for row in rows)
        for row in rows:
            assert_sums_to_step(row)
        assert len(took) == (0 if program is behind_exchange_by_work else NUM_STEPS)
        # One step ends earlier than those before it, where the root that is none of DDP's is found: at its forward.
        short = [row["step"] for row in rows[:-1] if row["comm_exposed_ns"] < min(took, default=0)]
        assert len(short) <= (not is_replica)
    num_stopped = 0
    for reference, row in zip(*seen.values(), strict=False) if len(seen) > 1 else ():
        if (reference["flags"] ^ row["flags"]) & StepFlag.NO_SYNC and num_stopped < MAX_STOPPED:
            num_stopped += 1
        else:
            assert_same_step(reference, row, but={"group_seq"})  # of one group, which counts on


def summed(value: Any, group: Any) -> Any:
    return functional.all_reduce(value, "sum", group) * 2


def gathered(value: Any, group: Any) -> Any:
    return functional.all_gather_tensor_autograd(value, 0, group).sum()


def waits(value: Any, group: Any) -> Any:
    return functional.wait_tensor(functional.all_reduce(value, "sum", group)) * 2


def plain(value: Any, _group: Any) -> Any:
    """Of what is still to be waited for, below."""
    return value * 2 + 1


def waits_by_method(value: Any, _group: Any) -> Any:
    return value.wait() * 2


COMPILED = ((summed, False), (gathered, False), (waits, False), (plain, True), (waits_by_method, True))


def counts() -> dict[str, Any]:
    """What dynamo has compiled."""
    import torch._dynamo as dynamo

    return {name: dict(dynamo.utils.counters[name]) for name in ("stats", "frames", "graph_break")}


@pytest.mark.parametrize(("function", "is_given_unfinished"), COMPILED)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_compiled_code_is_compiled_once_and_whole(
    tmp_path: Path, group: Any, function: Callable[..., Any], when: str, *, is_given_unfinished: bool
) -> None:
    """Before the attach or meanwhile: not anew by the attach, nor by the detach, nor by another attach."""
    import torch._dynamo as dynamo

    wait_tensor = functional.wait_tensor
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)

    def call() -> Any:
        value = torch.ones(4)
        return compiled(functional.all_reduce(value, "sum", group) if is_given_unfinished else value, group)

    expected = function(
        torch.ones(4) if function is plain else functional.all_reduce(torch.ones(4), "sum", group), group
    )
    if when == "before":
        call()
    with probed(tmp_path):
        call()
        before = counts()
        dynamo.config.error_on_recompile = True
        assert wait_tensor is functional.wait_tensor
        assert torch.equal(expected, call())
    call()
    with probed(tmp_path):
        call()
    assert counts() == before
    assert before["stats"]["unique_graphs"] == 1
    assert before["graph_break"] == {}


def test_a_training_that_is_compiled_goes_on_beside_eager_waits(tmp_path: Path, group: Any) -> None:
    """The model is compiled, what is done with its output is not."""
    import torch._dynamo as dynamo

    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, FEATURES), torch.nn.ReLU())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    train(compiled, group, in_forward, 3)
    before = counts()
    dynamo.config.error_on_recompile = True
    with probed(tmp_path) as observed:
        train(compiled, group, in_forward, 6)
    train(compiled, group, in_forward, 2)
    assert before == counts()
    without = [row["step"] for row in observed.steps[1:] if not row["comm_exposed_ns"]]
    assert len(without) <= 1  # where the root is found, see above
