"""Nanoseconds each hook adds to one call, attached minus bare, in one process.

Three figures a hook: as it is always, in a burst of detail, when it records each call and times itself (both warm: best
of many rounds), and as it is always behind matrix products, which empty the caches as a training step does (median).

    python tests/benchmarks/hook_cost.py [--core native|python]

The calls themselves do nothing, so that what is left is the hook. In a real step it is as cold as in the last column:
that one decides what a training pays (tests/benchmarks/overhead.py measures the whole).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tuiadvisor.agent.payload import NATIVE_VARIABLE, has_core
from tuiadvisor_probes import phases

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROUNDS, CALLS = 60, 400
COLD_CALLS, NUM_PRODUCTS, WIDTH = 150, 6, 160
WORK: Any = object()  # what a collective returns here


def best_ns(call: Callable[[], object]) -> float:
    """Fastest round, per call."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter_ns() - begin) / CALLS)
    return min(rounds)


def cold_ns(call: Callable[[], object]) -> float:
    """Median of single calls, each behind some matrix products."""
    import torch

    factor = torch.randn(WIDTH, WIDTH)
    samples = []
    for _ in range(COLD_CALLS):
        for _ in range(NUM_PRODUCTS):
            torch.mm(factor, factor)
        begin = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - begin)
    return statistics.median(samples)


def calls() -> dict[str, Callable[[], object]]:
    """Name of the signal -> a call of nothing through its hook."""
    import torch
    import torch.distributed.pipelining
    from torch import nn
    from torch._C import _distributed_c10d as c10d
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed.pipelining import schedules, stage
    from torch.utils.data import dataloader

    class Loader(dataloader._BaseDataLoaderIter):
        def __init__(self) -> None:
            self.batch = {"input_ids": torch.zeros(4, 16, dtype=torch.long)}

    class Stage:
        stage_index, num_stages, group_size, has_backward, dw_runner, group = 0, 2, 2, True, (), None

    class Nothing(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            pass

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))

        def forward(self) -> None:
            pass

    class Group:
        group_name = "0"

        def _get_sequence_number_for_group(self) -> int:
            return 7

    def collective(name: str) -> None:
        getattr(c10d.ProcessGroup, name)(group, tensors)
        c10d.Work.wait(WORK)

    awaited, complete = SimpleNamespace(completed=False), SimpleNamespace(completed=True)
    group, tensors = Group(), [torch.zeros(4)]
    loader, chunk, root = Loader(), Stage(), Root()
    optimizer = Nothing(root.parameters(), {})
    backwards: tuple[Any, ...] = ()
    return {
        "data_wait (with samples and tokens)": lambda: dataloader._BaseDataLoaderIter.__next__(loader),
        "forward of a root": root,
        "backward": lambda: torch.autograd.backward(backwards),
        "optimizer and the step's record": optimizer.step,
        "all-reduce and its wait": lambda: collective("allreduce"),
        "broadcast and its wait": lambda: collective("broadcast"),
        "wait for a functional collective": lambda: AsyncCollectiveTensor.trigger_wait(awaited),
        "use of what has come by one": lambda: AsyncCollectiveTensor.trigger_wait(complete),
        "pipeline chunk": lambda: stage._PipelineStageBase.forward_one_chunk(chunk, 0),
        "pipeline wait": lambda: schedules._wait_batch_p2p([chunk]),
        "checkpoint (with event)": lambda: torch.serialization._legacy_save(0),
    }


def border_ns() -> tuple[str, float]:
    """(on what, nanoseconds) of one border of device times: real CUDA events, or calls that do nothing: our half."""
    import torch

    from tuiadvisor_probes.accelerator import Accelerator
    from tuiadvisor_probes.device_times import DeviceTimes
    from tuiadvisor_probes.guard import Hook

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            pass

        def query(self) -> bool:
            return True

        def elapsed_time(self, _end: object) -> float:
            return 0.0

    module: Any = SimpleNamespace(
        __name__="torch.nothing",
        Event=Event,
        current_stream=lambda _index: 0,
        is_current_stream_capturing=lambda: False,
    )
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
        module = torch.cuda
    device = Accelerator(module, 0, [])
    times = DeviceTimes(Hook("device_times", 0, lambda _: None), lambda _kind, _slots: None, device)
    times.free = [device.event() for _ in range(64)]

    def pair() -> None:
        times.borders, times.seen, times.unseen = [], [], []
        for _ in range(10):
            times.begins(phases.FORWARD, phases.OTHER, 0)
            times.ends(phases.FORWARD, phases.OTHER, 0)
        times._forget(times.borders)

    return "real CUDA events" if module is torch.cuda else "CUDA calls that do nothing", best_ns(pair) / 20


def hollow_out() -> None:
    """Replace what the hooks wrap by nothing, so that only hooks are measured."""
    import torch
    from torch._C import _distributed_c10d as c10d
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed.pipelining import schedules, stage
    from torch.utils.data import dataloader

    for name in ("allreduce", "broadcast"):
        setattr(c10d.ProcessGroup, name, lambda *_: WORK)
    setattr(c10d.Work, "wait", lambda _: None)  # noqa: B010 - of another signature on purpose
    AsyncCollectiveTensor.trigger_wait = lambda _: None
    dataloader._BaseDataLoaderIter.__next__ = lambda self: self.batch
    stage._PipelineStageBase.forward_one_chunk = lambda *_: None
    schedules._wait_batch_p2p = lambda _: None
    torch.autograd.backward = lambda *_: None
    torch.serialization._legacy_save = lambda *_: None


def main() -> None:
    """Print a table."""
    import torch
    from probing import probed

    parser = argparse.ArgumentParser(description="what each hook adds to one call")
    parser.add_argument(
        "--core", choices=("native", "python"), help="default: as ranks of this machine get it"
    )
    core = parser.parse_args().core
    if core is not None:
        os.environ[NATIVE_VARIABLE] = "1" if core == "native" else "0"
    if core == "native" and not has_core():
        parser.error("no native core was built here: python probes/native/core_build.py")

    signals = calls()
    root = signals["forward of a root"]  # in a frame's local, where roots are looked for
    hollow_out()
    torch.set_num_threads(1)
    bare = {name: best_ns(call) for name, call in signals.items()}
    bare_cold = {name: cold_ns(call) for name, call in signals.items()}
    added, added_cold = [], {}
    for detail_s in (0.0, 600.0):
        with (
            tempfile.TemporaryDirectory() as folder,
            probed(Path(folder), detail_s=detail_s, budget_ppm=0) as observed,
        ):
            for _ in range(8):  # until the root is found
                root()
                signals["backward"]()
                signals["optimizer and the step's record"]()
            attached = {}
            for name, call in signals.items():
                attached[name] = best_ns(call) - bare[name]
                if not detail_s:
                    added_cold[name] = cold_ns(call) - bare_cold[name]
                observed.events()
                observed.steps.clear()
            core = observed.info["core"]
        added.append(attached)
    print(f"hooks on the {core} core")
    print(f"{'ns a call':38} {'bare':>8} {'always':>8} {'in detail':>10} {'always, cold':>13}")
    what, nanoseconds = border_ns()
    print(f"device border, {what:32} {nanoseconds:8.0f}")
    for name in signals:
        print(
            f"{name:38} {bare[name]:8.0f} {added[0][name]:8.0f} {added[1][name]:10.0f} {added_cold[name]:13.0f}"
        )


if __name__ == "__main__":
    main()
