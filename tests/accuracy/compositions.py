"""Data-parallel jobs with none, one or two faults drawn at random: who is named, and what is kept that costs much.

    python tests/accuracy/compositions.py [--runs 500] [--seed 0] [--verbose]

2 to 8 ranks, 60 to 600 steps, calm to restless, with and without spikes, a third of them with noise that grows; each
fault is always there, begins, ends, comes at a distance or by lot. The truth is the same job without its faults, over
the window that was judged. An innocent rank is one without a fault that a finding or the straggler's table names.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from synthetic_run import MS, Fault, Job, final_view, simulate

from tuiadvisor.views.run_view import RunView

KINDS = ("data", "forward", "backward", "optimizer", "other")
COURSES = ("always", "since", "until", "every", "chance")
MUCH = 0.12  # of the step: to keep what costs so much is a miss


def drawn_job(lots: np.random.Generator) -> Job:
    """A healthy one."""
    num_steps = int(lots.choice([60, 120, 250, 400, 600]))
    job = Job(
        num_ranks=int(lots.choice([2, 3, 4, 8])),
        num_steps=num_steps,
        noise=float(lots.choice([0.03, 0.08, 0.15, 0.25])),
        spike_chance=float(lots.choice([0, 0.02, 0.06])),
        spike_s=float(lots.choice([2, 4, 10])) * MS,
        seed=int(lots.integers(1_000_000)),
    )
    if lots.random() < 0.3:
        grown = int(num_steps * lots.uniform(0.2, 0.8)), float(lots.choice([0.15, 0.25, 0.4]))
        job = replace(job, louder=grown)
    return job


def drawn_fault(lots: np.random.Generator, job: Job) -> Fault:
    """Of one rank; what comes seldom is long."""
    ranks, kind = (int(lots.integers(job.num_ranks)),), str(lots.choice(KINDS))
    course, at = str(lots.choice(COURSES)), int(job.num_steps * lots.uniform(0.2, 0.7))
    always_s, seldom_s = float(lots.choice([3, 6, 12, 25])) * MS, float(lots.choice([12, 25, 60])) * MS
    if course == "since":
        return Fault(kind, ranks, always_s, onset=at)
    if course == "until":
        return Fault(kind, ranks, always_s, until=at)
    if course == "every":
        return Fault(kind, ranks, seldom_s, every=int(lots.choice([2, 3, 5, 7, 10])))
    if course == "chance":
        return Fault(kind, ranks, seldom_s, chance=float(lots.choice([0.1, 0.2, 0.4])))
    return Fault(kind, ranks, always_s)


def named(view: RunView) -> set[int]:
    """Ranks that a finding above info singles out, and the stragglers."""
    above = (one for one in view.findings if one.severity != "info" and len(one.ranks) < len(view.ranks))
    return {rank for one in above for rank in one.ranks} | {late.rank for late in view.stragglers}


def outcome(healthy: Job, job: Job, view: RunView) -> str:
    """In a word."""
    if named(view) - {rank for fault in job.faults for rank in fault.ranks or ()}:
        return "innocent named"
    if view.verdict.decision is None:
        return "not decided"
    first, last = view.window.first_step or 0, view.window.last_step
    cycle_s, lost_s = simulate(job).cycle_s, simulate(job).cycle_s - simulate(healthy).cycle_s
    if view.verdict.decision == "keep" and lost_s[first:last].mean() >= MUCH * cycle_s[first:last].mean():
        return "kept"
    return "false alarm" if not job.faults and view.verdict.decision != "keep" else "right"


def main() -> None:
    """Draw, judge and count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print each job that is not right")
    options = parser.parse_args()
    lots, counts = np.random.default_rng(options.seed), Counter[str]()
    for _ in range(options.runs):
        healthy = drawn_job(lots)
        job = healthy.with_faults(*(drawn_fault(lots, healthy) for _ in range(lots.choice([0, 1, 1, 2]))))
        view = final_view(job)
        found = outcome(healthy, job, view)
        counts[found] += 1
        if options.verbose and found not in {"right", "not decided"}:
            print(f"{found}: {job}\n  {view.verdict.sentence}")
    print(", ".join(f"{found} {number}" for found, number in counts.most_common()))


if __name__ == "__main__":
    main()
