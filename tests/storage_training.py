"""A DDP training whose batches come from files, each read past the page cache, so that a slow disk is felt.

Run by torchrun: storage_training.py FOLDER WORKERS KIB_A_SAMPLE STEP_MS [SAVE_EVERY]; trains until it is ended. Every
rank has a file of its own in FOLDER. With SAVE_EVERY rank 1 writes a checkpoint of 4 MiB, past the cache, so often.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(sys.argv[1])
WORKERS, SAMPLE_BYTES = int(sys.argv[2]), int(sys.argv[3]) << 10
STEP_S = float(sys.argv[4]) / 1e3
SAVE_EVERY = int(sys.argv[5]) if len(sys.argv) > 5 else 0
NUM_SAMPLES, BATCH, SAVED_BYTES = 256, 4, 4 << 20


class Records(Dataset[torch.Tensor]):
    """Of one file, again and again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 1 << 24

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.path.open("rb") as file:
            begin = index % NUM_SAMPLES * SAMPLE_BYTES
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # parts of large folios stay
            file.seek(begin)
            data = file.read(SAMPLE_BYTES)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)[:16].float()


def save(path: Path) -> None:
    """As one rank of a job does for all."""
    with path.open("wb") as file:
        file.write(os.urandom(SAVED_BYTES))
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    path = FOLDER / f"records{rank}.bin"
    with path.open("wb") as file:
        file.write(os.urandom(NUM_SAMPLES * SAMPLE_BYTES))
        file.flush()
        os.fsync(file.fileno())
    loader = DataLoader(Records(path), batch_size=BATCH, num_workers=WORKERS)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 16))
    model.module.register_forward_pre_hook(lambda *_: time.sleep(STEP_S))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, rows in enumerate(loader):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        if SAVE_EVERY and rank == 1 and step % SAVE_EVERY == 0:
            save(FOLDER / "saved.bin")


if __name__ == "__main__":
    main()
