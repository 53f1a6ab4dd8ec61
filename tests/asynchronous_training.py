"""A real data-parallel training on an asynchronous device (see asynchronous_device.py). It knows nothing of tuiadvisor.

    torchrun --nproc-per-node 2 tests/asynchronous_training.py --fault-rank 1 --device-factor 1.5 --steps 40

Forward, backward and optimizer launch kernels of known length and return at once, as on CUDA; DistributedDataParallel
reduces its buckets through a hook that queues the exchange on a stream of its own, as NCCL does. What is slow is said
by number: a rank, and factors or milliseconds for it.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import asynchronous_device as device
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH = 32
NUM_LABELS = 4
ALL_RANKS = -1
BORDERS = ("data", "copy", "forward", "backward", "exchange", "rest", "optimizer", "log")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line: a healthy step takes about 78 ms of the device and 13 of the host."""
    return parser().parse_args(arguments)


def parser() -> argparse.ArgumentParser:
    """What of a training on the device can be said by number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=0, help="0: until it is ended")
    parser.add_argument("--sync-every", type=int, default=0, help="steps; 0: the host never waits")
    parser.add_argument("--layers", type=int, default=4, help="and as many buckets")
    parser.add_argument("--data-ms", type=float, default=4.0, help="the host waits for a batch")
    parser.add_argument("--copy-ms", type=float, default=3.0)
    parser.add_argument("--forward-ms", type=float, default=22.0)
    parser.add_argument("--backward-ms", type=float, default=44.0)
    parser.add_argument("--transfer-ms", type=float, default=3.0, help="of each bucket")
    parser.add_argument("--optimizer-ms", type=float, default=6.0)
    parser.add_argument("--launch-ms", type=float, default=0.8, help="of the host for one layer's kernels")
    parser.add_argument("--queue", type=int, default=device.QUEUE_LENGTH, help="launches that fit in")
    parser.add_argument(
        "--held", action="store_true", help="the device begins when the host has launched all steps"
    )
    parser.add_argument("--fault-rank", type=int, default=0, help="-1: all of them")
    parser.add_argument(
        "--device-factor", type=float, default=1.0, help="that rank's kernels take so much longer"
    )
    parser.add_argument("--host-factor", type=float, default=1.0, help="... and its launches")
    parser.add_argument("--data-extra-ms", type=float, default=0.0)
    parser.add_argument("--copy-extra-ms", type=float, default=0.0)
    parser.add_argument(
        "--times", help="file prefix: the rank's own times by the device's clock, a line a step"
    )
    parser.add_argument("--print-every", type=int, default=0, help="for what starts trainings; not used")
    return parser


class Samples(Dataset):
    """Features and labels that the host waits for, a batch at a time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.features = torch.randn(64, WIDTH)

    def __len__(self) -> int:
        return 1 << 20

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        time.sleep(self.seconds)
        return [(self.features[index % 64], index % NUM_LABELS) for index in indices]


class Launches(torch.autograd.Function):
    """Identity whose forward and backward launch a kernel and return."""

    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, host: Host, forward_s: float, backward_s: float
    ) -> torch.Tensor:
        """In the order of the layers."""
        ctx.host, ctx.backward_s = host, backward_s
        host.launch(forward_s)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """In the opposite order; this layer's gradients are ready after it."""
        ctx.host.launch(ctx.backward_s)
        return gradient, None, None, None


class Host:
    """Launches kernels, each at its price."""

    def __init__(self, compute: device.Stream, launch_s: float) -> None:
        self.compute = compute
        self.launch_s = launch_s

    def launch(self, seconds: float) -> None:
        """A layer's kernels."""
        time.sleep(self.launch_s)
        self.compute.launch(seconds)


class Layer(nn.Module):
    """A linear layer whose time is that of its kernels."""

    def __init__(self, host: Host, forward_s: float, backward_s: float, width: int = WIDTH) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, width, bias=False)
        self.host, self.forward_s, self.backward_s = host, forward_s, backward_s

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Compute and launch."""
        result: torch.Tensor = Launches.apply(self.linear(value), self.host, self.forward_s, self.backward_s)
        return result


class Sgd(torch.optim.SGD):
    """Launches a kernel a step."""

    def __init__(self, parameters: Any, host: Host, seconds: float) -> None:
        super().__init__(parameters, lr=0.01)
        self.host, self.seconds = host, seconds

    def step(self, closure: Any = None) -> Any:
        """As SGD's."""
        self.host.launch(self.seconds)
        return super().step(closure)


class Meeting:
    """All ranks' streams meet and learn when the last one came; on sockets, so that torch sees nothing of it."""

    def __init__(self, group: Any = None) -> None:
        """group: of which ranks; None: all of them."""
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        folder = [tempfile.mkdtemp() if rank == 0 else ""]
        listener = socket.socket(socket.AF_UNIX)
        if rank == 0:
            listener.bind(f"{folder[0]}/meeting")
            listener.listen(world)
        dist.broadcast_object_list(folder, dist.get_global_rank(group, 0) if group else 0, group)
        path = f"{folder[0]}/meeting"
        self.others: list[socket.socket] = []
        self.first: socket.socket | None = None
        if rank == 0:
            self.others = [listener.accept()[0] for _ in range(world - 1)]
            Path(path).unlink()
            Path(folder[0]).rmdir()
        else:
            self.first = socket.socket(socket.AF_UNIX)
            self.first.connect(path)
        listener.close()

    def meet(self, came_ns: int) -> int:
        """The last rank's time on the device's clock."""
        if self.first is not None:
            _send(self.first, came_ns)
            return _receive(self.first)
        last_ns = max([came_ns, *(_receive(other) for other in self.others)])
        for other in self.others:
            _send(other, last_ns)
        return last_ns


