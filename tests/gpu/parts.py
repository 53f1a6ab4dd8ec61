"""Measurements on one device, each a function that yields rows: what, what was seen, what is wanted.

`--rehearse` runs them on the CPU: the same code with figures that mean nothing, so that no half hour on a device is
lost to a misspelt name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from probing import Observed, probed

from tuiadvisor.agent.gpm import METRICS
from tuiadvisor.agent.gpu import load_nvml
from tuiadvisor.agent.nvml import NvmlReader
from tuiadvisor.events import EventKind
from tuiadvisor.phases import PHASES

Row = tuple[str, str, str]
IS_REHEARSAL = not torch.cuda.is_available()
ROUNDS = 2 if IS_REHEARSAL else 7
US = 1e6


class Loop:
    """A training loop of one process; `products`: how much each of its layers is, so how long a step."""

    def __init__(self, device: str, width: int = 1024, batch: int = 1024, look_every: int = 1) -> None:
        torch.manual_seed(0)
        if IS_REHEARSAL:
            width, batch = 64, 16
            torch.set_num_threads(1)
        layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model: nn.Module = nn.Sequential(*layers).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(batch, width, device=device)
        self.look_every = look_every
        self.num_steps = 0

    def step(self) -> torch.Tensor:
        """One step, and a look at the loss now and then: there the host waits for the device."""
        model = self.model  # in a frame's local, where roots are looked for
        self.optimizer.zero_grad()
        with record_function("forward"):
            loss = model(self.batch)
        loss = loss.square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            self.optimizer.step()
        self.num_steps += 1
        if self.look_every and self.num_steps % self.look_every == 0:
            loss.item()
        return loss

    def run(self, steps: int) -> float:
        """Seconds a step, the device's end included; a quarter of the steps in a rehearsal."""
        steps = max(steps // 4, 2) if IS_REHEARSAL else steps
        synchronize(self.batch.device)
        begin_s = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.batch.device)
        return (time.perf_counter() - begin_s) / steps


def synchronize(device: torch.device) -> None:
    """Wait for the device; a CPU is never behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_rows(observed: Observed, phase: str | None = None) -> list[dict[str, int]]:
    """Device phases in the ring."""
    rows = observed.events(EventKind.DEVICE_PHASE)
    return rows if phase is None else [row for row in rows if row["group"] == PHASES.index(phase)]


def typical_ms(rows: list[dict[str, int]]) -> float | None:
    """Median length; None: there is none."""
    return median(row["end_ns"] - row["begin_ns"] for row in rows) / 1e6 if rows else None


def words(value: float | None, unit: str, digits: int = 3) -> str:
    """A figure, or unknown."""
    return "unknown" if value is None else f"{value:.{digits}g} {unit}"


def folder() -> Path:
    """A new one; the machine goes back after the run."""
    return Path(tempfile.mkdtemp(prefix="gpu-"))


def kernels_ms(events: list[dict[str, Any]], name: str) -> float | None:
    """Median over the ranges of that name: from the first kernel launched in it to the end of the last."""
    launched_us = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event.get("args", {})
    }
    kernels = [event for event in events if event.get("cat") == "kernel"]
    lengths = []
    for span in events:
        if span.get("cat") == "user_annotation" and span["name"] == name:
            until_us = span["ts"] + span["dur"]
            mine = [
                one
                for one in kernels
                if span["ts"] <= launched_us.get(one["args"]["correlation"], -1) < until_us
            ]
            if mine:
                lengths.append(max(one["ts"] + one["dur"] for one in mine) - min(one["ts"] for one in mine))
    return median(lengths) / 1e3 if lengths else None


def profiled(loop: Loop, steps: int) -> list[dict[str, Any]]:
    """Trace events of these steps."""
    on_device = [ProfilerActivity.CUDA] if loop.batch.is_cuda else []
    with profile(activities=[ProfilerActivity.CPU, *on_device]) as profiler:
        loop.run(steps)
    path = folder() / "trace.json"
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


# -- parts, most worth first ------------------------------------------------------------------------------------------


def phases(device: str) -> Iterator[Row]:
    """Device phases beside the profiler's kernels, without and with looks at the loss."""
    for look_every in (1, 10, 0):
        loop = Loop(device, width=2048, batch=4096, look_every=look_every)
        loop.run(10)
        with probed(folder()) as observed:
            loop.run(80)
            rows = {
                name: typical_ms(device_rows(observed, name)) for name in ("forward", "backward", "optimizer")
            }
            num_measured = len({row["step"] for row in device_rows(observed)})
        events = profiled(loop, 20)
        yield f"steps with device times, look every {look_every}", f"{num_measured} of 80", "> 0"
        for name, seen_ms in rows.items():
            true_ms = kernels_ms(events, name)
            far = None if seen_ms is None or not true_ms else 100 * abs(seen_ms / true_ms - 1)
            said = f"{words(seen_ms, 'ms')}, profiler {words(true_ms, 'ms')}: {words(far, '%', 2)} apart"
            yield f"{name}, look every {look_every}", said, "within 3 %"


