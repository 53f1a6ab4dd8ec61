"""A training whose ranks average their parameters every EVERY steps and otherwise do not meet; under torchrun.

    torchrun … local_sgd_training.py EVERY LATE_RANK LATE_MS HOW

HOW: `loop` averages with a barrier and one all_reduce a parameter, as Accelerate's LocalSGD; `flat` with one of all.
LATE_RANK computes so much longer in each forward; -1: none.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist

EVERY, LATE_RANK, LATE_MS, HOW = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
WIDTH = 96


class Model(torch.nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Slower on one rank."""
        end_s = time.perf_counter() + 0.008 + (LATE_MS / 1e3 if dist.get_rank() == LATE_RANK else 0.0)
        time.sleep(max(end_s - time.perf_counter(), 0.0))
        found: torch.Tensor = self.layers(batch)
        return found


def average(model: torch.nn.Module) -> None:
    """All ranks' parameters become their mean."""
    if HOW == "loop":
        dist.barrier()
    with torch.no_grad():
        parts = [p.data for p in model.parameters()]
        if HOW == "flat":
            whole = torch.cat([part.flatten() for part in parts])
            dist.all_reduce(whole)
            for part, mean in zip(parts, whole.split([part.numel() for part in parts]), strict=True):
                part.copy_(mean.view_as(part) / dist.get_world_size())
            return
        for part in parts:
            dist.all_reduce(part)
            part.div_(dist.get_world_size())


def main() -> None:
    """Train until killed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    while True:
        loss = model(torch.ones(16, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % EVERY == 0:
            average(model)


main()
