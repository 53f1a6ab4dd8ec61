"""The training of asynchronous_training.py that stops in one of several ways once a file is there.

    torchrun --nproc-per-node 4 tests/asynchronous_hanging_training.py --stops host --when FILE --sync-every 1

Beside its own options it takes the training's. host: the last rank's thread never comes back with its batch; device:
its device never ends a kernel; pause: its thread does something else for --pause-s seconds and goes on; save: so long
in torch.save. --only-looks RANK: that rank looks at the loss in every step and the others never do, so that they run
ahead until their launch queue is full.

As with NCCL the process has a flight recorder (`torch._C._distributed_c10d._dump_nccl_trace_json`): a collective is
completed when the device is through it. --no-recorder: it is off. It knows nothing of tuiadvisor.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import asynchronous_device as device
import asynchronous_training as training
import torch
import torch.distributed as dist

KINDS = ("host", "device", "pause", "save")
FOR_EVER_S = 1e6
MAX_RECORDED = 2000  # as NCCL's recorder


class Recorder:
    """What NCCL's flight recorder would hold of the collectives that were launched."""

    def __init__(self, world: int, *, is_on: bool) -> None:
        self.world, self.is_on = world, is_on
        self.num = 0
        self.entries: deque[tuple[dict[str, Any], device.Event]] = deque(maxlen=MAX_RECORDED)

    def launched(self, seq: int, num_elements: int, done: device.Event) -> None:
        """An all-reduce with that number of the group; done: passed when the device is through it."""
        entry = {
            "record_id": self.num,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": seq,
            "p2p_seq_id": 0,
            "op_id": seq,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": time.time_ns(),
            "input_sizes": [[num_elements]],
            "input_dtypes": ["Float"],
            "output_sizes": [[num_elements]],
            "output_dtypes": ["Float"],
            "timeout_ms": 1_800_000,
            "is_p2p": False,
        }
        self.num += 1
        self.entries.append((entry, done))

    def dump(self, *_options: bool) -> bytes:
        """The document; it asks the device's events and waits for none."""
        if not self.is_on:
            return json.dumps({"version": "2.10"}).encode()
        entries = []
        for entry, done in list(self.entries):
            is_done = done.query()
            state = {"state": "completed" if is_done else "scheduled", "retired": is_done}
            entries.append(entry | state | {"time_discovered_completed_ns": time.time_ns() if is_done else 0})
        described = {"name": "0", "desc": "default_pg", "ranks": str(list(range(self.world)))}
        return json.dumps({"version": "2.10", "pg_config": {"0": described}, "entries": entries}).encode()


class RecordedExchange(training.Exchange):
    """The exchange, of which the process's flight recorder holds each collective."""

    has_recorder = True

    def __init__(self, group: Any, *arguments: Any) -> None:
        super().__init__(group, *arguments)
        self.recorder = Recorder(dist.get_world_size(), is_on=self.has_recorder)
        torch._C._distributed_c10d._dump_nccl_trace_json = self.recorder.dump
        torch._C._distributed_c10d._dump_fr_trace_json = None
        # From here on the group says that its backend is NCCL.
        known = dist.distributed_c10d._world.pg_map
        known[group] = ("nccl", known[group][1])

    def reduce(self, _state, bucket):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 - DDP refuses text
        """As the training's."""
        future = super().reduce(_state, bucket)  # type: ignore[no-untyped-call]
        seq = self.backend._get_sequence_number_for_group()
        self.recorder.launched(seq, bucket.buffer().numel(), self.stream.record_event())
        return future


def stop(options: argparse.Namespace) -> None:
    """What the rank does when it is time, in its loop."""
    if options.stops == "device":
        device.default_stream().launch(FOR_EVER_S)
    elif options.stops == "save":
        torch.save({"weights": torch.zeros(8)}, SlowFile(options.pause_s))
    else:
        time.sleep(FOR_EVER_S if options.stops == "host" else options.pause_s)


class SlowFile(io.BytesIO):
    """Takes so long for what is first written into it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def write(self, data: Any) -> int:
        """As a file's."""
        time.sleep(self.seconds)
        self.seconds = 0.0
        return super().write(data)


def main() -> None:
    """Train, and stop when the file is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stops", choices=KINDS, required=True)
    parser.add_argument("--when", type=Path, required=True)
    parser.add_argument("--pause-s", type=float, default=0.0)
    parser.add_argument("--only-looks", type=int, default=-1)
    parser.add_argument("--no-recorder", action="store_true")
    own, rest = parser.parse_known_args()
    options = training.parse(rest)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if own.only_looks >= 0:
        options.sync_every = int(own.only_looks == rank)

    class Samples(training.Samples):
        def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
            if rank == world - 1 and own.when.exists():
                own.when.unlink()
                stop(own)
            return super().__getitems__(indices)

    RecordedExchange.has_recorder = not own.no_recorder
    training.Samples, training.Exchange = Samples, RecordedExchange  # type: ignore[misc,assignment]
    training.train(options)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
