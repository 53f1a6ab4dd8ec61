"""A rank whose loop does not run in the main thread: `python tests/thread_training.py KIND FOLDER`, until it is killed.

With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT two ranks train data parallel, rank 1 slow in forward; else one does.
KIND: thread (one for ever, the main thread joins it), epochs (a new one every few steps), two (both at once), hang (the
loop of rank 1 sleeps after some steps), backward (no optimizer ever steps), idle (torch and nothing else).
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ.get("RANK", "0"))
IS_DISTRIBUTED = "WORLD_SIZE" in os.environ
LATE_S = 0.05 if RANK == 1 else 0.0
STEPS_A_THREAD = 12
STEPS_UNTIL_READY = 15
STEPS_UNTIL_HANG = 40


class Slow(nn.Module):
    """Takes its time on rank 1."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: Any) -> Any:
        """A few milliseconds."""
        time.sleep(0.005 + LATE_S)
        return self.body(batch)


def forever(loader: Any) -> Iterator[Any]:
    """Epoch after epoch; itertools.cycle would ask the loader in the first one only."""
    while True:
        yield from loader


class Training:
    """The model and its loop, in whichever thread calls it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        model: Any = Slow()
        self.model = nn.parallel.DistributedDataParallel(model) if IS_DISTRIBUTED else model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.batches = forever(torch.utils.data.DataLoader(torch.randn(400, 64), batch_size=8))
        self.num_steps = 0

    def run(self, num_steps: int) -> None:
        """So many steps."""
        for _ in range(num_steps):
            self.optimizer.zero_grad()
            self.model(next(self.batches)).mean().backward()
            if self.kind != "backward":
                self.optimizer.step()
            self.num_steps += 1
            if self.num_steps == STEPS_UNTIL_READY:
                (self.folder / f"ready.{os.getpid()}").touch()
            if self.kind == "hang" and RANK == 1 and self.num_steps == STEPS_UNTIL_HANG:
                (self.folder / "hangs").touch()
                oversleep()


def oversleep() -> None:
    """For ever."""
    while True:
        time.sleep(0.1)


def in_thread(name: str, training: Training, num_steps: int = sys.maxsize) -> threading.Thread:
    """Begun."""
    thread = threading.Thread(target=training.run, args=(num_steps,), name=name)
    thread.start()
    return thread


def main(kind: str, folder: Path) -> None:
    """Until somebody ends it."""
    torch.set_num_threads(1)
    if kind == "idle":
        (folder / f"ready.{os.getpid()}").touch()
        oversleep()
    if IS_DISTRIBUTED:
        dist.init_process_group("gloo")
    training = Training(kind, folder)
    if kind == "epochs":
        for epoch in itertools.count():
            in_thread(f"epoch {epoch}", training, STEPS_A_THREAD).join()
    others = [in_thread("loop 2", Training(kind, folder))] if kind == "two" else []
    for thread in (in_thread("loop", training), *others):
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
