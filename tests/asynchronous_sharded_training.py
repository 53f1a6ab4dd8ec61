"""A real training under FSDP2 on an asynchronous device (see asynchronous_device.py). It knows nothing of tuiadvisor.

    torchrun --nproc-per-node 2 tests/asynchronous_sharded_training.py --fault-rank 1 --device-factor 1.5 --steps 40

torch's own `fully_shard` gathers parameters and reduces gradients: its streams and events are the device's. What it
calls for a collective queues it on the communicator's stream, as NCCL does: there the ranks meet, a told transfer
follows, and the stream that it was called on waits; the host goes on at once. The data of the others is not moved: a
rank gathers its own shard as often as there are ranks, which no time depends on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import asynchronous_device as device
import asynchronous_training as training
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """As of asynchronous_training; `--transfer-ms` is that of each collective."""
    parser = training.parser()
    parser.add_argument("--keep-whole", action="store_true", help="reshard_after_forward=False")
    parser.add_argument("--micro-steps", type=int, default=1, help="gradients are reduced in the last one")
    parser.add_argument("--prefetch", type=int, default=0, help="layers that are gathered ahead in forward")
    parser.add_argument("--replicas", type=int, default=1, help="HSDP: so many groups of shards")
    parser.add_argument(
        "--fault-layer", type=int, default=-1, help="the slow device is slow in that one alone"
    )
    parser.add_argument(
        "--other-fault-rank", type=int, default=-1, help="whose device is slow in other layers"
    )
    parser.add_argument("--other-fault-layer", type=int, default=-1)
    parser.set_defaults(transfer_ms=1.0, launch_ms=0.4)
    return parser.parse_args(arguments)


class Communicator:
    """One group's: collectives follow one another on a stream of its own, in the order of their calls."""

    def __init__(self, group: Any, transfer_s: float) -> None:
        self.group, self.transfer_s = group, transfer_s
        self.stream, self.meeting = device.Stream(), training.Meeting(group)
        self.under_way: list[Any] = []

    def run(self) -> None:
        """Queue one; the stream that is current waits for it, and the host does not."""
        self.under_way = [work for work in self.under_way if not work.is_completed()]
        # The sequence number moves as at a launch, and the call passes where NCCL's do.
        self.under_way.append(dist.all_reduce(torch.zeros(1), group=self.group, async_op=True))
        current = device.current_stream()
        self.stream.wait_event(current.record_event())
        self.stream.call(self.meeting.meet)
        self.stream.launch(self.transfer_s)
        current.wait_event(self.stream.record_event())


class Collective:
    """What FSDP2 calls for a collective of its own."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for it."""
        return torch.empty(*size, dtype=dtype, device=device)


class Gather(Collective):
    """In place of all_gather_into_tensor."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, **_options: Any
    ) -> None:
        """As torch's; never asynchronous to the stream that it is called on."""
        output_tensor.view(group.size(), -1).copy_(input_tensor.clone().view(1, -1))
        self.communicator.run()


class ReduceScatter(Collective):
    """In place of reduce_scatter_tensor."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, **_options: Any
    ) -> None:
        """As torch's."""
        output_tensor.copy_(input_tensor.view(group.size(), -1)[group.rank()])
        self.communicator.run()


class Times:
    """What the compute stream itself says of each step: how long it stood still for another stream, and when."""

    def __init__(self, path: str | None, compute: device.Stream) -> None:
        self.file = Path(path).open("w", buffering=1) if path else None  # noqa: SIM115 - until the end
        self.compute = compute
        self.begun: list[tuple[device.Event, int]] = []
        self.num_read = 0

    def begin_step(self) -> None:
        """Here the step before ends, too."""
        if self.file is None:
            return
        self.begun.append((self.compute.record_event(), time.monotonic_ns()))
        while len(self.begun) > 1 and self.begun[1][0].query():
            self._write()

    def _write(self) -> None:
        assert self.file is not None
        (first, host_ns), (last, _) = self.begun[:2]
        del self.begun[0]
        assert first.latest is not None
        assert last.latest is not None
        begin_ns, end_ns = first.latest.passed_ns, last.latest.passed_ns
        waits = self.compute.waits
        waited_ns = []
        while self.num_read < len(waits) and waits[self.num_read][0] < end_ns:
            begin, end = waits[self.num_read]
            waited_ns.append(end - begin)
            self.num_read += 1
        step = {
            "begin_ns": begin_ns,
            "host_ns": host_ns,
            "step_ms": (end_ns - begin_ns) / 1e6,
            "waits_ms": [wait / 1e6 for wait in waited_ns],
        }
        self.file.write(json.dumps(step) + "\n")

    def close(self) -> None:
        """All that is left."""
        while len(self.begun) > 1:
            self.begun[1][0].synchronize()
            self._write()


