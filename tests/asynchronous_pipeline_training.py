"""A real pipeline of torch.distributed.pipelining on asynchronous devices (see asynchronous_device.py).

    torchrun --nproc-per-node 4 tests/asynchronous_pipeline_training.py --fault-rank 2 --device-factor 1.6 --steps 20

Schedule1F1B with a stage a rank. Sends and receives are queued on streams of their own, as NCCL's are: the host returns
at once, a message begins when both devices are there, and the receiving device's compute stream waits for its end. What
is sent is not looked at: the receiver computes with what lies in its buffer. It knows nothing of tuiadvisor.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import asynchronous_device as device
import torch
import torch.distributed as dist
from asynchronous_training import ALL_RANKS, Host, Layer, Samples, Sgd, _receive, _send
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, schedules
from torch.utils.data import DataLoader

SEND, RECEIVE = "send", "receive"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line: with 4 stages a healthy step takes about 272 ms of the device, of which 3 of 11 parts idle."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=0, help="0: until it is ended")
    parser.add_argument("--sync-every", type=int, default=0, help="steps; 0: the host never waits")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--layers", type=int, default=2, help="of a stage")
    parser.add_argument("--data-ms", type=float, default=2.0, help="each rank's host waits for a batch")
    parser.add_argument("--copy-ms", type=float, default=1.0, help="of the first stage")
    parser.add_argument("--forward-ms", type=float, default=8.0, help="of a micro-batch on a stage")
    parser.add_argument("--backward-ms", type=float, default=16.0)
    parser.add_argument("--transfer-ms", type=float, default=0.2, help="of a message")
    parser.add_argument("--optimizer-ms", type=float, default=4.0)
    parser.add_argument("--launch-ms", type=float, default=0.2, help="of the host for one layer's kernels")
    parser.add_argument("--queue", type=int, default=device.QUEUE_LENGTH, help="launches that fit in")
    parser.add_argument("--fault-rank", type=int, default=0, help="-1: all of them")
    parser.add_argument(
        "--device-factor", type=float, default=1.0, help="that rank's kernels take so much longer"
    )
    parser.add_argument("--host-factor", type=float, default=1.0, help="... and its launches")
    parser.add_argument("--data-extra-ms", type=float, default=0.0)
    parser.add_argument(
        "--times", help="file prefix: the rank's own chunks by the device's clock, a line a step"
    )
    parser.add_argument("--print-every", type=int, default=0, help="for what starts trainings; not used")
    return parser.parse_args(arguments)


class Channel:
    """One direction between two ranks: both devices meet at each message; on a socket that torch sees nothing of."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.stream = device.Stream()

    def meet(self, came_ns: int) -> int:
        """When both were there, on the devices' clock."""
        _send(self.connection, came_ns)
        return max(came_ns, _receive(self.connection))


def channels(rank: int, world: int) -> dict[tuple[int, str], Channel]:
    """Of every other rank, a channel to send to it and one to receive from it."""
    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder[0]}/{rank}")
    listener.listen(2 * world)
    dist.barrier()
    found: dict[tuple[int, str], Channel] = {}
    # The lower one calls: as who it is, and whether it will send there.
    for other in range(rank + 1, world):
        for place, direction in enumerate((SEND, RECEIVE)):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(f"{folder[0]}/{other}")
            _send(connection, 2 * rank + place)
            found[other, direction] = Channel(connection)
    for _ in range(2 * rank):
        connection = listener.accept()[0]
        other, place = divmod(_receive(connection), 2)
        found[other, (RECEIVE, SEND)[place]] = Channel(connection)
    listener.close()
    dist.barrier()
    Path(f"{folder[0]}/{rank}").unlink()
    dist.barrier()
    if rank == 0:
        Path(folder[0]).rmdir()
    return found


class Message:
    """What a send or a receive returns: its wait lets the stream wait, and the host goes on."""

    def __init__(self, compute: device.Stream, done: device.Event) -> None:
        self.compute, self.done = compute, done

    def wait(self, _timeout: Any = None) -> bool:
        """As a Work's of NCCL."""
        self.compute.wait_event(self.done)
        return True


