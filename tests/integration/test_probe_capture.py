"""The profiler window in a training's own process: what it records, what it leaves, and who comes first."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from probing import Observed, probed

from tuiadvisor.agent.payload import PRIVATE_NAME, extension_code
from tuiadvisor.events import StepFlag

torch = pytest.importorskip("torch")
profiler = pytest.importorskip("torch.autograd.profiler")

NUM_STEPS = 3


class Training:
    """A model whose weights after n steps depend on every bit of every step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.model(torch.randn(4, 8)).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    @property
    def weights(self) -> list[float]:
        return [
            float(value) for parameter in self.model.parameters() for value in parameter.detach().flatten()
        ]


def ask(folder: Path, num_steps: int = NUM_STEPS) -> Path:
    """Ask for a window as the command does; the folder it writes to."""
    wish = folder / f"wish-{time.monotonic_ns()}"
    wish.mkdir()
    limit_ns = time.monotonic_ns() + 60 * 10**9
    exec(extension_code("capture", f"begin({str(wish)!r}, {num_steps}, (0, {limit_ns}))", str(wish)), {})  # noqa: S102
    return wish


def state(wish: Path) -> dict[str, Any]:
    """What the probe said of the window."""
    said: dict[str, Any] = json.loads((wish / "state.json").read_text())
    return said


def names(wish: Path) -> list[str]:
    """Names of everything in the trace."""
    events = json.loads((wish / "trace.json").read_text())["traceEvents"]
    return [event["name"] for event in events if event.get("ph") == "X"]


def assert_nothing_is_left() -> None:
    """No profiler is on, and what was patched is torch's own again."""
    assert not torch._C._autograd._profiler_enabled()
    assert not profiler._is_profiler_enabled
    assert profiler._enable_profiler is torch.autograd._enable_profiler
    assert profiler._prepare_profiler is torch.autograd._prepare_profiler
    assert "tuiadvisor" not in repr(profiler.record_function.__enter__.__qualname__)
    assert f"{PRIVATE_NAME}.capture" not in sys.modules


def captured(observed: Observed) -> list[int]:
    """Steps flagged as disturbed."""
    return [step["step"] for step in observed.steps if step["flags"] & StepFlag.CAPTURE]


def test_window_holds_whole_steps_and_leaves_the_weights_alone(tmp_path: Path) -> None:
    """The trace names exactly the steps asked for, its cost is told, and every weight is as without it."""
    alone = Training()
    alone.steps(12)
    training = Training()
    with probed(tmp_path) as observed:
        training.steps(2)
        wish = ask(tmp_path)
        training.steps(10)
        said = state(wish)
        first = said["first_step"]
        expected = [f"ProfilerStep#{first + index}" for index in range(NUM_STEPS)]
        assert expected == sorted(name for name in names(wish) if name.startswith("ProfilerStep"))
        assert names(wish).count("aten::addmm") == 2 * NUM_STEPS
    assert said["state"] == "done"
    assert set(said["cost_ns"]) == {"start", "stop", "write"}
    assert len(said["step_ns_inside"]) == NUM_STEPS
    assert said["step_ns_before"]
    # The step after the window pays for stopping and writing.
    assert captured(observed) == list(range(first, first + NUM_STEPS + 1))
    assert training.weights == alone.weights
    assert_nothing_is_left()


def test_a_second_window_works_and_two_at_once_do_not(tmp_path: Path) -> None:
    """The later wish is refused while one is under way, and granted afterwards."""
    training = Training()
    with probed(tmp_path):
        first = ask(tmp_path)
        second = ask(tmp_path)
        training.steps(8)
        third = ask(tmp_path)
        training.steps(8)
    assert [state(wish)["state"] for wish in (first, second, third)] == ["done", "refused", "done"]
    assert "another capture" in state(second)["why"]
    assert_nothing_is_left()


def test_a_running_profiler_keeps_ours_out(tmp_path: Path) -> None:
    """The wish is refused with the reason, and the training's own trace is whole."""
    training = Training()
    with probed(tmp_path), torch.profiler.profile() as own:
        wish = ask(tmp_path)
        training.steps(6)
    assert state(wish)["state"] == "refused"
    assert "profiler of the training's own" in state(wish)["why"]
    assert sum(event.count for event in own.key_averages() if event.key == "aten::addmm") == 12
    assert_nothing_is_left()


def test_a_profiler_that_starts_in_the_window_puts_ours_out(tmp_path: Path) -> None:
    """Two profilers in one thread are an error in torch: the training's never meets ours."""
    training = Training()
    with probed(tmp_path):
        wish = ask(tmp_path, num_steps=100)
        training.steps(5)
        assert state(wish)["state"] == "recording"
        with torch.profiler.profile() as own:
            training.steps(4)
    assert "made way" in state(wish)["why"]
    assert sum(event.count for event in own.key_averages() if event.key == "aten::addmm") == 8
    assert_nothing_is_left()


def test_a_wish_taken_back_ends_the_window(tmp_path: Path) -> None:
    """Without its folder nobody waits for the trace: the profiler is off at the next border."""
    training = Training()
    with probed(tmp_path):
        wish = ask(tmp_path, num_steps=100)
        training.steps(5)
        assert torch._C._autograd._profiler_enabled()
        for path in wish.iterdir():
            path.unlink()
        wish.rmdir()
        training.steps(2)
        assert not torch._C._autograd._profiler_enabled()
    assert not wish.exists()
    assert_nothing_is_left()


@pytest.mark.parametrize("from_thread", [False, True])
def test_a_probe_that_leaves_takes_the_profiler_along(tmp_path: Path, from_thread: bool) -> None:
    """Taken out from another thread, the profiler is stopped by the training thread in its next step."""
    training = Training()
    with probed(tmp_path):
        wish = ask(tmp_path, num_steps=100)
        training.steps(5)
        uninstall = sys.modules[f"{PRIVATE_NAME}.install"].uninstall
        if from_thread:
            thread = threading.Thread(target=uninstall)
            thread.start()
            thread.join()
        else:
            uninstall()
        training.steps(1)
    assert "left before" in state(wish)["why"]
    assert_nothing_is_left()


def test_without_a_probe_nothing_happens(tmp_path: Path) -> None:
    """A process whose probe has just gone is not touched."""
    wish = ask(tmp_path)
    assert list(wish.iterdir()) == []
    assert_nothing_is_left()