def cost(device: str) -> Iterator[Row]:
    """What the probe adds to a step, rounds without and with it in turn."""
    for batch in (64, 2048, 8192, 40960):
        loop = Loop(device, batch=batch, look_every=10)
        loop.run(40)
        bare, watched = [], []
        for _ in range(ROUNDS):
            bare.append(loop.run(40))
            with probed(folder()):
                loop.run(5)
                watched.append(loop.run(40))
        added = [after - before for before, after in zip(bare, watched, strict=True)]
        step_s = median(bare)
        spread = f"rounds {min(added) * US:.0f} to {max(added) * US:.0f}"
        said = f"{words(median(added) * US, 'us')} ({100 * median(added) / step_s:.2f} %), {spread}"
        yield f"probe in a step of {1e3 * step_s:.2f} ms", said, "< 0.5 % of 20 ms"


def host_ahead(device: str) -> Iterator[Row]:
    """How far the device is behind the host at the end of backward, by how the loop runs and how often it looks."""
    kinds: dict[str, Callable[[Loop], None]] = {"eager": lambda _: None, "compiled": _compile}
    for kind, change in kinds.items():
        for look_every in (1, 10, 50):
            loop = Loop(device, batch=4096, look_every=look_every)
            change(loop)
            loop.run(60)
            with probed(folder()) as observed:
                step_s = loop.run(150)
                rows = device_rows(observed)
            behind = [row["detail"] / 1e9 / step_s for row in rows]
            num_steps = len({row["step"] for row in rows})
            said = f"{words(median(behind) if behind else None, 'steps')} behind, {num_steps} of 150 steps measured"
            yield (
                f"{kind}, a look every {look_every} steps of {1e3 * step_s:.2f} ms",
                said,
                "some steps measured",
            )


def _compile(loop: Loop) -> None:
    loop.model = torch.compile(loop.model)


def nccl(device: str) -> Iterator[Row]:
    """DDP of one rank: the device's wait in backward beside NCCL's kernels, and what NCCL's own timing costs."""
    backend = "nccl" if device == "cuda" else "gloo"
    _alone(backend)
    loop = Loop(device, batch=2048, look_every=10)
    loop.model = nn.parallel.DistributedDataParallel(loop.model)
    loop.run(20)
    with probed(folder()) as observed:
        step_s = loop.run(100)
        waited_ms = typical_ms(device_rows(observed, "comm_exposed"))
    events = profiled(loop, 20)
    of_nccl = [
        event["dur"] / 1e3
        for event in events
        if "nccl" in str(event.get("name")).lower() and event.get("cat") == "kernel"
    ]
    yield (
        "exposed communication of one rank",
        f"{words(waited_ms, 'ms')}; NCCL kernels {words(sum(of_nccl) / 20, 'ms')} a step",
        "no more than the kernels",
    )
    turn_on = getattr(dist.group.WORLD, "_enable_collectives_timing", None)
    if turn_on is None or device == "cpu":
        yield "NCCL's own timing", "not offered here", "known"
    else:
        turn_on()
        yield (
            "a step with NCCL's own timing",
            f"{1e3 * loop.run(100):.3f} ms, without {1e3 * step_s:.3f} ms",
            "its cost",
        )
    dist.destroy_process_group()


def _alone(backend: str) -> None:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29555",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
    }
    dist.init_process_group(backend)


def nccl_pair(device: str) -> Iterator[Row]:
    """Whether NCCL takes two ranks on one device when each believes itself on a host of its own."""
    code = (
        "import sys, torch, torch.distributed as dist; dist.init_process_group(sys.argv[1]);"
        "t = torch.ones(8, device=sys.argv[2]); dist.all_reduce(t); print(t.sum().item())"
    )
    backend = "nccl" if device == "cuda" else "gloo"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, backend, device],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "NCCL_HOSTID": f"host{rank}",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29556", "NCCL_SOCKET_IFNAME": "lo"},
        )
        for rank in range(2)
    ]  # fmt: skip
    said = []
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=90)[0].strip().splitlines()[-1:] or ["nothing"])
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.communicate()
            said.append(["no answer within 90 s"])
    yield (
        "two ranks of NCCL on one device",
        " / ".join(one[0][:120] for one in said),
        "16.0 / 16.0, or why not",
    )


