"""What the probe sees of a data loader's stages: its queues at the moment a batch is asked for, its collate."""

from __future__ import annotations

import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from patience import wait_until
from probing import Observed, probed
from torch.utils.data import DataLoader, default_collate
from torch.utils.data import dataloader as torch_loaders

from tuiadvisor.events import BATCHES_HELD_BITS, UNKNOWN, EventKind
from tuiadvisor_probes import loader_stages, phases

STEPS, BATCH = 12, 4
BURST_S = 600.0  # longer than any test


def train(loader: Any, before_each: Any = lambda _batches: None) -> None:
    """One step a batch."""
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(loader)
    for _ in range(STEPS):
        before_each(batches)
        optimizer.zero_grad()
        model(next(batches)).mean().backward()
        optimizer.step()


def told(observed: Observed) -> list[dict[str, int]]:
    """Events of the loader."""
    return observed.events(EventKind.LOADER_BATCH)


@pytest.mark.slow
def test_batches_that_lie_ready_are_counted(tmp_path: Path) -> None:
    """All that the workers may make ahead is there before the training thread asks."""
    data = [torch.randn(8) for _ in range(BATCH * STEPS)]
    loader = DataLoader(data, batch_size=BATCH, num_workers=1, prefetch_factor=2, in_order=True)
    left = iter(range(STEPS))

    def until_ready(batches: Any) -> None:
        wanted = min(2, STEPS - next(left))
        wait_until(lambda: batches._data_queue.qsize() == wanted, "the worker has made its batches")

    with probed(tmp_path, detail_s=BURST_S) as observed:
        train(loader, until_ready)
    events = told(observed)
    assert len(events) >= STEPS - 4  # a burst begins with a step of its own
    assert {event["group"] for event in events} == {1}
    assert {event["seq"] for event in events if event["step"] < STEPS - 2} == {2}
    assert {event["num_bytes"] for event in events} == {UNKNOWN}  # nothing pins
    assert {event["detail"] for event in events if event["step"] < STEPS - 2} == {
        1 << BATCHES_HELD_BITS
    }  # all made
    assert all(event["begin_ns"] <= event["end_ns"] for event in events)


def test_a_loader_without_workers_tells_its_collating(tmp_path: Path) -> None:
    """A part of the time in which the batch was made; the loader's fetcher is as before."""
    data = [torch.randn(8) for _ in range(BATCH * STEPS)]
    loader = DataLoader(data, batch_size=BATCH)
    kept: list[Any] = []
    with probed(tmp_path, detail_s=BURST_S) as observed:
        train(loader, lambda batches: kept.append(batches._dataset_fetcher.collate_fn))
    events = told(observed)
    assert events
    assert {(event["group"], event["seq"]) for event in events} == {(0, UNKNOWN)}
    assert all(0 < event["detail"] <= event["end_ns"] - event["begin_ns"] for event in events)
    assert {id(one) for one in kept} == {id(default_collate)}


def test_nothing_stays_behind(tmp_path: Path) -> None:
    """Outside a burst the loader's methods are torch's own objects."""
    names = [
        vars(getattr(torch_loaders, "_" + name))["_next_data"]
        for name in (loader_stages.SINGLE, loader_stages.MULTIPLE)
    ]
    data = [torch.randn(8) for _ in range(BATCH * STEPS)]
    with probed(tmp_path, detail_s=BURST_S) as observed:
        train(DataLoader(data, batch_size=BATCH))
        assert vars(torch_loaders._SingleProcessDataLoaderIter)["_next_data"] is not names[0]
    assert told(observed)
    assert names == [
        vars(getattr(torch_loaders, "_" + name))["_next_data"]
        for name in (loader_stages.SINGLE, loader_stages.MULTIPLE)
    ]


def test_an_error_of_the_dataset_is_its_own(tmp_path: Path) -> None:
    """It passes, and no batch is told of."""

    class Broken:
        def __len__(self) -> int:
            return 3 * BATCH

        def __getitem__(self, index: int) -> torch.Tensor:
            if index >= 2 * BATCH:
                raise ValueError("that one is not there")
            return torch.ones(8)

    with probed(tmp_path, detail_s=BURST_S), pytest.raises(ValueError, match="that one is not there"):
        train(DataLoader(Broken(), batch_size=BATCH))


def asked(*, ready: int, made: int | None, held: int, reads: int = 1) -> dict[str, int]:
    """The event of one batch of a loader whose queues hold so many, and that reads so many until it has the one."""
    data: queue.Queue[int] = queue.Queue()
    behind: queue.Queue[int] = queue.Queue() if made is not None else data
    for target, num in ((data, ready), (behind, made or 0)):
        for number in range(num):
            target.put(number)
    tasks: dict[int, tuple[Any, ...]] = {
        number: (0, "data") if number < held else (0,) for number in range(held + reads + 1)
    }

    def next_data(_iterator: Any) -> str:
        tasks.update({held + number: (0, "data") for number in range(reads - 1)})
        return "batch"

    iterator = SimpleNamespace(
        _num_workers=2, _data_queue=data, _worker_result_queue=behind, _task_info=tasks
    )
    rows: list[tuple[int, ...]] = []
    clock = SimpleNamespace(step=7, own_ns=0)
    ring = SimpleNamespace(put_event=lambda _kind, values: rows.append(values))
    probe: Any = SimpleNamespace(clock=clock, ring=ring)
    hook: Any = SimpleNamespace(failed=pytest.fail)
    assert loader_stages.told_of_queues(probe, next_data, hook)(iterator) == "batch"
    ((step, _, _, workers, in_queue, before_pin, detail),) = rows
    turn = detail & (1 << BATCHES_HELD_BITS) - 1
    assert (detail >> BATCHES_HELD_BITS) - 1 == max(reads + 1 - ready - (made or 0), 0)
    assert (step, workers) == (7, 2)
    return {"ready": in_queue, "made": before_pin, "held": turn}


def test_batches_before_the_pinning_thread_are_apart() -> None:
    """Three places a batch may wait in."""
    assert asked(ready=0, made=3, held=0) == {"ready": 0, "made": 3, "held": 0}
    assert asked(ready=2, made=None, held=1) == {"ready": 2, "made": UNKNOWN, "held": 1}


def test_batches_that_are_not_in_turn_are_not_ready() -> None:
    """Those of the other workers, in any queue: what was read for one batch beyond them tells that it came later."""
    assert asked(ready=2, made=None, held=1, reads=2) == {"ready": 2, "made": UNKNOWN, "held": 1}
    assert asked(ready=2, made=None, held=1, reads=3) == {"ready": 0, "made": UNKNOWN, "held": 3}
    assert asked(ready=1, made=2, held=0, reads=3) == {"ready": 0, "made": 2, "held": 1}
    assert asked(ready=1, made=2, held=0, reads=4) == {"ready": 0, "made": 0, "held": 3}


def test_the_phase_around_it_is_the_loaders(tmp_path: Path) -> None:
    """What a burst sees of the loader lies within the step's data wait."""
    data = [torch.randn(8) for _ in range(BATCH * STEPS)]
    with probed(tmp_path, detail_s=BURST_S) as observed:
        train(DataLoader(data, batch_size=BATCH))
    waits = {step["step"]: step["data_wait_ns"] for step in observed.steps}
    seen = {event["step"]: event["end_ns"] - event["begin_ns"] for event in told(observed)}
    assert phases.DATA_WAIT == 0
    assert set(seen) & set(waits)
    assert all(took <= waits[step] for step, took in seen.items() if step in waits)
