"""Steps that a training had done before the probe came, by its optimizer's own count, which checkpoints bring back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing import probed  # noqa: E402
from torch import nn  # noqa: E402

STEPS = 30


def train(model: Any, optimizer: Any, num_steps: int) -> None:
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()


def told(folder: Path, optimizer_of: Any, steps_before: int, checkpoint: bool = False) -> Any:
    """What the probe says of a training after so many steps; checkpoint: a new optimizer took over its state."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    optimizer = optimizer_of(model.parameters())
    train(model, optimizer, steps_before)
    if checkpoint:
        state = optimizer.state_dict()
        optimizer = optimizer_of(model.parameters())
        optimizer.load_state_dict(state)
    with probed(folder) as seen:
        train(model, optimizer, STEPS)
        return seen.info["model"].get("steps_before")


@pytest.mark.parametrize("steps_before", [0, 7])
def test_adams_count_is_told(tmp_path: Path, steps_before: int) -> None:
    assert told(tmp_path, torch.optim.AdamW, steps_before) == steps_before


def test_a_checkpoint_brings_it_back(tmp_path: Path) -> None:
    assert told(tmp_path, torch.optim.AdamW, 40, checkpoint=True) == 40


def test_an_optimizer_without_a_count_tells_none(tmp_path: Path) -> None:
    assert told(tmp_path, lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9), 7) is None


def test_a_count_that_does_not_go_along_with_the_steps_tells_none(tmp_path: Path) -> None:
    """As where one step of the loop is several of the optimizer's."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with probed(tmp_path) as seen:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            for held in optimizer.state.values():
                held["step"] += 1
        assert seen.info["model"].get("steps_before") is None
