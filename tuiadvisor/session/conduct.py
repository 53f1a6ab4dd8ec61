"""One whole session: six stations, one decision, and the loop that proves it.

In: views, intent, answers, history.  Out: Session. Pure: no clock, no file, no terminal.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.decide import decide, decided_limits, verified
from tuiadvisor.session.dialogue import dialogue, first_change
from tuiadvisor.session.evidence import Facts, facts, holds_pauses, step_words
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.material import gather
from tuiadvisor.session.measured import measured_answers
from tuiadvisor.session.relevance import moving
from tuiadvisor.session.sizes import sizes
from tuiadvisor.session.smaller import parts_or_none
from tuiadvisor.session.speeds import speeds
from tuiadvisor.session.stages import stages
from tuiadvisor.session.whys import NAMES, why
from tuiadvisor.shellword import shell_word
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tuiadvisor.session.answer import Why
    from tuiadvisor.session.case import Case, Decision
    from tuiadvisor.session.dialogue import Dialogue
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.material import Material
    from tuiadvisor.session.recorded import Recorded
    from tuiadvisor.session.stages import Stage
    from tuiadvisor.views.run_view import RunView
    from tuiadvisor_rules.questions import Question


SUFFIX = ".tuirec"
NONE_YET: Final = "none yet"
BEFORE, AFTER = "before.tuirec", "after.tuirec"  # of a run that has no file


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What one session of the project found; kept to see bottlenecks move."""

    run: str
    identity: str
    step_s: float | None
    finding: str | None
    ranks: tuple[int, ...]
    next_constraint: str | None
    decision: str  # NONE_YET: it ended before one was found
    predicted_step_s: float | None  # once the finding is relieved

    @property
    def words(self) -> str:
        """What was found, and what was done about it."""
        if self.decision == NONE_YET:
            return f"{self.finding}, not decided" if self.finding else "what limits it was not decided"
        return f"{self.finding or 'nothing above info'}, decided {self.decision}"


@dataclass(frozen=True, slots=True)
class Loop:
    """Baseline, hypothesis, ONE change, rerun, compare."""

    baseline: str
    hypothesis: str
    change: str
    commands: tuple[str, ...]
    last_time: str  # what the session before predicted, against this run


@dataclass(frozen=True, slots=True)
class Session:
    """All that is shown, saved and exported."""

    run: str
    identity: str
    intent: Intent
    answers: dict[str, str | float]
    stages: tuple[Stage, ...]
    decision: Decision
    next_constraint: str | None
    would_change: tuple[str, ...]
    verify: str
    loop: Loop
    whys: tuple[Why, ...]
    history: tuple[Bottleneck, ...]  # oldest first, this run last
    dialogue: Dialogue  # what to ask next


def conduct(
    runs: Sequence[Recorded],
    intent: Intent,
    answers: Mapping[str, str | float],
    questions: tuple[Question, ...],
    history: Sequence[Bottleneck] = (),
    *,
    machine: Machine | None = None,
    last: str = "",
    skipped: Collection[str] = (),
) -> Session:
    """The session on the first run; the others are configurations to compare with.

    last: the question that was answered last; skipped: those that are not to be asked one by one again.
    """
    name, view = runs[0].name, runs[0].view
    run, *others = (
        facts(entry.name, entry.view, entry.gradient_bytes, entry.num_collectives) for entry in runs
    )

    speed_at = speeds(runs, machine or Machine())
    parts = parts_or_none(runs[0], machine)

    def again(stated: Intent, given: dict[str, str | float]) -> Material:
        return gather(
            run, tuple(others), view.verdict, stated, given,
            machine=machine, questions=questions, speed_at=speed_at, parts=parts,
        )  # fmt: skip

    material = again(intent, dict(answers))
    unseen = tuple(one for one in questions if one.id not in measured_answers(run))
    worth = moving(unseen, material.intent, dict(answers), again)
    decision = decide(material.case)
    mark = _bottleneck(material, decision, identity(view))
    before = tuple(entry for entry in history if entry.identity != mark.identity)
    return Session(
        name,
        mark.identity,
        material.intent,
        dict(sorted(answers.items())),
        stages(material, questions, worth),
        decision,
        view.verdict.next_constraint,
        _would_change(material, decision, questions),
        verified(material.case, decision, view.verdict.verify),
        _loop(material, decision, before, is_file=runs[0].is_file),
        tuple(why(entry, run, material.others, material.machine) for entry in NAMES),
        (*before, mark),
        dialogue(
            questions,
            intent,
            dict(answers),
            again,
            last=last,
            skipped=skipped,
            recording=name if runs[0].is_file else "",
        ),
    )


