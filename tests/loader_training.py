"""A DDP training whose loader is slower than its step: both by sleeping, so that cores are free whatever the machine.

Run by torchrun: loader_training.py WORKERS COLLATE_MS SLOW_WORKER_MS STEP_MS [PIN_MS]; trains until it is ended.
With PIN_MS its batches go through torch's own thread that pins, which torch starts beside an accelerator only.
"""

from __future__ import annotations

import sys
import time
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info

WORKERS = int(sys.argv[1])
COLLATE_S, SLOW_WORKER_S, STEP_S, PIN_S = (float(word) / 1e3 for word in [*sys.argv[2:], "0"][:4])
BATCH = 4


class Rows(Dataset[torch.Tensor]):
    """Without an end; the first worker's rows may take longer."""

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, _index: int) -> torch.Tensor:
        worker = get_worker_info()
        if worker is not None and worker.id == 0:
            time.sleep(SLOW_WORKER_S / BATCH)
        return torch.ones(16)


class Pinned:
    """A batch with a way of its own to be pinned, as torch documents it."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def pin_memory(self) -> Pinned:
        time.sleep(PIN_S)
        return self


def collate(rows: list[torch.Tensor]) -> Any:
    time.sleep(COLLATE_S)
    return Pinned(torch.stack(rows)) if PIN_S else torch.stack(rows)


def batches_of(loader: DataLoader[torch.Tensor]) -> Any:
    """Its batches; with PIN_MS torch takes the processor for an accelerator while it starts the loader's threads."""
    if not PIN_S:
        return loader
    torch.accelerator.set_device_index = lambda _index: None  # the thread that pins chooses its device
    with mock.patch.multiple(
        torch.accelerator,
        is_available=lambda: True,
        current_device_index=lambda: 0,
        current_accelerator=lambda: torch.device("cpu"),
    ):
        return (batch.rows for batch in iter(loader))


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    # Nothing made ahead: a rank with a batch in reserve would hide that its loader is as slow as the others'.
    ahead = {"prefetch_factor": 1} if WORKERS else {}
    loader = DataLoader(
        Rows(), batch_size=BATCH, num_workers=WORKERS, collate_fn=collate, pin_memory=PIN_S > 0, **ahead
    )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    model.module.register_forward_pre_hook(lambda *_: time.sleep(STEP_S))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for rows in batches_of(loader):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
