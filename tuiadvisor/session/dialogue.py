"""One question at a time: the one that splits the remaining causes best, until no answer would change anything.

In: a way to gather a session anew with other answers.  Out: Dialogue. A question is asked only if two of its answers
lead to another decision, another ONE change or another first cause, now or together with one more answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.decide import decide
from tuiadvisor.session.material import ANSWERS_OF_INTENT, OTHER_REMAINS
from tuiadvisor.session.measured import measured_answers, with_measured, without_look
from tuiadvisor.session.other_size import size_words, wanted_outcome
from tuiadvisor.session.question_ids import OTHER_SIZE
from tuiadvisor.session.relevance import choices
from tuiadvisor.session.stages import Asked, asked_of
from tuiadvisor.session.suspects import weights
from tuiadvisor.shellword import shell_word
from tuiadvisor.views.stall import HANG

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tuiadvisor.session.case import Kind
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.material import Material
    from tuiadvisor.session.relevance import Answers, Gather
    from tuiadvisor_rules.questions import Question

MAX_ANSWERS: Final = 7
OTHER_WORDS: Final = frozenset({"purpose"})  # for the objective, which is asked itself
OF_PIPELINES: Final = frozenset({"uneven-stages", "pipeline-bubble"})
# In the order in which whoever asks for another size is asked.
OF_SIZES: Final = ("objective", "remaining_steps", "time_worth", "price", "restart_min", "fixed_or_growing")
OF_THE_REST: Final = frozenset({"run_worth_finishing", "restart_min", "restarts_per_day", "checkpoint_every"})
# Numbers to try: small and large enough that whatever could depend on them does. Nothing is concluded from them.
NUMBERS: Final[dict[str, tuple[float, ...]]] = {
    "remaining_steps": (1e3, 1e8),
    "effort_hours": (0.1, 1000.0),
    "price": (0.01, 1000.0),
    "engineer_price": (0.01, 1000.0),
    "restart_min": (0.0, 1e4),
    "time_worth": (0.01, 1e6),
    OTHER_SIZE: (2.0, 16.0, 128.0),
}
# As if answered, where they can be asked: a question may be the first of two that change something.
WORLDS: Final[tuple[dict[str, str | float], ...]] = (
    {},
    {"effort_hours": 40.0, "price": 2.0},
    {"effort_hours": 40.0, "price": 2.0, "remaining_steps": 1e6},
    {"remaining_steps": 1e6, "objective": "time", "price": 2.0},
    {"remaining_steps": 1e6, "objective": "cost", "price": 2.0},
    {"remaining_steps": 1e6, "objective": "time", "time_worth": 10.0},
)


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the list."""

    words: str
    before: float | None  # its share of all weight before the last answer; None: there was none
    now: float


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One moment: what is asked, what the last answer moved, what stands now."""

    question: Asked | None  # None: nothing more would change anything
    why_asked: str  # what its answers would separate
    why_over: str  # why nothing is asked any more
    causes: tuple[Cause, ...]  # heaviest first
    change: str
    change_before: str  # "" where the last answer left it as it was
    decision: Kind
    decision_before: Kind | None  # None where the last answer left it as it was
    why: str
    last: str  # "question: answer"
    num_answers: int
    num_left: int  # questions that could still change it
    wanted: str = ""  # what another number of devices would bring, where one was named
    wanted_before: str = ""  # before the last answer
    is_open: bool = False  # nothing is decided yet
    last_id: str = ""  # the question that `last` answers
    looked: str = ""  # what sampled stacks have answered
    meaning: str = ""  # of the last answer; "" where it only counts for causes


def dialogue(
    questions: tuple[Question, ...],
    intent: Intent,
    answers: Answers,
    gather: Gather,
    *,
    last: str = "",
    skipped: Collection[str] = (),
    recording: str = "",
) -> Dialogue:
    """answers: those given so far; last: the question that was answered last; skipped: not to be asked again.

    recording: the file that commands may name.
    """
    material = gather(intent, answers)
    decision = decide(material.case)
    kind, change = _stands(material)
    former = {name: value for name, value in answers.items() if name != last}
    was = gather(intent, former) if last in answers else None
    kind_before, change_before = (kind, change) if was is None else _stands(was)
    open_ones = _open(questions, material, answers, skipped)
    worth = [one for one in open_ones if _moves(one, intent, answers, gather, open_ones)]
    left_out: list[Question] = []
    if skipped and not worth:
        every = _open(questions, material, answers, ())
        left_out = [one for one in every if one.id in skipped and _moves(one, intent, answers, gather, every)]
    why_over = _why_over(material, worth, len(answers), len(left_out))
    chosen = None if why_over else max(worth, key=lambda one: _split(one, intent, answers, gather))
    return Dialogue(
        question=None if chosen is None else _asked(chosen, material, recording),
        why_asked="" if chosen is None else _separates(chosen, intent, answers, gather),
        why_over=why_over,
        causes=_causes(material, was, is_first=not last),
        change=change,
        change_before=change_before if change_before != change else "",
        decision=kind,
        decision_before=kind_before if kind_before != kind else None,
        why=decision.why,
        is_open=decision.is_open,
        looked=material.run.look.words if material.run.look is not None else "",
        last=_last(questions, answers, last),
        last_id=last if last in answers else "",
        meaning=_meaning(questions, answers, last),
        num_answers=len(answers),
        num_left=len(left_out) if why_over and len(answers) < MAX_ANSWERS else len(worth),
        wanted=size_words(material.case),
        wanted_before=size_words((was or material).case),
    )


def _asked(question: Question, material: Material, recording: str) -> Asked:
    """The question, with recording and late rank in the command that finds the answer out."""
    asked = asked_of(question, None, is_over=material.run.has_ended, currency=material.intent.currency)
    if recording:
        asked = replace(asked, measure=re.sub(r"\bRUN\b", lambda _: shell_word(recording), asked.measure))
    late = next((one.ranks[0] for one in material.run.findings if one.ranks), None)
    if late is None:
        return asked
    return replace(asked, measure=re.sub(r"\bRANK\b", str(late), asked.measure))


def _stands(material: Material) -> tuple[Kind, str]:
    """The decision, and the ONE change that follows."""
    decision = decide(material.case)
    if _hangs(material) or decision.decision == "tune":
        return decision.decision, first_change(material)
    if not material.case.enough:
        return decision.decision, "none before more steps were recorded"
    if decision.decision == "rescale":
        return "rescale", f"Go on with {decision.num_devices} devices; change nothing else."
    return decision.decision, _change_of_size(material) or "none"


def _change_of_size(material: Material) -> str:
    """What to do about the size that was asked for, where the decision is to keep the present one."""
    found, held = material.case.wanted, wanted_outcome(material.case)
    if found is None or not held:
        return ""
    if held == "never":
        return f"none: stay at {found.now} devices"
    return (
        f"Record a minute of this training at {found.devices} devices, then give both recordings to tuiadvisor advise: "
        "only a measured size decides."
    )


def first_change(material: Material) -> str:
    """What lets a job that hangs go on, else what is to be done first about the dominant finding."""
    hangs = [one for one in material.levers if one.finding.id == HANG]
    first = hangs or [one for one in material.levers if one.finding.id == material.case.dominant]
    if not first:
        return "open: what was found has no change that is known"
    action = first[0].action
    return action.text + (f" ({action.command})" if action.command else "")


def _weights(material: Material) -> dict[str, float]:
    return weights(material.run, with_measured(material.run, material.answers))


def _open(
    questions: tuple[Question, ...], material: Material, answers: Answers, skipped: Collection[str]
) -> list[Question]:
    """What may be asked of this run: nothing that was seen, stated or answered, nothing of what it does not have."""
    seen, run = measured_answers(material.run), material.run
    states_rest = any(getattr(material.intent, name) is not None for name in OTHER_REMAINS)
    stated = {"remaining_steps"} if states_rest else set()
    over = OF_THE_REST if run.is_over else frozenset()
    return [
        one
        for one in questions
        if one.id not in {*answers, *skipped, *seen, *stated, *over, *OTHER_WORDS}
        and one.kind != "text"
        and one.concerns(material.values)
        and ((run.num_stages or 0) > 1 or not OF_PIPELINES & {*one.covers})
        and not _is_stated(one, material.intent)
    ]


def _is_stated(question: Question, intent: Intent) -> bool:
    return getattr(intent, ANSWERS_OF_INTENT.get(question.id, ""), None) is not None


def tried(question: Question) -> tuple[str | float, ...]:
    """Answers to try."""
    return NUMBERS.get(question.id) or choices(question)


def _key(material: Material) -> tuple[object, ...]:
    """What a dialogue is about: decision, size, ONE change, first cause."""
    return (
        *_stands(material),
        decide(material.case).num_devices,
        next(iter(_weights(material)), ""),
        wanted_outcome(material.case),
    )


def _moves(
    question: Question, intent: Intent, answers: Answers, gather: Gather, open_ones: list[Question]
) -> bool:
    askable = {one.id for one in open_ones} - {question.id}
    worlds = [{name: value for name, value in world.items() if name in askable} for world in WORLDS]
    # A number that is not stated may stand for none that could be: any of them may change what stands without it.
    trials: list[Answers] = [{question.id: answer} for answer in tried(question)]
    trials += [{}] if question.id in NUMBERS else []
    return any(
        len({_key(gather(intent, {**world, **answers, **trial})) for trial in trials}) > 1
        for number, world in enumerate(worlds)
        if world not in worlds[:number]
    )


def _split(
    question: Question, intent: Intent, answers: Answers, gather: Gather
) -> tuple[int, float, bool, str]:
    """How much its answer would tell of the causes, in bits, and whether it changes the decision at once.

    Who asks for another size is asked about that first.
    """
    found = [gather(intent, {**answers, question.id: answer}) for answer in tried(question)]
    decides = len({_stands(one)[0] for one in found}) > 1
    here = gather(intent, answers)
    is_about_size = bool(wanted_outcome(here.case)) and question.id in OF_SIZES
    of_size = len(OF_SIZES) - OF_SIZES.index(question.id) if is_about_size else 0
    return of_size, round(_told([_weights(one) for one in found]), 6), decides, question.id


def _told(after: list[dict[str, float]]) -> float:
    """Bits that answers, each as likely, tell of the causes.

    Never below 0, and 0 only where no answer moves a cause: one that speaks against what leads adds doubt, and is asked
    before what tells nothing of causes.
    """
    mean: dict[str, float] = {}
    for shares in after:
        for words, share in shares.items():
            mean[words] = mean.get(words, 0.0) + share / len(after)
    return _entropy(mean) - sum(map(_entropy, after)) / max(len(after), 1)


def _entropy(shares: Mapping[str, float]) -> float:
    return -sum(share * log2(share) for share in shares.values() if share > 0)


def _separates(question: Question, intent: Intent, answers: Answers, gather: Gather) -> str:
    """What its answers would tell apart, in words."""
    found = [gather(intent, {**answers, question.id: answer}) for answer in tried(question)]
    first = list(dict.fromkeys(next(iter(_weights(one)), "") for one in found))
    if len(first) > 1:
        return f"it would separate “{first[0]}” from “{first[1]}”"
    kinds = list(dict.fromkeys(_stands(one)[0] for one in found))
    if len(kinds) > 1:
        return f"it decides between {kinds[0]} and {kinds[1]}"
    if OTHER_SIZE in answers and len({wanted_outcome(one.case) for one in found}) > 1:
        return f"it decides whether {answers[OTHER_SIZE]:g} devices pay"
    if len({_stands(one)[1] for one in found}) > 1:
        return "it decides which change comes first"
    return "together with one more answer it may change the decision"


def _why_over(material: Material, worth: list[Question], num_answers: int, num_skipped: int) -> str:
    if _hangs(material):
        over = material.run.is_over or material.run.is_imported
        return (
            "The job hung: nothing else can be decided of it."
            if over
            else "The job hangs: nothing else can be decided until it moves again."
        )
    if material.case.result_as_good_now:
        return "The result is as good if the run ends today: nothing is left to change."
    if not material.run.enough:
        return f"Too few steps were seen for a decision; no answer replaces them. {material.verdict.sentence}".strip()
    if num_answers >= MAX_ANSWERS:
        return f"{num_answers} answers were given: measure now; what is left to ask is on screen 5."
    if num_skipped:
        questions = "question that was" if num_skipped == 1 else "questions that were"
        return f"Nothing new is left to ask; {num_skipped} {questions} skipped could still change it: screen 5 has all."
    return "" if worth else "No further answer would change the decision, the change or the first cause."


def _hangs(material: Material) -> bool:
    return any(one.id == HANG for one in material.run.findings)


def _causes(material: Material, was: Material | None, *, is_first: bool) -> tuple[Cause, ...]:
    """Before the last answer; where nothing was asked yet, before the stacks of a rank were looked at.

    None of a job that hangs: what its steps lost until then is not why it stands. A question that was skipped moves
    nothing: what the stacks moved before it is not shown as its doing.
    """
    if _hangs(material):
        return ()
    if was is None and is_first and material.run.look is not None:
        was = replace(material, run=without_look(material.run))
    now, before = _weights(material), {} if was is None else _weights(was)
    return tuple(Cause(words, before.get(words), share) for words, share in now.items())


def _meaning(questions: tuple[Question, ...], answers: Answers, last: str) -> str:
    asked = next((one for one in questions if one.id == last), None)
    if asked is None or last not in answers:
        return ""
    return asked_of(asked, answers[last], is_over=False).meaning


def _last(questions: tuple[Question, ...], answers: Answers, last: str) -> str:
    asked = next((one.ask for one in questions if one.id == last), "")
    if last not in answers:
        return ""
    given = answers[last]
    return f"{asked} {given if isinstance(given, str) else f'{given:,.10g}'}"
