"""A training of gloo ranks that hangs in one of several ways once a file is there: `--hang KIND --when FILE`.

skip: the last rank stays away from an all-reduce; differ: rank 0 broadcasts where the others reduce; pair: rank 1 stays
away from a collective of ranks 0 and 1; write: rank 0 writes for 15 s while the others wait in a barrier, and goes on;
leave: the last rank ends by os._exit(0) and a process that it forked keeps its connections; leave-store: likewise,
where the others wait for it by the store; evaluate: rank 0 evaluates for 15 s by itself while the others wait in a
barrier; evaluate-stuck: likewise, until it sleeps for ever; end: the last rank ends by sys.exit and waits for the
others in a barrier of its `finally`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def stay_away() -> None:
    """Never to come back."""
    while True:
        time.sleep(0.1)


def leave() -> None:
    """Past every exit hook; a child holds our sockets until the job has ended, so that no peer sees them close."""
    launcher = os.getppid()
    if os.fork() == 0:
        while os.path.exists(f"/proc/{launcher}"):  # noqa: PTH110 - forked beside threads: as little as can be
            time.sleep(0.2)
    os._exit(0)


def evaluate(model: torch.nn.Module, gets_stuck: bool) -> None:
    """Of what DDP wraps, as many programs do: no hook of a wrapper sees it."""
    model.eval()
    end_s, num = time.monotonic() + 15, 0
    with torch.no_grad():
        while time.monotonic() < end_s:
            model(torch.randn(4096, 64))
            num += 1
            if gets_stuck and num == 50:
                stay_away()
    model.train()


def hang(kind: str, rank: int, world_size: int, pair: dist.ProcessGroup, model: torch.nn.Module) -> None:
    """What the rank does in the step in which the job hangs."""
    if kind == "skip" and rank == world_size - 1:
        stay_away()
    if kind == "differ":
        dist.broadcast(torch.ones(3), 0) if rank == 0 else dist.all_reduce(torch.ones(3))
    if kind == "pair" and rank == 0:
        dist.all_reduce(torch.ones(2), group=pair)
    if kind == "pair" and rank == 1:
        stay_away()
    if kind == "end" and rank == world_size - 1:
        try:
            sys.exit(0)
        finally:
            dist.barrier()
    if kind.startswith("leave") and rank == world_size - 1:
        leave()
    if kind == "leave-store":
        store = dist.distributed_c10d._get_default_store()
        while store.add("arrived", 0) < world_size:
            time.sleep(0.05)
    if kind.startswith("evaluate"):
        if rank == 0:
            evaluate(model, kind.endswith("stuck"))
        dist.barrier()
    if kind == "write":
        time.sleep(15 if rank == 0 else 0)
        dist.barrier()


def main() -> None:
    """Step until the file is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hang", required=True)
    parser.add_argument("--when", type=Path, required=True)
    parser.add_argument("--print-every")
    options = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world_size = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, 1])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        is_time = torch.tensor([float(rank == 0 and options.when.exists())])
        dist.all_reduce(is_time)
        if is_time.item():
            hang(options.hang, rank, world_size, pair, model.module)
            options.when.unlink(missing_ok=True)
        dist.all_reduce(loss.detach())


if __name__ == "__main__":
    main()
