"""Advisor: the guided session. Six patterns at the left, evidence and questions in the middle, the decision beside.

Questions are asked only where the run's evidence does not answer them. Every answer is saved as it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.session.guided import SHORT
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, beside, crop, fit, indent, line, rule, wrap
from tuiadvisor.tui.contract.desk import Advise, Answer
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.details import bullet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.session.guided import Guided
    from tuiadvisor.session.stages import Asked, Stage
    from tuiadvisor.text.line import Target
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place

# The pattern at which a question in plain words stands.
WHY_OF = {
    "idle": "P1",
    "allreduce": "P1",
    "storage": "P1",
    "batch": "P2",
    "link": "P4",
    "devices": "P4",
}
MARGIN = 1
LEFT_WIDTH = 20
WHOLE = " … (d: all of it)"
BELOW = " … (PgDn: all of it)"
WIDE = 116  # columns from which the decision stands at the right
CARD_WIDTH = 40
CARD_ROWS = 7  # at most, in one column: two of the reason, what it is worth below
MOST_ROWS = 200  # of a decision with all that belongs to it
GAP = 2
LEAST_BESIDE_LABEL = 50  # columns: in fewer a label of 17 leaves words too little


def show_advisor(place: Place) -> None:
    """The guided session on what is shown."""
    place.shell.ask(Advise())
    place.show("advisor")


def ask_question(place: Place) -> None:
    """Ask for the answer to the question the session points at."""
    asked = place.at(Guidance).question()
    if asked is not None:
        typed = "" if asked.answer is None else str(asked.answer)
        empty = "empty skips it" if asked.answer is None else "empty takes it back"
        hint = f"{answer_hint(asked)}; {empty}, esc stops"
        place.ask_for(
            Prompt("answer", hint, lambda text: send_answer(place, text), typed, refuses=refusal_of(asked))
        )


def send_answer(place: Place, typed: str) -> None:
    """Send what was typed and ask the next open question of this pattern."""
    page = place.at(Guidance)
    asked = page.question()
    if asked is None:
        return
    if typed.strip() or asked.answer is not None:
        place.shell.ask(Answer(asked.id, typed_answer(asked, typed)))
    if page.advance():
        ask_question(place)
    else:
        place.say("that was the last open question of this pattern: right goes on to the next")


class Guidance(Page):
    """The fifth screen."""

    name = "advisor"
    title = "Advisor"
    about = (
        "Six patterns, each with what was measured and what only you know. Answers are stated, never measured; "
        "they can forbid, price or end something. left and right change the pattern, up and down the question."
    )
    is_screen = True
    commands: ClassVar = (
        Command(
            "advisor",
            ("5",),
            "5",
            "Advisor",
            "the guided session: six patterns, one decision",
            "screens",
            show_advisor,
        ),
    )
    of_run = False
    about_run = True
    terms = ("gain", "break_even", "pattern")
    keys = ("open", "dialogue", "next_rank", "previous_rank", "help", "up", "down", "quit")
    labels: ClassVar = {"open": "Answer", "next_rank": "Next pattern", "previous_rank": "Pattern before"}
    abouts: ClassVar = {
        "open": "answer the question the cursor stands on",
        "next_rank": "the pattern after this one",
        "previous_rank": "the pattern before this one",
    }
    does: ClassVar = {
        "next_rank": lambda place: place.at(Guidance).side(1),
        "previous_rank": lambda place: place.at(Guidance).side(-1),
    }
    opens: ClassVar = {
        "question": lambda place, _: ask_question(place),
        "pattern": lambda place, pattern: place.at(Guidance).show_pattern(pattern),
    }

    def __init__(self) -> None:
        super().__init__()
        self.pattern = "P1"

    def side(self, by: int) -> None:
        """Go to the next or former pattern."""
        names = list(SHORT)
        self.show_pattern(names[min(max(names.index(self.pattern) + by, 0), len(names) - 1)])

    def show_pattern(self, pattern: str) -> None:
        """Go to a pattern, to its first question."""
        self.pattern = pattern
        self.cursor = None
        self.top = 0

    def opened(self) -> Target | None:
        """The question under the cursor; without one the first that is open comes into view."""
        if super().opened() is None:
            self.cursor = None
            self.advance()
        return super().opened()

    def question(self) -> Asked | None:
        """Return the question under the cursor."""
        stage = self._stage()
        wanted = self.cursor[1] if self.cursor else ""
        return next((asked for asked in stage.asked if asked.id == wanted), None) if stage else None

    def advance(self) -> bool:
        """On to the next open question of this pattern; returns whether there is one."""
        stage = self._stage()
        asked = list(stage.asked) if stage else []
        here = next((n for n, one in enumerate(asked) if self.cursor == ("question", one.id)), -1)
        following = next((one for one in asked[here + 1 :] if one.answer is None), None)
        if following is None and here < 0 and asked:
            following = asked[0]
        if following is not None:
            self.cursor, self.follows = ("question", following.id), True
        return following is not None

    def _stage(self) -> Stage | None:
        held = self.desk.session
        return next((stage for stage in held.stages if stage.pattern == self.pattern), None) if held else None

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - its own run's evidence
        """Return the session, or what is being read for it."""
        held, room = self.desk.session, width - 2 * MARGIN
        stage = self._stage()
        if held is None or stage is None:
            self.targets = []
            said = self.desk.session_note or "The session begins when the run has been read."
            return [indent(row, MARGIN) for row in (rule("advisor", room), *map(line, wrap(said, room)))]
        wide = width >= WIDE
        card_rows = 0 if wide else min(CARD_ROWS, 3 + len(_facts(held, room)), max(height - 10, 3))
        middle_width = room - LEFT_WIDTH - GAP - (CARD_WIDTH + GAP + 1 if wide else 0)
        middle_height = height - card_rows
        head = [rule(f"{stage.pattern} {stage.title}", middle_width)]
        told = self._middle(stage, middle_width)
        if not wide:  # the card has the least of it
            told += [BLANK, *_card(held, middle_width, MOST_ROWS, room_for_all=True)]
        middle = self.arranged(told, middle_width, middle_height - 1)
        rows = beside(self._left(held), LEFT_WIDTH, [*head, *middle], GAP)
        rows = rows[:middle_height] + [BLANK] * (middle_height - len(rows))
        if wide:
            full = LEFT_WIDTH + GAP + middle_width
            rows = beside(rows, full, _card(held, CARD_WIDTH, height, room_for_all=True), GAP + 1)
        else:
            rows += _card(held, room, card_rows, room_for_all=False)
        return [indent(crop(row, room), MARGIN) for row in rows[:height]]

    def _left(self, held: Guided) -> list[Line]:
        rows = [rule("patterns", LEFT_WIDTH)]
        for stage in held.stages:
            here = stage.pattern == self.pattern
            answered = len([asked for asked in stage.asked if asked.answer is not None])
            count = f"{answered}/{len(stage.asked)}" if stage.asked else text_of.TO
            role = "strong" if here else "text"
            done = stage.asked and answered == len(stage.asked)
            rows.append(
                line(
                    ("▶" if here else " ", "accent"),
                    (fit(f"{stage.pattern[1:]} {SHORT[stage.pattern]}", LEFT_WIDTH - 6), role),
                    (fit(count, 5, "right"), "good" if done else "dim"),
                    target=("pattern", stage.pattern),
                )
            )
        rows += [BLANK, *(line((text, "dim")) for text in wrap(held.saved, LEFT_WIDTH))]
        return rows

    def _middle(self, stage: Stage, width: int) -> list[Line]:
        rows = [*(line((text, "accent")) for text in wrap(stage.question, width)), BLANK]
        if stage.evidence:
            of = (
                f"judged: {self.desk.session.judged}; "
                if self.desk.session and self.desk.session.judged
                else ""
            )
            rows += [
                line((text, "dim")) for text in wrap(f"{of}measured in {stage.evidence[0].window}", width)
            ]
        for item in stage.evidence:
            if item.text is None:
                rows += bullet("?", f"{item.name}: unknown; measure: {item.measure}", width, "unknown")
            else:
                rows += bullet("·", f"{item.name}: {item.text}", width)
        if stage.asked:
            rows.append(BLANK)
        for asked in stage.asked:
            rows += self._question(asked, width)
        rows += [BLANK, *bullet("→", stage.conclusion, width, "strong")]
        return [*rows, *self._plainly(stage.pattern, width)]

    def _plainly(self, pattern: str, width: int) -> list[Line]:
        """Questions of this pattern in plain words, what the run says to them, and what it leaves open."""
        held = self.desk.session
        rows: list[Line] = []
        for one in held.whys if held is not None else ():
            if pattern != WHY_OF.get(one.name):
                continue
            rows += [BLANK, *(line((text, "accent")) for text in wrap(one.question, width))]
            rows += [line(text) for text in wrap(one.answer, width)]
            rows += bullet("open:", one.unknown, width, "dim") if one.unknown else []
        return [BLANK, rule("in plain words", width), *rows] if rows else []

    def _question(self, asked: Asked, width: int) -> list[Line]:
        target = ("question", asked.id)
        mark = "○" if asked.answer is None else "●"
        texts = bullet(mark, asked.ask, width, "text" if asked.answer is None else "dim")
        rows = [*texts]
        if asked.answer is not None:
            rows.append(line(("  ", "dim"), (answer_text(asked), "good"), ("  (stated)", "dim")))
        if self.cursor == target:
            if asked.meaning:
                rows += [indent(line((text, "text")), 2) for text in wrap(asked.meaning, width - 2)]
            rows.append(line(("  enter answers: ", "accent"), (answer_hint(asked), "text")))
            rows += [indent(row, 2) for row in bullet("or measure:", asked.measure, width - 2, "dim")]
        return [Line(row.spans, target) for row in rows]


def _card(held: Guided, width: int, height: int, *, room_for_all: bool) -> list[Line]:
    """Return the decision with what belongs to it."""
    badge, role = sections.badge(held.decision, is_open=held.is_open)
    first, *more = wrap(held.why, width - len(badge) - 1) or [""]
    rows = [
        rule("decision", width),
        line((badge, role), " ", (first, "strong")),
    ]
    if room_for_all:
        rows = [rule("decision", width), line((badge, role))]
        rows += [line((text, "strong")) for text in wrap(held.why, width)]
        for name, text in held.card:
            rows += _named(name, text, width)
        rows += changes(held.would_change, width)
        rows += bullet("verify:", held.verify, width) if held.verify else []
        rows += [BLANK, rule("loop", width)]
        for name, text in held.loop:
            rows += _named(name, text, width)
        return rows[:height]
    facts = _facts(held, width)
    room = max(height - len(rows) - len(facts), 1)
    if len(more) > room:  # the dialogue has the sentence whole
        left = max(width - len(badge) - 1 - len(WHOLE), 1)
        more = [*more[: room - 1], (wrap(more[room - 1], left) or [""])[0].rstrip(" ,;") + WHOLE]
    rows += [indent(line((text, "strong")), len(badge) + 1) for text in more]
    if len(rows) + len(facts) > height > len(rows):
        facts = facts[: height - len(rows)]
        facts[-1] = (wrap(facts[-1], width - len(BELOW)) or [""])[0].rstrip(" ,;·") + BELOW
    rows += [line((text, "dim")) for text in facts]
    return [*rows[:height], *[BLANK] * (height - len(rows))]


def _facts(held: Guided, width: int) -> list[str]:
    """What the decision is worth, as a paragraph."""
    return wrap(" · ".join(f"{name} {text}" for name, text in held.card), width)


def _named(name: str, text: str, width: int) -> list[Line]:
    lead = 11
    texts = wrap(text, width - lead)
    return [
        line((fit(name if place == 0 else "", lead), "dim"), _fact(each) if place == 0 else each)
        for place, each in enumerate(texts)
    ]


def _fact(text: str) -> tuple[str, str]:
    return (text, "unknown" if text.startswith(text_of.UNKNOWN) else "text")


def answer_text(asked: Asked) -> str:
    """Return an answer as it was stated."""
    if isinstance(asked.answer, float | int):
        return f"{asked.answer:,.12g} {asked.unit}".strip()
    return str(asked.answer)


def changes(would_change: Sequence[str], width: int) -> list[Line]:
    """Return what would change the decision, the label once; above the words where beside it they had a thin column."""
    label = "would change it:"
    if would_change and width < LEAST_BESIDE_LABEL:
        return [
            line((label, "accent")),
            *(row for text in would_change for row in bullet("-", text, width, "dim")),
        ]
    marks = [label, *["or:"] * (len(would_change) - 1)]
    pairs = zip(marks, would_change, strict=False)  # nothing would change it: no rows
    return [row for mark, text in pairs for row in bullet(mark, text, width, "dim")]


def answer_hint(asked: Asked) -> str:
    """Return what may be typed."""
    if asked.kind == "yes_no":
        return "y or n"
    if asked.kind == "choice":
        return "  ".join(f"{number} {choice}" for number, choice in enumerate(asked.choices, 1))
    return asked.unit or "a line of text"


def typed_answer(asked: Asked, typed: str) -> str:
    """Return what was meant: the number of a choice stands for it."""
    text = typed.strip()
    if asked.kind == "choice" and text.isdecimal() and text not in asked.choices:
        place = int(text)
        return asked.choices[place - 1] if 1 <= place <= len(asked.choices) else text
    return text


def refusal_of(asked: Asked) -> Callable[[str], str]:
    """Why what was typed is no answer to this question: it stays on the screen to be mended; nothing typed skips."""
    return lambda typed: asked.refusal(typed_answer(asked, typed)) if typed.strip() else ""
