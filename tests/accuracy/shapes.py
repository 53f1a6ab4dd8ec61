"""One late rank in few, in every shape over time, and noise that resembles itself from step to step: said, expected.

    python tests/accuracy/shapes.py [--seeds 6] [--ranks 3 4 5 8] [--only PATTERN]

Each world goes through the same fold and rules as `simulate.py`'s. A late rank that costs 5 % of the step has to be
named; in a healthy world nobody is.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parent))

from simulate import Outcome, Scenario, fold, judge
from worlds import Fault, World

WORTH = 0.05  # of the step: what has to be found
NUM_STEPS = 240


def shapes(rank: int) -> list[tuple[Scenario, float]]:
    """Scenarios of one late rank, with the correlation of the noise beside it."""

    def late(name: str, fault: Fault, correlation: float = 0.0) -> tuple[Scenario, float]:
        return Scenario(name, (replace(fault, ranks=(rank,)),), phases=(fault.kind,)), correlation

    backward = Fault("backward", 0.3)
    return [
        *(
            late(f"every {period}, {share:.0%}", Fault("backward", share, period=period))
            for period, share in ((2, 0.4), (3, 0.2), (3, 0.5), (3, 2.0), (4, 0.5), (5, 0.5), (7, 0.8))
        ),
        late("two of five", Fault("data_wait", 0.4, period=5, on=2)),
        late("bursts of 20", Fault("forward", 0.3, period=60, on=20)),
        late("since the middle", replace(backward, onset=120)),
        late("since late", replace(backward, onset=200)),
        late("always", backward),
        late("always, noise 0.6", backward, 0.6),
        late("always, noise 0.9", backward, 0.9),
        late("every 3, noise 0.9", Fault("backward", 0.5, period=3), 0.9),
        *((Scenario(f"healthy, noise {share}", finding=""), share) for share in (0.0, 0.6, 0.9)),
    ]


def main() -> int:
    """Print a line a shape and the worlds that went wrong; 1 when an innocent rank was named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 4, 5, 8])
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    begin = process_time()
    tables: dict[str, Counter[str]] = {}
    for num_ranks in options.ranks:
        for noise in options.noise:
            for scenario, correlation in shapes(num_ranks // 2):
                if not fnmatch.fnmatch(scenario.name, options.only):
                    continue
                count = tables.setdefault(scenario.name, Counter())
                for seed in range(options.seeds):
                    world = World(num_ranks, num_steps=NUM_STEPS, noise=noise, faults=scenario.faults)
                    outcome = judge(scenario, *fold(replace(world, seed=seed, correlation=correlation)))
                    if word := _count(scenario, outcome, count):
                        where = f"{num_ranks:3} {noise:8} seed {seed}"
                        cost = f"costs {outcome.true_loss:6.1%}"
                        print(f"{word:9}{where}  {scenario.name:20} {cost}  {outcome.said}", flush=True)
    print(
        "\nshape, worlds, found of those that cost 5 %, named innocents or alarmed, sizes right of those found"
    )
    for name, count in tables.items():
        print(
            f"{name:22}{count['worlds']:5} {count['found']:5} of {count['worth']:4} "
            f"{count['wrong']:5} {count['sized']:5} of {count['all found']:4}"
        )
    total = sum(tables.values(), Counter())
    print(
        f"{'all':22}{total['worlds']:5} {total['found']:5} of {total['worth']:4} {total['wrong']:5} ", end=""
    )
    print(f"{total['sized']:5} of {total['all found']:4}, {process_time() - begin:.0f} s of CPU")
    return int(total["wrong"] > 0)


def _count(scenario: Scenario, outcome: Outcome, count: Counter[str]) -> str:
    """Add the outcome to its shape's counts; what was wrong in a word."""
    count["worlds"] += 1
    if outcome.wrong_names:
        count["wrong"] += 1
        return "INNOCENT" if scenario.finding else "ALARM"
    if outcome.is_found and outcome.ranks_right:
        count["all found"] += 1
        is_sized = abs(outcome.loss_error or 0.0) <= 0.1 or abs(outcome.loss_step_error or 0.0) <= 0.01
        count["sized"] += is_sized
        if outcome.true_loss >= WORTH:
            count["worth"] += 1
            count["found"] += 1
        return "" if is_sized else "size"
    if scenario.finding and outcome.true_loss >= WORTH:
        count["worth"] += 1
        return "missed"
    return ""


if __name__ == "__main__":
    sys.exit(main())