def on_the_device() -> None:
    """FSDP2 asks `torch.cpu` for streams and events, the device's handle of CPU tensors."""
    for name in ("Stream", "Event", "current_stream", "stream"):
        setattr(torch.cpu, name, getattr(device, name))


def layers(options: argparse.Namespace, host: training.Host, rank: int) -> list[training.Layer]:
    """Of the model; one may be slower on some rank."""
    num = options.layers
    forward_s, backward_s = options.forward_ms / 1e3 / num, options.backward_ms / 1e3 / num
    slower = {
        (options.fault_rank, options.fault_layer): options.device_factor,
        (options.other_fault_rank, options.other_fault_layer): options.device_factor,
    }
    made = []
    for number in range(num):
        factor = slower.get((rank, number), 1.0)
        width = training.WIDTH if number < num - 1 else training.NUM_LABELS
        made.append(training.Layer(host, forward_s * factor, backward_s * factor, width))
    return made


def sharded(
    options: argparse.Namespace, model: nn.Sequential, units: tuple[nn.Module, ...] | None = None
) -> nn.Sequential:
    """Each unit (None: each layer) is a group of parameters; the model is their root, and has what is left."""
    units = tuple(model) if units is None else units
    world = dist.get_world_size()
    if options.replicas > 1:
        mesh = init_device_mesh(
            "cpu", (options.replicas, world // options.replicas), mesh_dim_names=("replica", "shard")
        )
        group = mesh.get_group("shard")
    else:
        mesh = init_device_mesh("cpu", (world,))
        group = mesh.get_group()
    communicator = Communicator(group, options.transfer_ms / 1e3)
    for module in (*units, model):
        fully_shard(module, mesh=mesh, reshard_after_forward=not options.keep_whole)
        module.set_custom_all_gather(Gather(communicator))
        module.set_custom_reduce_scatter(ReduceScatter(communicator))
        module.set_force_sum_reduction_for_comms(True)
    for number, unit in enumerate(units):
        if options.prefetch:
            unit.set_modules_to_forward_prefetch(list(units[number + 1 : number + 1 + options.prefetch]))
    return model


def train(options: argparse.Namespace) -> None:
    """Until the steps or the user's patience end."""
    torch.set_num_threads(1)
    device.install()
    on_the_device()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    is_faulty = options.fault_rank in (rank, training.ALL_RANKS)
    compute = device.default_stream()
    compute.length = options.queue
    if is_faulty and options.fault_layer < 0:
        compute.is_slow_by = options.device_factor
    host = training.Host(compute, options.launch_ms / 1e3 * (options.host_factor if is_faulty else 1.0))
    data_ms = options.data_ms + is_faulty * options.data_extra_ms
    copy_ms = options.copy_ms + is_faulty * options.copy_extra_ms
    model = sharded(options, nn.Sequential(*layers(options, host, rank)))
    optimizer = training.Sgd(model.parameters(), host, options.optimizer_ms / 1e3)
    criterion = nn.CrossEntropyLoss()
    loader = iter(DataLoader(training.Samples(data_ms / 1e3), batch_size=4, num_workers=0))
    times = Times(f"{options.times}.{rank}" if options.times else None, compute)
    step = 0
    while not options.steps or step < options.steps:
        times.begin_step()
        for micro_step in range(options.micro_steps):
            is_last = micro_step == options.micro_steps - 1
            model.set_requires_gradient_sync(is_last)
            features, labels = next(loader)
            host.launch(copy_ms / 1e3)
            criterion(model(features), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if options.sync_every and step % options.sync_every == 0:
            compute.synchronize()  # what .item() does
    times.begin_step()
    times.close()
    compute.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    train(parse())