def hazards(device: str) -> Iterator[Row]:
    """What an attach must never do to a training."""
    code = (
        f"import sys; sys.path[:0] = {sys.path[:3]!r}\n"
        "import os, tempfile, torch, pathlib\nfrom probing import probed\n"
        "with probed(pathlib.Path(tempfile.mkdtemp())):\n    pass\n"
        "pid = os.fork()\n"
        f"if pid == 0:\n    torch.ones(1, device={device!r}); os._exit(0)\n"
        "print('initialized' if torch.cuda.is_initialized() else 'untouched', 'fork ends with', os.waitpid(pid, 0)[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    yield (
        "attach before the device is used, then a fork",
        (done.stdout or done.stderr).strip().splitlines()[-1],
        "untouched fork ends with 0",
    )
    loop = Loop(device, width=256, batch=32)
    compiled = torch.compile(loop.optimizer.step)
    loop.optimizer.step = compiled
    loop.run(10)
    torch.compiler.set_stance("fail_on_recompile")
    try:
        with probed(folder()):
            loop.run(10)
        said = "trains on"
    except RuntimeError as error:
        said = str(error).splitlines()[0][:120]
    finally:
        torch.compiler.set_stance("default")
    yield "compiled optimizer under fail_on_recompile", said, "trains on"
    if device == "cuda":
        yield "capture on another stream while attached", _capture_beside(), "as without"


def _capture_beside() -> str:
    loop = Loop("cuda", width=256, batch=32, look_every=0)
    loop.run(5)
    with probed(folder()):
        loop.run(5)
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        other = torch.ones(64, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            other = other * 2
        loop.run(5)
        graph.replay()
        torch.cuda.synchronize()
    return "as without"


def borders(device: str) -> Iterator[Row]:
    """What a border's calls cost the host: in a row, and now and then beside a device that is busy."""
    if device != "cuda":
        return
    for rest_s, num, what in ((0.0, 400, "in a row"), (0.01, 60, "every 10 ms, device busy")):
        for name, took_s in _calls(rest_s, num).items():
            yield f"{name}, {what}", f"{words(took_s * US, 'us')}", "< 5 us warm, < 30 us cold"


def _calls(rest_s: float, num: int) -> dict[str, float]:
    """Median seconds of each call of the device's that a border, or reading it later, makes."""
    event, other = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(0)
    event.record(stream)
    other.record(stream)
    torch.cuda.synchronize()
    late = torch.cuda.Event(enable_timing=True)
    late.record(stream)
    calls: dict[str, Callable[[], object]] = {
        "new event": lambda: torch.cuda.Event(enable_timing=True),
        "current_stream": lambda: torch.cuda.current_stream(0),
        "is_capturing": torch.cuda.is_current_stream_capturing,
        "elapsed_time": lambda: event.elapsed_time(other),
        "record": lambda: torch.cuda.Event(enable_timing=True).record(stream),
        "record, used event": lambda: late.record(stream),
        "query": late.query,
    }
    factor = torch.randn(4096, 4096, device="cuda")
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(num):
        if rest_s:
            for _ in range(8):
                factor @ factor
            time.sleep(rest_s)
        for name, call in calls.items():
            begin_s = time.perf_counter()
            call()
            took[name].append(time.perf_counter() - begin_s)
    torch.cuda.synchronize()
    return {name: median(lengths) for name, lengths in took.items()}


def threads(device: str) -> Iterator[Row]:
    """FSDP2 with one rank: steps seen, and on which threads its hooks run."""
    from torch.distributed.fsdp import fully_shard

    _alone("nccl" if device == "cuda" else "gloo")
    loop = Loop(device, width=256, batch=64)
    for layer in loop.model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(loop.model)
    loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=1e-3)
    seen: set[str] = set()
    loop.model.register_full_backward_hook(lambda *_: seen.add(threading.current_thread().name))
    loop.run(5)
    with probed(folder()) as observed:
        loop.run(40)
    # Read after the end: light steps are told together.
    num_steps, num_measured = len(observed.steps), len({row["step"] for row in device_rows(observed)})
    yield (
        "FSDP2 of one rank",
        f"{num_steps} of 40 steps, {num_measured} with device times; backward hooks on {sorted(seen)}",
        "39 or 40",
    )
    dist.destroy_process_group()


def counters(device: str) -> Iterator[Row]:
    """Which of NVML's counters answer here."""
    library = load_nvml()
    if library is None:
        yield "NVML", "not there", "known"
        return
    reader, loop = NvmlReader(library), Loop(device, batch=4096)
    reader.sample()
    loop.run(100)
    for gpu in reader.sample():
        told = {name: value for name, value in gpu.items() if value is not None}
        without = sorted(set(gpu) - set(told))
        yield "counters that answer", json.dumps(told, default=str)[:400], ", ".join(METRICS)
        yield "counters that do not", ", ".join(without) or "none", "none"


PARTS: dict[str, Callable[[str], Iterator[Row]]] = {
    part.__name__: part
    for part in (phases, nccl, cost, host_ahead, hazards, counters, borders, threads, nccl_pair)
}
