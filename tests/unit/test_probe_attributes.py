"""Attributes of the training's objects are read without a mark on them."""

from __future__ import annotations

import gc
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from probing import probed

from tuiadvisor_probes.attributes import HAS_MARKS, own, values_of

torch = pytest.importorskip("torch")


class Plain:
    """As a script's own trainer."""

    shared = "of the class"

    def __init__(self) -> None:
        self.model = ["a model"]
        self.steps = 3

    @property
    def costly(self) -> int:
        raise AssertionError("code of the training's ran")

    @cached_property
    def later(self) -> int:
        raise AssertionError("code of the training's ran")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")


class Slots:
    """Without a dict."""

    __slots__ = ("model",)

    def __init__(self) -> None:
        self.model = 1


def has_dict(thing: Any, name: str) -> bool:
    """Whether an object has a dict of its own, asked of the collector."""
    return any(type(one) is dict and name in one for one in gc.get_referents(thing))


@pytest.mark.parametrize("is_asked", [False, True])
def test_what_an_object_keeps_is_told_with_and_without_a_dict(is_asked: bool) -> None:
    """The same either way; nothing of the class's is run for it."""
    thing = Plain()
    if is_asked:
        assert thing.__dict__
    names = own(thing)
    assert names.get("model") is thing.model
    assert names.get("steps") == 3
    assert names.get("costly") is names.get("later") is names.get("none of its own") is None
    assert names.get("none of its own", 7) == 7
    assert any(value is thing.model for value in values_of(thing))
    assert 3 in values_of(thing)
    if not is_asked and HAS_MARKS:
        assert not has_dict(thing, "steps")


class Cached:
    """Its first attribute is a cached property's, its last one a function in the place of a method."""

    @cached_property
    def first(self) -> list[str]:
        return ["costly"]

    def forward(self) -> None:
        """Replaced in the instance."""


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_dict_that_holds_what_the_object_holds_is_not_taken_for_its_own(is_asked: bool) -> None:
    """As `to_save` of a trainer; a real one is known whatever its first name is."""
    thing: Any = Cached()
    assert thing.first
    thing.model, thing.forward = ["a model"], len
    thing.to_save = {"model": thing.model, "steps": 4}
    thing.last = ["last"]
    if is_asked:
        assert thing.__dict__
    for value in (thing.model, thing.last, thing.to_save):
        assert any(one is value for one in values_of(thing))
    assert own(thing).get("last") is thing.last
    assert own(thing).get("forward") is len
    assert own(thing).get("steps") is None
    assert own(Cached()).get("forward") is None


@pytest.mark.parametrize("thing", [Slots(), 3, "text", [1], sys, Plain, object()])
def test_objects_of_other_kinds_are_no_error(thing: Any) -> None:
    """Slots, values, modules, classes."""
    assert own(thing).get("model", "none") in ("none", 1)
    assert isinstance(values_of(thing), list)


def test_dicts_and_lists_of_a_classs_own_are_not_walked() -> None:
    """Theirs may be millions of items."""

    class Many(list):  # type: ignore[type-arg]
        pass

    many = Many(range(1000))
    many.name = "one"  # type: ignore[attr-defined]
    assert values_of(many) == ["one"]


@pytest.mark.skipif(not HAS_MARKS, reason="only CPython 3.11 and 3.12 make a dict that costs")
def test_an_attach_leaves_no_dict_behind(tmp_path: Path) -> None:
    """Neither the search for the model nor the facts about it and its loader, nor a burst of detail."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    rows = torch.utils.data.TensorDataset(torch.ones(400, 4))

    class Trainer:
        def __init__(self) -> None:
            self.model = model
            self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            self.loader = torch.utils.data.DataLoader(rows, batch_size=4)

        def train(self) -> None:
            self.batches = iter(self.loader)
            for (batch,) in self.batches:
                self.optimizer.zero_grad()
                self.model(batch).sum().backward()
                self.optimizer.step()

    trainer = Trainer()
    with probed(tmp_path, detail_s=60.0) as observed:
        trainer.train()
    assert observed.info["model"]["modules"] == 3
    assert observed.info["model"]["workers"] == 0
    assert [
        name
        for name, thing, attribute in (
            ("trainer", trainer, "model"),
            ("optimizer", trainer.optimizer, "param_groups"),
            ("loader", trainer.loader, "batch_size"),
            ("batches", trainer.batches, "_dataset"),
            ("fetcher", trainer.batches._dataset_fetcher, "collate_fn"),
            ("rows", rows, "tensors"),
        )
        if has_dict(thing, attribute)
    ] == []
