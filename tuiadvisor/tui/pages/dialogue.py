"""Dialogue: one question, what its answers would separate, the causes before and now, the ONE change, the decision.

In: the session of the desk.  Out: rows; answers go to the desk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from tuiadvisor.session.guided import SKIP
from tuiadvisor.session.question_ids import OTHER_SIZE
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, beside, crop, fit, indent, line, rule, wrap
from tuiadvisor.tui.contract.desk import Advise, Answer
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.details import bullet
from tuiadvisor.tui.pages.guidance import answer_hint, answer_text, changes, refusal_of, typed_answer
from tuiadvisor.views.stall import HANG

if TYPE_CHECKING:
    from tuiadvisor.session.dialogue import Cause, Dialogue
    from tuiadvisor.session.guided import Guided
    from tuiadvisor.session.stages import Asked
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place

MARGIN: Final = 1
WIDE: Final = 110  # columns from which the causes stand beside the question
WEIGHT_WIDTH: Final = 20
MAX_CAUSES: Final = 8
WEIGHTS: Final = "of 100, by loss explained and answers: where to look first, not a probability"
YES_AND_NO: Final = ("copy", "next_finding")
ANSWERING: Final = (*YES_AND_NO, "sort")
WORDS: Final = {"yes_no": ("yes", "no")}


def show_dialogue(place: Place) -> None:
    """The session on what is shown, question by question."""
    place.shell.ask(Advise())
    place.show("dialogue")


def say_word(place: Place, word: str) -> None:
    """Answer yes or no; the page takes these keys only where that is asked."""
    asked = place.at(DialoguePage).question()
    if asked is not None:
        place.shell.ask(Answer(asked.id, word))


def skip(place: Place) -> None:
    """Another question instead."""
    asked = place.at(DialoguePage).question()
    if asked is not None:
        place.shell.ask(Answer(asked.id, SKIP))


def other_size(place: Place) -> None:
    """Ask about another number of devices, whatever is asked now."""

    def keep(typed: str) -> None:
        if typed.strip():
            place.shell.ask(Answer(OTHER_SIZE, typed.strip()))

    place.ask_for(Prompt("devices", "how many you are considering, e.g. 64; esc stops", keep))


def answer(place: Place, word: str) -> None:
    """The chosen word, or ask for what has to be typed."""
    asked = place.at(DialoguePage).question()
    if asked is None:
        return
    if word:
        place.shell.ask(Answer(asked.id, word))
        return
    question = asked

    def keep(typed: str) -> None:
        if typed.strip():
            place.shell.ask(Answer(question.id, typed_answer(question, typed)))

    place.ask_for(Prompt("answer", f"{answer_hint(asked)}; esc stops", keep, refuses=refusal_of(asked)))


def take_back(place: Place, name: str) -> None:
    """The last answer, as if it had not been given."""
    place.shell.ask(Answer(name, ""))


class DialoguePage(Page):
    """One question at a time, over the run's evidence."""

    name = "dialogue"
    title = "Dialogue"
    about = (
        "One question at a time: the one that splits the causes best. A cause's weight is the loss that it would "
        "explain, doubled by each answer for it and halved by each against it, those of sampled stacks too: an order "
        "to look in, no measurement. "
        "It ends when no answer would change the decision, the ONE change or the first cause. "
        "Enter takes what is highlighted; on what you said, above the question, it takes that back. "
        "N asks whether another number of devices is worth it; 5 has all questions."
    )
    of_run = False
    about_run = True
    commands: ClassVar = (
        Command("dialogue", ("d",), "d", "Dialogue", "the guided session, one question at a time", "screens",
                show_dialogue),
    )  # fmt: skip
    keys = ("copy", "next_finding", "open", "sort", "previous_finding", "advisor", "help", "quit")
    labels: ClassVar = {
        "copy": "Yes",
        "next_finding": "No",
        "open": "Answer",
        "sort": "Skip",
        "previous_finding": "Other size",
    }
    abouts: ClassVar = {
        "copy": "answer yes",
        "next_finding": "answer no",
        "open": "give the chosen answer, or type it",
        "sort": "skip this question",
        "previous_finding": "is another number of devices worth it? type one",
    }
    does: ClassVar = {
        "copy": lambda place: say_word(place, "yes"),
        "next_finding": lambda place: say_word(place, "no"),
        "sort": skip,
        "previous_finding": other_size,
    }
    own = frozenset({"copy", "next_finding", "sort", "previous_finding"})
    opens: ClassVar = {"answer": answer, "back": take_back}

    def __init__(self) -> None:
        super().__init__()
        self._shown_id = ""  # the question that is read

    def question(self) -> Asked | None:
        """Return what is asked."""
        held = self.desk.session
        return held.dialogue.question if held is not None and held.dialogue is not None else None

    def refusal(self, command: Command, state: FeedState) -> str:
        """Keys that would answer nothing: where nothing is asked, or yes and no where something else is."""
        asked = self.question()
        if asked is None and command.name in ANSWERING:
            return "nothing is asked now"
        if asked is not None and command.name in YES_AND_NO and asked.kind != "yes_no":
            how = "up and down choose, enter answers" if asked.kind == "choice" else "enter, then type it"
            return f"this question is not answered by yes or no: {how}"
        return super().refusal(command, state)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002
        """Return question and causes, then the change and the decision."""
        held, room = self.desk.session, width - 2 * MARGIN
        found = held.dialogue if held is not None else None
        if found is None:
            self.targets = []
            said = self.desk.session_note or "The dialogue begins when the run has been read."
            return [indent(row, MARGIN) for row in (rule("dialogue", room), *map(line, wrap(said, room)))]
        asked_id = "" if found.question is None else found.question.id
        if asked_id != self._shown_id:  # it is read from its first word on
            self._shown_id, self.top = asked_id, 0
        foot = _foot(found, room)
        if width >= WIDE:
            left = room * 55 // 100
            body = beside(self._asked(found, left), left, _causes(found, room - left - 3), 3)
        else:
            body = [*self._asked(found, room), *_causes(found, room)]
        if held is not None and held.judged:
            foot += [line((text, "dim")) for text in wrap(f"judged: {held.judged}", room)]
        rows = [*body, BLANK, *foot]
        if held is not None and len(rows) < height:
            rows += _beside_it(held, room, width >= WIDE)
        return self.arranged([indent(crop(row, room), MARGIN) for row in rows], width, height)

    def _asked(self, found: Dialogue, width: int) -> list[Line]:
        number = text_of.count(found.num_answers, "answer") + " given"
        rows = [rule("dialogue", width, number)]
        if found.last:
            rows += [line((text, "dim")) for text in wrap(f"you said: {found.last}{_meant(found)}", width)]
            rows.append(line((fit("  take this answer back", width), "dim"), target=("back", found.last_id)))
        if _is_news(found):  # what was asked for is not looked for below the fold
            rows += bullet("other size:", found.wanted, width, "text")
        if found.looked:
            rows += [line((text, "dim")) for text in wrap(f"answered by its stacks: {found.looked}", width)]
        asked = found.question
        words = () if asked is None else WORDS.get(asked.kind, asked.choices) or ("",)
        if self.cursor not in {("back", found.last_id), *(("answer", word) for word in words)}:
            # What enter takes is highlighted from the first on.
            self.cursor = ("answer", words[0]) if words else None
        if asked is None:
            return [*rows, *(line((text, "strong")) for text in wrap(found.why_over, width))]
        rows += [line((text, "strong")) for text in wrap(asked.ask, width)]
        rows += [line((text, "accent")) for text in wrap(f"({found.why_asked})", width)]
        for word in words:
            shown = f"  {word}" if word else f"  enter, then {answer_hint(asked)}"
            rows.append(line((fit(shown, width), "text"), target=("answer", word)))
        return [*rows, *bullet("to find out:", asked.measure, width, "dim")]


