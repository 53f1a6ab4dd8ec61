"""Real trainings on asynchronous devices, drawn by lot, healthy and not: what is said of them against what is true.

    python tests/accuracy/asynchronous.py [--runs 40] [--seed 0] [--only PATTERN] [--keep FOLDER] [--again]

Each run is a torchrun of tests/asynchronous_training.py, which knows nothing of us, under the real `record` and
`diagnose --json`: 2 or 4 ranks, a look at the loss in every step, in every tenth or in none. A third is healthy, every
other of these with a slow thread that its device hides; the others lose 10 to 40 % of the step to one fault. Half a
minute each. --keep: recordings and the trainings' own times stay there, and --again judges them anew.

True is what follows from the settings alone (tests/unit/simulated_devices.py, without noise), and what the training's
own events saw of it by its devices' clocks: where the machine gives a rank its core late, others do wait for it.
Scored as in devices.py: whether the fault is found, whom it names, why, and the size.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

import asynchronous_training
from asynchronous_runs import OwnTimes, Training, diagnosed, own_times, recorded_ns
from simulated_devices import MS, DeviceJob, Fault, simulate

TESTS = Path(__file__).resolve().parents[1]
# By kind of training, its script. Another one joins with a row here and its settings in `drawn` and `job_of`.
TRAININGS = {"ddp": TESTS / "asynchronous_training.py"}
CAUSES = {"device": "device", "data": "data_wait", "copy": "h2d", "host": "host"}
COMMON = {"data on all": "input_bound", "link": "communication_bound"}
PHASES = {"data on all": "data_wait", "link": "comm_exposed"}
KINDS = (*CAUSES, *COMMON)
HEALTHY = ("healthy", "hidden thread")
# What the machine does to all ranks of any training that it is too small for: true, and no rank's.
OF_THE_MACHINE = frozenset({"crowded_host", "slow_host"})
LEAST, MOST = 0.1, 0.4  # of the step that a fault costs
LOSS_SHARE, LOSS_S = 0.1, 1 * MS
HOST_S = 4 * MS  # a step: Python and torch, beside the launches that are timed
NUM_STEPS = 150
LAST_STEPS = 130  # of the training's own times at most: recorded ones
SETTINGS_OF_LAUNCHES = ("copy_host", "forward_host", "backward_host", "optimizer_host")


@dataclass(frozen=True)
class Case:
    """One training. Settings: of its command line, without the fault's."""

    kind: str
    training: str
    num_ranks: int
    settings: tuple[str, ...]
    rank: int = -1  # the guilty; -1: nobody alone
    fault: tuple[str, ...] = ()
    cost_s: float = 0.0  # a step, by the settings
    step_s: float = 0.0  # with the fault, by the settings

    @property
    def arguments(self) -> tuple[str, ...]:
        """Of the command line."""
        return (*self.settings, *self.fault)

    @property
    def guilty(self) -> set[int]:
        """Whom a finding may name."""
        return {self.rank} if self.kind in CAUSES else set()


def job_of(case_or_settings: tuple[str, ...], num_ranks: int) -> DeviceJob:
    """The same training as a simulation knows it, without noise and without the fault."""
    options = asynchronous_training.parse(list(case_or_settings))
    layers, launch_s = options.layers, options.launch_ms * MS
    # Pieces that may lie launched: beside them the queue holds the exchange's events and the probe's.
    queue = round(options.queue / (3 * layers + 11) * (2 * layers + 2))
    return DeviceJob(
        num_ranks=num_ranks,
        num_steps=160,
        sync_every=options.sync_every,
        copy_s=options.copy_ms * MS,
        forward_s=options.forward_ms * MS,
        backward_s=options.backward_ms * MS,
        optimizer_s=options.optimizer_ms * MS,
        transfer_s=layers * options.transfer_ms * MS,
        data_host_s=options.data_ms * MS,
        copy_host_s=launch_s,
        forward_host_s=layers * launch_s,
        backward_host_s=layers * launch_s,
        optimizer_host_s=launch_s,
        other_host_s=HOST_S,
        num_forward=layers,
        num_backward=layers,
        num_optimizer=1,
        num_buckets=layers,
        queue=queue,
        device_noise=0.0,
        host_noise=0.0,
        transfer_noise=0.0,
        static_noise=0.0,
    )


