"""What a verdict promises of a job with two faults at once, against the same job with what it names cured.

    python tests/accuracy/promises.py [--runs 300] [--seed 0] [--layers 0] [--verbose]

Simulated devices, 2 to 8 ranks, a look at the loss in each step, every tenth or never. Two faults are drawn out of all
ranks' data, copies and launches, one rank's device, data, launches or batch, and a slow link. Cured is what the verdict
names, by rank and kind, and nothing else; the job is simulated again with the same noise. A promise is kept if it is
within a tenth of the present step of what comes out; one that says "at best" if no shorter step comes out than it says,
and one that says "at most" if no longer one does. What a rank has more to do is spread over all, as nobody can do less.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from simulated_devices import MS, DeviceJob, Fault, simulate, view_of

from tuiadvisor.views.run_view import Finding, RunView

KEPT = 0.1  # of the present step
LOOSE = 0.25  # of the present step: a bound so far off helps nobody
OF_ALL = {"input_bound": ("data",), "copy_in_step": ("copy",), "communication_bound": ("link",)}


def drawn(lots: np.random.Generator, layers: int = 0) -> DeviceJob:
    """A job with two different faults; layers: that FSDP2 gathers one by one."""
    num_ranks = int(lots.choice([2, 4, 8]))
    sync_every, seed = int(lots.choice([0, 1, 10])), int(lots.integers(1_000_000))
    job = DeviceJob(num_ranks=num_ranks, sync_every=sync_every, seed=seed, layers=layers)
    kinds = lots.choice(8, size=2, replace=False).tolist()
    return job.with_faults(*(_drawn_fault(lots, kind, num_ranks) for kind in kinds))


def _drawn_fault(lots: np.random.Generator, kind: int, num_ranks: int) -> Fault:
    rank = (int(lots.integers(num_ranks)),)
    amount_s = float(lots.choice([20, 40, 80, 120, 160])) * MS
    factor = float(lots.choice([1.2, 1.5, 2.0]))
    return (
        Fault("data", None, amount_s),
        Fault("copy", None, amount_s / 4),
        Fault("host", None, factor=2 * factor),
        Fault("device", rank, factor=factor),
        Fault("data", rank, amount_s),
        Fault("host", rank, factor=4 * factor),
        Fault("batch", rank, factor=factor),
        Fault("link", None, factor=2 * factor),
    )[kind]


def promised(view: RunView) -> tuple[Finding, set[int]] | None:
    """What a verdict promises the cure of: the finding, and the ranks that are late beside it; None of no promise."""
    chosen = next((one for one in view.findings if one.id == view.verdict.finding), None)
    if chosen is None or view.verdict.speedup is None:
        return None
    ranks = set(chosen.ranks)
    if "being late too" in view.verdict.sentence:
        same = (one for one in view.findings if one.id == chosen.id and one.severity != "info")
        ranks |= {rank for one in same for rank in one.ranks}
    return chosen, ranks


def cured(job: DeviceJob, view: RunView) -> DeviceJob | None:
    """The job without what the verdict says to cure; None where it names nothing that was put in."""
    if (found := promised(view)) is None:
        return None
    chosen, ranks = found
    with_data = "wait for data, the mean step" in view.verdict.sentence
    left = tuple(
        fault
        for fault in job.faults
        if not (
            _is_named(fault, chosen, ranks) or (with_data and fault.kind == "data" and fault.ranks is None)
        )
    )
    if left == job.faults:
        return None
    # Whoever has more work can but share it with all.
    spread = [
        replace(one, ranks=None, factor=1 + (one.factor - 1) / job.num_ranks)
        for one in job.faults
        if one.kind == "batch" and one not in left
    ]
    return job.with_faults(*left, *spread)


def _is_named(fault: Fault, chosen: Finding, ranks: set[int]) -> bool:
    if chosen.id in OF_ALL:
        return fault.kind in OF_ALL[chosen.id] and fault.ranks is None
    if chosen.id in {"host_bound", "launch_bound"}:
        return fault.kind == "host" and fault.ranks is None
    return fault.ranks is not None and set(fault.ranks) <= ranks


def outcome(job: DeviceJob, view: RunView) -> tuple[str, str]:
    """In a word, and with its figures."""
    if view.verdict.decision != "tune":
        return str(view.verdict.decision), ""
    instead = cured(job, view)
    speedup = view.verdict.speedup
    if instead is None or speedup is None:
        return f"no promise of {view.verdict.finding}", ""
    now_s, then_s = simulate(job).mean_cycle_s(), simulate(instead).mean_cycle_s()
    return word_of(view, now_s, now_s / speedup.expected, then_s)


def word_of(view: RunView, now_s: float, promised_s: float, then_s: float) -> tuple[str, str]:
    """What became of a promise, in a word and with its figures."""
    off = (promised_s - then_s) / now_s
    told = f"now {now_s / MS:.0f}, promised {promised_s / MS:.0f}, then {then_s / MS:.0f} ms"
    if "would take at most" in view.verdict.sentence:
        return "broken" if off < -KEPT else "loose" if off > LOOSE else "kept, at most", told
    if view.verdict.at_best:
        return "beaten" if off > KEPT else "loose" if off < -LOOSE else "kept, at best", told
    return "kept" if abs(off) <= KEPT else "too much" if off < 0 else "too little", told


def main() -> None:
    """Print what became of the promises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    lots = np.random.default_rng(asked.seed)
    found: Counter[str] = Counter()
    for _ in range(asked.runs):
        job = drawn(lots, asked.layers)
        view = view_of(job)
        word, told = outcome(job, view)
        found[word] += 1
        if asked.verbose and not word.startswith("kept"):
            faults = [(one.kind, one.ranks, round(one.amount_s / MS), one.factor) for one in job.faults]
            print(f"{word}: {told} | {job.num_ranks} ranks, sync {job.sync_every}, seed {job.seed} {faults}")
            print(f"    {view.verdict.sentence}")
    print(", ".join(f"{word} {count}" for word, count in found.most_common()))


if __name__ == "__main__":
    main()
