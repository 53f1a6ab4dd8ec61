"""The probe beside other tools in the same process, and beside what scripts do that nobody expects."""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
import traceback
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from probing import assert_sums_to_step, observed_phases, probed

from tuiadvisor.agent.payload import detach_code
from tuiadvisor.events import UNKNOWN

torch = pytest.importorskip("torch")
from torch import fx, nn  # noqa: E402
from torch.optim import optimizer as optimizers  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

FEATURES = 8
OWN_S = 0.02  # of what a subclass does before it calls DDP's forward
WALK_S = 0.1  # a walk through torch's step hooks stands still so long, once


@pytest.fixture
def own_hooks() -> Iterator[list[Any]]:
    """Handles of a test's own global step hooks; none is left after it."""
    handles: list[Any] = []
    yield handles
    for handle in handles:
        handle.remove()
    optimizers._global_optimizer_pre_hooks.clear()
    optimizers._global_optimizer_post_hooks.clear()


def model_and_optimizer() -> tuple[Any, Any]:
    """A linear model and SGD."""
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train_steps(model: Any, optimizer: Any, num_steps: int) -> None:
    """A plain loop without a loader."""
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.ones(4, FEATURES)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "register", ["register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"]
)
def test_attach_and_detach_while_another_tools_step_hook_runs(
    tmp_path: Path, own_hooks: list[Any], register: str
) -> None:
    """Torch walks through a dict of hooks: a key that comes or goes meanwhile would end the training."""
    model, optimizer = model_and_optimizer()
    begins, ends = threading.Event(), threading.Event()
    do_now: list[threading.Event] = []

    def other_tool(*_: Any) -> None:
        if do_now:
            do_now.pop().set()
            time.sleep(WALK_S)

    own_hooks.append(getattr(optimizers, register)(other_tool))
    own_hooks.append(getattr(optimizers, register)(lambda *_: None))  # the walk goes on after it
    observed: list[Any] = []

    def attach_and_detach() -> None:
        begins.wait()
        with probed(tmp_path) as seen:
            observed.append(seen)
            ends.wait()

    watcher = threading.Thread(target=attach_and_detach)
    watcher.start()
    do_now.append(begins)
    while not observed:
        train_steps(model, optimizer, 1)
    train_steps(model, optimizer, 8)
    do_now.append(ends)
    while watcher.is_alive():
        train_steps(model, optimizer, 1)
    watcher.join()
    assert "optimizer" in observed_phases(observed[0].steps[-1])
    assert 2 == len(optimizers._global_optimizer_pre_hooks) + len(optimizers._global_optimizer_post_hooks)


class Chain(nn.Module):
    """A module whose parts are of its own class."""

    def __init__(self, num_parts: int) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)
        self.rest = Chain(num_parts - 1) if num_parts > 1 else nn.Identity()

    def forward(self, value: Any) -> Any:
        return self.rest(self.layer(value))


class WholeChains(fx.Tracer):
    """Shows a chain inside a chain as one call, as quantization does with the modules that it replaces."""

    def is_leaf_module(self, module: Any, module_qualified_name: str) -> bool:
        return isinstance(module, Chain) or super().is_leaf_module(module, module_qualified_name)


def test_model_is_traced_by_fx_as_without_us(tmp_path: Path) -> None:
    """torch.fx exchanges nn.Module.__call__ while it traces; our replacement on the model's class passes there."""
    model = Chain(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alone = str(WholeChains().trace(model))
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 6)
        watched = str(WholeChains().trace(model))
    assert "forward" in observed_phases(observed.steps[-1])
    assert alone == watched


class OwnDDP(nn.parallel.DistributedDataParallel):
    """A subclass that works before it calls the forward that we patch."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.lasted_ns: list[int] = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        begin_ns = time.monotonic_ns()
        time.sleep(OWN_S)
        result = super().forward(*inputs, **kwargs)
        self.lasted_ns.append(time.monotonic_ns() - begin_ns)
        return result


@pytest.mark.alone
def test_forward_of_a_ddp_subclass_is_forward_with_its_own_part(tmp_path: Path) -> None:
    """What a subclass does around DDP's own forward is not left in other; the barrier is seen all the same."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = OwnDDP(nn.Linear(FEATURES, FEATURES))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with probed(tmp_path) as observed:
            train_steps(model, optimizer, 12)
        steps = observed.steps[-9:]
    finally:
        torch.distributed.destroy_process_group()
    # What torch and our hooks do around the subclass's forward is forward, too, and a slow machine's takes longer.
    around_ns = [
        step["forward_ns"] - mine_ns for mine_ns, step in zip(model.lasted_ns[-9:], steps, strict=True)
    ]
    assert min(around_ns) >= 0
    assert statistics.median(around_ns) < OWN_S * 1e9 / 2
    assert statistics.median(step["other_ns"] for step in steps) < OWN_S * 1e9 / 2
    last = steps[-1]
    assert "comm_exposed" in observed_phases(last)
    assert_sums_to_step(last)


class Untouchable:
    """An object that counts who looks into it, and fails."""

    num_looks = 0

    def __getattribute__(self, name: str) -> Any:
        Untouchable.num_looks += 1
        raise RuntimeError(name)


