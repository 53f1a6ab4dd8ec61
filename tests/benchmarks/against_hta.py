"""Overlap and idle breakdown of real traces: Holistic Trace Analysis and `import kineto`, time and memory side by side.

    python tests/benchmarks/against_hta.py --python VENV/bin/python FOLDER... [--repeat 3]

VENV holds HolisticTraceAnalysis 0.5.0 and pandas 2.2.3 (with pandas 3 it fails). Each FOLDER holds the traces of a job.
Both are whole processes, in turns; seconds are wall and, for a machine with other work, of the processor; memory is the
largest resident set. HTA computes the temporal
breakdown, overlap and idle time; ours all it knows. Both have their modules compiled, as an installer leaves them: each
runs once before it is measured, and what forbids Python to write bytecode is not passed on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
job = TraceAnalysis(trace_dir=sys.argv[1])
print(job.get_temporal_breakdown(visualize=False).to_string())
print(job.get_comm_comp_overlap(visualize=False).to_string())
ranks = sorted(job.t.traces)
print(job.get_idle_time_breakdown(ranks=ranks, visualize=False)[0].to_string())
"""


def cost(command: list[str]) -> tuple[float, float, float, str]:
    """(seconds, of processor time, MiB at most, the last line of the error; empty where it succeeded)."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as told:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        lines = told.read().strip().splitlines() or ["?"]
    spent = usage.ru_utime + usage.ru_stime
    return seconds, spent, usage.ru_maxrss / 1024, lines[-1][:100] if status else ""


def main() -> int:
    """A line a folder; 1 if ours failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    failed = False
    for folder in options.folders:
        size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
        told = []
        commands = {
            "HTA": [options.python, "-c", HTA, str(folder)],
            "ours": [
                sys.executable,
                "-m",
                "tuiadvisor",
                "import",
                "kineto",
                str(folder),
                "--json",
            ],
        }
        found: dict[str, list[tuple[float, float, float, str]]] = {name: [] for name in commands}
        for command in commands.values():
            cost(command)
        for _ in range(options.repeat):
            for name, command in commands.items():
                found[name].append(cost(command))
        for name, costs in found.items():
            error = next((error for *_, error in costs if error), "")
            failed |= bool(error) and name == "ours"
            seconds, spent, memory = (
                statistics.median(column) for column in list(zip(*costs, strict=True))[:3]
            )
            told.append(f"{name} {error or f'{seconds:.2f} s, processor {spent:.2f} s, {memory:.0f} MiB'}")
        print(f"{folder.name:40} {size:5.1f} MiB  {'; '.join(told)}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
