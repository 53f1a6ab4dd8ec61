"""Faults in worlds of a thousand ranks and more, through the same fold and rules: said, expected, scores.

    python tests/accuracy/simulate.py [--ranks 1024 16384] [--noise device quiet crowded] [--only PATTERN] [--seeds 1]

A fault is scored by its finding, the ranks named, the phase, the onset (within 5 steps) and the size of the loss
(within a tenth, or a hundredth of the step), against the same steps simulated without it. A fault that costs less than
a fiftieth of the step, because one of a thousand others is as late anyway, need not be found. A healthy world must
name nobody.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parent))

from worlds import Fault, Truth, World, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.views.run_view import Finding, RunView

ONSET_STEPS = 5
LOSS_SHARE = 0.1
STEP_SHARE = 0.01
FREE_SHARE = 0.02  # what costs less than this is hidden behind the others' noise


@dataclass(frozen=True)
class Scenario:
    """A fault as a share of the step, and what should be said of it."""

    name: str
    faults: tuple[Fault, ...] = ()
    finding: str = "straggler"  # "": nothing above info
    phases: tuple[str, ...] = ()
    onset: int | None = None


def scenarios(num_ranks: int, num_steps: int, ranks_per_host: int) -> list[Scenario]:
    """All of them, for one size of world. The first steps of a long run have scrolled away by its end."""
    a, b = num_ranks // 3, min(num_ranks // 2 + 1, num_ranks - 1)
    first = a - a % ranks_per_host
    host = tuple(range(first, min(first + ranks_per_host, num_ranks)))
    stage = tuple(range(num_ranks - num_ranks // 4, num_ranks))
    onset = num_steps - min(num_steps // 2, 100)
    single = [
        Scenario(f"{phase} {share:.0%}", (Fault(phase, share, (a,)),), phases=(phase,))
        for phase in ("backward", "data_wait", "forward", "optimizer")
        for share in (0.05, 0.1, 0.2, 0.5)
    ]
    several = [
        Scenario("host 20%", (Fault("forward", 0.2, host),), phases=("forward", "host")),
        Scenario("stage 20%", (Fault("backward", 0.2, stage),), phases=("backward",)),
        Scenario("two 30%", (Fault("data_wait", 0.3, (a,)), Fault("backward", 0.3, (b,)))),
    ]
    return [
        Scenario("healthy", finding=""),
        *single,
        Scenario("backward 100%", (Fault("backward", 1.0, (a,)),), phases=("backward",)),
        Scenario("device 20%", (Fault("device", 0.2, (a,)),), phases=("device", "host")),
        # In a small world a host or a stage may be all ranks, or none: then nobody is late against others.
        *(
            one
            for one in several
            if 0 < len({rank for each in one.faults for rank in each.ranks}) < num_ranks
        ),
        Scenario(
            "onset 20%", (Fault("backward", 0.2, (a,), onset=onset),), phases=("backward",), onset=onset
        ),
        Scenario("intermittent 50%", (Fault("backward", 0.5, (a,), period=6, on=2),), phases=("backward",)),
        Scenario("transfer 30%", (Fault("transfer", 0.3),), finding="communication_bound"),
        Scenario("lengths 30%", (Fault("length", 0.3),), finding="uneven_lengths"),
    ]


@dataclass(frozen=True)
class Outcome:
    """How one scenario came out; None where it does not apply."""

    is_found: bool | None
    ranks_right: bool | None
    phase_right: bool | None
    onset_error: int | None
    loss_error: float | None  # of the true loss
    loss_step_error: float | None  # of the step
    true_loss: float  # share of the step
    wrong_names: int  # ranks named above info that are innocent, or anything above info on a healthy world
    said: str

    @property
    def is_right(self) -> bool:
        """All that applies."""
        sized = self.loss_error is None or abs(self.loss_error) <= LOSS_SHARE
        sized = sized or abs(self.loss_step_error or 0.0) <= STEP_SHARE
        dated = self.onset_error is None or abs(self.onset_error) <= ONSET_STEPS
        is_free = self.is_found is False and self.true_loss < FREE_SHARE
        named = (
            (self.is_found is not False or is_free)
            and self.ranks_right is not False
            and self.phase_right is not False
        )
        return named and sized and dated and not self.wrong_names


def fold(world: World) -> tuple[RunView, Truth]:
    """The view at the end."""
    return fold_all(world)[1:]


def fold_all(world: World) -> tuple[Advisor, RunView, Truth]:
    """The same, and what it was made with."""
    advisor, truth = Advisor(), Truth()
    for frame in frames(world, truth):
        advisor.feed_frame(frame)
    return advisor, advisor.view(), truth


def judge(scenario: Scenario, view: RunView, truth: Truth) -> Outcome:
    """Compare a view with what was injected."""
    above = [finding for finding in view.findings if finding.severity != "info"]
    guilty = {rank for fault in scenario.faults for rank in fault.ranks}
    named = {rank for finding in above if finding.id == "straggler" for rank in finding.ranks}
    said = "; ".join(_said(finding) for finding in above) or "nothing above info"
    if not above:  # what was only worth a remark
        said += "".join(f" ({_said(f)})" for f in view.findings if f.id == scenario.finding)
    first, last = view.window.first_step, view.window.last_step
    lost_s = truth.loss_s(first, last) if first is not None and last is not None else 0.0
    true_loss = lost_s / (view.step.median_s or 1.0)
    if not scenario.finding:
        return Outcome(None, None, None, None, None, None, true_loss, len(above), said)
    found = [finding for finding in above if finding.id == scenario.finding]
    wrong = len(named - guilty)
    if not found:
        return Outcome(False, None, None, None, None, None, true_loss, wrong, said)
    phases = {finding.phase for finding in found}
    onset_error = None
    if scenario.onset is not None and found[0].since_step is not None:
        onset_error = found[0].since_step - scenario.onset
    loss_s = sum(finding.loss_s_per_step or 0.0 for finding in found)
    return Outcome(
        is_found=True,
        ranks_right=named == guilty if guilty else None,
        phase_right=bool(phases & set(scenario.phases)) if scenario.phases else None,
        onset_error=onset_error,
        loss_error=loss_s / lost_s - 1
        if lost_s > 0 and scenario.finding in ("straggler", "uneven_lengths")
        else None,
        loss_step_error=(loss_s - lost_s) / (view.step.median_s or 1.0),
        true_loss=true_loss,
        wrong_names=wrong,
        said=said,
    )


def _said(finding: Finding) -> str:
    few = f"r{list(finding.ranks)}" if len(finding.ranks) <= 4 else f"{len(finding.ranks)} ranks"
    loss = f"{1e3 * finding.loss_s_per_step:.1f}ms" if finding.loss_s_per_step else ""
    return f"{finding.id} {few} {finding.phase or ''} {loss} since {finding.since_step}"


def main() -> int:
    """Print the table and the scores; 1 when an innocent rank was named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024])
    parser.add_argument("--noise", nargs="+", default=["device", "quiet", "crowded"])
    parser.add_argument("--only", nargs="+", default=["*"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=240)
    options = parser.parse_args()
    outcomes: list[tuple[Scenario, Outcome]] = []
    begin = process_time()
    for num_ranks in options.ranks:
        base = World(num_ranks, num_steps=options.steps, hosts_per_agent=max(1, num_ranks // 1024))
        for noise in options.noise:
            for scenario in scenarios(num_ranks, options.steps, base.ranks_per_host):
                if not any(fnmatch.fnmatch(scenario.name, pattern) for pattern in options.only):
                    continue
                for seed in range(options.seeds):
                    world = replace(base, noise=noise, faults=scenario.faults, seed=seed)
                    outcome = judge(scenario, *fold(world))
                    outcomes.append((scenario, outcome))
                    mark = "ok   " if outcome.is_right else "WRONG" if outcome.wrong_names else "miss "
                    lost = f"costs {outcome.true_loss:6.1%}"
                    print(
                        f"{mark} {num_ranks:6} {noise:8}{scenario.name:18} {lost}  {outcome.said}", flush=True
                    )
    print(scores(outcomes, process_time() - begin))
    return int(any(outcome.wrong_names for _, outcome in outcomes))


def scores(outcomes: list[tuple[Scenario, Outcome]], cpu_s: float) -> str:
    """The table's last lines."""
    faults = [outcome for scenario, outcome in outcomes if scenario.finding]
    worth = [outcome for outcome in faults if outcome.true_loss >= 0.1]
    found = [outcome for outcome in faults if outcome.is_found]
    sized = [outcome for outcome in found if outcome.loss_error is not None]
    dated = [outcome.onset_error for outcome in found if outcome.onset_error is not None]
    healthy = [outcome for scenario, outcome in outcomes if not scenario.finding]
    parts = [
        f"{sum(outcome.is_right for _, outcome in outcomes)} of {len(outcomes)} right, {cpu_s:.0f} s of CPU",
        (
            f"found {len(found)} of {len(faults)}; of those that cost a tenth of the step or more "
            f"{sum(bool(outcome.is_found) for outcome in worth)} of {len(worth)}"
        ),
        (
            f"ranks right {sum(outcome.ranks_right is not False for outcome in found)} of {len(found)}, "
            f"phase right {sum(outcome.phase_right is not False for outcome in found)} of {len(found)}, "
            f"onset within {ONSET_STEPS} steps {sum(abs(error) <= ONSET_STEPS for error in dated)} of {len(dated)}"
        ),
        f"loss within a tenth (or a hundredth of the step) {sum(_is_sized(o) for o in sized)} of {len(sized)}",
        (
            f"innocent ranks named: {sum(outcome.wrong_names for outcome in faults)}; "
            f"alarms on {sum(bool(outcome.wrong_names) for outcome in healthy)} of {len(healthy)} healthy worlds"
        ),
    ]
    return "\n".join(parts)


def _is_sized(outcome: Outcome) -> bool:
    return abs(outcome.loss_error or 0.0) <= LOSS_SHARE or abs(outcome.loss_step_error or 0.0) <= STEP_SHARE


if __name__ == "__main__":
    sys.exit(main())
