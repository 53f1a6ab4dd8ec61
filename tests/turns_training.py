"""Two optimizers that take turns, on two ranks, rank 1 slow: `python tests/turns_training.py KIND FOLDER`.

Until killed. KIND: loader (a GAN after torch's example: data, discriminator, generator), made (the same, its samples
made in the loop), critic (WGAN's: made, three updates of the discriminator for one of the generator), delayed (TD3's:
made, the generator only learns in every second iteration). Rank 1 is late in the generator's forward by LATE_S a call.
Each rank writes how many iterations a second it does into FOLDER/rate.RANK.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ["RANK"])
LATE_S = 0.04 if RANK == 1 else 0.0
STEPS_UNTIL_READY = 15


class Net(nn.Module):
    """A few milliseconds."""

    def __init__(self, num_in: int, num_out: int, seconds: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(num_in, 32), nn.ReLU(), nn.Linear(32, num_out))
        self.seconds = seconds

    def forward(self, batch: Any) -> Any:
        """Sleeps instead of computing."""
        time.sleep(self.seconds)
        return self.body(batch)


class Batches:
    """Real samples for ever, from a loader or made here."""

    def __init__(self, kind: str) -> None:
        self.loader = (
            torch.utils.data.DataLoader(torch.randn(400, 64), batch_size=8) if kind == "loader" else None
        )
        self.left: Iterator[Any] = iter(())

    def take(self) -> Any:
        """One batch."""
        if self.loader is None:
            return torch.randn(8, 64)
        batch = next(self.left, None)
        if batch is None:
            self.left = iter(self.loader)
            batch = next(self.left)
        return batch


def main(kind: str, folder: Path) -> None:
    """Train for ever."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    generator = nn.parallel.DistributedDataParallel(Net(16, 64, 0.004 + LATE_S))
    discriminator = nn.parallel.DistributedDataParallel(Net(64, 1, 0.002), broadcast_buffers=False)
    of_generator = torch.optim.Adam(generator.parameters())
    of_discriminator = torch.optim.Adam(discriminator.parameters())
    loss_of = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
    batches = Batches(kind)

    def discriminate() -> Any:
        real = batches.take()
        of_discriminator.zero_grad()
        made = generator(torch.randn(8, 16))
        both = discriminator(torch.cat((real, made.detach())))
        loss_of(both, torch.cat((ones, zeros))).backward()
        of_discriminator.step()
        return made

    begin, since = time.monotonic(), 0
    for number in itertools.count():
        fake = discriminate()
        if kind == "critic":
            for _ in range(2):
                fake = discriminate()
        if kind != "delayed" or number % 2:
            of_generator.zero_grad()
            loss_of(discriminator(fake), ones).backward()
            of_generator.step()
        if number == STEPS_UNTIL_READY:
            (folder / f"ready.{RANK}").touch()
        if number % 20 == 0:
            now = time.monotonic()
            written = folder / f"writing.{RANK}"
            written.write_text(str((number - since) / (now - begin)))
            written.rename(folder / f"rate.{RANK}")  # whole at any moment for who reads beside it
            begin, since = now, number


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