def _meant(found: Dialogue) -> str:
    """What the answer means, where nothing on the screen moved by it."""
    moved = found.change_before or found.decision_before or any(_moved(one)[0] != " " for one in found.causes)
    return "" if moved or not found.meaning else f". {found.meaning}"


def _is_news(found: Dialogue) -> bool:
    """Whether the last answer changed what another number of devices would bring."""
    return found.wanted not in {"", found.wanted_before, found.why}


def _causes(found: Dialogue, width: int) -> list[Line]:
    if found.decision == HANG:
        return []  # why it stands is not among what its steps lost until then
    rows = [rule("causes by weight", width, "before → now")]
    rows += [line((text, "dim")) for text in wrap(WEIGHTS, width)]
    if not found.causes:
        return [*rows, line(("no finding whose cause is open", "dim"))]
    for cause in found.causes[:MAX_CAUSES]:
        before = "" if cause.before is None else f"{text_of.weight(cause.before)} → "
        glyph, role = _moved(cause)
        weight = fit(f"{before}{text_of.weight(cause.now)}", WEIGHT_WIDTH - 2, "right")
        rows.append(
            line((fit(cause.words, width - WEIGHT_WIDTH), "text"), (weight, "strong"), (f" {glyph}", role))
        )
    return rows


def _moved(cause: Cause) -> tuple[str, str]:
    if cause.before is None or text_of.weight(cause.before) == text_of.weight(cause.now):
        return " ", "dim"
    return ("▲", "bad") if cause.now > cause.before else ("▼", "good")


