"""Everything a session is made of, gathered once: runs, intent, answers, and the case that is decided on.

In: views, intent, answers.  Out: Material. A pure function: the same inputs give the same session.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.candidates import candidates
from tuiadvisor.session.case import Case, Prospect, Unpriced
from tuiadvisor.session.economics import checkpoint_plan, move
from tuiadvisor.session.evidence import Facts, named_values
from tuiadvisor.session.intent import changed, contradiction, preset, price_of_device_hour, stated_steps
from tuiadvisor.session.levers import levers
from tuiadvisor.session.limits import least
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.question_ids import OTHER_SIZE
from tuiadvisor.session.remaining import checkpoint_interval_h, pace, restart_hours
from tuiadvisor.session.smaller import fewer, not_more
from tuiadvisor.session.wanted import wanted
from tuiadvisor.views.stall import HANG

if TYPE_CHECKING:
    from tuiadvisor.scaling.onerun import Parts
    from tuiadvisor.session.candidates import Candidate
    from tuiadvisor.session.economics import CheckpointPlan, Move
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.levers import Lever
    from tuiadvisor.session.remaining import Pace
    from tuiadvisor.session.wanted import SpeedAt
    from tuiadvisor.views.run_view import Finding, Verdict
    from tuiadvisor_rules.questions import Question

SAME_WORK: Final = 0.01  # samples a step may differ by this share and still be the same batch
ANSWERS_OF_INTENT: Final = {
    "objective": "objective",
    "purpose": "purpose",
    "price": "price_per_device_hour",
    "restart_min": "restart_min",
    "restarts_per_day": "failures_per_day",
    "remaining_steps": "remaining_steps",
    "time_worth": "price_of_time",
    "engineer_price": "engineer_hour_price",
}
OTHER_REMAINS: Final = ("remaining_samples", "remaining_tokens", "remaining_epochs")


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of evidence. text None: not observed, and `measure` says how it would be."""

    name: str
    text: str | None
    window: str
    confidence: str
    measure: str = ""


@dataclass(frozen=True, slots=True)
class Material:
    """The inputs, and what follows from them directly."""

    run: Facts
    others: tuple[Facts, ...]  # recordings of the same work
    verdict: Verdict
    intent: Intent  # answers that say the same are already in it
    answers: dict[str, str | float]
    values: dict[str, object]
    remaining_steps: float | None
    price: float | None
    case: Case
    refused: tuple[tuple[str, str], ...]  # (run, why it is no alternative)
    checkpoint_s: float | None
    checkpoints: CheckpointPlan | None
    machine: Machine
    paces: dict[int, Pace]  # by the id of its Facts
    levers: tuple[Lever, ...]  # changes to try, best first
    candidates: tuple[Candidate, ...]  # the same as purchases, what pays first
    different: tuple[Facts, ...]  # recordings of other workloads: beside this one, never ranked
    contradiction: str = ""  # in what is stated of the rest; then nothing rests on it

    @property
    def pace(self) -> Pace:
        """Of the rest of this run."""
        return self.paces[id(self.run)]

    def hours(self, run: Facts, num_steps: float | None) -> float | None:
        """What so many steps of this configuration take, all counted."""
        return None if num_steps is None else self.paces[id(run)].hours(num_steps)

    def item(self, name: str, text: str | None, measure: str = "") -> Item:
        """Evidence from this run's window."""
        return Item(name, text, self.run.window, self.run.confidence, measure)


