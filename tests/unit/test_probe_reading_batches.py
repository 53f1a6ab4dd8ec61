"""Batches are counted without running any code of theirs: reading may use up, load or change what is read."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from probing import probed
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

from tuiadvisor_probes.collective_hooks import num_bytes
from tuiadvisor_probes.data_hook import first_tensor
from tuiadvisor_probes.forward_look import input_facts, packed_facts
from tuiadvisor_probes.packed_lengths import squares

IDS = torch.ones(6, 5, dtype=torch.int64)
VALUES = torch.ones(4, 8)
NUM_STEPS = 12


class ReadOnce(dict[str, Any]):
    """Gives up what is read of it, to free memory early."""

    def __getitem__(self, key: str) -> Any:
        return self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self.pop(key, default)


class Augmenting(Mapping[str, Any]):
    """Makes what is read of it."""

    def __init__(self, values: Any) -> None:
        self.held = values

    def __getitem__(self, key: str) -> Any:
        return self.held + torch.rand(1)

    def __iter__(self) -> Iterator[str]:
        return iter(("x",))

    def __len__(self) -> int:
        return 1


class Noisy(list[Any]):
    """Likewise, by place."""

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place) + torch.rand(1)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


class Lazy:
    """Is made when somebody asks for its class or for its data."""

    def __init__(self, values: Any) -> None:
        self.held = values

    def made(self) -> Any:
        self.held = self.held + torch.rand(1)
        return self.held

    @property
    def __class__(self) -> Any:
        return type(self.made())

    @property
    def data(self) -> Any:
        return self.made()


class Encoding(collections.UserDict[str, Any]):
    """As a tokenizer's BatchEncoding, and what is read of it is used up."""

    def __getitem__(self, key: Any) -> Any:
        return self.data.pop(key)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class Pair(NamedTuple):
    """Plain."""

    x: Any
    y: Any


class Strict(tuple[Any, ...]):
    """Read by the loop alone."""

    __slots__ = ()

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


COUNTED = {
    "tensor": (lambda: IDS, 6),
    "list": (lambda: [VALUES, IDS], 4),
    "tuple": (lambda: (VALUES,), 4),
    "dict": (lambda: {"x": VALUES}, 4),
    "ids": (lambda: {"x": VALUES, "input_ids": IDS}, 6),
    "ordered": (lambda: collections.OrderedDict(x=VALUES), 4),
    "default": (lambda: collections.defaultdict(int, x=VALUES), 4),
    "named": (lambda: Pair(VALUES, IDS), 4),
    "packed": (lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2)]), 3),
    "encoding": (lambda: Encoding(x=VALUES, input_ids=IDS), 6),
    "nested": (lambda: [({"x": [VALUES]},)], None),
    "nested less": (lambda: [({"x": VALUES},)], 4),
    "read once": (lambda: ReadOnce(input_ids=IDS), 6),
    "noisy": (lambda: Noisy([VALUES]), 4),
    "strict": (lambda: Strict((VALUES,)), 4),
    "augmenting": (lambda: Augmenting(VALUES), None),
    "lazy": (lambda: Lazy(VALUES), None),
    "number": (lambda: torch.tensor(3.0), None),
    "empty": (list, None),
    "empty dict": (dict, None),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_counts_and_that_nothing_is_run_for_it(name: str) -> None:
    """Of a class that makes something of being read, what it keeps itself counts, or nothing does."""
    make, expected = COUNTED[name]
    batch = make()
    before = torch.get_rng_state()
    tensor = first_tensor(batch)
    assert squares(batch) is None
    assert input_facts((batch,), {}) is not None
    assert packed_facts((batch,), {}) == {}
    assert torch.equal(before, torch.get_rng_state())
    assert (None if tensor is None else len(tensor)) == expected
    assert first_tensor(batch) is tensor


def train(batches: list[Any], read: Callable[[Any], Any]) -> float:
    """A weight that tells every random number that was drawn."""
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader: Any = DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)
    for batch in loader:
        optimizer.zero_grad()
        noise = torch.rand(4, 8)
        model(read(batch) + noise).mean().backward()
        optimizer.step()
    return float(model.weight.detach().sum())


