"""How long a training stands still when the probes go in: gaps in its own step times around each attach.

    python tests/benchmarks/attach_pause.py [--ranks 2] [--step-ms 12] [--attaches 20]

The training writes the clock at the begin of each step. For each attach (all ranks at once and with an agent's low
priority, as `watch` does it) the longest step of any rank in the half second from the injection on is compared with the
rank's median step; windows of the same length without an attach, taken in between, show the machine's noise. Printed:
extra milliseconds, median, 90 % and worst, of both; how many attaches took longer than the worst window without one;
and how long the borrowed thread stood still by the injector's own clock.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from patience import PATIENCE_S
from training import running

from tuiadvisor import priority
from tuiadvisor.agent.__main__ import NICENESS
from tuiadvisor.agent.payload import BUNDLE_NAME, attach_code, write_bundle, write_native
from tuiadvisor.inject import identify, inject
from tuiadvisor_probes import ring

WINDOW_S = 0.5


def as_the_agent() -> None:
    """From now on we and the tracers give way as an agent and its tracers do; the ranks are started already."""
    os.nice(NICENESS)
    priority.give_way()


def attach_all(pids: list[int], folder: Path) -> tuple[int, list[int]]:
    """(when it began, how long each borrowed thread stood still), ns."""
    for pid in pids:
        ring.create_ring_file(str(folder / str(pid)))
    (folder / BUNDLE_NAME).unlink(missing_ok=True)
    assert write_bundle(folder, identify(pids[0]))
    write_native(folder)
    begin_ns = time.monotonic_ns()
    with ThreadPoolExecutor(len(pids)) as pool:
        done = list(pool.map(lambda pid: inject(pid, attach_code(str(folder / str(pid)))), pids))
    return begin_ns, [injection.stopped_ns for injection in done]


def wait_for_steps(pids: list[int], folder: Path) -> None:
    """Until every rank trains."""
    for pid in pids:
        reader = ring.RingReader(str(folder / str(pid)))
        while reader.get_u64(ring.OFFSET_STEP_HEAD) < 50:
            time.sleep(0.05)
        reader.close()


def detach_all(pids: list[int], folder: Path) -> None:
    """Out again at the next step."""
    for pid in pids:
        reader = ring.RingReader(str(folder / str(pid)))
        reader.put_u64(ring.OFFSET_COMMAND, ring.COMMAND_DETACH)
        while reader.get_u64(ring.OFFSET_STATE) != ring.STATE_DETACHED:
            time.sleep(0.005)
        reader.close()
        (folder / str(pid)).unlink()


def longest_extra_ms(starts_ns: list[int], begin_ns: int) -> float:
    """Longest step that overlaps the window, minus the median step, milliseconds."""
    steps = list(itertools.pairwise(starts_ns))
    median = statistics.median(end - begin for begin, end in steps)
    end_ns = begin_ns + int(WINDOW_S * 1e9)
    inside = [end - begin for begin, end in steps if end > begin_ns and begin < end_ns]
    return (max(inside) - median) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=12.0)
    parser.add_argument("--attaches", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stop = folder / "stop"
        arguments = [
            "--stop-file",
            str(stop),
            "--step-ms",
            str(options.step_ms),
            "--step-times",
            f"{name}/times",
        ]
        attached, quiet, stopped = [], [], []
        with running(options.ranks, *arguments, is_whole=True) as (training, ranks):
            pids = [rank.pid for rank in ranks]
            as_the_agent()
            attach_all(pids, folder)  # not counted: shows when the first steps are made
            wait_for_steps(pids, folder)
            detach_all(pids, folder)
            for _ in range(options.attaches):
                quiet.append(time.monotonic_ns())
                time.sleep(WINDOW_S)
                begin_ns, stops = attach_all(pids, folder)
                attached.append(begin_ns)
                stopped += stops
                time.sleep(WINDOW_S)
                detach_all(pids, folder)
                time.sleep(0.1)
            stop.touch()
            training.wait(PATIENCE_S)
            times = [
                [int(line) for line in Path(f"{name}/times.{rank}").read_text().split()]
                for rank in range(options.ranks)
            ]
        median_ms = statistics.median(b - a for a, b in itertools.pairwise(times[0])) / 1e6
        print(f"{options.ranks} ranks, {median_ms:.1f} ms steps, {options.attaches} attaches of all ranks")
        extra_ms = {}
        for what, windows in (("with attach", attached), ("without", quiet)):
            extra = sorted(max(longest_extra_ms(rank, begin) for rank in times) for begin in windows)
            median, high, worst = statistics.median(extra), extra[int(0.9 * len(extra))], extra[-1]
            print(
                f"longest extra step {what:12} median {median:5.1f} ms  90 % {high:5.1f} ms  worst {worst:5.1f} ms"
            )
            extra_ms[what] = extra
        beyond = [value for value in extra_ms["with attach"] if value > extra_ms["without"][-1]]
        print(
            "attaches beyond the worst window without one:",
            ", ".join(f"{value:.1f} ms" for value in beyond) or "none",
        )
        stood_ms = [value / 1e6 for value in stopped]
        median, worst = statistics.median(stood_ms), max(stood_ms)
        print(f"thread stood still               median {median:5.2f} ms  worst {worst:5.2f} ms")


if __name__ == "__main__":
    if os.getsid(0) != os.getpid():  # an agent has a session of its own
        raise SystemExit(
            subprocess.run([sys.executable, *sys.argv], start_new_session=True, check=False).returncode
        )
    main()
