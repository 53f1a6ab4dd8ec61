"""What an armed process costs while nobody watches it: at its start, in memory, and in wake-ups afterwards.

    python tests/benchmarks/dormant.py [--starts 40] [--seconds 5]

Python processes start in turns with and without `tuiadvisor arm`'s environment, in one run; printed are both medians,
their difference and ratio with a bootstrap interval. Then one armed process sleeps: how often the kernel has switched
its listener's thread in, and what processor time it took. Steps are compared in `side_by_side.py --only "ours, armed"`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tuiadvisor.inject.armed import arm_environment, socket_path

SLEEPER = "import sys; print('ready', flush=True); sys.stdin.readline()"


def start_ms(environment: dict[str, str]) -> float:
    """One start and end of an interpreter."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    return 1000 * (time.perf_counter() - begin)


def interval(plain: list[float], armed: list[float]) -> tuple[float, float]:
    """95 % of the ratio of medians."""
    random.seed(0)
    ratios = sorted(
        statistics.median(random.choices(armed, k=len(armed)))  # noqa: S311  no secret
        / statistics.median(random.choices(plain, k=len(plain)))  # noqa: S311
        for _ in range(1000)
    )
    return ratios[25], ratios[975]


def resident_kib(pid: int) -> int:
    """Private and shared pages in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def switches(pid: int) -> dict[str, int]:
    """By thread, the main one left out: how often it was switched in."""
    found = {}
    for task in (task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)):
        lines = (task / "status").read_text().splitlines()
        found[task.name] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found


def sleeper(environment: dict[str, str]) -> subprocess.Popen[str]:
    """A process that waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdout is not None:
        process.stdout.readline()
    return process


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    plain_environment = dict(os.environ)
    armed_environment = arm_environment(plain_environment)
    plain, armed = [], []
    for _ in range(options.starts):
        plain.append(start_ms(plain_environment))
        armed.append(start_ms(armed_environment))
    low, high = interval(plain, armed)
    bare_ms, armed_ms = statistics.median(plain), statistics.median(armed)
    print(
        f"start: plain {bare_ms:.1f} ms, armed {armed_ms:.1f} ms: +{armed_ms - bare_ms:.1f} ms, "
        f"ratio {armed_ms / bare_ms:.2f} ({low:.2f} to {high:.2f}), {options.starts} pairs"
    )
    with sleeper(plain_environment) as quiet, sleeper(armed_environment) as dormant:
        print(f"memory: +{resident_kib(dormant.pid) - resident_kib(quiet.pid)} KiB resident")
        print(
            f"threads beside the main one: {len(switches(quiet.pid))} plain, {len(switches(dormant.pid))} armed"
        )
        if socket_path(dormant.pid) is None:
            print("it did not arm")
        time.sleep(0.5)  # until the thread has come to rest
        before = switches(dormant.pid)
        time.sleep(options.seconds)
        after = switches(dormant.pid)
        print(
            f"wake-ups of its thread in {options.seconds:g} s: {sum(after.values()) - sum(before.values())}"
        )
        for process in (quiet, dormant):
            process.communicate("\n")


if __name__ == "__main__":
    main()
