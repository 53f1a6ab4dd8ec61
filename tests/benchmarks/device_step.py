"""What a measured step costs the host, and how many steps are measured at the default budget.

    python tests/benchmarks/device_step.py

A device whose calls cost nothing leaves what is ours: processor time of the thread a step, measured steps less others,
with warm caches. Then the budget: the same code on a clock that only moves by what its calls are said to cost, with
steps of 5 to 500 ms, and the share of 4,000 steps that it measures after the first 48.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic_ns, thread_time_ns
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tuiadvisor_probes import device_times, phases, ring
from tuiadvisor_probes.accelerator import Accelerator
from tuiadvisor_probes.device_times import FIRST_STEPS, DeviceTimes
from tuiadvisor_probes.guard import Hook

NUM_STEPS = 4_000
BORDERS = (phases.DATA_WAIT, phases.FORWARD, phases.BACKWARD, phases.OPTIMIZER)
US = 1_000


class Clock:
    """Moves when it is told."""

    def __init__(self) -> None:
        self.now = 1

    def __call__(self) -> int:
        return self.now


def device(clock: Clock, call_ns: int) -> Any:
    """As torch.cuda; each call of its events takes so long on the clock."""

    class Event:
        def __init__(self, **_options: bool) -> None:
            self.passed_ns = 0

        def record(self, _stream: object = None) -> None:
            clock.now += call_ns
            self.passed_ns = clock.now

        def query(self) -> bool:
            clock.now += call_ns
            return True

        def elapsed_time(self, end: Event) -> float:
            clock.now += call_ns
            return (end.passed_ns - self.passed_ns) / 1e6

    return SimpleNamespace(__name__="torch.cuda", Event=Event, current_stream=lambda _index: "stream")


def times_of(module: Any, folder: Path) -> tuple[DeviceTimes, ring.RingWriter]:
    """Device times on a ring of their own."""
    path = folder / "ring"
    path.unlink(missing_ok=True)
    ring.create_ring_file(str(path), 64, 4096)
    writer = ring.RingWriter(str(path))
    times = DeviceTimes(
        Hook("device_times", 0, lambda _hook: None), writer.put_event, Accelerator(module, 0, [])
    )
    times.knows_exchange = True
    return times, writer


def step(times: DeviceTimes, now: Any, number: int, step_ns: int) -> None:
    """The borders of a step of data-parallel training, and its end."""
    for phase in BORDERS:
        times.begins(phase, phases.OTHER, now())
        if phase == phases.BACKWARD and times.is_measuring:
            times.arrives("stream")
        times.ends(phase, phases.OTHER, now())
    times.close_step(number, step_ns, 1_000 + 4 * number)


def ours_us(folder: Path) -> tuple[float, float]:
    """Processor time of a measured step and of another, us."""
    times, writer = times_of(device(Clock(), 0), folder)
    spent: dict[bool, list[int]] = {True: [], False: []}
    for number in range(NUM_STEPS):
        times.bits = times.least_bits = 1 if number > FIRST_STEPS else 0
        is_measured = times.is_measuring
        begin_ns = thread_time_ns()
        step(times, monotonic_ns, number, 100_000 * US)
        spent[is_measured].append(thread_time_ns() - begin_ns)
    writer.close()
    return median(spent[True]) / US, median(spent[False][FIRST_STEPS:]) / US


def share_measured(folder: Path, step_ms: float, call_us: float, own_us: float) -> float:
    """Of all steps after the first ones, on a clock of its own."""
    clock = Clock()
    times, writer = times_of(device(clock, round(call_us * US)), folder)
    own_ns = round(own_us * US / 10)  # ten places of a step

    def passing() -> int:
        clock.now += own_ns // 4
        return clock.now

    with patch.object(device_times, "monotonic_ns", passing):
        num_measured = 0
        for number in range(NUM_STEPS):
            num_measured += times.is_measuring and number >= FIRST_STEPS
            clock.now += round(step_ms * 1e6)
            step(times, clock, number, round(step_ms * 1e6))
    writer.close()
    return num_measured / (NUM_STEPS - FIRST_STEPS)


def main() -> int:
    """Print both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measured_us, other_us = ours_us(folder)
        print(
            f"ours, without the driver's: {measured_us:.1f} us a measured step, {other_us:.1f} us another one"
        )
        print("| step | calls of 1 us | of 3 us | of 10 us |\n|---|---|---|---|")
        for step_ms in (5, 20, 100, 500):
            cells = [
                f"{share_measured(folder, step_ms, call_us, measured_us):.0%}".replace("%", " %")
                for call_us in (1, 3, 10)
            ]
            print(f"| {step_ms} ms | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