def _send(to: socket.socket, value: int) -> None:
    to.sendall(struct.pack("<q", value))


def _receive(of: socket.socket) -> int:
    data = of.recv(8, socket.MSG_WAITALL)
    if len(data) < 8:
        time.sleep(3600)  # another rank has ended: as with NCCL, the exchange never does
    value: int = struct.unpack("<q", data)[0]
    return value


class Exchange:
    """Buckets are reduced on a stream of its own; the host only queues that, as with NCCL."""

    def __init__(self, group: Any, compute: device.Stream, meeting: Meeting, transfer_s: float) -> None:
        # The backend's own object: the sequence number moves as at a launch, and no collective is called from Python.
        self.backend = group._get_backend(torch.device("cpu"))
        self.compute, self.stream, self.meeting = compute, device.Stream(), meeting
        self.transfer_s = transfer_s
        self.under_way: list[Any] = []

    def reduce(self, _state, bucket):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - DDP refuses text
        """DDP's communication hook: its future is complete at once, however far behind the device is."""
        self.under_way = [work for work in self.under_way if not work.is_completed()]
        self.under_way.append(self.backend.allreduce([torch.zeros(1)]))
        self.stream.wait_event(self.compute.record_event())
        self.stream.call(self.meeting.meet)
        self.stream.launch(self.transfer_s)
        if bucket.is_last():
            # Before DDP's own last act, in which NCCL's wait() lets the compute stream wait.
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def _finish(self) -> None:
        self.compute.wait_event(self.stream.record_event())


class Times:
    """The rank's own events, where it was asked for; written when the device has passed them."""

    def __init__(self, path: str | None) -> None:
        self.file = Path(path).open("w", buffering=1) if path else None  # noqa: SIM115 - until the end
        self.events: list[device.Event] = []
        self.host_ns: list[int] = []
        self.pending: list[tuple[list[device.Event], list[int]]] = []

    def mark(self) -> None:
        """The next of BORDERS begins."""
        if self.file is not None:
            self.host_ns.append(time.monotonic_ns())
            self.events.append(device.current_stream().record_event())

    def begin_step(self) -> None:
        """The first of them, which ends the step before."""
        if self.file is None:
            return
        self.mark()
        if len(self.events) > 1:
            self.pending.append((self.events, self.host_ns))
        self.events, self.host_ns = self.events[-1:], self.host_ns[-1:]
        while self.pending and self.pending[0][0][-1].query():
            self._write(*self.pending.pop(0))

    def after_backward(self, loss: torch.Tensor) -> None:
        """Mark where this rank's own backward ends: the first of autograd's last acts."""
        if self.file is not None:
            engine = torch.autograd.Variable._execution_engine
            loss.register_hook(lambda _gradient: engine.queue_callback(self.mark))

    def _write(self, events: list[device.Event], host_ns: list[int]) -> None:
        assert self.file is not None
        spans = {
            name: begin.elapsed_time(end)
            for name, begin, end in zip(BORDERS, events[:-1], events[1:], strict=True)
        }
        assert events[0].latest is not None
        step = {"begin_ns": events[0].latest.passed_ns, "host_ns": host_ns, "ms": spans}
        self.file.write(json.dumps(step) + "\n")

    def close(self) -> None:
        """All that is left."""
        for events, host_ns in self.pending:
            events[-1].synchronize()
            self._write(events, host_ns)


def train(options: argparse.Namespace) -> None:
    """Until the steps or the user's patience end."""
    torch.set_num_threads(1)
    device.install()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    is_faulty = options.fault_rank in (rank, ALL_RANKS)
    compute = device.default_stream()
    compute.length = options.queue
    if is_faulty:
        compute.is_slow_by = options.device_factor
    host = Host(compute, options.launch_ms / 1e3 * (options.host_factor if is_faulty else 1.0))
    data_ms = options.data_ms + is_faulty * options.data_extra_ms
    copy_ms = options.copy_ms + is_faulty * options.copy_extra_ms
    each_forward_s = options.forward_ms / 1e3 / options.layers
    each_backward_s = options.backward_ms / 1e3 / options.layers
    widths = [WIDTH] * (options.layers - 1) + [NUM_LABELS]
    model = DistributedDataParallel(
        nn.Sequential(*(Layer(host, each_forward_s, each_backward_s, width) for width in widths)),
        bucket_cap_mb=1e-5,
    )
    exchange = Exchange(model.process_group, compute, Meeting(), options.transfer_ms / 1e3)
    model.register_comm_hook(None, exchange.reduce)
    optimizer = Sgd(model.parameters(), host, options.optimizer_ms / 1e3)
    criterion = nn.CrossEntropyLoss()
    loader = iter(DataLoader(Samples(data_ms / 1e3), batch_size=4, num_workers=0))
    times = Times(f"{options.times}.{rank}" if options.times else None)
    let_go = None
    if options.held:
        compute.length = exchange.stream.length = sys.maxsize
        let_go = compute.hold()
    step = 0
    while not options.steps or step < options.steps:
        times.begin_step()
        features, labels = next(loader)
        times.mark()
        host.launch(copy_ms / 1e3)
        times.mark()
        loss = criterion(model(features), labels)
        times.mark()
        times.after_backward(loss)
        loss.backward()
        times.mark()
        times.mark()
        optimizer.step()
        times.mark()
        optimizer.zero_grad()
        step += 1
        if options.sync_every and step % options.sync_every == 0:
            compute.synchronize()  # what .item() does
    times.begin_step()
    if let_go is not None:
        let_go()
    times.close()
    compute.synchronize()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    train(parse())
