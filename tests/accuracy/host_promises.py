"""What a verdict promises of a job with two faults at once, by the host's clock, against it with what is named cured.

    python tests/accuracy/host_promises.py [--runs 250] [--seed 0] [--verbose]

Simulated data-parallel ranks on processors, 2 to 8 of them, calm. Two faults are drawn out of all ranks' data and
exchange and one rank's data, forward, backward, optimizer or other code: always there, every few steps or by lot. What
counts as kept is said in `promises.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from promises import promised, word_of
from synthetic_run import MS, Fault, Job, final_view, simulate

from tuiadvisor.views.run_view import Finding, RunView

OF_ALL = {"input_bound": "data", "periodic_data_wait": "data", "communication_bound": "comm"}


def drawn(lots: np.random.Generator) -> Job:
    """A job with two faults."""
    job = Job(
        num_ranks=int(lots.choice([2, 3, 4, 8])),
        num_steps=int(lots.choice([120, 250])),
        noise=float(lots.choice([0.03, 0.08])),
        seed=int(lots.integers(1_000_000)),
    )
    return job.with_faults(_drawn_fault(lots, job), _drawn_fault(lots, job))


def _drawn_fault(lots: np.random.Generator, job: Job) -> Fault:
    is_of_all = lots.random() < 0.35
    kinds = ["data", "comm"] if is_of_all else ["data", "forward", "backward", "optimizer", "other"]
    kind = str(lots.choice(kinds))
    ranks = None if is_of_all else (int(lots.integers(job.num_ranks)),)
    always_s, seldom_s = float(lots.choice([3, 6, 12, 25])) * MS, float(lots.choice([12, 25, 60])) * MS
    course = str(lots.choice(["always", "always", "every", "chance"]))
    if course == "every":
        return Fault(kind, ranks, seldom_s, every=int(lots.choice([2, 3, 5])))
    if course == "chance":
        return Fault(kind, ranks, seldom_s, chance=float(lots.choice([0.1, 0.2, 0.4])))
    return Fault(kind, ranks, always_s)


def cured(job: Job, view: RunView) -> Job | None:
    """The job without what the verdict says to cure; None where it names nothing that was put in."""
    if (found := promised(view)) is None:
        return None
    chosen, ranks = found
    left = tuple(one for one in job.faults if not _is_named(one, chosen, ranks, job.num_ranks))
    return None if left == job.faults else job.with_faults(*left)


def _is_named(fault: Fault, chosen: Finding, ranks: set[int], num_ranks: int) -> bool:
    if chosen.id in OF_ALL:
        return fault.kind == OF_ALL[chosen.id] and fault.ranks is None
    if fault.ranks is None:
        return len(chosen.ranks) in {0, num_ranks}
    return set(fault.ranks) <= ranks


def outcome(job: Job, view: RunView) -> tuple[str, str]:
    """In a word, and with its figures: of the steps that were judged."""
    if view.verdict.decision != "tune":
        return str(view.verdict.decision), ""
    instead, speedup = cured(job, view), view.verdict.speedup
    if instead is None or speedup is None:
        return f"no promise of {view.verdict.finding}", ""
    judged = slice(view.window.first_step or 0, view.window.last_step)
    now_s, then_s = (float(simulate(one).cycle_s[judged].mean()) for one in (job, instead))
    return word_of(view, now_s, now_s / speedup.expected, then_s)


def main() -> None:
    """Print what became of the promises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    lots = np.random.default_rng(asked.seed)
    found: Counter[str] = Counter()
    for _ in range(asked.runs):
        job = drawn(lots)
        view = final_view(job)
        word, told = outcome(job, view)
        found[word] += 1
        if asked.verbose and not word.startswith("kept"):
            print(f"{word}: {told} | {job.num_ranks} ranks, seed {job.seed} {job.faults}")
            print(f"    {view.verdict.sentence}")
    print(", ".join(f"{word} {count}" for word, count in found.most_common()))


if __name__ == "__main__":
    main()
