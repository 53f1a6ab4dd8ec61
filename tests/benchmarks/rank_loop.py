"""One rank of the side-by-side bench: a training loop that makes steps only when the bench says so.

In: BENCH_SOCKET, BENCH_NAME, BENCH_WRAP, RANK, WORLD_SIZE and the process group's variables from the environment;
over the socket one JSON line a block: {"steps", "warmup", "spin", "on", "code"}.  Out: one JSON line a block: wall
seconds of each step, CPU seconds of the whole process (all its threads), resident bytes.

Runs under any contender's interpreter: imports torch and, where asked, the contender, nothing of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WIDTH, LAYERS, BATCH = 128, 4, 8


def pin(rank: int) -> None:
    """This rank's core; threads started from here on share it."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def resident_bytes() -> int:
    """What this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def batches() -> Iterator[Any]:
    """Batches without end."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(64 * BATCH, WIDTH))
    while True:
        yield from DataLoader(data, batch_size=BATCH, num_workers=0)


def traced_by(wrap: str, model: Any) -> Callable[[], Any]:
    """What a contender asks to be put around each step."""
    if wrap != "traceml":
        return contextlib.nullcontext
    import traceml_ai

    traceml_ai.init(mode="auto")
    return lambda: traceml_ai.trace_step(model)


def training(wrap: str) -> Callable[[int], None]:
    """step(spin): one step of a small data parallel training, lengthened by so many matrix products."""
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model: nn.Module = nn.Sequential(*layers)
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    load, around, stream = torch.randn(128, 128), traced_by(wrap, model), batches()

    def step(spin: int) -> None:
        (batch,) = next(stream)
        with around():
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            for _ in range(spin):
                torch.mm(load, load)
            loss.backward()
            optimizer.step()

    return step


@contextlib.contextmanager
def switched_on(wrap: str, order: dict[str, Any]) -> Iterator[None]:
    """The contender in, for the length of a block, and out again; its going in and out is not timed."""
    if not order["on"]:
        yield
    elif wrap == "profiler":
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU]):
            yield
    else:
        exec(order["code"][0], {})  # noqa: S102 - the very code an injection runs
        try:
            yield
        finally:
            exec(order["code"][1], {})  # noqa: S102


def block(step: Callable[[int], None], wrap: str, order: dict[str, Any]) -> dict[str, Any]:
    """Make the steps of one order."""
    wall = []
    with switched_on(wrap, order):
        for _ in range(
            order["settle"]
        ):  # short ones: what a tool does in its first steps is not its running cost
            step(0)
        for _ in range(order["warmup"]):
            step(order["spin"])
        cpu_begin = time.process_time()
        for _ in range(order["steps"]):
            begin = time.perf_counter()
            step(order["spin"])
            wall.append(time.perf_counter() - begin)
        cpu_s = (time.process_time() - cpu_begin) / max(1, order["steps"])
        resident = resident_bytes()
    return {"wall": wall, "cpu_s": cpu_s, "resident": resident}


def main() -> None:
    """Obey until the bench hangs up."""
    rank, wrap = int(os.environ["RANK"]), os.environ["BENCH_WRAP"]
    pin(rank)
    step = training(wrap)
    for _ in range(20):
        step(0)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["BENCH_SOCKET"])
    stream = connection.makefile("rw", encoding="utf-8")

    def tell(message: dict[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    tell({"name": os.environ["BENCH_NAME"], "rank": rank, "pid": os.getpid(), "resident": resident_bytes()})
    for line in stream:
        tell(block(step, wrap, json.loads(line)))
    os._exit(0)  # no destructors of process groups: the other ranks may be gone already


if __name__ == "__main__":
    main()
