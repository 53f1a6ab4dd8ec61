"""What an armed process costs while nobody watches it: at its start, in memory, and in wake-ups afterwards.

    python tests/benchmarks/dormant.py [--starts 40] [--trios 30] [--blocks 20] [--seconds 5]

Python processes start in turns with and without `tuiadvisor arm`'s environment, in one run; printed are both medians,
their difference and ratio with a bootstrap interval. Then trios of a plain process, an armed one and a second plain
one work in turns, in blocks of equal interpreter work in a random order: the ratio of armed to plain in wall and in
processor time of the whole process, and of plain again to plain, what two equal processes differ by. One process is
faster than its equal by percents for its whole life (where its memory lies), so only more trios narrow the interval.
Last an armed process sleeps: how often the kernel has switched its listener's thread in. Whole training steps are
compared in `side_by_side.py --only "ours, armed"`.
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

from tuiadvisor.inject.armed import arm_environment, is_armed

# One line in, one block out: a few milliseconds of interpreter work, which a second thread would disturb most.
WORKER = """
import sys, time
def work():
    table, total = {}, 0
    for number in range(40_000):
        table[number & 255] = total
        total += len(table) ^ number
    return total
print("ready", flush=True)
for _ in sys.stdin:
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    work()
    print(time.perf_counter_ns() - wall, time.process_time_ns() - cpu, flush=True)
"""
TIMES = ("wall", "processor")
WARMUP = 5
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


def ratios_of_blocks(
    plain: dict[str, str], armed: dict[str, str], num_trios: int, num_blocks: int
) -> dict[str, list[float]]:
    """By name, each trio's median of a block by plain's block: (armed, plain again) x (wall, processor)."""
    random.seed(0)
    found: dict[str, list[float]] = {
        f"{who}, {what}": [] for who in ("armed", "plain again") for what in TIMES
    }
    for _ in range(num_trios):
        rounds = trio(plain, armed, num_blocks)
        for name, values in found.items():
            who, _, what = name.partition(", ")
            index = TIMES.index(what)
            values.append(statistics.median(took[who][index] / took["plain"][index] for took in rounds))
    return found


def trio(plain: dict[str, str], armed: dict[str, str], num_blocks: int) -> list[dict[str, list[int]]]:
    """Three processes at work in turns: of each round and process, its wall and processor time, ns."""
    with sleeper(plain, WORKER) as bare, sleeper(armed, WORKER) as dormant, sleeper(plain, WORKER) as again:
        workers = {"plain": bare, "armed": dormant, "plain again": again}
        rounds = [
            {who: block(workers[who]) for who in random.sample(sorted(workers), len(workers))}
            for _ in range(num_blocks + WARMUP)
        ]
        for worker in workers.values():
            worker.communicate()
    return rounds[WARMUP:]


def block(worker: subprocess.Popen[str]) -> list[int]:
    """Wall and processor time of one block, ns."""
    if worker.stdin is None or worker.stdout is None:
        raise ValueError(worker)
    worker.stdin.write("\n")
    worker.stdin.flush()
    return [int(word) for word in worker.stdout.readline().split()]


def median_interval(values: list[float]) -> str:
    """The median and its 95 % bootstrap interval."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(1000))  # noqa: S311
    return f"{statistics.median(values):.4f} ({medians[25]:.4f} to {medians[975]:.4f})"


def sleeper(environment: dict[str, str], source: str = SLEEPER) -> subprocess.Popen[str]:
    """A process that waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", source],
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
    parser.add_argument("--trios", type=int, default=30)
    parser.add_argument("--blocks", type=int, default=20)
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
    ratios = ratios_of_blocks(plain_environment, armed_environment, options.trios, options.blocks)
    for name, values in ratios.items():
        print(f"work: {name} time: ratio to plain {median_interval(values)}, {options.trios} trios")
    with sleeper(plain_environment) as quiet, sleeper(armed_environment) as dormant:
        print(f"memory: +{resident_kib(dormant.pid) - resident_kib(quiet.pid)} KiB resident")
        print(
            f"threads beside the main one: {len(switches(quiet.pid))} plain, {len(switches(dormant.pid))} armed"
        )
        if not is_armed(dormant.pid):
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
