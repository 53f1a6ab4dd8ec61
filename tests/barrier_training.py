"""Two ranks that meet in a barrier behind each optimizer step: `python tests/barrier_training.py KIND FOLDER`.

Until killed. KIND: checkpoint (rank 0 writes one of SAVE_S in each step before the barrier), monitored (the same before
a monitored barrier, and gradients are not exchanged) or healthy.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

RANK = int(os.environ.get("RANK", "0"))
SAVE_S = 0.04
FORWARD_S = 0.01
STEPS_UNTIL_READY = 15


class SlowFile(io.BytesIO):
    """A disk that takes SAVE_S for a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.has_waited = False

    def write(self, data: Any) -> int:
        """The first piece takes it all."""
        if not self.has_waited:
            self.has_waited = True
            time.sleep(SAVE_S)
        return super().write(data)


def main(kind: str, folder: Path) -> None:
    """Train for ever."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model: nn.Module = nn.Linear(64, 64)
    is_monitored = kind == "monitored"
    if not is_monitored:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    number = 0
    while True:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 64)).sum()
        time.sleep(FORWARD_S)
        loss.backward()
        optimizer.step()
        if kind != "healthy" and RANK == 0:
            torch.save(model.state_dict(), SlowFile())
        if is_monitored:
            dist.monitored_barrier()
        else:
            dist.barrier()
        number += 1
        if number == STEPS_UNTIL_READY:
            (folder / f"ready.{RANK}").touch()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
