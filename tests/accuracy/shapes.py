"""One late rank in few, in every shape over time, and noise that resembles itself from step to step: said, expected.

    python tests/accuracy/shapes.py [--seeds 6] [--ranks 3 4 5 8] [--only PATTERN]
    python tests/accuracy/shapes.py --slow [--correlations 0 0.6 0.9]     innocents and recall by the noise's memory

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

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from latency import AFTER, ONSET, latency, named, simulated, told
from simulate import Outcome, Scenario, fold, judge
from worlds import Fault, Truth, World

from tuiadvisor.views.run_view import RunView

WORTH = 0.05  # of the step: what has to be found
NUM_STEPS = 240
COSTS = (0.02, 0.05, 0.1, 0.2)  # of the step: where the table of recall is cut


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


def slow_shapes(rank: int) -> list[Scenario]:
    """What is tried in each kind of noise: nobody late, one rank for all of the run, for a part, and now and then."""
    faults = {
        **{f"always {share:.0%}": Fault("backward", share) for share in (0.1, 0.2, 0.3, 0.5)},
        "since the middle 30%": Fault("backward", 0.3, onset=NUM_STEPS // 2),
        "bursts of 20, 30%": Fault("forward", 0.3, period=60, on=20),
        "every 3, 50%": Fault("backward", 0.5, period=3),
    }
    return [
        Scenario("healthy", finding=""),
        *(Scenario(name, (replace(fault, ranks=(rank,)),)) for name, fault in faults.items()),
    ]


def remarked(view: RunView) -> set[int]:
    """Ranks of which a remark says that they are late."""
    return {
        rank
        for one in view.findings
        if one.severity == "info" and one.id == "straggler"
        for rank in one.ranks
    }


def print_slow(options: argparse.Namespace) -> int:
    """Tables by the noise's correlation; 1 when a finding names an innocent."""
    wrong = 0
    for correlation in options.correlations:
        begin, counts, shares = process_time(), Counter[str](), Counter[tuple[str, float, str]]()
        for num_ranks in options.ranks:
            for noise in options.noise:
                for scenario in slow_shapes(num_ranks // 2):
                    for seed in range(options.first_seed, options.first_seed + options.seeds):
                        world = World(num_ranks, NUM_STEPS, noise=noise, faults=scenario.faults, seed=seed)
                        view, truth = fold(replace(world, correlation=correlation))
                        outcome = judge(scenario, view, truth)
                        if innocents := _count_slow(scenario, view, truth, counts, shares):
                            where = f"{correlation:3} {num_ranks:3} {noise:8} seed {seed}"
                            print(f"{innocents:9}{where}  {scenario.name:20} {outcome.said}", flush=True)
        wrong += counts["healthy: finding"] + counts["fault: finding"]
        print(f"correlation {correlation}, {process_time() - begin:.0f} s of CPU")
        for kind in ("healthy", "fault"):
            print(
                f"  {kind:8}{counts[kind]:5} worlds; innocents named by a finding in {counts[f'{kind}: finding']}, "
                f"by a remark in {counts[f'{kind}: remark']}; told that lateness wanders {counts[f'{kind}: wanders']}"
            )
        for name in dict.fromkeys(name for name, _, _ in shares):
            cells = [
                f"{low:.0%}+: {shares[name, low, 'found']} of {shares[name, low, 'worlds']}"
                for low in COSTS
                if shares[name, low, "worlds"]
            ]
            print(f"  {name:22}{', '.join(cells)}")
        if options.delays:
            for share in (0.2, 0.3, 0.5):
                print(
                    f"  named since its onset, {share:.0%} late: {_delays(options, correlation, share)}",
                    flush=True,
                )
    return int(wrong > 0)


def _count_slow(
    scenario: Scenario,
    view: RunView,
    truth: Truth,
    counts: Counter[str],
    shares: Counter[tuple[str, float, str]],
) -> str:
    """Add a world to the tables; a word if an innocent was named."""
    guilty = {rank for fault in scenario.faults for rank in fault.ranks}
    kind = "fault" if guilty else "healthy"
    is_named, is_remarked = bool(named(view) - guilty), bool(remarked(view) - guilty)
    counts[kind] += 1
    counts[f"{kind}: finding"] += is_named
    counts[f"{kind}: remark"] += is_remarked
    counts[f"{kind}: wanders"] += any(
        one.id == "wandering_lateness" and one.severity != "info" for one in view.findings
    )
    # Since the onset, whatever window was chosen: else a shorter one would change what there is to be found.
    onset = min((fault.onset for fault in scenario.faults), default=0)
    lost = truth.loss_s(onset, NUM_STEPS - 1) / float(np.mean(truth.clean_s[onset:]))
    if guilty and lost >= COSTS[0]:
        low = max(cost for cost in COSTS if lost >= cost)
        for name in (scenario.name, "all"):
            shares[name, low, "worlds"] += 1
            shares[name, low, "found"] += guilty <= named(view)
    return "FINDING" if is_named else "remark" if is_remarked else ""


def _delays(options: argparse.Namespace, correlation: float, share: float) -> str:
    """Steps until a rank late since ONSET is named alone and for good; views before it with a name."""
    runs = [
        latency(
            simulated(
                World(
                    num_ranks,
                    ONSET + AFTER,
                    noise=noise,
                    seed=seed,
                    faults=(Fault("backward", share, (num_ranks // 3,), onset=ONSET),),
                    correlation=correlation,
                )
            ),
            ONSET,
            num_ranks // 3,
        )
        for num_ranks in options.ranks
        for noise in options.noise
        for seed in range(options.delays)
    ]
    return f"{told([found for found, _ in runs])}; views with a name before: {sum(num for _, num in runs)}"


def main() -> int:
    """Print a line a shape and the worlds that went wrong; 1 when an innocent rank was named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 4, 5, 8])
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", default="*")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.0, 0.6, 0.9])
    parser.add_argument("--delays", type=int, default=0, help="seeds of the time until a rank is named")
    options = parser.parse_args()
    if options.slow:
        return print_slow(options)
    begin = process_time()
    tables: dict[str, Counter[str]] = {}
    for num_ranks in options.ranks:
        for noise in options.noise:
            for scenario, correlation in shapes(num_ranks // 2):
                if not fnmatch.fnmatch(scenario.name, options.only):
                    continue
                count = tables.setdefault(scenario.name, Counter())
                for seed in range(options.first_seed, options.first_seed + options.seeds):
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
