"""What a measured step of FSDP2 costs the host: borders around its waits, two ranks of torch's own fully_shard.

    python -m torch.distributed.run --standalone --nproc-per-node 2 tests/benchmarks/sharded_waits.py 4 32

A device whose calls cost nothing leaves what is ours. For each number of layers: borders of a measured step, what they
take the host, as the probe itself counts it, and what reading their events takes later. Other steps pass torch's own
functions.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic_ns
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from probing import probed
from torch import nn
from torch.distributed.fsdp import fully_shard

NUM_STEPS, WARM_UP, WIDTH = 60, 10, 16


class Event:
    """Passed at once; all its calls do next to nothing."""

    def __init__(self, **_options: Any) -> None:
        self.at_ns = 0

    def record(self, _stream: Any = None) -> None:
        """Now."""
        self.at_ns = monotonic_ns()

    def wait(self, _stream: Any = None) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """It is."""
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds."""
        return (end.at_ns - self.at_ns) / 1e6


def install() -> None:
    """In the place of the CPU's module, for torch's own stand-ins of streams."""
    module: Any = ModuleType("torch.still")
    module.Event = Event
    module.current_stream = torch.cpu.current_stream
    original = torch.get_device_module

    def get_device_module(device: Any = None) -> Any:
        name = device.type if isinstance(device, torch.device) else device
        return module if str(name).partition(":")[0] == "cpu" else original(device)

    torch.get_device_module = get_device_module


def cost(num_layers: int) -> dict[str, float]:
    """Of a model of so many layers, microseconds."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(num_layers)))
    for layer in (*model, model):
        fully_shard(layer)
        layer.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(torch.utils.data.DataLoader([torch.ones(WIDTH)] * NUM_STEPS))
    borders, own_ns, resolving_ns = [], [], []
    with tempfile.TemporaryDirectory() as folder, probed(Path(folder)) as observed:
        for number in range(NUM_STEPS):
            model(next(batches)).sum().backward()
            times = device_times() if number >= WARM_UP else None
            optimizer.step()
            optimizer.zero_grad()
            if times is not None and times.is_measuring:
                borders.append(len(times.borders) + 1)  # the next step's first
                own_ns.append(times.cost_ns)
                resolving_ns.append(times.resolve_ns)
        assert observed.errors == 0, observed.info
        assert observed.info["hooks"]["sharded_waits"] == "ok", observed.info
    return {
        "layers": num_layers,
        "measured_steps": len(borders),
        "borders": median(borders),
        "own_us": median(own_ns) / 1e3,
        "resolving_us": median(resolving_ns) / 1e3,
    }


def device_times() -> Any:
    """Of the probe that is in this process."""
    return next(one for one in gc.get_objects() if type(one).__name__ == "DeviceTimes" and one.position >= 0)


def main() -> None:
    """A line of JSON for each number of layers."""
    torch.set_num_threads(1)
    install()
    dist.init_process_group("gloo")
    for num_layers in map(int, sys.argv[1:]):
        result = cost(num_layers)
        if dist.get_rank() == 0:
            print(json.dumps(result), flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
