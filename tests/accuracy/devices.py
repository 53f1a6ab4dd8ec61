"""Random trainings on asynchronous devices, healthy and not: what is said of them against what is true.

    python tests/accuracy/devices.py [--runs 240] [--seed 0] [--only PATTERN] [--verbose]
    python tests/accuracy/devices.py --scatter [--runs 20]    jobs bound by threads that scatter and meet nowhere

Steps of 20 to 500 ms, 2 to 64 ranks, a look at the loss in every step, in every tenth or in none, device times of every
step, of every fourth or of every sixteenth; a third is healthy (some with a slow thread that the device hides, or with
spikes now here and now there), the others lose 3 to 40 % of the step to one fault. The truth is the same training with
the same noise without the fault. Scored: whether the fault is found, whom it names, why, and the size.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from simulated_devices import MS, DeviceJob, Fault, simulate, true_loss_s, view_of

from tuiadvisor.views.run_view import RunView

CAUSES = {"device": "device", "data": "data_wait", "copy": "h2d", "host": "host"}
COMMON = {"data on all": "input_bound", "link": "communication_bound"}
KINDS = (*CAUSES, *COMMON)
HEALTHY = ("healthy", "hidden thread", "spikes")
WORTH_FINDING = 0.1  # of the step
LOSS_SHARE, LOSS_S = 0.1, 1 * MS
SCATTER = (0.03, 0.15, 0.25, 0.4)  # sigma of the lognormal factor on what a thread launches
MAX_SEEDS = 20
STEPS = {1: 120, 4: 200, 16: 640}  # by distance of the measured steps


@dataclass(frozen=True)
class Case:
    """One training."""

    kind: str
    job: DeviceJob
    ranks: tuple[int, ...]  # the guilty


@dataclass(frozen=True)
class Outcome:
    """How it came out."""

    case: Case
    true_share: float  # of the step with the fault
    said: str
    is_decided: bool
    is_found: bool  # the right ranks, or the right finding where nobody is to blame
    is_remarked: bool  # found, or said in a remark beside a verdict to keep the run as it is
    is_cause_right: bool
    wrong_names: int  # innocent ranks
    is_alarm: bool  # something above info on a healthy training
    loss_error: float | None  # of the true loss
    is_sized: bool | None


def random_case(rng: np.random.Generator, kind: str, seed: int) -> Case:
    """A training of that kind."""
    num_ranks = int(rng.choice([2, 4, 8, 16, 32, 64]))
    period = int(rng.choice([1, 4, 16]))
    scale = float(np.exp(rng.uniform(np.log(20), np.log(500)))) / 89
    host = scale * rng.uniform(0.3, 2.5)  # of 25 ms: a tenth to two thirds of the device's step
    base = DeviceJob(
        num_ranks=num_ranks,
        num_steps=STEPS[period],
        sync_every=int(rng.choice([1, 10, 0])),
        period=period,
        seed=seed,
        attach=tuple(int(step) for step in rng.integers(0, 10, num_ranks)),
    )
    parts = ("copy", "forward", "backward", "optimizer")
    factors = {f"{name}_s": scale for name in (*parts, "transfer")}
    factors |= {f"{name}_host_s": host for name in (*parts, "data", "other")}
    base = replace(base, **{name: factor * getattr(base, name) for name, factor in factors.items()})
    rank = (int(rng.integers(num_ranks)),)
    cost = float(rng.uniform(0.03, 0.4))
    step_s = simulate(replace(base, num_steps=60, attach=())).mean_cycle_s()
    if kind == "healthy":
        return Case(kind, base, ())
    if kind == "spikes":
        fault = Fault("spikes", chance=0.2 / num_ranks, amount_s=0.3 * step_s)
        return Case(kind, base.with_faults(fault), ())
    if kind == "hidden thread":
        base = replace(base, sync_every=int(rng.choice([10, 0])))
        fault = _as_strong(base, lambda by: Fault("host", rank, factor=1 + by), 0.002 * step_s, 10)
        return Case(kind, base.with_faults(fault), ())
    faults: dict[str, Callable[[float], Fault]] = {
        "device": lambda by: Fault("device", rank, factor=1 + by),
        "data": lambda by: Fault("data", rank, amount_s=by * step_s),
        "copy": lambda by: Fault("copy", rank, amount_s=by * step_s),
        "host": lambda by: Fault("host", rank, factor=1 + 20 * by),
        "data on all": lambda by: Fault("data", amount_s=by * step_s),
        "link": lambda by: Fault("link", factor=1 + 20 * by),
    }
    lost_s = step_s * cost / (1 - cost)
    return Case(
        kind,
        base.with_faults(_as_strong(base, faults[kind], lost_s, 4)),
        rank if kind in CAUSES else (),
    )


def _as_strong(job: DeviceJob, fault: Callable[[float], Fault], lost_s: float, most: float) -> Fault:
    """The fault that costs so much a step."""
    short = replace(job, num_steps=60, attach=())
    low, high = 0.0, most
    for _ in range(12):
        middle = (low + high) / 2
        if true_loss_s(short.with_faults(fault(middle))) < lost_s:
            low = middle
        else:
            high = middle
    return fault(low)


def judge(case: Case, view: RunView) -> Outcome:
    """Against the truth."""
    above = [found for found in view.findings if found.severity != "info"]
    late = {one.rank: one for one in view.stragglers}
    # A finding that holds for every rank singles out none.
    singled = [found for found in above if len(found.ranks) < case.job.num_ranks]
    named = set(late) | {rank for found in singled for rank in found.ranks}
    true_s = true_loss_s(case.job) if case.job.faults else 0.0
    cycle_s = simulate(case.job).mean_cycle_s()
    said = "; ".join(f"{found.id} {list(found.ranks)[:4]} {found.phase or ''}" for found in above)
    said = f"{view.verdict.decision}: {said}; " + ", ".join(
        f"r{one.rank} {one.cause} {1e3 * one.loss_s_per_step:.1f}" for one in list(late.values())[:4]
    )
    loss_s: float | None = None
    is_found = is_cause_right = False
    if case.kind in CAUSES:
        is_found = set(case.ranks) <= named
        is_cause_right = is_found and all(
            rank in late and late[rank].cause == CAUSES[case.kind] for rank in case.ranks
        )
        loss_s = sum(late[rank].loss_s_per_step for rank in case.ranks if rank in late) if is_found else None
    elif case.kind in COMMON:
        hits = [found for found in above if found.id == COMMON[case.kind]]
        is_found = is_cause_right = bool(hits)
        loss_s = hits[0].loss_s_per_step if hits else None
    if case.kind == "link":  # all that nothing hides can be gained, also what was exposed before
        true_s = float(simulate(case.job).waits_s()[20:].min(axis=1).mean())
    error = loss_s / true_s - 1 if loss_s is not None and true_s > 0 else None
    return Outcome(
        case=case,
        true_share=true_s / cycle_s,
        said=said,
        is_decided=view.verdict.decision is not None,
        is_found=is_found,
        is_remarked=is_found
        or (case.kind in COMMON and COMMON[case.kind] in {found.id for found in view.findings}),
        is_cause_right=is_cause_right,
        wrong_names=len(named - set(case.ranks)),
        is_alarm=case.kind in HEALTHY and bool(above or late),
        loss_error=error,
        is_sized=None
        if error is None or loss_s is None
        else abs(loss_s - true_s) <= LOSS_SHARE * true_s + LOSS_S,
    )


def _row(name: str, outcomes: Iterable[Outcome]) -> str:
    """One line of the table."""
    group = list(outcomes)
    ill = [one for one in group if one.case.kind not in HEALTHY]
    worth = [one for one in ill if one.true_share >= WORTH_FINDING]
    found = [one for one in ill if one.is_found]
    errors = [abs(one.loss_error) for one in found if one.loss_error is not None]
    sized = [one for one in found if one.is_sized is not None]
    well = [one for one in group if one.case.kind in HEALTHY]
    cells = (
        f"{len(group)}",
        f"{sum(not one.is_decided for one in group)}",
        f"{sum(one.is_found for one in worth)} of {len(worth)}" if ill else "",
        f"{sum(one.is_remarked for one in worth)} of {len(worth)}" if ill else "",
        f"{len(found)} of {len(ill)}" if ill else "",
        f"{sum(one.is_cause_right for one in found)} of {len(found)}" if ill else "",
        f"{sum(bool(one.is_sized) for one in sized)} of {len(sized)}" if ill else "",
        f"{np.median(errors):.1%}, {np.percentile(errors, 90):.1%}" if errors else "",
        f"{sum(bool(one.wrong_names) for one in group)}",
        f"{sum(one.is_alarm for one in well)} of {len(well)}" if well else "",
    )
    return f"| {name} | " + " | ".join(cells) + " |"


def table(outcomes: list[Outcome]) -> str:
    """All scores, by kind, look at the loss, measured steps and ranks."""
    names = (
        "runs",
        "undecided",
        "found of those that cost 10 %",
        "or remarked",
        "found",
        "cause right",
        "size right",
        "size error: median, 90 %",
        "runs with innocents named",
        "alarms on healthy",
    )
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    groups: list[tuple[Callable[[Outcome], object], dict[object, str]]] = [
        (lambda one: one.case.kind, {kind: kind for kind in (*KINDS, *HEALTHY)}),
        (lambda one: one.case.job.sync_every, {1: "synced each step", 10: "each tenth", 0: "never"}),
        (lambda one: one.case.job.period, {1: "measured each step", 4: "each fourth", 16: "each sixteenth"}),
        (lambda one: min(one.case.job.num_ranks, 16), {2: "2 ranks", 4: "4", 8: "8", 16: "16 to 64"}),
    ]
    for key, shown in groups:
        for value, name in shown.items():
            group = [one for one in outcomes if key(one) == value]
            if group:
                lines.append(_row(name, group))
    lines.append(_row("all", outcomes))
    return "\n".join(lines)


def score(num_runs: int, seed: int, only: str = "*", *, verbose: bool = False) -> list[Outcome]:
    """Simulate and judge them."""
    rng = np.random.default_rng(seed)
    outcomes = []
    for number in range(num_runs):
        kinds = HEALTHY if number % 3 == 0 else KINDS
        case = random_case(rng, kinds[number // 3 % len(kinds)] if number % 3 == 0 else _ill(number), number)
        if not fnmatch.fnmatch(case.kind, only):
            continue
        outcome = judge(case, view_of(case.job))
        outcomes.append(outcome)
        is_bad = (
            outcome.wrong_names
            or outcome.is_alarm
            or (case.kind in KINDS and outcome.true_share >= WORTH_FINDING and not outcome.is_cause_right)
            or outcome.is_sized is False
        )
        if verbose or is_bad:
            job = case.job
            print(
                f"{'BAD' if is_bad else 'ok '} {number:4} {case.kind:14} ranks {job.num_ranks:3} "
                f"sync {job.sync_every:2} every {job.period:2} step {1e3 * simulate(job).mean_cycle_s():6.1f} ms "
                f"costs {outcome.true_share:5.1%} guilty {list(case.ranks)}: {outcome.said}",
                flush=True,
            )
    return outcomes


def scatter_table(num_seeds: int) -> str:
    """Threads that launch 91 ms for 85 ms of kernels and scatter, no look at the loss: named of so many jobs.

    All as fast as each other: nobody is to be named. One slower by a tenth, by two: that one is.
    """
    bound = DeviceJob(sync_every=0, forward_host_s=30 * MS, backward_host_s=52 * MS, optimizer_host_s=8 * MS)
    kinds = {
        "all as fast": (),
        "one stopped once for 1 s": (Fault("save", (1,), 1.0, onset=30, until=31),),
        "one slower by a tenth": (Fault("host", (1,), factor=1.1),),
        "one slower by two tenths": (Fault("host", (1,), factor=1.2),),
    }
    lines = [
        "| | ranks, steps | " + " | ".join(f"scatter {share:.0%}" for share in SCATTER) + " |",
        "|---" * 6 + "|",
    ]
    for kind, faults in kinds.items():
        for num_ranks, num_steps in ((2, 140), (2, 300), (4, 140), (4, 300)):
            cells = []
            for share in SCATTER:
                counts: Counter[str] = Counter()
                for seed in range(num_seeds):
                    job = replace(
                        bound, num_ranks=num_ranks, num_steps=num_steps, host_noise=share, seed=seed
                    )
                    view = view_of(job.with_faults(*faults))
                    late = {one.rank: one.cause for one in view.stragglers}
                    is_right = late == ({1: "host"} if "slower" in kind else {})
                    word = "named" if late else view.verdict.decision or "not decided"
                    counts[word if is_right or not late else "wrongly named"] += 1
                cells.append(", ".join(f"{word} {number}" for word, number in counts.most_common()))
            lines.append(f"| {kind} | {num_ranks}, {num_steps} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ill(number: int) -> str:
    """Each kind in turn among the two thirds that are not healthy."""
    return KINDS[(number // 3 * 2 + number % 3 - 1) % len(KINDS)]


def main() -> int:
    """Print the table; 1 when an innocent rank was named or a healthy training called ill."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--scatter", action="store_true")
    options = parser.parse_args()
    begin = process_time()
    if options.scatter:
        print(scatter_table(min(options.runs, MAX_SEEDS)))
        return 0
    outcomes = score(options.runs, options.seed, options.only, verbose=options.verbose)
    print(table(outcomes))
    print(f"{process_time() - begin:.0f} s of CPU")
    return int(any(one.wrong_names or one.is_alarm for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
