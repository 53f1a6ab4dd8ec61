"""What only a GPU can show: device times like the profiler's, no synchronization, graphs, NVML, two ranks on one GPU.

Skipped without a CUDA device. Run on one GPU: python -m pytest tests/gpu
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from probing import Observed, probed
from training import end, launch, running

from tuiadvisor.advisor.detail.device_times import KEEPS_PACE_SHARE
from tuiadvisor.agent.gpu import load_nvml
from tuiadvisor.agent.nvml import NvmlReader
from tuiadvisor.events import EventKind
from tuiadvisor.phases import PHASES

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device (a machine with one)"),
    pytest.mark.filterwarnings("default"),
]
SCRIPT = Path(__file__).with_name("train_on_gpu.py")
SYNCHRONIZING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


class Loop:
    """A plain training loop on the device, with the names of its phases for the profiler."""

    def __init__(self, width: int = 2048, depth: int = 8, batch: int = 4096) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.randn(batch, width, device="cuda")

    def step(self) -> None:
        """One step; the zeroing is outside of every phase."""
        model = self.model  # in a frame's local, where roots are looked for
        self.optimizer.zero_grad()
        with record_function("forward"):
            loss = model(self.batch)
        loss = loss.square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            self.optimizer.step()

    def run(self, steps: int) -> None:
        """So many steps; each waits for the device at its end, as a loop that logs its loss does."""
        for _ in range(steps):
            self.step()
            torch.cuda.synchronize()


def device_rows(observed: Observed) -> list[dict[str, int]]:
    """Device phases in the ring."""
    return observed.events(EventKind.DEVICE_PHASE)


def device_ms(rows: list[dict[str, int]], phase: str) -> float:
    """Median of a phase on the device."""
    index = PHASES.index(phase)
    return median(row["end_ns"] - row["begin_ns"] for row in rows if row["group"] == index) / 1e6


def profiled(loop: Loop, steps: int, folder: Path) -> list[dict[str, Any]]:
    """Trace events of these steps."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        loop.run(steps)
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def kernel_spans_ms(events: list[dict[str, Any]], phase: str) -> list[float]:
    """From the first to the last kernel launched in each range of that name, by whatever thread launched it."""
    launched_us = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event.get("args", {})
    }
    kernels = [event for event in events if event.get("cat") == "kernel"]
    spans = []
    for span in events:
        if span.get("cat") == "user_annotation" and span["name"] == phase:
            begin_us, end_us = span["ts"], span["ts"] + span["dur"]
            mine = [k for k in kernels if begin_us <= launched_us.get(k["args"]["correlation"], -1) < end_us]
            spans.append((max(k["ts"] + k["dur"] for k in mine) - min(k["ts"] for k in mine)) / 1e3)
    return spans


def test_device_times_agree_with_the_profilers(tmp_path: Path) -> None:
    """Forward and backward within 3 % or 30 us of what the profiler sees for the kernels launched in them."""
    loop = Loop()
    loop.run(20)
    with probed(tmp_path) as observed:
        loop.run(60)
        observed.events()
        events = profiled(loop, 20, tmp_path)
        loop.run(5)
        rows = device_rows(observed)

    for phase in ("forward", "backward"):
        expected_ms = median(kernel_spans_ms(events, phase))
        assert device_ms(rows, phase) == pytest.approx(expected_ms, rel=0.03, abs=0.03), phase


def test_probe_never_synchronizes(tmp_path: Path) -> None:
    """As many synchronizing calls with the probe as without."""
    loop = Loop(width=256, depth=2, batch=32)
    loop.run(10)

    def calls() -> Counter[str]:
        return Counter(
            event["name"] for event in profiled(loop, 20, tmp_path) if event.get("name") in SYNCHRONIZING
        )

    without = calls()
    with probed(tmp_path):
        loop.run(10)
        attached = calls()

    assert without == attached


def test_fast_device_keeps_pace_and_busy_device_does_not(tmp_path: Path) -> None:
    """Tiny layers are over before the next launch; large ones pile up behind the thread."""
    behind = {}
    for name, loop in (
        ("tiny", Loop(width=32, depth=16, batch=8)),
        ("large", Loop(width=8192, depth=8, batch=4096)),
    ):
        loop.run(5)
        with probed(tmp_path) as observed:
            loop.run(60)
            rows = device_rows(observed)
        steps: dict[int, list[dict[str, int]]] = {}
        for row in rows:
            steps.setdefault(row["step"], []).append(row)
        assert steps, name
        behind[name] = median(
            (max(row["detail"] for row in step))
            / (max(row["end_ns"] for row in step) - min(row["begin_ns"] for row in step))
            for step in steps.values()
        )

    assert behind["tiny"] < KEEPS_PACE_SHARE
    assert behind["large"] > 0.3


