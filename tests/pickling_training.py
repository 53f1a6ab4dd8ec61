"""A training whose classes stand in its own script, pickled by value before the probe comes and while it is there.

pickling_training.py FOLDER [compiled]: what was pickled goes to FOLDER, with what a loader should get out of it.
"""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import dill
import torch
from probing import probed

VALUE = torch.ones(4, 8)


class Net(torch.nn.Module):
    """Inherits `__call__`, as models do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)  # names that the loader's script has: dill takes those of its own

    def forward(self, value: Any) -> Any:
        return self.layer(value)


class Caller(torch.nn.Module):
    """Has a `__call__` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def __call__(self, value: Any) -> Any:
        return super().__call__(value) + 1

    def forward(self, value: Any) -> Any:
        return self.layer(value)


class Derived(Net):
    """Never called itself: the patch is in its base."""


class Descent(torch.optim.SGD):
    """torch wraps its `step` in a function that names the tables of global step hooks."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def train(model: Any, optimizer: Any, num_steps: int, update: Callable[[], Any]) -> None:
    for _ in range(num_steps):
        optimizer.zero_grad()
        model(VALUE).square().mean().backward()
        update()


def put(folder: Path, name: str, data: bytes, expected: Any) -> None:
    """What a loader finds under this name."""
    (folder / f"{name}.pkl").write_bytes(data)
    torch.save(expected, folder / f"{name}.expected")


def pickle_all(folder: Path, model: Any, optimizer: Any) -> None:
    """By value: cloudpickle everything, dill what it can pickle without us (no optimizer of the script's own)."""
    output = model(VALUE).detach()
    derived = Derived()
    things = {
        "model": (model, output),
        "call": (model.__call__, output),
        "class": (type(model), list(type(model)().state_dict())),
        "derived": (derived, derived(VALUE).detach()),
    }
    for name, (thing, expected) in things.items():
        for pickler in (cloudpickle, dill):
            put(folder, f"{type(model).__name__}-{name}-{pickler.__name__}", pickler.dumps(thing), expected)
    weight = optimizer.param_groups[0]["params"][0].detach().clone()
    for name, thing in {
        "optimizer": optimizer,
        "step": optimizer.step,
        "optimizer_class": type(optimizer),
    }.items():
        put(folder, f"{type(model).__name__}-{name}-cloudpickle", cloudpickle.dumps(thing), weight)


def copy_all(model: Any, optimizer: Any) -> None:
    """By name, or not pickled at all."""
    output = model(VALUE).detach()
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),  # noqa: S301 - our own bytes
        torch.load(saved, weights_only=False),
    ):
        assert torch.equal(output, other(VALUE))
    assert type(copy.deepcopy(optimizer)) is type(optimizer)


def send(model: Any) -> None:
    """To a spawned process, as an argument."""
    output = model(VALUE).detach()
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=answer, args=(model, answers))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert torch.equal(output, torch.tensor(answers.get()))


def answer(model: Any, answers: Any) -> None:
    """In a spawned process."""
    answers.put(model(VALUE).detach().tolist())


def main(folder: Path, *, compiled: bool) -> None:
    torch.manual_seed(7)
    models: list[Any] = [Net(), Caller()]
    optimizers = [Descent(model.parameters(), lr=0.1) for model in models]
    updates: list[Any] = [optimizer.step for optimizer in optimizers]
    if compiled:
        updates = [torch.compile(lambda one=one: one.step(), backend="eager") for one in optimizers]

    def everything(name: str, num_steps: int) -> None:
        place = folder / name
        place.mkdir()
        for model, optimizer, update in zip(models, optimizers, updates, strict=True):
            train(model, optimizer, num_steps, update)
            pickle_all(place, model, optimizer)
            copy_all(model, optimizer)

    everything("before", 2)
    if compiled:
        torch.compiler.set_stance("fail_on_recompile")
    with probed(folder):
        for model, optimizer, update in zip(models, optimizers, updates, strict=True):
            train(model, optimizer, 6, update)
        assert "__call__" in vars(Net), "the hook that this is about is not there"
        # Where nothing may be compiled anew the optimizer's hooks are around `step` of its class.
        assert compiled == (not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks)
        everything("attached", 1)
        send(models[0])
    everything("after", 1)
    assert "__call__" not in vars(Net)


if __name__ == "__main__":
    main(Path(sys.argv[1]), compiled=sys.argv[2:] == ["compiled"])
