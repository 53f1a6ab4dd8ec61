"""What-if against reality: the step time predicted without a fault, against the steps that really are without it.

    python tests/accuracy/reality.py [--ranks 4 16] [--noise device quiet crowded] [--seeds 2]
    python tests/accuracy/reality.py --real [--only PATTERN] [--repeat 1] [--keep FOLDER]
    python tests/accuracy/reality.py --again FOLDER

Simulated: the same steps with the same noise, without the fault. Real: the fault begins in the middle of a training, so
the steps right before it are reality: the same processes, the same minute, whatever else the machine does.
Out: median and 90th percentile of the error, as a share of the real step.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matrix import COMMAND, Row, diagnose, record
from simulate import fold
from worlds import Fault, World

KINDS = ("backward", "data_wait", "forward", "optimizer")
SHARES = (0.1, 0.2, 0.5, 1.0)
ROWS = [
    Row(f"ddp:{kind}", num_ranks, ("--scale", "2", "--ms", ms, "--onset", "330"), seconds=26)
    for kind in ("backward", "forward", "data", "optimizer", "logging")
    for num_ranks, ms in ((2, "6"), (2, "15"), (4, "15"))
]
MIN_BEFORE, NEAR, MARGIN = 40, 80, 8  # steps before the onset and after it that are compared


def simulated_errors(options: argparse.Namespace) -> list[float]:
    """One for each fault that is found; a line for each noise and size."""
    errors = []
    for noise in options.noise:
        for share in SHARES:
            some: list[float] = []
            worlds = [
                World(num, 240, noise=noise, seed=seed, faults=(Fault(kind, share, (num // 3,)),))
                for num in options.ranks for kind in KINDS for seed in range(options.seeds)
            ]  # fmt: skip
            for world in worlds:
                view, truth = fold(world)
                first, last = view.window.first_step, view.window.last_step
                lost_s = sum(one.loss_s_per_step or 0.0 for one in view.stragglers)
                if lost_s and view.step.mean_s is not None and first is not None and last is not None:
                    real_s = float(np.mean(truth.clean_s[first : last + 1]))
                    some.append((view.step.mean_s - lost_s) / real_s - 1)
            print(f"{noise:8} {share:4.0%} {told(some)} (of {len(worlds)})", flush=True)
            errors += some
    return errors


def real_error(path: Path) -> tuple[float, float] | None:
    """(error of one recording, by how much the other ranks' own work changed meanwhile), both shares of the real step.

    None where no straggler was found or too few steps lie before its onset. The steps right before and right after the
    onset are compared: the longer they are apart, the more the machine changes, which is no error of the prediction.
    """
    late = _stragglers(diagnose(path))
    since = min((one["since_step"] for one in late if one["since_step"]), default=0)
    if since < MIN_BEFORE + MARGIN:
        return None
    before = _part(path, max(since - MARGIN - NEAR, 1), since - MARGIN)
    after = _part(path, since + 1, since + NEAR)
    late = _stragglers(after)
    if _stragglers(before) or not late or before["step"]["mean_s"] is None:
        return None  # not free of it, or not seen in so few steps
    real_s = before["step"]["mean_s"]
    predicted_s = after["step"]["mean_s"] - sum(one["loss_s_per_step"] for one in late)
    guilty = {rank for one in late for rank in one["ranks"]}
    drift_s = np.median(
        [
            _own_work_s(now) - _own_work_s(then)
            for then, now in zip(before["per_rank"], after["per_rank"], strict=True)
            if then["rank"] not in guilty
        ]
    )
    return float(predicted_s / real_s - 1), float(drift_s / real_s)


def _stragglers(document: Any) -> list[Any]:
    return [one for one in document["findings"] if one["id"] == "straggler"]


def _own_work_s(row: Any) -> float:
    return sum(value or 0.0 for name, value in row["seconds"].items() if name != "comm_exposed")


def _part(path: Path, first: int, last: int) -> Any:
    command = [*COMMAND, "diagnose", str(path), "--json", "--steps", f"{first}:{last}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)


def real_errors(options: argparse.Namespace) -> list[float]:
    """A line a recording."""
    with tempfile.TemporaryDirectory() as passing:
        folder = options.again or options.keep or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        if options.again is None:
            rows = [row for row in ROWS if fnmatch.fnmatch(row.name, options.only)] * options.repeat
            if not rows:
                sys.exit(
                    f"--only {options.only}: no row of that name, there are {', '.join(row.name for row in ROWS)}"
                )
            for number, row in enumerate(rows):
                record(row, folder / f"{row.name}_{number:03}.tuirec")
        errors: list[float] = []
        drifts: list[float] = []
        for path in sorted(folder.glob("*.tuirec")):
            found = real_error(path)
            told_of_it = "not compared" if found is None else f"{found[0]:+.1%}, others' work {found[1]:+.1%}"
            print(f"{path.stem:60} {told_of_it}", flush=True)
            errors += [] if found is None else [found[0]]
            drifts += [] if found is None else [found[1]]
        print(f"what the other ranks' own work changed by meanwhile: {told(drifts)}")
    return errors


def told(errors: list[float]) -> str:
    """Distribution in words."""
    if not errors:
        return "none compared"
    sizes = np.abs(errors)
    return (
        f"error {np.median(sizes):.1%} (median), {np.percentile(sizes, 90):.1%} (90 %), of {len(errors)} runs"
    )


def main() -> int:
    """Print a table and the figure that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--only", default="*")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    parser.add_argument("--again", type=Path, help="read the recordings of this folder, run nothing")
    options = parser.parse_args()
    errors = real_errors(options) if options.real or options.again else simulated_errors(options)
    print(f"predicted against real step without the fault: {told(errors)}; asked: 3 % and 6 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
