"""A DDP training whose exchange is known by construction: equal layers, whose backward takes a known time each.

Backward's compute is a sleep, as that of a device is for its host: it leaves the processor to the exchange. With
--products it is matrix products on the cores that the exchange needs, too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ranks import leave
from torch import nn


def main() -> None:
    """One rank, started by torchrun."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cap-mb", type=float, required=True)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)  # 4 MiB of gradients a layer
    parser.add_argument("--backward-ms", type=float, default=0.0)  # of each layer
    parser.add_argument("--products", type=int, default=0)  # of each layer, of 256 x 256 matrices
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--tell", type=Path)  # a folder: every step in detail, what the probe saw goes there
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    square = torch.rand(256, 256)

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, value: Any) -> Any:
            return value.view_as(value)

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            time.sleep(asked.backward_ms / 1000)
            for _ in range(asked.products):
                torch.mm(square, square)
            return gradient

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Linear(asked.width, asked.width, bias=False) for _ in range(asked.layers)
            )

        def forward(self, value: Any) -> Any:
            for layer in self.layers:
                value = Slow.apply(layer(value))
            return value

    model = nn.parallel.DistributedDataParallel(
        Layers(), bucket_cap_mb=asked.cap_mb, gradient_as_bucket_view=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    value = torch.ones(2, asked.width)

    def train() -> None:
        for _ in range(asked.steps):
            model(value).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    if asked.tell is None:
        train()
    else:
        _tell(train, asked.tell)
    leave()


def _tell(train: Callable[[], None], folder: Path) -> None:
    """The training under a probe; rows of its ring, steps and events, as the agent would send them."""
    from probing import probed

    rank = dist.get_rank()
    with probed(folder, detail_s=600) as observed:
        train()
    rows = {
        "steps": [[rank, *step.values()] for step in observed.steps],
        "events": [[rank, *event.values()] for event in observed.events()],
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