def identity(view: RunView) -> str:
    """The same for every reading of the same recording."""
    seen = [view.run.label, view.num_frames, asdict(view.window), asdict(view.step), asdict(view.verdict)]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def _bottleneck(material: Material, decision: Decision, mark: str) -> Bottleneck:
    prospect, step_s = material.case.prospect, material.run.step_s
    dominant = material.case.dominant
    ranks = next((entry.ranks for entry in material.run.findings if entry.id == dominant), ())
    return Bottleneck(
        run=material.run.name,
        identity=mark,
        step_s=step_s,
        finding=dominant,
        ranks=ranks,
        next_constraint=material.verdict.next_constraint,
        decision=NONE_YET if decision.is_open else decision.decision,
        predicted_step_s=step_s / max(prospect.expected, 1.0) if prospect and step_s is not None else None,
    )


def _would_change(material: Material, decision: Decision, questions: tuple[Question, ...]) -> tuple[str, ...]:
    """What, if it were otherwise or known, could lead to another decision."""
    case, intent, said = material.case, material.intent, []
    if decision.decision == "hang":
        return ("A run of it that completes steps." if case.is_imported else "Steps that complete again.",)
    if not case.enough and case.why_undecided and case.on_device_clock:
        said.append("Evidence for what the reason leaves open.")
    elif not case.enough:
        said.append(
            "A recording in which the devices' clocks were seen."
            if case.why_undecided
            else "Enough steady steps: record longer."
        )
    if intent.objective is None:
        said.append("An objective: without one no number of devices is better than another.")
    if material.remaining_steps is None:
        said.append("The length of the remaining run: a change must pay for itself within it.")
    if decision.decision == "tune":
        said += _tune_limits(material, decision)
    said += [limits] if (limits := decided_limits(case, decision)) else []
    said += _of_moves(case, decision)
    if decision.decision == "rescale" and any(row.regime in {"weak", "mixed"} for row in sizes(material)):
        said.append(
            "Progress by sample: the total batch differs between the sizes, a larger one may need more samples."
        )
    for question in questions:
        answer = material.answers.get(question.id)
        hint = question.suggests.get(str(answer)) if answer is not None else None
        if hint and hint != decision.decision:
            said.append(
                f"Your answer to “{question.ask}” ({answer}) speaks for {hint}; measure it: {question.measure}."
            )
    return tuple(said)


def _of_moves(case: Case, decision: Decision) -> list[str]:
    if not case.moves and not (decision.decision == "rescale" and case.fewer is not None):
        return ["A recording at another number of devices: only measured sizes can be moved to."]
    counted = {
        "restart_min": "What a restart costs (restart_min): it is not stated and counted as nothing.",
        "queue_h": "The wait in the queue for other devices (queue_h): it is not stated and counted as nothing.",
    }
    return [text for name, text in counted.items() if getattr(case.intent, name) is None]


def _tune_limits(material: Material, decision: Decision) -> list[str]:
    intent, said = material.intent, []
    if decision.saved_money is not None and intent.engineer_hour_price:
        limit = decision.saved_money.expected / intent.engineer_hour_price
        said.append(f"An effort above {limit:.3g} h: the change would no longer pay in this run.")
    elif decision.saved_h is not None and decision.cost_h is None:
        said.append("The effort of the change, with prices: it may cost more than it saves.")
    if material.run.confidence.startswith("medium"):
        said.append(f"What was not seen ({material.run.confidence.removeprefix('medium: ')}).")
    return said


