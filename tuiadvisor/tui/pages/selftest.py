"""Self-test: a few questions on the run that is shown; its own figures are the answers.

In: FeedState as it was when the test began.  Out: lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text.line import BLANK, Line, indent, line, rule, wrap
from tuiadvisor.text.selftest import questions
from tuiadvisor.tui.contract.page import Command, Page

if TYPE_CHECKING:
    from tuiadvisor.text.selftest import Question
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place

NOTHING = "Nothing to ask yet: the questions are made of figures of the run, and none is known so far."


def show_selftest(place: Place) -> None:
    """Begin a new test on what is shown now."""
    page = place.at(SelfTestPage)
    page.begin(place.state)
    place.show_detail(page)


class SelfTestPage(Page):
    """One question at a time."""

    name = "selftest"
    title = "Self-test"
    about = (
        "Questions whose answers are figures of this run, as it was when the test began. enter answers, right and "
        "left go to the next question and back."
    )
    commands: ClassVar = (
        Command(
            "selftest",
            ("T",),
            "T",
            "Self-test",
            "a few questions on this run, answered by its own figures",
            "help",
            show_selftest,
        ),
    )
    of_run = False  # as it was at the begin; and ribbon and banner would tell what is asked
    tells_findings = False
    keys = ("open", "up", "down", "next_rank", "previous_rank", "back", "help", "quit")
    labels: ClassVar = {"open": "Answer", "next_rank": "Next", "previous_rank": "Before"}
    abouts: ClassVar = {
        "open": "answer with the choice the cursor stands on",
        "next_rank": "the next question",
        "previous_rank": "the question before",
    }
    does: ClassVar = {
        "next_rank": lambda place: place.at(SelfTestPage).go(1),
        "previous_rank": lambda place: place.at(SelfTestPage).go(-1),
    }
    opens: ClassVar = {"choice": lambda place, choice: place.at(SelfTestPage).answer(choice)}

    def __init__(self) -> None:
        super().__init__()
        self.asked: tuple[Question, ...] = ()
        self.answers: dict[int, str] = {}
        self.place = 0

    def begin(self, state: FeedState) -> None:
        """Questions on what is shown now; a run that goes on does not change them under the user's hand."""
        self.asked = questions(state.view) if state.view is not None else ()
        self.answers, self.place, self.cursor = {}, 0, None

    def go(self, by: int) -> None:
        """To another question."""
        self.place = min(max(self.place + by, 0), max(len(self.asked) - 1, 0))
        self.cursor, self.top = None, 0

    def answer(self, choice: str) -> None:
        """The first answer counts."""
        if self.place < len(self.asked):
            self.answers.setdefault(self.place, choice)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - as it was at the begin
        """Return the question, its choices and, once it is answered, why."""
        room = width - 2
        rows = self._rows(room) if self.asked else [line((text, "dim")) for text in wrap(NOTHING, room)]
        return self.arranged([indent(each, 1) if each.spans else each for each in rows], width, height)

    def _rows(self, room: int) -> list[Line]:
        question, given = self.asked[self.place], self.answers.get(self.place)
        if self.cursor is None:  # what enter answers is highlighted from the first on
            self.cursor = ("choice", question.choices[0])
        head = rule("self-test", room, f"question {self.place + 1} of {len(self.asked)} · {self._score()}")
        rows = [head, BLANK, *(line((text, "strong")) for text in wrap(question.ask, room)), BLANK]
        for choice in question.choices:
            mark, role = " ", "text"
            if given is not None and choice == question.right:
                mark, role = "✓", "good"
            elif choice == given:
                mark, role = "✗", "bad"
            rows.append(line((f" {mark} ", role), (choice, role), target=("choice", choice)))
        if given is not None:
            words = "Right." if given == question.right else f"No: {question.right}."
            rows += [BLANK, *(line((text, "text")) for text in wrap(f"{words} {question.because}", room))]
        if len(self.answers) == len(self.asked):
            rows += [BLANK, line((f"{self._score()}; T begins anew", "accent"))]
        return rows

    def _score(self) -> str:
        num_right = sum(self.asked[place].right == choice for place, choice in self.answers.items())
        return f"{num_right} right of {len(self.answers)} answered"
