"""Memory of hub and viewer over an hour of a large job: does anything grow with time rather than with ranks?

Run: python tests/benchmarks/hour.py [--ranks 16384] [--steps 900] [--step-s 4] [--steps-a-frame 2].  An hour of 4 s
steps as 2,048 agents send it, as fast as hub and viewer take it; ten minutes on two cores. Every five minutes of it:
resident memory of both processes and the most they ever had (VmHWM), CPU seconds so far. The viewer makes views as
`watch` does. Memory and CPU time are of these processes alone, so other jobs on the machine matter little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq
from generated import RANKS_AN_AGENT, encoded_frames
from scale import chain, cost_of
from worlds import Fault, World

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.feed import VIEW_PERIOD_S, VIEW_SHARE
from tuiadvisor.stream.source import LiveSource

REPORT_S = 300.0  # of the job's own time


def job(num_ranks: int, num_steps: int, step_s: float, chunk_steps: int) -> World:
    """One rank late in backward from a third of the hour on."""
    late = Fault("backward", 0.1, (num_ranks // 2,), onset=num_steps // 3)
    return World(num_ranks, num_steps, step_s, RANKS_AN_AGENT, faults=(late,), chunk_steps=chunk_steps)


def send(world: World, endpoint: str) -> None:
    """All frames of all agents through one connection, as fast as the hub takes them."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as pushing:
        pushing.set(zmq.SNDHWM, 64)
        pushing.connect(endpoint)
        for data in encoded_frames(world):
            pushing.send(data)


def watch(viewer: str, world: World, answer: Any) -> None:
    """Fold all of it and make views; answers (simulated minute, verdict) at every report and at the end."""
    source, advisor = LiveSource(viewer), Advisor()
    due_s, next_report, done = 0.0, 0.0, -1
    while done < world.num_steps - 1:
        frames = source.read(1.0)
        advisor.feed_many(frames)
        now_s = time.process_time()
        if (
            frames and now_s < due_s
        ):  # who waits uses no time: at the end of the run nothing would ever be due
            continue
        view = advisor.view()
        due_s = now_s + max(VIEW_PERIOD_S, (time.process_time() - now_s) / VIEW_SHARE)
        done = view.last_step if view.last_step is not None else -1
        minute = (done + 1) * world.step_s / 60
        if minute * 60 >= next_report or done == world.num_steps - 1:
            next_report += REPORT_S
            assert not view.losses.frames_lost
            answer.send((minute, view.verdict.sentence))
            answer.recv()  # measured from outside
    answer.send(None)
    source.close()


def peak_mb(pid: int) -> float:
    """The most resident memory a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def run(world: World, folder: Path) -> None:
    """Print a line every five simulated minutes."""
    record = folder / "hour.tuirec"
    with chain(record, (send, (world,)), (watch, (world,))) as (hub, viewer, pipe):
        while (said := pipe.recv()) is not None:
            minute, sentence = said
            seen, recorded = cost_of(str(viewer.pid)), cost_of(hub.pid)
            print(
                f"| {minute:4.0f} min "
                f"| {recorded.memory_mb:4.0f} MB, {peak_mb(hub.pid):4.0f} | {recorded.cpu_s:4.0f} s "
                f"| {seen.memory_mb:4.0f} MB, {peak_mb(viewer.pid):4.0f} | {seen.cpu_s:4.0f} s "
                f"| {record.stat().st_size / 1e6:4.0f} MB | {sentence} |",
                flush=True,
            )
            pipe.send(None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--step-s", type=float, default=4.0)
    parser.add_argument("--steps-a-frame", type=int, default=2)
    options = parser.parse_args()
    print("| job's time | hub, its peak | its CPU | viewer, its peak | its CPU | file | verdict |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run(job(options.ranks, options.steps, options.step_s, options.steps_a_frame), Path(folder))


if __name__ == "__main__":
    main()
