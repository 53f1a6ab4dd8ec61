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


def more_products(layer: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
    """As much again as the whole forward, twice; it leaves no trace in the weights."""
    with torch.no_grad():
        for _ in range(12):
            torch.mm(given[0], layer.weight)


def main() -> None:
    """Train until the time or the steps are over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=1 << 30)
    parser.add_argument("--weights", help="rank 0 writes its final weights here")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--slow-rank", type=int, default=-1, help="computes forward three times as long")
    parser.add_argument("--look-every", type=int, default=0, help="steps between looks at the loss; 0: none")
    parser.add_argument("--print-every", type=int, default=0, help="taken and not used: as the demo's")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    layers = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(options.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(4096, WIDTH))
    if dist.get_rank() == options.slow_rank:
        model.module[0].register_forward_pre_hook(more_products)
    end_s, step = time.monotonic() + options.seconds, 0
    while step < options.steps and time.monotonic() < end_s:
        for (batch,) in DataLoader(data, batch_size=256):
            optimizer.zero_grad()
            loss = model(batch.to(options.device, non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            step += 1
            if options.look_every and step % options.look_every == 0:
                loss.item()
            if step >= options.steps or time.monotonic() >= end_s:
                break
    if options.weights and dist.get_rank() == 0:
        torch.save(model.module.state_dict(), options.weights)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
