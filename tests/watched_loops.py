"""Loops on the asynchronous device that are run twice in one process, unwatched and watched: two ranks of a test.

The second rank's device is half as slow again, so that the first one waits for it wherever they meet. The gradients
have to be the same bit for bit, no hook may be disabled, and what a rank's device waits at exchanges has to be booked
as exposed communication. How long that was the device tells itself: where the machine gives a rank its core late, the
other waits for longer. A test file is its own script: `run` is what its ranks do, `results_of` starts them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

NUM_STEPS, WARM_UP = 20, 4
NUM_AFTER = 2  # steps without the probe again
SLOW_RANK, SLOW_BY = 1, 1.5
SAMPLE_S = 0.0003

Result = dict[str, Any]
Step = Callable[[Any, Any], None]


class Loops:
    """The loops by name; each makes its model anew and gives it back with one step of training."""

    def __init__(self, rank: int) -> None:
        import asynchronous_device as device
        import asynchronous_training as training

        self.device, self.training = device, training
        self.compute = device.default_stream()
        self.compute.is_slow_by = SLOW_BY if rank == SLOW_RANK else 1.0
        self.host = training.Host(self.compute, 0.0002)
        self.goes_on: Callable[[], None]  # with the loop that was run last

    def batches(self) -> Iterator[Any]:
        """From torch's loader."""
        from torch.utils.data import DataLoader

        return iter(DataLoader(self.training.Samples(SAMPLE_S), batch_size=4))

    def gradients(self, name: str) -> list[Any]:
        """Of all parameters, and these, after training; of sharded ones this rank's shards."""
        import torch

        torch.manual_seed(7)
        model, step = getattr(self, name)()
        batches = self.batches()

        def goes_on() -> None:
            step(*next(batches))
            self.compute.synchronize()

        for _ in range(NUM_STEPS):
            goes_on()
        self.goes_on = goes_on
        parameters = list(model.parameters())
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return [local(tensor.detach()).clone() for tensor in (*grads, *parameters)]


def local(tensor: Any) -> Any:
    """This rank's part of it."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def in_ms(spans: Iterable[tuple[int, int]]) -> float:
    """Their sum; spans in ns."""
    return sum(end - begin for begin, end in spans) / 1e6


def waited_in(step: list[tuple[str, int, int]], waits: list[tuple[int, int]]) -> float:
    """How long the device stood still at exchanges between the first and the last moment recorded of a step, in ms."""
    first, last = min(begin for _, begin, _ in step), max(end for _, _, end in step)
    return in_ms((max(begin, first), min(end, last)) for begin, end in waits if end > first and begin < last)


def run(make: Callable[[int], Loops]) -> None:
    """Every loop, unwatched and watched; rank 0 prints a line of JSON for each, with all ranks' results."""
    import asynchronous_device
    import torch
    import torch.distributed as dist
    from probing import probed

    from tuiadvisor.events import EventKind
    from tuiadvisor.phases import PHASES

    torch.set_num_threads(1)
    asynchronous_device.install()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loops = make(rank)
    for name in sys.argv[1:]:
        unwatched = loops.gradients(name)
        with tempfile.TemporaryDirectory() as folder:
            with probed(Path(folder)) as observed:
                watched = loops.gradients(name)
            for _ in range(NUM_AFTER):
                loops.goes_on()
            steps: dict[int, list[tuple[str, int, int]]] = {}
            for event in observed.events(EventKind.DEVICE_PHASE):
                span = PHASES[event["group"]], event["begin_ns"], event["end_ns"]
                steps.setdefault(event["step"], []).append(span)
        kept = [steps[number] for number in sorted(steps)[WARM_UP:]]
        comm_ms = [
            in_ms((begin, end) for name, begin, end in step if name == "comm_exposed") for step in kept
        ]
        waited_ms = [waited_in(step, loops.compute.waits) for step in kept]
        result: Result = {
            "hooks": observed.info["hooks"],
            "num_compiled": torch._dynamo.utils.counters["frames"]["ok"]
            if "torch._dynamo" in sys.modules
            else 0,
            "num_borders": statistics.median([len(step) for step in kept] or [-1]),
            "same": all(torch.equal(one, other) for one, other in zip(unwatched, watched, strict=True)),
            "num_steps": len(kept),
            "comm_ms": statistics.median(comm_ms or [-1.0]),
            "waited_ms": statistics.fmean(waited_ms or [-1.0]),
            "astray_ms": statistics.median(
                [abs(one - other) for one, other in zip(comm_ms, waited_ms, strict=True)]
            ),
        }
        results: list[Any] = [None] * world
        dist.all_gather_object(results, result)
        if rank == 0:
            print(json.dumps({"name": name, "ranks": results}), flush=True)
    loops.compute.synchronize()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # streams of other modules may still wait for a rank that has ended


def results_of(script: str, names: Iterable[str]) -> dict[str, list[Result]]:
    """Of these loops of a script by name, one item a rank."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, script, *names],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]  # also where a hook was disabled
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["ranks"] for line in lines}


def is_all_the_wait(results: list[Result], least_ms: float) -> bool:
    """Whether exposed communication is what the devices waited at exchanges, on each rank.

    Within half of what a device waits at least, or a tenth of what it waited: how long one rank waits for the other
    hangs on when the machine gives them a core, so that the settings cannot tell it.
    """
    return all(
        result["waited_ms"] > 0 and result["astray_ms"] < max(least_ms / 2, 0.1 * result["waited_ms"])
        for result in results
    )
