"""How soon each tool looks at a running training, how long that stops it, and how many bytes it leaves a step.

    python tests/benchmarks/attach_and_volume.py [--ranks 2] [--step-ms 20] [--rounds 8] [--seconds 5]

One real training is visited in turns, in a new random order each round: by nobody, by `tuiadvisor record`, by `py-spy
record` of every rank (100 samples a second). Each visit: seconds from the command to the first look at the last rank,
the longest step beyond the median in so many seconds from just before it, bytes left a step of a rank. What cannot come
to a running training has no attach: torch.profiler's start and stop are timed within a rank's script, TraceML's logs
weighed after a run of its own. Compare within one run: absolute times are the machine's.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contenders import free_port, install
from training import running

from tuiadvisor.agent.session import mapped_rings

PATIENCE_S = 90.0
PROFILED_STEPS = 40
LOOK_S = 0.02  # looking at a rank's maps more often would slow it down by itself
BEFORE_LOOK_S = 0.5  # the pause of going in lies there
TIMED = Path(__file__).parents[1] / "timed_training.py"
ZOO = Path(__file__).parents[1] / "accuracy" / "zoo.py"
# torch.profiler where it is used, in the script: seconds to go on, to go off with the trace written, and its bytes.
PROFILER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from rank_loop import training
from torch.profiler import ProfilerActivity, profile
step = training("")
for _ in range(20): step(0)
before = time.perf_counter()
profiler = profile(activities=[ProfilerActivity.CPU])
profiler.__enter__()
on = time.perf_counter()
for _ in range(int(sys.argv[3])): step(0)
done = time.perf_counter()
profiler.__exit__(None, None, None)
profiler.export_chrome_trace(sys.argv[2])
print(on - before, time.perf_counter() - done, Path(sys.argv[2]).stat().st_size)
"""


@dataclass(frozen=True)
class Visit:
    """When it began and ended on the monotonic clock, after how long it looked, and what it left."""

    begin_ns: int
    end_ns: int
    attach_s: float | None
    num_bytes: int


def by_nobody(_pids: list[int], _folder: Path, seconds: float) -> Visit:
    """The machine's own noise."""
    begin_ns = time.monotonic_ns()
    time.sleep(seconds)
    return Visit(begin_ns, time.monotonic_ns(), None, 0)


def by_ours(pids: list[int], folder: Path, seconds: float) -> Visit:
    """Until the probes are out again."""
    output = folder / "run.tuirec"
    targets = [word for pid in pids for word in ("--pid", str(pid))]
    command = [
        sys.executable,
        "-m",
        "tuiadvisor",
        "record",
        "-o",
        str(output),
        *targets,
        "--for",
        f"{seconds:g}s",
    ]
    begin_ns = time.monotonic_ns()
    process = _quiet(command)
    attach_s = _until(lambda: all(mapped_rings(pid) for pid in pids), process, begin_ns)
    process.wait(seconds + PATIENCE_S)
    visit = Visit(begin_ns, time.monotonic_ns(), attach_s, output.stat().st_size)
    output.unlink()
    return visit


def by_py_spy(pids: list[int], folder: Path, seconds: float, command: str = "py-spy") -> Visit:
    """One process a rank."""
    outputs = [folder / f"samples.{pid}" for pid in pids]
    begin_ns = time.monotonic_ns()
    processes = [
        _quiet(
            [
                command,
                "record",
                "-r",
                "100",
                "-d",
                f"{seconds:g}",
                "-f",
                "raw",
                "-o",
                str(path),
                "-p",
                str(pid),
            ]
        )
        for pid, path in zip(pids, outputs, strict=True)
    ]
    attach_s = max(
        _until(functools.partial(_is_traced, pid), one, begin_ns)
        for pid, one in zip(pids, processes, strict=True)
    )
    for process in processes:
        process.wait(seconds + PATIENCE_S)
    visit = Visit(begin_ns, time.monotonic_ns(), attach_s, sum(path.stat().st_size for path in outputs))
    for path in outputs:
        path.unlink()
    return visit


def _is_traced(pid: int) -> bool:
    """Whether a tracer holds one of its threads: py-spy stops all of them for each sample."""
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        line = next(line for line in status.read_text().splitlines() if line.startswith("TracerPid"))
        if line.split()[1] != "0":
            return True
    return False