def test_graph_capture_and_replay_go_on_under_the_probe(tmp_path: Path) -> None:
    """A whole step is captured in the training thread while the probe is there; its replay trains as before."""
    results = []
    for is_attached in (False, True):
        loop = Loop(width=64, depth=2, batch=16)
        loop.run(5)

        def captured_steps(loop: Loop = loop) -> Any:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    loop.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            loop.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                loss = loop.model(loop.batch).square().mean()
                loss.backward()
                loop.optimizer.step()
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()
            return [parameter.detach().clone() for parameter in loop.model.parameters()]

        if is_attached:
            with probed(tmp_path):
                loop.run(5)
                results.append(captured_steps())
        else:
            loop.run(5)
            results.append(captured_steps())

    assert all(torch.equal(bare, attached) for bare, attached in zip(*results, strict=True))


def test_nvml_tells_of_the_device_that_works(tmp_path: Path) -> None:
    """Clock, power, temperature and memory are there and plausible; the probe's device is one of NVML's."""
    nvml = load_nvml()
    assert nvml is not None
    reader = NvmlReader(nvml)
    loop = Loop()
    with probed(tmp_path) as observed:
        deadline_s = time.monotonic() + 3
        while time.monotonic() < deadline_s:
            loop.run(5)
        found = {gpu["uuid"]: gpu for gpu in reader.sample()}
        uuid = observed.info["device_uuid"]
    names = {str(name).removeprefix("GPU-") for name in found}
    parts = {
        str(part["uuid"]).removeprefix("MIG-") for gpu in found.values() for part in (gpu["parts"] or [])
    }  # type: ignore[attr-defined]

    assert uuid in names | parts
    for gpu in found.values():
        assert 0 < gpu["sm_clock_mhz"] <= gpu["max_sm_clock_mhz"]  # type: ignore[operator]
        assert 0 < gpu["memory_used_bytes"] <= gpu["memory_total_bytes"]  # type: ignore[operator]
        assert 0 < gpu["temperature_c"] < 120  # type: ignore[operator]
        assert gpu["is_lost"] is False


def test_two_ranks_on_one_gpu_from_attach_to_diagnosis(tmp_path: Path) -> None:
    """Attached after the start, recorded, diagnosed: device and host time of both ranks, and the device's counters."""
    recording = tmp_path / "run.tuirec"
    with running(2, "--seconds", "60", script=SCRIPT, is_whole=True) as (training, _):
        command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(recording), "--for", "12s"]
        subprocess.run([*command, "--pid", str(training.pid)], check=True, timeout=90, capture_output=True)
        assert training.poll() is None
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", "diagnose", str(recording), "--json"],
        check=True,
        timeout=60,
        capture_output=True,
    )
    said = json.loads(done.stdout)

    assert said["run"]["device"] == "cuda"
    assert said["clock"] == "device"
    assert all(rank["device"] is not None for rank in said["per_rank"])
    assert all(rank["device"]["seconds"]["backward"] > 0 for rank in said["per_rank"])
    assert any("MHz" in line for host in said["hosts"] for line in host["gpus"])


def test_allocators_books_are_read(tmp_path: Path) -> None:
    """The peak is what torch says of itself; an allocation that only fits after a retry is an event of its step."""
    loop = Loop(width=512, depth=2, batch=512)
    loop.run(5)
    free_bytes = torch.cuda.mem_get_info()[0]
    with probed(tmp_path) as observed:
        loop.run(20)
        ballast = [torch.empty(free_bytes // 3, dtype=torch.uint8, device="cuda") for _ in range(2)]
        del ballast  # cached, not given back: the next one does not fit beside it
        time.sleep(1.1)
        loop.run(5)
        large = torch.empty(free_bytes * 9 // 10, dtype=torch.uint8, device="cuda")
        del large
        time.sleep(1.1)
        loop.run(40)
    peaks = [step["peak_memory_bytes"] for step in observed.steps if step["peak_memory_bytes"] >= 0]
    assert peaks == sorted(peaks)
    assert torch.cuda.max_memory_allocated() == peaks[-1]
    assert 1 <= sum(row["detail"] for row in observed.events(EventKind.ALLOC_RETRY))
    torch.cuda.empty_cache()


def test_training_is_numerically_untouched(tmp_path: Path) -> None:
    """The final weights of a training that was watched are those of one that was not, bit for bit."""
    weights = []
    for name in ("bare", "watched"):
        path = tmp_path / name
        arguments = ["--steps", "300", "--seconds", "300", "--weights", str(path)]
        training = launch(2, arguments, script=SCRIPT, is_whole=True)
        try:
            if name == "watched":
                time.sleep(8)
                command = [sys.executable, "-m", "tuiadvisor", "record", "-o", f"{path}.tuirec"]
                subprocess.run(
                    [*command, "--pid", str(training.pid), "--for", "5s"],
                    check=False,
                    timeout=90,
                    capture_output=True,
                )
            assert training.wait(timeout=120) == 0
        finally:
            end(training)
        weights.append(torch.load(path, map_location="cpu"))

    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
