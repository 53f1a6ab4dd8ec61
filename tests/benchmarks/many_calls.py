"""What the always-on hooks cost a step that makes many calls: hundreds of forwards, batches or backwards.

    python tests/benchmarks/many_calls.py [--shapes rollout batches recursive cell micro] [--seconds 20]
        [--cores python native]

Blocks of steps without the probe and with it, on each core, take turns in one process, as in sections.py; the training
thread's CPU clock. Of a block the 30 % quantile of its steps; a figure is the median over rounds of that less the bare
one of the round, with a 95 % bootstrap interval; beside it what that is for each call, and what the probe's own clock
says of the same steps.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

import numpy as np
from overhead import SETTLED, bootstrap_median
from sections import BARE, NATIVE, OWN_NS, PYTHON, QUANTILE

SECONDS_OF_A_BLOCK = 0.5


def rollout() -> tuple[Callable[[], None], int]:
    """A small policy acts 200 times without gradients between two updates."""
    import torch

    model, optimizer = _small(16, 64, 4)
    seen = torch.randn(8, 16)

    def step() -> None:
        with torch.no_grad():
            for _ in range(200):
                model(seen)
        _update(model, optimizer, seen)

    return step, 200


def batches() -> tuple[Callable[[], None], int]:
    """300 batches of a loader that has them ready are gone through for one update."""
    import torch
    from torch.utils.data import DataLoader

    model, optimizer = _small(16, 64, 4)
    seen = torch.randn(8, 16)
    loader = DataLoader([seen] * 300, batch_size=None)

    def step() -> None:
        for _ in loader:
            pass
        _update(model, optimizer, seen)

    return step, 300


def recursive() -> tuple[Callable[[], None], int]:
    """A model that calls itself, 100 deep, as of a tree."""
    import torch
    from torch import nn

    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)

        def forward(self, value: Any, depth: int) -> Any:
            return value if depth == 0 else self.inner(self(value, depth - 1))

    model = Tree()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen = torch.randn(8, 16)

    def step() -> None:
        optimizer.zero_grad()
        model(seen, 100).square().mean().backward()
        optimizer.step()

    return step, 100


def cell() -> tuple[Callable[[], None], int]:
    """A recurrent cell is the model: it is called 200 times for one backward."""
    import torch
    from torch import nn

    model = nn.RNNCell(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen = torch.randn(8, 16)

    def step() -> None:
        optimizer.zero_grad()
        hidden = torch.zeros(8, 16)
        for _ in range(200):
            hidden = model(seen, hidden)
        hidden.square().mean().backward()
        optimizer.step()

    return step, 200


def micro() -> tuple[Callable[[], None], int]:
    """64 micro-batches of a small model are accumulated: a forward and a backward each."""
    import torch

    model, optimizer = _small(16, 64, 4)
    seen = torch.randn(8, 16)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(64):
            model(seen).square().mean().backward()
        optimizer.step()

    return step, 128


SHAPES = {made.__name__: made for made in (rollout, batches, recursive, cell, micro)}


def _small(*widths: int) -> tuple[Any, Any]:
    import torch
    from torch import nn

    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    model = nn.Sequential(layers[0], nn.Tanh(), *layers[1:])
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def _update(model: Any, optimizer: Any, seen: Any) -> None:
    optimizer.zero_grad()
    model(seen).square().mean().backward()
    optimizer.step()


@contextlib.contextmanager
def watched(core: str) -> Any:
    """The probe is there; yields the reader of its ring, None where it is to be bare."""
    from tuiadvisor.agent.payload import NATIVE_VARIABLE, attach_code, detach_code, write_native
    from tuiadvisor_probes import ring

    if core == BARE:
        yield None
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = f"{folder}/ring"
        ring.create_ring_file(path)
        os.environ[NATIVE_VARIABLE] = "1" if core == NATIVE else "0"
        assert write_native(Path(folder)) == (core == NATIVE)
        reader = ring.RingReader(path)
        exec(attach_code(path), {})  # noqa: S102 - the very code an injection runs
        try:
            assert json.loads(reader.info())["core"] == core, reader.info()
            yield reader
        finally:
            exec(detach_code(), {})  # noqa: S102 - likewise


def block(step: Callable[[], None], core: str) -> tuple[float, float]:
    """Microseconds of a step, and what the probe says that it took of it."""
    with watched(core) as reader:
        for _ in range(SETTLED):
            step()
        if reader is not None:
            reader.take_steps()
        times_ns, deadline = [time.thread_time_ns()], time.monotonic() + SECONDS_OF_A_BLOCK
        while time.monotonic() < deadline:
            step()
            times_ns.append(time.thread_time_ns())
        took_us = float(np.percentile(np.diff(times_ns), QUANTILE)) / 1e3
        own = [record[OWN_NS] for record in reader.take_steps()] if reader is not None else []
        return took_us, statistics.mean(own) / 1e3 if own else 0.0


def main() -> None:
    """Run the shapes and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="*", default=[*SHAPES], choices=[*SHAPES])
    parser.add_argument("--seconds", type=float, default=20, help="of measuring, a shape")
    parser.add_argument("--cores", nargs="*", default=[PYTHON, NATIVE], choices=[PYTHON, NATIVE])
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{len(os.sched_getaffinity(0))} core, load {os.getloadavg()[0]:.1f}")
    for shape in options.shapes:
        step, calls = SHAPES[shape]()
        turns, rounds = [BARE, *options.cores], []
        for number in range(max(5, round(options.seconds / SECONDS_OF_A_BLOCK / len(turns)))):
            order = turns[number % len(turns) :] + turns[: number % len(turns)]
            rounds.append({core: block(step, core) for core in order})
        bare_us = statistics.median(each[BARE][0] for each in rounds)
        for core in options.cores:
            value, least, most = bootstrap_median([each[core][0] - each[BARE][0] for each in rounds])
            own = statistics.median(each[core][1] for each in rounds)
            print(
                f"{shape:10}{core:7} +{value:7.1f} us ({least:.1f}-{most:.1f}) = {value / bare_us:.1%} of "
                f"{bare_us / 1e3:.2f} ms, {value / calls:.2f} us a call; own clock {own:.1f} us",
                flush=True,
            )


if __name__ == "__main__":
    main()