def _quiet(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _until(is_there: Callable[[], bool], process: subprocess.Popen[bytes], begin_ns: int) -> float:
    """Seconds until then; a tool that ends before it ends the bench."""
    while not is_there():
        if process.poll() is not None:
            raise SystemExit(f"{process.args!r} ended before it looked at the ranks: {process.returncode}")
        time.sleep(LOOK_S)
    return (time.monotonic_ns() - begin_ns) / 1e9


def visited(options: argparse.Namespace, py_spy: str | None, folder: Path) -> None:
    """The training, its visitors in turns, and their table."""
    visitors: dict[str, Callable[[list[int], Path, float], Visit]] = {"nobody": by_nobody, "ours": by_ours}
    if py_spy is not None:
        visitors["py-spy"] = lambda pids, where, seconds: by_py_spy(pids, where, seconds, py_spy)
    visits: dict[str, list[Visit]] = {name: [] for name in visitors}
    dice = random.Random(0)  # noqa: S311 - an order, not a secret
    arguments = ["--step-ms", str(options.step_ms), "--step-times", str(folder / "times")]
    stop = folder / "stop"
    with running(options.ranks, *arguments, "--stop-file", str(stop), script=TIMED, is_whole=True) as (
        training,
        ranks,
    ):
        pids = [rank.pid for rank in ranks]
        for _ in range(options.rounds):
            for name in dice.sample(sorted(visitors), len(visitors)):
                visits[name].append(visitors[name](pids, folder, options.seconds))
                time.sleep(1.0)
        stop.touch()
        training.wait(PATIENCE_S)
    times = [
        [int(line) for line in (folder / f"times.{rank}").read_text().split()]
        for rank in range(options.ranks)
    ]
    for name, some in visits.items():
        _tell(name, some, times, options.seconds)


def _tell(name: str, visits: list[Visit], times: list[list[int]], seconds: float) -> None:
    """The longest step is that of a window of equal length for all: the longer one looks, the longer the longest."""
    extra_ms, bytes_a_step = [], []
    for visit in visits:
        first_ns = visit.begin_ns + int(max((visit.attach_s or 0.0) - BEFORE_LOOK_S, 0.0) * 1e9)
        last_ns = first_ns + int(seconds * 1e9)
        longest = 0.0
        num_steps = 0
        for starts in times:
            steps = list(itertools.pairwise(starts))
            median = statistics.median(end - begin for begin, end in steps)
            inside = [end - begin for begin, end in steps if end > first_ns and begin < last_ns]
            longest = max(longest, (max(inside) - median) / 1e6)
            num_steps += sum(end > visit.begin_ns and begin < visit.end_ns for begin, end in steps)
        extra_ms.append(longest)
        bytes_a_step.append(visit.num_bytes / num_steps)
    known = [visit.attach_s for visit in visits if visit.attach_s is not None]
    attach = f"{statistics.median(known):.2f} s, at most {max(known):.2f}" if known else "-"
    print(
        f"{name:16} first look after {attach}; longest extra step median {statistics.median(extra_ms):.1f} ms, "
        f"worst {max(extra_ms):.1f}; {statistics.median(bytes_a_step):.0f} bytes a step of a rank; "
        f"{len(visits)} visits",
        flush=True,
    )


def profiled(folder: Path) -> None:
    """torch.profiler in one rank's own script."""
    environment = {**os.environ, "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-c",
        PROFILER,
        str(Path(__file__).parent),
        str(folder / "trace"),
        str(PROFILED_STEPS),
    ]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    on, off, size = (float(word) for word in done.stdout.split()[-3:])
    print(
        f"torch.profiler   in the script alone; starting {on * 1e3:.0f} ms, stopping and writing {off * 1e3:.0f} ms "
        f"after {PROFILED_STEPS} steps; {size / PROFILED_STEPS:.0f} bytes a step of a rank",
        flush=True,
    )


def traced(python: str, folder: Path, num_ranks: int, steps: int = 300) -> None:
    """TraceML's folder after so many steps of the zoo's healthy training."""
    logs = folder / "traceml"
    command = [str(Path(python).with_name("traceml")), "run", "--mode", "summary", "--run-name", "row"]
    command += [
        "--logs-dir",
        str(logs),
        "--aggregator-port",
        str(free_port()),
        "--master-port",
        str(free_port()),
    ]
    command += [
        "--nproc-per-node",
        str(num_ranks),
        str(ZOO),
        "--args",
        "ddp:none",
        "--traceml",
        "--steps",
        str(steps),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    size = sum(path.stat().st_size for path in logs.rglob("*") if path.is_file())
    said = f"{size / (steps * num_ranks):.0f} bytes a step of a rank" if not done.returncode else "it failed"
    print(f"TraceML          in the script alone, from the start; {said} ({steps} steps)", flush=True)


def main() -> None:
    """Install, visit, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        python, missing = install(folder / "venv", ["py-spy", "traceml-ai"])
        for package, why in missing.items():
            print(f"skipped  {package}: {why}")
        visited(options, None if "py-spy" in missing else str(Path(python).with_name("py-spy")), folder)
        profiled(folder)
        if "traceml-ai" not in missing:
            traced(python, folder, options.ranks)
        versions = [python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]
        listed = subprocess.run(versions, capture_output=True, text=True, check=True).stdout.split()
        print(
            "versions:",
            *(one for one in listed if one.startswith(("torch==", "traceml", "py-spy", "py_spy"))),
        )


if __name__ == "__main__":
    main()
