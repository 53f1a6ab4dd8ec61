"""The zoo's main faults through TraceML, with the code change it needs, and through ours without any, side by side.

    python tests/accuracy/against_traceml.py --traceml VENV/bin/traceml [--only PATTERN] [--steps 300]

VENV holds traceml-ai and torch. Each row trains twice: under `traceml run` for so many steps from the first one on, and
bare, with `tuiadvisor record` attached for as many steps. What TraceML says is its own verdict and its reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from contenders import free_port
from matrix import ZOO, Row, diagnose, judge, record

ROWS = [
    Row("ddp:none", 2, finding="", ranks=()),
    Row("ddp:data", 2, phases=("data_wait",)),
    Row("ddp:forward", 2, phases=("forward",)),
    Row("ddp:backward", 2, phases=("backward",)),
    Row("ddp:optimizer", 2, phases=("optimizer",)),
    Row("ddp:logging", 2, phases=("host",)),
    Row("ddp:lengths", 2, ("--ms", "30"), finding="uneven_lengths", ranks=None),
    Row("ddp:decay", 2, ("--bad", "0", "1"), finding="loader_decays", ranks=None),
    Row(
        "ddp:validation",
        2,
        ("--bad", "0", "--ms", "90"),
        finding="periodic_pause",
        ranks=(0,),
        phases=("other",),
    ),
]
SECONDS_A_STEP = 0.08  # at most, on a loaded machine


def traceml_says(command: Path, row: Row, steps: int, patience_s: float = 150.0) -> str:
    """Its verdict and why, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        ports = ["--aggregator-port", str(free_port()), "--master-port", str(free_port())]
        target = [str(ZOO), "--args", row.scenario, "--traceml", "--steps", str(steps), *row.arguments]
        arguments = [str(command), "run", "--mode", "summary", "--run-name", "row", "--logs-dir", folder]
        try:
            done = subprocess.run(
                [*arguments, *ports, "--nproc-per-node", str(row.num_ranks), *target],
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
                capture_output=True,
                text=True,
                timeout=patience_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {patience_s:.0f} s"
        lines = [line.strip("| \n") for line in done.stdout.splitlines()]
    told = [line for line in lines if line.startswith(("Verdict:", "Why:"))]
    if told:
        return " ".join(told)
    errors = [line for line in (*lines, *done.stderr.splitlines()) if "rror" in line or "not reach" in line]
    return f"nothing (exit {done.returncode}): {(errors or ['no summary'])[-1][:120]}"


def main() -> int:
    """A line a scenario; 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--traceml", type=Path, required=True)
    parser.add_argument("--only", default="*")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    for row in ROWS:
        if not fnmatch.fnmatch(row.scenario, options.only):
            continue
        what = " ".join((row.scenario, *row.arguments))
        print(f"{what}\n  TraceML: {traceml_says(options.traceml, row, options.steps)}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.tuirec"
            record(
                row, path, ["--steps", str(options.steps), "--for", f"{options.steps * SECONDS_A_STEP:.0f}s"]
            )
            outcome = judge(row, diagnose(path))
        print(f"  ours, {'right' if outcome.right else 'wrong'}: {outcome.said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