def _loop(material: Material, decision: Decision, before: tuple[Bottleneck, ...], *, is_file: bool) -> Loop:
    run, prospect = material.run, material.case.prospect
    step = step_words(run) or "unknown"
    and_pauses = ", pauses included" if holds_pauses(run) else ""
    hypothesis = "No change is proposed: this recording is the baseline of the regression check."
    change = "none"
    if decision.decision == "rescale" and decision.num_devices is not None:
        hypothesis, change = decision.why, f"Go on with {decision.num_devices} devices; change nothing else."
    elif decision.decision == "hang":
        again = "runs without that" if material.case.is_imported else "moves again"
        hypothesis, change = f"Once it {again}, steps take as long as before.", first_change(material)
    elif decision.decision == "tune" and prospect is not None and run.step_s is not None:
        low, high = run.step_s / max(prospect.high, 1.0), run.step_s / max(prospect.low, 1.0)
        hypothesis = (
            f"Without what is found ({_title(run, prospect.finding)}) a step takes "
            f"{'at best ' if prospect.at_best else ''}"
            f"{seconds(run.step_s / max(prospect.expected, 1.0))}"
            f" ({seconds(low)} to {seconds(high)}){and_pauses}."
        )
        change = first_change(material)
    elif decision.decision == "tune" and decision.missed is not None and material.case.unpriced is None:
        least = material.case.least
        at_best = "unknown" if run.step_s is None else seconds(run.step_s * least.share)
        hypothesis = (
            f"With all gone that is found ({least.named}) a step takes at best {at_best}{and_pauses}."
        )
        if least.finding is not None and least.finding.actions:
            change = least.finding.actions[0].text
    elif decision.decision == "tune" and material.case.unpriced is not None:
        named = _title(run, material.case.unpriced.finding)
        hypothesis, change = (
            f"Without what is found ({named}) steps are shorter; by how much was not measured.",
            first_change(material),
        )
    before_file, after_file = BEFORE, AFTER
    kept = f"; nobody records it: tuiadvisor record --for 60s -o {BEFORE} keeps it"
    if is_file:
        before_file, after_file, kept = shell_word(run.name), shell_word(_after(run)), ""
    return Loop(
        f"{run.name}: step {step}, {run.window}{kept}",
        hypothesis,
        change,
        (
            f"tuiadvisor record --for 60s -o {after_file}"
            + ("  # beside the next run" if is_file and run.is_imported else ""),
            f"tuiadvisor compare {before_file} {after_file} --fail-if-slower 5%",
            f"tuiadvisor advise {after_file}",
        ),
        _last_time(material, before),
    )


def _title(run: Facts, finding: str) -> str:
    """How people call a finding."""
    return next((one.title for one in run.findings if one.id == finding), finding.replace("_", " "))


def _after(run: Facts) -> str:
    """The next recording: beside this one, or here where this is a trace, which may lie where nobody writes."""
    path = PurePath(run.name)
    if run.is_imported and path.suffix != SUFFIX:
        return f"{path.name.partition('.')[0] or path.name}-after{SUFFIX}"
    return str(path.with_name(f"{path.stem}-after{path.suffix}"))


def _last_time(material: Material, before: tuple[Bottleneck, ...]) -> str:
    """What the session before this one predicted, held against this run."""
    if not before:
        return ""
    last = before[-1]
    if last.predicted_step_s is None or material.run.step_s is None or last.step_s is None:
        decided = "came to no decision" if last.decision == NONE_YET else f"decided {last.decision}"
        return f"The last session ({last.run}) {decided} and predicted no step time."
    foretold = " as predicted" if last.next_constraint == material.verdict.next_constraint else ""
    now = material.case.dominant or "nothing above info"
    return (
        f"The last session ({last.run}) measured {seconds(last.step_s)} and predicted {seconds(last.predicted_step_s)} "
        f"without {last.finding}; this run takes {seconds(material.run.step_s)}. The bottleneck is now {now}"
        f"{foretold}. Whether that is the change or noise: tuiadvisor compare {shell_word(last.run)} "
        f"{shell_word(material.run.name)}."
    )