def test_model_is_found_beside_objects_that_cannot_be_looked_at(tmp_path: Path) -> None:
    """A dead weak proxy, a module that is not made yet and a lazy object stand in the frames of the loop."""

    class Gone:
        pass

    model, optimizer = model_and_optimizer()
    beside = (weakref.proxy(Gone()), nn.Module.__new__(Chain), Untouchable())

    def loop() -> None:
        proxy, unmade, untouchable = beside
        train_steps(model, optimizer, 8)
        assert untouchable is not unmade is not proxy

    with probed(tmp_path) as observed:
        loop()
    assert "forward" in observed_phases(observed.steps[-1])
    assert 0 == Untouchable.num_looks


@dataclasses.dataclass
class Pairs:
    """A batch of a retrieval model: `keys` is a tensor, not a method."""

    queries: Any
    keys: Any


class BrokenMapping(Mapping[str, Any]):
    """A batch that does not like to be looked at."""

    def __init__(self, **_given: Any) -> None:
        """Holds nothing yet."""

    def __getitem__(self, key: object) -> Any:
        raise RuntimeError("not yet")

    __contains__ = __iter__ = __len__ = __getitem__  # type: ignore[assignment]


@pytest.mark.parametrize("collate", [lambda rows: Pairs(rows, rows), lambda rows: BrokenMapping(rows=rows)])
def test_batch_that_cannot_be_looked_at_has_a_wait_and_no_count(tmp_path: Path, collate: Any) -> None:
    """Samples are unknown, not 0, and the time of the loader is seen all the same."""
    model, optimizer = model_and_optimizer()
    rows: list[Any] = [torch.ones(FEATURES)] * 100
    with probed(tmp_path) as observed:
        for number, _batch in enumerate(DataLoader(rows, batch_size=2, collate_fn=collate)):  # type: ignore[arg-type]
            train_steps(model, optimizer, 1)
            if number == 8:
                break
    last = observed.steps[-1]
    assert "data_wait" in observed_phases(last)
    assert (UNKNOWN, UNKNOWN) == (last["samples"], last["tokens"])


def test_detach_from_inside_a_walk_through_step_hooks(tmp_path: Path, own_hooks: list[Any]) -> None:
    """Where waiting cannot help an empty function keeps the place: the walk ends as it began."""
    model, optimizer = model_and_optimizer()
    with probed(tmp_path):
        train_steps(model, optimizer, 4)
        own_hooks.append(
            optimizers.register_optimizer_step_pre_hook(lambda *_: exec(detach_code(), {}))  # noqa: S102
        )
        own_hooks.append(optimizers.register_optimizer_step_pre_hook(lambda *_: None))
        train_steps(model, optimizer, 2)
    left = [hook for hook in optimizers._global_optimizer_pre_hooks.values() if hook.__name__ == "<lambda>"]
    assert 3 == len(left) == len(optimizers._global_optimizer_pre_hooks)
    assert not optimizers._global_optimizer_post_hooks


class Drawing(nn.Module):  # type: ignore[misc]
    """A model that has methods of its own where torch's would only tell what it holds."""

    num_asked = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)

    def forward(self, values: Any) -> Any:
        return self.layer(values)

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        Drawing.num_asked += 1
        return super().parameters(recurse)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        Drawing.num_asked += 1
        return super().named_parameters(*args, **kwargs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        Drawing.num_asked += 1
        return super().named_modules(*args, **kwargs)


def test_a_models_own_methods_are_not_called_to_find_its_parameters(tmp_path: Path) -> None:
    """Who draws a random number in one has the weights that it has without us."""
    model = Drawing()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    Drawing.num_asked = 0
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 12)
        told = observed.info["model"]
    assert "forward" in observed_phases(observed.steps[-1])
    assert told["params"] == FEATURES + 1
    assert 0 == Drawing.num_asked


class Copied(nn.Module):  # type: ignore[misc]
    """A model whose class is made anew, as dataclasses with slots are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)

    def forward(self, values: Any) -> Any:
        return self.layer(values)


def test_a_class_made_of_a_watched_classes_dict_is_called_as_without_us(tmp_path: Path) -> None:
    """While we are there and after; its subclasses too, whether or not they have a `__call__` of their own."""
    model = Copied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path):
        train_steps(model, optimizer, 6)
        assert "__call__" in vars(Copied)
        made: Any = type("Made", Copied.__bases__, dict(vars(Copied)))

        class Heir(made):  # type: ignore[misc]
            def __call__(self, values: Any) -> Any:
                return super().__call__(values) + 1

        values = torch.ones(2, FEATURES)
        expected = model(values)
        others = [made.__new__(kind) for kind in (made, Heir)]
        for other in others:
            other.__dict__.update(model.__dict__)
        assert torch.equal(expected, others[0](values))
        assert torch.equal(expected + 1, others[1](values))
    assert torch.equal(expected, others[0](values))
    assert torch.equal(expected, model(values))


class Nested(nn.Module):  # type: ignore[misc]
    """A model that calls itself, and tells how many frames there are at the bottom."""

    frames = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, 1)

    def forward(self, values: Any, levels: int = 4) -> Any:
        if levels:
            return self(values, levels - 1)
        Nested.frames = sum(1 for _ in traceback.walk_stack(None))
        return self.layer(values)


def test_a_model_that_calls_itself_has_at_most_a_frame_of_ours_at_each_level(tmp_path: Path) -> None:
    """Each counts against Python's limit of nested calls."""
    model = Nested()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_steps(model, optimizer, 1)
    plain = Nested.frames
    with probed(tmp_path) as observed:
        train_steps(model, optimizer, 6)
        is_native = observed.info["core"] == "native"
    assert plain + (0 if is_native else 5) == Nested.frames