def _beside_it(held: Guided, width: int, is_wide: bool) -> list[Line]:
    """What the decision rests on, where there is room: what it costs and gains, what was stated, how to check it."""
    half = (width - 3) // 2 if is_wide else width
    price = [rule("what it is worth", half), *(row for pair in held.card for row in _named(*pair, half))]
    price += changes(held.would_change, half)
    price += [row for text in (held.verify,) if text for row in bullet("to verify:", text, half, "text")]
    stated = [rule("stated so far", half)]
    for stage in held.stages:
        for asked in stage.asked:
            if asked.answer is not None:
                stated += bullet(f"{answer_text(asked)}:", asked.ask, half, "dim")
    if len(stated) == 1:
        stated.append(line(("nothing yet: what the run shows stands alone", "dim")))
    if is_wide:
        return [BLANK, *beside(price, half, stated, 3)]
    return [BLANK, *price, BLANK, *stated]


def _named(name: str, text: str, width: int) -> list[Line]:
    lead = 12
    return [
        line((fit(name if place == 0 else "", lead), "dim"), (each, _role(text)))
        for place, each in enumerate(wrap(text, width - lead))
    ]


def _role(text: str) -> str:
    return "unknown" if text.startswith(text_of.UNKNOWN) else "text"


def _foot(found: Dialogue, width: int) -> list[Line]:
    """The ONE change, what it was, the decision, and what could still change it."""
    new = "ONE change now:" if found.change_before else "ONE change:"
    rows = [*bullet(new, found.change, width, "strong")]
    if found.change_before:
        rows += bullet("before:", found.change_before, width, "dim")
    was = f"{sections.DECISIONS[found.decision_before]} → " if found.decision_before else ""
    left = text_of.count(found.num_left, "more question")
    tail = f"{left} can still change it" if found.num_left else "no question left that could change it"
    badge = sections.badge(found.decision, is_open=found.is_open)
    rows.append(line((was, "dim"), badge, (f"  {tail}", "dim")))
    rows += [line((text, "text")) for text in wrap(found.why, width)]
    if found.wanted and found.wanted != found.why and not _is_news(found):
        rows += bullet("other size:", found.wanted, width, "text")
    return rows
