"""Garbage collections: what is told of them, and that a signal which arrives in one is the training's as without us."""

from __future__ import annotations

import ctypes
import gc
import signal
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from probing import probed

from tuiadvisor.events import EventKind, StepFlag

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

NUM_STEPS, AT = 12, 7
SIGNAL = signal.SIGUSR1


class TimeLimitError(Exception):
    """What a handler raises, as those of time limits do."""


class Node:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.own = self


@contextmanager
def time_limit() -> Iterator[None]:
    """The handler raises wherever Python is."""

    def handler(*_: Any) -> None:
        raise TimeLimitError

    former = signal.signal(SIGNAL, handler)
    try:
        yield
    finally:
        signal.signal(SIGNAL, former)


def garbage_that_signals() -> weakref.ref[Node]:
    """The process is sent a signal amid the collection of it, by C alone: Python's handler runs when Python does."""
    send = iter(partial(getattr(ctypes.CDLL(None), "raise"), int(SIGNAL)), None)
    return weakref.ref(Node(), partial(next, send))


def train(num_steps: int = NUM_STEPS, *, signals: bool = True) -> list[int]:
    """Steps whose time limit was seen."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step in range(num_steps):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        try:
            keep = garbage_that_signals() if step % 2 and signals else None
            gc.collect()
            del keep
        except TimeLimitError:
            seen.append(step)
    return seen


@pytest.mark.parametrize("watched", [False, True])
def test_what_a_handler_raises_in_a_collection_reaches_the_training(tmp_path: Path, watched: bool) -> None:
    """The collector dropped it at the first line of our callback: a quarter of the time limits of one, and Ctrl-C."""
    with time_limit(), probed(tmp_path) if watched else nullcontext():
        assert [step for step in range(NUM_STEPS) if step % 2] == train()


def test_collections_are_told_with_their_step_and_length(tmp_path: Path) -> None:
    """Those of the training's own thread, a long one by itself."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    took_ns = 0
    gc.disable()
    try:
        with probed(tmp_path, budget_ppm=0) as observed:
            for step in range(NUM_STEPS):
                optimizer.zero_grad()
                model(torch.ones(4, 8)).sum().backward()
                if step == AT:
                    nodes = [Node() for _ in range(200_000)]
                    del nodes
                    begin_ns = time.monotonic_ns()
                    gc.collect()
                    took_ns = time.monotonic_ns() - begin_ns
                optimizer.step()
    finally:
        gc.enable()
    collected = {row["step"]: row for row in observed.steps if row["gc_ns"] > 0}
    (event,) = observed.events(EventKind.GC)
    assert took_ns > 1_000_000
    assert took_ns == pytest.approx(collected[AT]["gc_ns"], rel=0.2)
    assert collected[AT]["flags"] & StepFlag.GC
    assert (AT, event["end_ns"] - event["begin_ns"]) == (event["step"], collected[AT]["gc_ns"])


def test_a_collection_at_every_allocation_is_read_to_an_end(tmp_path: Path) -> None:
    """To read what was noted makes new objects, and so new collections."""
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with probed(tmp_path, budget_ppm=0) as observed:
            train(4, signals=False)
    finally:
        gc.set_threshold(*threshold)
    assert all(row["gc_ns"] > 0 for row in observed.steps)