@pytest.mark.parametrize(
    ("make", "read", "samples"),
    [
        (lambda: ReadOnce(input_ids=VALUES), lambda batch: batch["input_ids"], 4),
        (lambda: Augmenting(VALUES), lambda batch: batch["x"], -1),
        (lambda: Noisy([VALUES]), lambda batch: batch[0], 4),
        (lambda: Lazy(VALUES), lambda batch: batch.made(), -1),
        (lambda: Encoding(input_ids=VALUES), lambda batch: batch["input_ids"], 4),
    ],
)
def test_a_training_whose_batches_do_something_goes_on_as_without_us(
    make: Callable[[], Any], read: Callable[[Any], Any], samples: int, tmp_path: Path
) -> None:
    """What was read of a batch ended one of them by a KeyError and changed the weights of others."""
    plain = train([make() for _ in range(NUM_STEPS)], read)
    with probed(tmp_path, detail_s=60) as observed:
        watched = train([make() for _ in range(NUM_STEPS)], read)
    assert plain == watched
    assert {step["samples"] for step in observed.steps[1:]} == {samples}


class Told(TorchFunctionMode):
    """What a mode of the training's own hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: collections.Counter[str] = collections.Counter()

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.heard[getattr(function, "__name__", "") + str(getattr(function, "__self__", ""))[:60]] += 1
        return function(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    """Likewise, below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.heard[str(function)] += 1
        return function(*args, **(kwargs or {}))


class Speaking(torch.Tensor):
    """A tensor that hears what is asked of it."""

    heard: ClassVar[collections.Counter[str]] = collections.Counter()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard[str(function)] += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def packed() -> dict[str, Any]:
    """Two sequences a row."""
    return {"x": torch.ones(4, 8), "position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]] * 4)}


@pytest.mark.parametrize("mode_class", [Told, Dispatched])
@pytest.mark.parametrize(
    ("make", "read"), [(lambda: VALUES, lambda batch: batch), (packed, lambda batch: batch["x"])]
)
def test_a_mode_of_the_trainings_own_hears_nothing_of_us(
    mode_class: Any, make: Callable[[], Any], read: Callable[[Any], Any], tmp_path: Path
) -> None:
    """Who injects faults by chance or counts operations gets the same ones; samples are told nevertheless."""
    with mode_class() as plain:
        result = train([make() for _ in range(NUM_STEPS)], read)
    with probed(tmp_path, detail_s=60) as observed, mode_class() as watched:
        assert result == train([make() for _ in range(NUM_STEPS)], read)
    assert plain.heard == watched.heard
    assert {step["samples"] for step in observed.steps[1:]} == {4}


def test_a_tensor_of_a_class_of_its_own_hears_nothing_of_us(tmp_path: Path) -> None:
    """And is counted past its class."""

    def run() -> collections.Counter[str]:
        Speaking.heard.clear()
        train([VALUES.as_subclass(Speaking) for _ in range(NUM_STEPS)], lambda batch: batch)
        return collections.Counter(Speaking.heard)

    plain = run()
    with probed(tmp_path, detail_s=60) as observed:
        watched = run()
    assert plain == watched
    assert {step["samples"] for step in observed.steps[1:]} == {4}


def test_lengths_are_unknown_under_a_mode() -> None:
    """They take operations; and of a plain tensor nothing is asked that is one."""
    assert squares(packed()) == (8, 32, 4 * (9 + 25))
    with Dispatched() as below:
        assert squares(packed()) is None
        assert squares(VALUES) is None
        assert packed_facts((), packed()) == {}
    assert not any("detach" in name or "eq" in name for name in below.heard)
    with Told() as above:
        batch = packed()
        above.heard.clear()
        assert squares(batch) is None
        assert packed_facts((), batch) == {}
        assert input_facts((batch["x"],), {}) == {"input": "4x8", "input_dtype": "float32"}
        assert not above.heard


def test_a_collectives_bytes_are_asked_unheard() -> None:
    """Of a mode, and of a tensor's class."""
    spoken = VALUES.as_subclass(Speaking)
    Speaking.heard.clear()
    with Told() as mode:
        assert num_bytes((VALUES, [VALUES, spoken])) == 2 * 4 * 8 * 4
        assert not mode.heard
    assert not Speaking.heard