def gather(
    run: Facts,
    others: tuple[Facts, ...],
    verdict: Verdict,
    intent: Intent,
    answers: dict[str, str | float],
    *,
    machine: Machine | None = None,
    questions: tuple[Question, ...] = (),
    speed_at: SpeedAt | None = None,
    parts: Parts | None = None,
    held: str = "",
) -> Material:
    """All of it.

    speed_at: how fast other sizes would be; None: nobody asks for one. parts: of the run's step, where they bound
    other sizes. held: what was decided of the same run a moment ago.
    """
    intent = _with_answers(intent, answers)
    steps = stated_steps(intent, run.samples_per_step, run.tokens_per_step)
    price = price_of_device_hour(intent)
    different = tuple(other for other in others if _is_another_model(run, other))
    others = tuple(other for other in others if other not in different)
    checkpoint_s = checkpoint_length(run)
    paces = {id(one): pace(one, intent, answers, checkpoint_length(one)) for one in (run, *others)}
    moves, refused = _moves(run, others, intent, steps, paces, same_unit=answers.get("same_unit") == "yes")
    complexity = answers.get("change_complexity")
    case = Case(
        enough=run.enough,
        hang=next((one.message for one in run.findings if one.id == HANG), ""),
        why_undecided=run.why_undecided,
        is_imported=run.is_imported,
        is_over=run.is_over,
        on_device_clock=run.on_device_clock,
        step_s=run.step_s,
        step_slack=run.step_slack,
        num_devices=run.num_devices,
        remaining_steps=steps,
        price_per_device_hour=price,
        intent=intent,
        prospect=_prospect(run, verdict),
        unpriced=_unpriced(run, verdict),
        moves=moves,
        effort_hours=_number(answers.get("effort_hours")),
        change_complexity=None if complexity is None else str(complexity),
        result_as_good_now=answers.get("run_worth_finishing") == "as good",
        paid_anyway=answers.get("queue_and_others") == "no",
        pace=paces[id(run)],
        restart_h=(intent.restart_min or 0.0) / 60 if run.is_over else restart_hours(run, intent, answers),
        kept_because=verdict.because if verdict.decision == "keep" else "",
        held=held,
        least=least(run),
        wanted=wanted(
            answers.get(OTHER_SIZE),
            (run.num_devices, steps, paces[id(run)]),
            speed_at,
            replace(intent, price_per_device_hour=price),
            "weak" if answers.get("fixed_or_growing") == "grows" else "strong",
        ),
    )
    if parts is not None and case.enough:
        case = replace(case, fewer=fewer(parts, case), not_more=None if case.moves else not_more(parts, case))
    refused = (*((other.name, _models(run, other)) for other in different), *refused)
    found = levers(run, answers, questions)
    return Material(
        run, others, verdict, intent, answers, named_values(run, others), steps, price, case, refused,
        checkpoint_s, _checkpoints(run, checkpoint_s, intent, answers), machine or Machine(), paces,
        found, candidates(run, case, found), different,
        contradiction(intent, run.samples_per_step, run.tokens_per_step) or paces[id(run)].never_done,
    )  # fmt: skip


def _with_answers(intent: Intent, answers: dict[str, str | float]) -> Intent:
    """What is stated, and what was answered where nothing was."""
    stated = {
        key: answers[name]
        for name, key in ANSWERS_OF_INTENT.items()
        if name in answers and getattr(intent, key) is None
    }
    if any(getattr(intent, name) is not None for name in OTHER_REMAINS):
        stated.pop("remaining_steps", None)  # the intent says it in another unit
    return preset(changed(intent, stated))


def _is_another_model(run: Facts, other: Facts) -> bool:
    """Gradients of another size are another model: its samples are no measure for this one's.

    Where one has no gradients to send, on a single device say, another class with another number of parameters is.
    Either alone is not: ranks that share a model hold parts of it, and a wrapper of one's own has a name of its own.
    """
    if not run.gradient_bytes or not other.gradient_bytes:
        if run.model is None or other.model is None:
            return False
        return run.model[0] != other.model[0] and abs(other.model[1] / run.model[1] - 1) > SAME_WORK
    return abs(other.gradient_bytes / run.gradient_bytes - 1) > SAME_WORK