def faults_of(kind: str, rank: int, amount: float) -> tuple[tuple[str, ...], tuple[Fault, ...]]:
    """(the training's options, the simulation's faults) of that strength: a factor less one, or ms."""
    whose = ("--fault-rank", str(rank))
    ranks = None if rank < 0 else (rank,)
    if kind == "device":
        return ("--device-factor", f"{1 + amount:.4f}", *whose), (Fault("device", ranks, factor=1 + amount),)
    if kind in ("host", "hidden thread"):
        return ("--host-factor", f"{1 + amount:.3f}", *whose), tuple(
            Fault(name, ranks, factor=1 + amount) for name in SETTINGS_OF_LAUNCHES
        )
    if kind == "copy":
        return ("--copy-extra-ms", f"{amount:.2f}", *whose), (Fault("copy", ranks, amount_s=amount * MS),)
    if kind == "link":
        return ("--transfer-ms", f"{3 * (1 + amount):.3f}"), (Fault("link", factor=1 + amount),)
    return ("--data-extra-ms", f"{amount:.2f}", *whose), (Fault("data", ranks, amount_s=amount * MS),)


MOST_AMOUNT = {"device": 4.0, "host": 60.0, "hidden thread": 60.0, "link": 100.0}  # else milliseconds: 1000


def cost_s(kind: str, job: DeviceJob, faults: tuple[Fault, ...]) -> tuple[float, float]:
    """(what a cure gains, the mean step with the fault) by the settings, seconds a step."""
    ill_s = simulate(job.with_faults(*faults)).mean_cycle_s()
    cured = job
    if kind == "data on all":  # all of it can be gained, not what was added alone
        cured = replace(job, data_host_s=0.0)
    elif kind == "link":
        cured = replace(job, transfer_s=0.0)
    return ill_s - simulate(cured).mean_cycle_s(), ill_s