def queue_messages(
    compute: device.Stream, of_peer: dict[tuple[int, str], Channel], transfer_s: float
) -> None:
    """From here on the messages of torch's schedules are the device's."""

    def queued(operation: dist.P2POp) -> Message:
        channel = of_peer[operation.peer, SEND if operation.op is dist.isend else RECEIVE]
        channel.stream.wait_event(compute.record_event())
        channel.stream.call(channel.meet)
        channel.stream.launch(transfer_s)
        return Message(compute, channel.stream.record_event())

    def batch(operations: list[dist.P2POp], desc: str | None = None) -> list[Message]:
        return [queued(operation) for operation in operations]

    schedules._batch_p2p = batch


class Times:
    """This rank's chunks by its device's clock, where they were asked for; written when the device has passed them."""

    def __init__(self, path: str | None) -> None:
        self.file = Path(path).open("w", buffering=1) if path else None  # noqa: SIM115 - until the end
        self.chunks: list[tuple[str, int, device.Event, device.Event]] = []
        self.pending: deque[list[tuple[str, int, device.Event, device.Event]]] = deque()

    def timed(self, kind: str, chunk: int, call: Callable[[], Any]) -> Any:
        """A chunk between two events."""
        if self.file is None:
            return call()
        begin = device.current_stream().record_event()
        result = call()
        self.chunks.append((kind, chunk, begin, device.current_stream().record_event()))
        return result

    def end_step(self) -> None:
        """The chunks so far were its."""
        if self.chunks:
            self.pending.append(self.chunks)
            self.chunks = []
        while self.pending and self.pending[0][-1][3].query():
            self._write(self.pending.popleft())

    def _write(self, chunks: list[tuple[str, int, device.Event, device.Event]]) -> None:
        assert self.file is not None
        told = []
        for kind, chunk, begin, end in chunks:
            assert begin.latest is not None
            assert end.latest is not None
            told.append((kind, chunk, begin.latest.passed_ns, end.latest.passed_ns))
        self.file.write(json.dumps(told) + "\n")


class TimedStage(PipelineStage):
    """Torch's, with the rank's own times of its chunks."""

    times: Times

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        call = super().forward_one_chunk
        return self.times.timed("F", fwd_chunk_id, lambda: call(fwd_chunk_id, *args, **kwargs))

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """As torch's."""
        call = super().backward_one_chunk
        return self.times.timed("B", bwd_chunk_id, lambda: call(bwd_chunk_id, *args, **kwargs))


def train(options: argparse.Namespace) -> None:
    """Until the steps or the user's patience end."""
    torch.set_num_threads(1)
    device.install()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    is_faulty = options.fault_rank in (rank, ALL_RANKS)
    is_first, is_last = rank == 0, rank == world - 1
    compute = device.default_stream()
    compute.length = options.queue
    if is_faulty:
        compute.is_slow_by = options.device_factor
    host = Host(compute, options.launch_ms / 1e3 * (options.host_factor if is_faulty else 1.0))
    each_forward_s, each_backward_s = (
        milliseconds / 1e3 / options.layers for milliseconds in (options.forward_ms, options.backward_ms)
    )
    model = nn.Sequential(*(Layer(host, each_forward_s, each_backward_s) for _ in range(options.layers)))
    stage = TimedStage(model, rank, world, torch.device("cpu"))
    stage.times = times = Times(f"{options.times}.{rank}" if options.times else None)
    queue_messages(compute, channels(rank, world), options.transfer_ms / 1e3)
    schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=nn.MSELoss())
    optimizer = Sgd(model.parameters(), host, options.optimizer_ms / 1e3)
    data_s = (options.data_ms + is_faulty * options.data_extra_ms) / 1e3
    loader = iter(DataLoader(Samples(data_s), batch_size=options.micro_batches, num_workers=0))
    step = 0
    while not options.steps or step < options.steps:
        features, _labels = next(loader)
        if is_first:
            host.launch(options.copy_ms / 1e3)
        losses: list[torch.Tensor] = []
        arguments = (features,) if is_first else ()
        target = {"target": torch.zeros_like(features), "losses": losses} if is_last else {}
        schedule.step(*arguments, **target)
        optimizer.step()
        optimizer.zero_grad()
        times.end_step()
        step += 1
        if options.sync_every and step % options.sync_every == 0:
            compute.synchronize()  # what .item() does
    compute.synchronize()
    times.end_step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    train(parse())
