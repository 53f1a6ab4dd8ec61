"""A training that forbids torch.compile to compile anew: an attach and a detach must not make it do so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import probed

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # dynamo's own deprecations
FEATURES = 8


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    import torch._dynamo as dynamo

    dynamo.reset()
    dynamo.utils.counters.clear()
    yield
    torch.compiler.set_stance("default")
    dynamo.reset()


def loop(way: str) -> tuple[Callable[[], None], Any]:
    """One iteration of a training whose optimizer runs below torch.compile, and its model."""
    torch.manual_seed(7)
    model = torch.nn.Linear(FEATURES, FEATURES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if way == "scheduler":
        torch.optim.lr_scheduler.StepLR(optimizer, 1000)

    def whole() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, FEATURES)).square().mean().backward()
        update()

    def update() -> None:
        optimizer.step()

    if way == "method":
        update = torch.compile(optimizer.step, backend="eager")
    elif way == "whole":
        return torch.compile(whole, backend="eager"), model
    else:
        update = torch.compile(update, backend="eager")
    return whole, model


WAYS = ("function", "whole", "method", "scheduler")
STANCES = ("fail_on_recompile", "eager_on_recompile", "error_on_recompile")


# In every run each way and each stance once.
@pytest.mark.parametrize(
    ("stance", "way"),
    [
        pytest.param(
            stance, way, marks=() if place % len(STANCES) == STANCES.index(stance) else pytest.mark.extended
        )
        for stance in STANCES
        for place, way in enumerate(WAYS)
    ],
)
def test_attach_and_detach_compile_nothing_anew(tmp_path: Path, way: str, stance: str) -> None:
    """The training goes on to the same weights; its steps are seen where they can be seen without a recompilation."""
    import torch._dynamo as dynamo

    expected_iteration, expected = loop(way)
    for _ in range(24):
        expected_iteration()
    iteration, model = loop(way)
    for _ in range(4):
        iteration()
    dynamo.config.error_on_recompile = stance == "error_on_recompile"
    if stance != "error_on_recompile":
        torch.compiler.set_stance(stance)
    try:
        with probed(tmp_path) as observed:
            for _ in range(10):
                iteration()
        with probed(tmp_path):
            for _ in range(5):
                iteration()
        for _ in range(5):
            iteration()
    finally:
        dynamo.config.error_on_recompile = False
    assert torch.equal(expected.weight, model.weight)
    assert (way in ("function", "whole")) == (len(observed.steps) >= 8)


def test_compiled_code_that_names_backward_is_not_compiled_anew(tmp_path: Path) -> None:
    """What it names stays the very object: it was compiled before we came, and to compile it again is forbidden."""
    model = torch.nn.Linear(FEATURES, FEATURES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_and_backward() -> None:
        torch.autograd.backward(model(torch.ones(4, FEATURES)).square().mean())

    compiled = torch.compile(loss_and_backward, backend="eager")
    for _ in range(4):
        compiled()
    torch.compiler.set_stance("fail_on_recompile")
    with probed(tmp_path) as observed:
        for _ in range(10):
            compiled()
            optimizer.zero_grad()
            optimizer.step()
    compiled()
    backward_ns = [row["backward_ns"] for row in observed.steps[1:]]
    assert len(backward_ns) >= 8
    assert min(backward_ns) > 0


def test_torch_that_replaces_the_same_function_for_a_while_finds_ours_and_puts_it_back(
    tmp_path: Path,
) -> None:
    """As make_fx does: it takes the function from torch.autograd.graph and puts it into both modules."""
    context = getattr(torch.compiler, "_patch_engine_backward", None)
    if context is None:
        pytest.skip("this torch replaces nothing")
    iteration, _model = loop("method")
    with probed(tmp_path):
        iteration()
        with context():
            pass
        ours = torch.autograd._engine_run_backward
        assert "tuiadvisor" in repr(type(ours)) + repr(getattr(ours, "__code__", ""))
        assert ours is torch.autograd.graph._engine_run_backward
    assert torch.autograd._engine_run_backward is torch.autograd.graph._engine_run_backward
    assert "tuiadvisor" not in repr(type(torch.autograd._engine_run_backward))
    assert "tuiadvisor" not in repr(torch.autograd._engine_run_backward.__code__)


def test_a_replacement_that_stands_when_the_probe_comes_may_end(tmp_path: Path) -> None:
    """Whoever has put it there puts the original back: backward itself is watched then."""
    graph = torch.autograd.graph
    original, backward = graph._engine_run_backward, torch.autograd.backward

    def others(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        return original(outputs, *args, **kwargs)

    torch.autograd._engine_run_backward = graph._engine_run_backward = functools.wraps(original)(others)
    try:
        with probed(tmp_path) as observed:
            assert torch.autograd.backward is not backward
            torch.autograd._engine_run_backward = graph._engine_run_backward = original
            model = torch.nn.Linear(FEATURES, FEATURES)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(10):
                model(torch.ones(4, FEATURES)).sum().backward()
                optimizer.step()
    finally:
        torch.autograd._engine_run_backward = graph._engine_run_backward = original
    assert torch.autograd.backward is backward
    assert all(row["backward_ns"] > 0 for row in observed.steps[1:])
    assert len(observed.steps) >= 8


def test_a_step_compiled_with_the_probe_outlives_it(tmp_path: Path) -> None:
    """Compiled while attached, then forbidden to compile anew: leaving and coming again are harmless."""
    iteration, model = loop("function")
    with probed(tmp_path):
        for _ in range(4):
            iteration()
        torch.compiler.set_stance("fail_on_recompile")
    for _ in range(3):
        iteration()
    with probed(tmp_path) as observed:
        for _ in range(8):
            iteration()
    iteration()
    assert len(observed.steps) >= 6
    expected_iteration, expected = loop("function")
    torch.compiler.set_stance("default")
    for _ in range(16):
        expected_iteration()
    assert torch.equal(expected.weight, model.weight)


def test_a_stance_for_a_part_of_the_loop_counts(tmp_path: Path) -> None:
    """Set and taken back around each call, so that it does not hold while we attach."""
    iteration, _model = loop("function")
    for _ in range(4):
        iteration()

    def step() -> None:
        with torch.compiler.set_stance("fail_on_recompile"):
            iteration()

    def training() -> None:
        with probed(tmp_path) as observed:
            for _ in range(8):
                with torch.compiler.set_stance("fail_on_recompile"):
                    iteration()
        step()
        assert len(observed.steps) >= 6

    training()


def test_an_optimizer_that_dynamo_has_taken_out_of_its_wrapper_is_seen(tmp_path: Path) -> None:
    """As torch 2.1 does with every class once something is compiled: marked as hooked, and no step hook is called."""

    class Unwrapped(torch.optim.Optimizer):
        def step(self) -> None:
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.sub_(0.01 * parameter.grad)

        step.hooked = True

    original = Unwrapped.step
    model = torch.nn.Linear(FEATURES, FEATURES)
    optimizer = Unwrapped(model.parameters(), {})
    assert optimizer.step.__func__ is original
    with probed(tmp_path) as observed:
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.ones(4, FEATURES)).square().mean().backward()
            optimizer.step()
    assert Unwrapped.step is original
    assert len(observed.steps) >= 8
    assert all(row["optimizer_ns"] > 0 for row in observed.steps[1:])
