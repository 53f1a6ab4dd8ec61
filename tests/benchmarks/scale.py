"""Rank-steps a second through the whole chain: a hub receives and records, a viewer folds, judges and makes views.

Run: python tests/benchmarks/scale.py [--ranks 64 1024 4096 16384 65536] [--rank-steps 2000000].  The frames are made
beforehand and sent by a process of their own; hub and viewer are two processes. What counts is the CPU time of those
two together, so other jobs on the machine matter little, and the rate is that of one core which does both. As on the
screen, views are made twice a second of the viewer's time, or take a fifth of it where one takes longer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import zmq
from generated import encoded_frames, straggling

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.feed import VIEW_PERIOD_S, VIEW_SHARE
from tuiadvisor.stream.frames import FrameKind, decode
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.source import LiveSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TICKS_A_SECOND = 100


@dataclass(frozen=True)
class Cost:
    """Of one process: CPU seconds so far and resident memory now."""

    cpu_s: float
    memory_mb: float


def cost_of(pid: int | str) -> Cost:
    """From /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
    return Cost((int(fields[11]) + int(fields[12])) / TICKS_A_SECOND, memory)


def send(num_ranks: int, num_rank_steps: int, endpoint: str) -> None:
    """All frames of all agents through one connection, as fast as the hub takes them."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as pushing:
        pushing.set(zmq.SNDHWM, 64)
        pushing.connect(endpoint)
        for data in encoded_frames(straggling(num_ranks, num_rank_steps)):
            pushing.send(data)


def watch(viewer: str, num_ranks: int, num_rank_steps: int, answer: Any) -> None:
    """Fold all of it; answers (views made, CPU seconds of views, memory at half and at the end, first CPU seconds)."""
    source, advisor = LiveSource(viewer), Advisor()
    begin_s = time.process_time()
    due_s = view_s = 0.0
    num_views, half_mb = 0, 0.0
    num_steps = straggling(num_ranks, num_rank_steps).num_steps
    while True:
        advisor.feed_many(source.read(1.0))
        done = max(advisor.store.last_job_steps().values(), default=-1) if advisor.num_frames else -1
        now_s = time.process_time()
        is_last = done == num_steps - 1 and source.status.bytes_behind == 0
        if now_s >= due_s or is_last:
            view = advisor.view()
            cost_s = time.process_time() - now_s
            due_s = now_s + max(VIEW_PERIOD_S, cost_s / VIEW_SHARE)
            num_views, view_s = num_views + 1, view_s + cost_s
        if done >= num_steps // 2 and not half_mb:
            half_mb = cost_of("self").memory_mb
        if is_last:
            break
    assert len(view.ranks) == num_ranks
    assert (0, 0) == (view.losses.frames_lost, view.losses.frames_bad), view.losses
    answer.send((num_views, view_s, half_mb, cost_of("self").memory_mb, time.process_time() - begin_s))
    source.close()


@contextmanager
def chain(
    record: Path,
    sending: tuple[Callable[..., None], tuple[Any, ...]],
    watching: tuple[Callable[..., None], tuple[Any, ...]],
) -> Iterator[tuple[subprocess.Popen[str], Any, Any]]:
    """(hub, viewer, pipe to the viewer): a hub that writes `record`, and a process each for what sends and watches.

    Both are functions with their arguments; `sending` gets the hub's address after them, `watching` its address before
    them and its end of the pipe after. All end with the block.
    """
    places = ("--endpoint", f"ipc://{record}.agents", "--viewer", f"ipc://{record}.viewers")
    command = [sys.executable, "-m", "tuiadvisor.stream.hub", "--record", str(record), *places]
    hub = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert hub.stdout is not None
    said = orjson.loads(hub.stdout.readline())
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    sender = spawn.Process(target=sending[0], args=(*sending[1], said["endpoint"]))
    viewer = spawn.Process(target=watching[0], args=(said["viewer"], *watching[1], theirs))
    try:
        sender.start()
        viewer.start()
        theirs.close()
        yield hub, viewer, mine
    finally:
        for child in (sender, viewer):
            if child.is_alive():
                child.join(5)
                child.kill()
        hub.terminate()
        hub.wait()


def measure(num_ranks: int, num_rank_steps: int, folder: Path) -> str:
    """One line of the table."""
    record = folder / f"{num_ranks}.tuirec"
    world = (num_ranks, num_rank_steps)
    with chain(record, (send, world), (watch, world)) as (hub, _, pipe):
        before = cost_of(hub.pid)
        num_views, view_s, half_mb, end_mb, viewer_s = pipe.recv()
        after = cost_of(hub.pid)
    rows = recorded_rank_steps(record)
    hub_s = after.cpu_s - before.cpu_s
    return (
        f"| {num_ranks:6} | {rows:9,} | {1e6 * hub_s / rows:5.2f} us | {1e6 * (viewer_s - view_s) / rows:5.2f} us "
        f"| {num_views} views, {1e3 * view_s / num_views:.0f} ms | {rows / (hub_s + viewer_s):8,.0f} "
        f"| {half_mb:.0f}, {end_mb:.0f} MB | {after.memory_mb:.0f} MB |"
    )


def recorded_rank_steps(path: Path) -> int:
    """What the hub wrote."""
    total = 0
    with RecordingReader(path) as reader:
        for located in reader.frames():
            if located.head.kind is FrameKind.STEPS:
                total += int(str(decode(located.data).payload["rows"]))
    return total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 1024, 4096, 16384, 65536])
    parser.add_argument("--rank-steps", type=int, default=2_000_000)
    options = parser.parse_args()
    print(
        "| ranks | rank-steps | hub | fold | views | rank-steps/s, one core | viewer at half, at the end | hub |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for num_ranks in options.ranks:
            print(measure(num_ranks, options.rank_steps, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