def drawn(rng: np.random.Generator, number: int) -> Case:
    """The next training: every third is healthy, the kinds take turns."""
    kind = HEALTHY[number // 3 % 2] if number % 3 == 0 else KINDS[(number // 3 * 2 + number % 3 - 1) % 6]
    num_ranks, scale = int(rng.choice([2, 4])), float(np.exp(rng.uniform(np.log(0.8), np.log(1.6))))
    sync = int(rng.choice([1, 10, 0]))
    if kind == "hidden thread" and sync == 1:
        sync = 10  # else nothing hides it
    layers = int(rng.choice([2, 4, 6]))
    settings = (
        "--sync-every", str(sync), "--layers", str(layers),
        "--forward-ms", f"{22 * scale:.1f}", "--backward-ms", f"{44 * scale:.1f}",
        "--queue", str(int(rng.choice([256, 1024]))),
    )  # fmt: skip
    rank, share = int(rng.integers(num_ranks)), float(rng.uniform(LEAST, MOST))
    job = job_of(settings, num_ranks)
    case = Case(kind, "ddp", num_ranks, settings, step_s=simulate(job).mean_cycle_s())
    if kind == "healthy":
        return case
    whose = -1 if kind in COMMON else rank
    if kind == "hidden thread":
        amount = 0.7 * _until(kind, job, whose, lambda cost, step: cost > 0.002 * step)
    else:
        amount = _until(kind, job, whose, lambda cost, step: cost > share * step)
    fault, faults = faults_of(kind, whose, amount)
    cost, step_s = cost_s(kind, job, faults)
    return replace(case, rank=whose, fault=fault, cost_s=cost, step_s=step_s)


def _until(kind: str, job: DeviceJob, rank: int, is_enough: Callable[[float, float], bool]) -> float:
    """The least strength of the fault that is enough."""
    low, high = 0.0, MOST_AMOUNT.get(kind, 1000.0)
    for _ in range(14):
        middle = (low + high) / 2
        if is_enough(*cost_s(kind, job, faults_of(kind, rank, middle)[1])):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class Outcome:
    """How it came out. Seconds a step."""

    case: Case
    said: str
    decision: str | None
    is_found: bool
    is_remarked: bool  # found, or said in a remark
    is_cause_right: bool
    wrong_names: tuple[int, ...]
    is_alarm: bool  # something above a remark on a healthy training, but what the machine does to all
    told_s: float | None
    seen_s: float  # what the training's own events saw of the fault; of a healthy one, of whom they waited for most
    seen_step_s: float
    seen_last_s: tuple[float, ...]  # by rank, by how much it came after all others

    @property
    def seen_share(self) -> float:
        """Of the step that there was."""
        return self.seen_s / self.seen_step_s

    def error(self, of_s: float) -> float | None:
        """Of what was told; None where nothing was."""
        return None if self.told_s is None or of_s <= 0 else self.told_s / of_s - 1

    @property
    def is_sized(self) -> bool | None:
        """Within what devices.py asks for, by the training's own events."""
        if self.told_s is None or self.case.kind in HEALTHY:
            return None
        return abs(self.told_s - self.seen_s) <= LOSS_SHARE * self.seen_s + LOSS_S

    @property
    def is_bad(self) -> bool:
        """To be looked into."""
        missed = self.case.kind in KINDS and not self.is_cause_right
        return bool(self.wrong_names) or self.is_alarm or missed or self.is_sized is False


def judge(case: Case, document: dict[str, Any], own: OwnTimes) -> Outcome:
    """Against the truth."""
    above = [found for found in document["findings"] if found["severity"] != "info"]
    late = {one["rank"]: one for one in document["stragglers"]["ranks"]}
    singled = [found for found in above if 0 < len(found["ranks"]) < case.num_ranks]
    named = set(late) | {rank for found in singled for rank in found["ranks"]}
    last_s = own.last_alone_s()
    told_s: float | None = None
    is_found = is_cause_right = is_remarked = False
    if case.kind in CAUSES:
        is_found = case.rank in late
        is_cause_right = is_found and late[case.rank]["cause"] == CAUSES[case.kind]
        told_s = late[case.rank]["loss_s_per_step"] if is_found else None
        seen_s = float(last_s[case.rank])
    elif case.kind in COMMON:
        is_found = is_cause_right = COMMON[case.kind] in {found["id"] for found in above}
        is_remarked = COMMON[case.kind] in {found["id"] for found in document["findings"]}
        # A look at the loss in every tenth step makes the wait of that step a periodic one, told and sized by itself.
        phase = PHASES[case.kind]
        losses_s = [found["loss_s_per_step"] for found in above if found["phase"] == phase]
        told_s = sum(losses_s) if is_found else None
        without_s = case.step_s - case.cost_s
        seen_s = (
            own.step_s - without_s if case.kind == "data on all" else float(own.exchange_s.min(axis=1).mean())
        )
    else:
        seen_s = float(last_s.max())
    return Outcome(
        case=case,
        said=_said(document, above, late),
        decision=document["verdict"]["decision"],
        is_found=is_found,
        is_remarked=is_found or is_remarked,
        is_cause_right=is_cause_right,
        wrong_names=tuple(sorted(named - case.guilty)),
        is_alarm=case.kind in HEALTHY and bool({found["id"] for found in above} - OF_THE_MACHINE or late),
        told_s=told_s,
        seen_s=seen_s,
        seen_step_s=own.step_s,
        seen_last_s=tuple(last_s.tolist()),
    )


def _said(document: dict[str, Any], above: list[dict[str, Any]], late: dict[int, dict[str, Any]]) -> str:
    found = "; ".join(f"{one['id']} {one['ranks']} {one['phase'] or ''}" for one in above)
    who = ", ".join(
        f"r{rank} {one['cause']} {1e3 * one['loss_s_per_step']:.1f}" for rank, one in late.items()
    )
    verdict = document["verdict"]
    why = "" if verdict["decision"] else verdict["sentence"]
    return f"{verdict['decision']} {why}: {found} | {who}"


def line_of(number: int, one: Outcome) -> str:
    """One run as text."""
    case, last = one.case, ", ".join(f"{1e3 * each:.1f}" for each in one.seen_last_s)
    told = "nothing" if one.told_s is None else f"{1e3 * one.told_s:.1f}"
    return (
        f"{'BAD' if one.is_bad else 'ok '} {number:3} {case.kind:13} {case.num_ranks} ranks, "
        f"sync {case.settings[1]:>2}, rank {case.rank:2}: "
        f"costs {1e3 * case.cost_s:5.1f} of {1e3 * case.step_s:5.1f} ms by its settings, "
        f"{1e3 * one.seen_s:5.1f} of {1e3 * one.seen_step_s:5.1f} by its events (last alone by {last}); "
        f"told {told}; {one.said}   [{' '.join(case.arguments)}]"
    )


def table(outcomes: list[Outcome]) -> str:
    """All scores, by kind, look at the loss and ranks."""
    names = (
        "runs", "undecided", "found of those that cost 10 % by their events", "or remarked", "cause right",
        "size right",
        "size error by events: median, 90 %", "by settings: median, 90 %", "runs with innocents named",
        "alarms on healthy",
    )  # fmt: skip
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    groups: list[tuple[Callable[[Outcome], object], dict[object, str]]] = [
        (lambda one: one.case.kind, {kind: kind for kind in (*KINDS, *HEALTHY)}),
        (
            lambda one: one.case.settings[1],
            {"1": "look at the loss each step", "10": "each tenth", "0": "never"},
        ),
        (lambda one: one.case.num_ranks, {2: "2 ranks", 4: "4 ranks"}),
    ]
    for key, shown in groups:
        for value, name in shown.items():
            group = [one for one in outcomes if key(one) == value]
            if group:
                lines.append(_row(name, group))
    return "\n".join([*lines, _row("all", outcomes)])


def _row(name: str, outcomes: Iterable[Outcome]) -> str:
    group = list(outcomes)
    ill = [one for one in group if one.case.kind in KINDS]
    dear = [one for one in ill if one.seen_share >= LEAST]
    found = [one for one in ill if one.is_found]
    sized = [one for one in found if one.is_sized is not None]
    well = [one for one in group if one.case.kind in HEALTHY]
    cells = (
        f"{len(group)}",
        f"{sum(one.decision is None for one in group)}",
        f"{sum(one.is_found for one in dear)} of {len(dear)}" if ill else "",
        f"{sum(one.is_remarked for one in dear)} of {len(dear)}" if ill else "",
        f"{sum(one.is_cause_right for one in found)} of {len(found)}" if ill else "",
        f"{sum(bool(one.is_sized) for one in sized)} of {len(sized)}" if ill else "",
        _errors([one.error(one.seen_s) for one in found]),
        _errors([one.error(one.case.cost_s) for one in found]),
        f"{sum(bool(one.wrong_names) for one in group)}",
        f"{sum(one.is_alarm for one in well)} of {len(well)}" if well else "",
    )
    return f"| {name} | " + " | ".join(cells) + " |"


def _errors(errors: list[float | None]) -> str:
    known = [abs(error) for error in errors if error is not None]
    return f"{np.median(known):.1%}, {np.percentile(known, 90):.1%}" if known else ""


def run(case: Case, folder: Path, *, again: bool) -> Outcome:
    """The training and what is said of it. again: from what is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    if not again:
        (folder / "case.json").write_text(json.dumps(asdict(case)))
        diagnosed(Training(TRAININGS[case.training], case.num_ranks, case.arguments), folder, NUM_STEPS)
    document = rediagnosed(folder) if again else _document(folder)
    # Of the diagnosis' own window: others' work on the machine begins a new level.
    first, last = (document["window"][name] for name in ("first_step", "last_step"))
    num_steps = LAST_STEPS if first is None or last is None else min(last - first + 1, LAST_STEPS)
    own = own_times(folder, recorded_ns(folder / "run.tuirec", num_steps))
    return judge(case, document, own)


def _document(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "diagnosis.json").read_text())
    return document


def rediagnosed(folder: Path) -> dict[str, Any]:
    """With the code as it is now."""
    from asynchronous_runs import tuiadvisor

    shown = tuiadvisor("diagnose", str(folder / "run.tuirec"), "--json")
    if shown.returncode:
        raise RuntimeError(shown.stderr)
    (folder / "diagnosis.json").write_text(shown.stdout)
    return _document(folder)


def main() -> int:
    """Print a line a run and the table; 1 when an innocent rank was named or a healthy training called ill."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="kinds, or numbers of runs")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--again", action="store_true", help="judge what --keep holds")
    options = parser.parse_args()
    if options.again and not options.keep:
        parser.error("--again needs --keep")
    rng, outcomes, begin_s = np.random.default_rng(options.seed), [], time.monotonic()
    for number in range(options.runs):
        case = drawn(rng, number)
        if not fnmatch.fnmatch(case.kind, options.only) and str(number) not in options.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = (options.keep or Path(scratch)) / f"{number:03}"
            outcome = run(case, folder, again=options.again)
        outcomes.append(outcome)
        print(line_of(number, outcome), flush=True)
    print(table(outcomes))
    print(f"{time.monotonic() - begin_s:.0f} s")
    return int(any(one.wrong_names or one.is_alarm for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
