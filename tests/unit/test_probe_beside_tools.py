"""Beside a debugger or a profiler in the training thread: its report, our steps and the weights are what they were."""

from __future__ import annotations

import contextlib
import cProfile
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from probing import assert_same_step, assert_sums_to_step, probed

torch = pytest.importorskip("torch")

NUM_STEPS = 16
Report = Counter[tuple[str, int]]


class Model(torch.nn.Module):  # type: ignore[misc]
    """The user's own lines."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, batch: Any) -> Any:
        """Two lines."""
        hidden = self.layer(batch)
        return hidden.sum()


def train(model: Any, optimizer: Any, num_steps: int) -> None:
    """As users write it."""
    for number in range(num_steps):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float(number)))
        loss.backward()
        optimizer.step()


USERS = {Model.forward.__code__: "forward", train.__code__: "train"}


@contextlib.contextmanager
def debugger(report: Report) -> Iterator[None]:
    """Sees each line, as one that has a breakpoint does."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = USERS.get(frame.f_code)
        if name is not None and event == "line":
            report[name, frame.f_lineno] += 1
        return trace if name is not None or event == "line" else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def profiler(report: Report) -> Iterator[None]:
    """C's own, which counts calls."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        for entry in profile.getstats():
            if isinstance(entry.code, CodeType) and entry.code in USERS:
                report[USERS[entry.code], 0] += entry.callcount


@contextlib.contextmanager
def nothing(_: Report) -> Iterator[None]:
    """No tool."""
    yield


def run(tool: Callable[[Report], Any], folder: Path | None) -> tuple[Report, Any, list[dict[str, int]]]:
    """What the tool tells, the weights, and our steps; folder: None for a run that nobody watches."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    report, steps = Report(), list[dict[str, int]]()
    with tool(report):
        hooks = [sys.gettrace(), sys.getprofile()]
        train(model, optimizer, 5)
        if folder is not None:
            with probed(folder, budget_ppm=0) as observed:
                assert hooks == [sys.gettrace(), sys.getprofile()]
                train(model, optimizer, NUM_STEPS)
            steps = observed.steps
        else:
            train(model, optimizer, NUM_STEPS)
        assert hooks == [sys.gettrace(), sys.getprofile()]
        train(model, optimizer, 2)
        assert hooks == [sys.gettrace(), sys.getprofile()]
    return report, [value.tolist() for value in model.parameters()], steps


@pytest.mark.parametrize("core", ["python", "native"], indirect=True)
@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("tool", [debugger, profiler])
def test_tools_and_probe_tell_the_same_beside_each_other(
    tool: Callable[[Report], Any], tmp_path: Path
) -> None:
    """Each line and call of the user's is told once; attach and detach leave the thread's tracer in its place."""
    alone, weights, _ = run(tool, None)
    report, watched_weights, steps = run(tool, tmp_path)
    assert alone == report
    assert alone["train", 0] == 3 or len(alone) >= 7
    assert weights == watched_weights
    *_, reference = run(nothing, tmp_path)
    assert len(reference) == len(steps) >= NUM_STEPS - 1
    for expected, step in zip(reference, steps, strict=True):
        assert_same_step(expected, step)
        assert_sums_to_step(step)
