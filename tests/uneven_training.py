"""A training of gloo ranks whose inputs are uneven: rank r has 10 r batches fewer an epoch than rank 0, under Join."""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join


def main() -> None:
    """Epoch after epoch, until it is ended."""
    argparse.ArgumentParser().parse_known_args()
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        with Join([model]):
            for _ in range(40 - 10 * dist.get_rank()):
                optimizer.zero_grad()
                model(torch.randn(32, 64)).square().mean().backward()
                optimizer.step()
                time.sleep(0.01)


if __name__ == "__main__":
    main()