def _models(run: Facts, other: Facts) -> str:
    if not run.gradient_bytes or not other.gradient_bytes:
        (mine_is, num), (theirs_is, other_num) = run.model or ("", 0), other.model or ("", 0)
        return (
            f"another unit of work, {theirs_is} of {other_num:,} parameters instead of {mine_is} of {num:,}"
        )
    mine, theirs = (run.gradient_bytes or 0) / 1e6, (other.gradient_bytes or 0) / 1e6
    return f"another unit of work, {theirs:.3g} MB of gradients a step instead of {mine:.3g}"


def _number(value: str | float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _prospect(run: Facts, verdict: Verdict) -> Prospect | None:
    """The finding that the run's verdict rests on; without a measured gain it is none."""
    finding = _of_verdict(run, verdict)
    if finding is None or verdict.speedup is None:
        return None
    speedup = verdict.speedup
    return Prospect(
        finding.id,
        finding.message,
        speedup.expected,
        speedup.low,
        speedup.high,
        at_best=verdict.at_best,
    )


def _unpriced(run: Facts, verdict: Verdict) -> Unpriced | None:
    """The finding that the verdict says to act on though what it costs is not known."""
    finding = _of_verdict(run, verdict)
    if finding is None or verdict.decision != "tune" or verdict.speedup is not None:
        return None
    return Unpriced(finding.id, finding.message)


def _of_verdict(run: Facts, verdict: Verdict) -> Finding | None:
    return next((entry for entry in run.findings if entry.id == verdict.finding), None)


def _moves(
    run: Facts,
    others: tuple[Facts, ...],
    intent: Intent,
    steps: float | None,
    paces: dict[int, Pace],
    *,
    same_unit: bool,
) -> tuple[tuple[Move, ...], tuple[tuple[str, str], ...]]:
    """The other recorded sizes as alternatives for the rest of this run, and those that are none."""
    moves, refused = [], []
    for other in others:
        ratio = _work_ratio(run, other, same_unit=same_unit)
        if other.num_devices is None or other.step_s is None or not other.enough:
            refused.append((other.name, "too few steady steps, or its size was not seen"))
        elif other.num_devices == run.num_devices:
            refused.append((other.name, "the same number of devices: compare it with tuiadvisor compare"))
        elif ratio is None:
            refused.append(
                (other.name, "samples a step are unknown: whether a step is the same work was not said")
            )
        elif steps is None or run.step_s is None or run.num_devices is None:
            refused.append((other.name, "how much of the run remains was not stated"))
        elif (now_h := paces[id(run)].hours(steps)) is None or (
            then_h := paces[id(other)].hours(steps * ratio)
        ) is None:
            refused.append((other.name, "with so many restarts as stated nothing would ever finish"))
        else:
            sizes = (run.num_devices, now_h), (other.num_devices, then_h)
            restart_h, price = (intent.restart_min or 0.0) / 60, price_of_device_hour(intent)
            moves.append(move(*sizes, restart_h, price, intent.queue_h or 0.0))
    return tuple(moves), tuple(refused)


def _work_ratio(run: Facts, other: Facts, *, same_unit: bool) -> float | None:
    """Steps of the other run for one step of this one, by samples."""
    if run.samples_per_step and other.samples_per_step:
        ratio = run.samples_per_step / other.samples_per_step
        return 1.0 if abs(ratio - 1) < SAME_WORK else ratio
    return 1.0 if same_unit else None


def checkpoint_length(run: Facts) -> float | None:
    """Measured length of one checkpoint."""
    for finding in (*run.findings, *run.notes):
        length = finding.evidence.get("length_s")
        if finding.id == "checkpoint_pause" and isinstance(length, int | float) and length > 0:
            return float(length)
    return None


def _checkpoints(
    run: Facts, checkpoint_s: float | None, intent: Intent, answers: dict[str, str | float]
) -> CheckpointPlan | None:
    if checkpoint_s is None or intent.failures_per_day is None:
        return None
    every_h, restart_h = checkpoint_interval_h(run, answers), restart_hours(run, intent, answers)
    return checkpoint_plan(checkpoint_s, intent.failures_per_day, every_h, restart_h)
