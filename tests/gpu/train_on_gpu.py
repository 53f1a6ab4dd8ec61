"""A training of several ranks on one GPU, for tests: gloo carries the gradients, for NCCL wants a GPU a rank.

torchrun --nproc-per-node 2 tests/gpu/train_on_gpu.py --seconds 20 [--steps 60 --weights FILE]
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1024


def main() -> None:
    """Train until the time or the steps are over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=1 << 30)
    parser.add_argument("--weights", help="rank 0 writes its final weights here")
    parser.add_argument("--print-every", type=int, default=0, help="taken and not used: as the demo's")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    layers = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(4096, WIDTH))
    end_s, step = time.monotonic() + options.seconds, 0
    while step < options.steps and time.monotonic() < end_s:
        for (batch,) in DataLoader(data, batch_size=256):
            optimizer.zero_grad()
            loss = model(batch.cuda(non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps or time.monotonic() >= end_s:
                break
    if options.weights and dist.get_rank() == 0:
        torch.save(model.module.state_dict(), options.weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
