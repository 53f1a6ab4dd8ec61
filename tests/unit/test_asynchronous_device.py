"""The asynchronous device that stands in for CUDA in tests: its clock, its queue, and what ranks wait for on it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from asynchronous_device import Event, Stream, current_stream, stream
from patience import PATIENCE_S
from ports import free_port
from thinned import thinned

TESTS = Path(__file__).parents[1]
# Two ranks with what torchrun sets; torch is imported once, by the process that forks them.
RANKS = """
import sys
from pathlib import Path
import asynchronous_training as training
from ranks import fork_ranks
sys.exit(fork_ranks("", Path(), lambda *_: training.train(training.parse())))
"""
BUSY_S = 0.2


def between(begin: Event, end: Event) -> float:
    """Milliseconds, once both are passed."""
    end.synchronize()
    return begin.elapsed_time(end)


@pytest.mark.slow
def test_launches_return_and_the_device_takes_exactly_as_long_as_they_say() -> None:
    """The host is through long before the device, whose clock keeps no error of the thread's waking up."""
    one = Stream()
    let_go = one.hold()  # for as long as the host takes
    begin = one.record_event()
    for _ in range(100):
        one.launch(BUSY_S / 100)
    end = one.record_event()
    assert not begin.query()
    assert not end.query()
    with pytest.raises(RuntimeError, match="completed"):
        begin.elapsed_time(end)
    begin_s = time.monotonic()
    let_go()
    assert between(begin, end) == pytest.approx(BUSY_S * 1e3)
    assert time.monotonic() - begin_s >= BUSY_S
    assert end.query()


def test_an_idle_device_is_idle_until_the_next_launch() -> None:
    """What the host does meanwhile lies between two events, and is not made up for."""
    one = Stream()
    one.launch(0.001)
    one.synchronize()
    begin = one.record_event()
    begin_s = time.monotonic()
    time.sleep(0.05)
    slept_s = time.monotonic() - begin_s
    one.launch(0.001)
    end = one.record_event()
    assert between(begin, end) >= slept_s * 1e3 + 1


def test_the_host_runs_ahead_by_the_length_of_the_queue() -> None:
    """The launch after that returns when the device has taken one out."""
    one = Stream(length=8)
    gate = Event()
    other = Stream()
    gate.record(other)  # passed at once
    gate.synchronize()
    let_go = other.hold()
    closed = other.record_event()
    one.wait_event(closed)
    for _ in range(8):
        one.launch(0.0)
    assert not closed.query()
    threading.Timer(BUSY_S / 4, let_go).start()
    one.launch(0.0)
    one.launch(0.0)
    assert closed.query()


def test_streams_wait_for_each_other_without_the_host() -> None:
    """The later of both decides when the next kernel begins; a waiting host is not needed for it."""
    one, two = Stream(), Stream()
    let_go = one.hold()
    begin = one.record_event()
    one.launch(0.05)
    two.wait_event(one.record_event())
    two.launch(0.03)
    end = two.record_event()
    assert not end.query()
    let_go()
    assert between(begin, end) == pytest.approx(80)


def test_an_event_recorded_again_is_another_mark() -> None:
    """Events are used again, as the probe does."""
    with stream(Stream()):
        event = Event(enable_timing=True)
        event.record()
        event.synchronize()
        let_go = current_stream().hold()
        event.record()
        assert not event.query()
        let_go()
        event.synchronize()
        assert event.query()


def times(folder: Path, *arguments: str) -> list[list[dict[str, float]]]:
    """Milliseconds of each span of each step by rank, of a training of two ranks, by its own events."""
    pytest.importorskip("torch")
    port = str(free_port())
    command = [sys.executable, "-W", "ignore", "-c", RANKS, "--steps", "30", "--times", str(folder / "times")]
    found = os.pathsep.join((str(TESTS / "light"), str(TESTS)))  # nothing is compiled
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": found}
    environment |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    done = subprocess.run(
        [*command, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    spans = []
    for rank in range(2):
        lines = (folder / f"times.{rank}").read_text().splitlines()
        spans.append([json.loads(line)["ms"] for line in lines[5:]])
    return spans


def middle(steps: list[dict[str, float]], *names: str) -> float:
    """Milliseconds of some spans together, in the middle of the steps."""
    return statistics.median(sum(step[name] for name in names) for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize("sync_every", thinned(["0", "1"], ["0"]))
def test_the_early_rank_waits_for_the_late_device_and_that_one_for_the_transfer(
    tmp_path: Path, sync_every: str
) -> None:
    """Kernels take 1.5 times as long on rank 1: by copy, forward and backward it comes later, and waits only for the
    bucket that nothing hides.
    """
    # A host that is slower than its device lets it idle: where nothing has the host wait, it is ahead from the start.
    held = [] if int(sync_every) else ["--held"]
    fault = ("--fault-rank", "1", "--device-factor", "1.5")
    early, late = times(tmp_path, *fault, "--sync-every", sync_every, *held)
    lengths = {"forward": 22.0, "backward": 44.0, "optimizer": 6.0}
    for name, length_ms in lengths.items():
        # Else never too short, and where the machine has no core to spare too long, but not always.
        assert min(step[name] for step in early) == pytest.approx(length_ms, rel=0.1)
        assert min(step[name] for step in late) == pytest.approx(1.5 * length_ms, rel=0.1)
    assert min(step["exchange"] for step in late) == pytest.approx(3.0, abs=1)
    work = ("copy", *lengths)
    ahead_ms = middle(late, *work) - middle(early, *work)
    assert middle(early, "exchange") - middle(late, "exchange") == pytest.approx(ahead_ms, rel=0.2)
    assert ahead_ms > 0.4 * (3 + 22 + 44 + 6)
