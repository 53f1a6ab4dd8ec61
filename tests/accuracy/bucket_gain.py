"""What other buckets were promised to save, against what they saved, in real DDP trainings of two ranks.

    python tests/accuracy/bucket_gain.py [--repeat 5] [--backward-ms 5 | --products 40]

Each turn runs the training with one bucket and again with the size that the first run recommends, every step in
detail. Milliseconds a step, so run it on a quiet machine: load between the two runs counts as an error of the promise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from bucket_runs import seen

HEAD = "size  promised  low..high  exposed before > said > seen   step before > seen   saved   saved/promised"


def main() -> None:
    """Print one line a turn, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--backward-ms", type=float, default=0.0)
    parser.add_argument("--products", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    asked = parser.parse_args()
    work = (
        "--backward-ms",
        str(asked.backward_ms),
        "--products",
        str(asked.products),
        "--steps",
        str(asked.steps),
    )
    exposed, gains = [], []
    print(HEAD, flush=True)
    for _ in range(asked.repeat):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            first = seen(Path(one), "--cap-mb", "100", *work)
            before = first.exchange
            if before is None or before.best_cap_mib is None:
                print(f"nothing promised: {before.lever if before else first.unknown[-1].why}", flush=True)
                continue
            cap = before.best_cap_mib
            second = seen(Path(other), "--cap-mb", str(cap), *work)
        after = second.exchange
        if after is None or first.step.median_s is None or second.step.median_s is None:
            print(f"not seen afterwards: {second.unknown[-1].why}", flush=True)
            continue
        said_s = next(choice.exposed_s for choice in before.sizes if choice.cap_mib == cap)
        saved_s = first.step.median_s - second.step.median_s
        gains.append(saved_s / before.saved_s if before.saved_s else float("nan"))
        exposed.append((before.exposed_s - after.exposed_s) / (before.exposed_s - said_s))
        figures = (
            before.saved_s,
            before.saved_low_s,
            before.saved_high_s,
            before.exposed_s,
            said_s,
            after.exposed_s,
            first.step.median_s,
            second.step.median_s,
            saved_s,
        )
        print(
            f"{cap:4}  " + "  ".join(f"{1e3 * value:7.1f}" for value in figures) + f"  {gains[-1]:6.2f}",
            flush=True,
        )
    if gains:
        went = f"{median(exposed):.2f} of the exposed transfer that was to go went"
        print(f"median: {went}, {median(gains):.2f} of the promise came")


if __name__ == "__main__":
    main()
