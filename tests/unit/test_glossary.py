"""The terms under `?` stand on their screen with this run's figures; the self-test asks only what the run answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len
from snapshot import desks, views
from thinned import thinned
from unit.test_tui_navigator import FakeShell
from unit.test_tui_pages import PAGES as KEYS
from unit.test_tui_pages import SIZES, STATES, screen

from tuiadvisor.text.glossary import TERMS, Shown, terms_of
from tuiadvisor.text.line import length
from tuiadvisor.text.selftest import questions
from tuiadvisor.tui.contract.desk import DeskState
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.control.navigator import Navigator
from tuiadvisor.tui.control.registry import PAGES
from tuiadvisor.views.efficiency import Efficiency
from tuiadvisor.views.run_view import RunView

OPENED = {
    **KEYS,
    "goodput": ("W",),
    "efficiency": ("F",),
    "kernels": ("K",),
    "job": ("J",),
    "scaling": ("6",),
    "advisor": ("5",),
}
WITH_TERMS = [page for page in PAGES if page.terms]
EFFICIENT = views.live(
    replace(
        views.straggler(), efficiency=Efficiency(mfu=0.31, hfu=0.41, peak_flops=1e14, ridge_flop_byte=295.0)
    )
)
SEEN = {
    **STATES,
    "from start": views.live(views.from_start()),
    "efficient": EFFICIENT,
    "traced": views.live(views.traced()),
}
BESIDE = desks.desk(
    scaling=desks.sized(), comparison=desks.comparison(), session=desks.guided_session(), job=views.job()
)
CARD = (("gain", "1.69x"), ("break-even", "after 1,200 steps"))


class Keyboard:
    """A navigator over the screens."""

    def __init__(self, state: FeedState, desk: DeskState = BESIDE) -> None:
        self.place = Navigator(FakeShell(), state, clock=lambda: 0.0)
        self.place.take_desk(desk)
        self.place.rows(80, 24)

    def press(self, *keys: str, height: int = 24) -> str:
        for key in keys:
            self.place.key(key, key if len(key) == 1 else None)
            self.place.rows(80, height)
        rows = self.place.rows(80, height)
        assert [] == [row.text for row in rows if length(row) > 80]
        return "\n".join(row.text for row in rows)


def test_every_screen_of_a_run_has_terms() -> None:
    """But for those that show nothing of the field: home, log, events, preferences and so on; letters have a legend."""
    without = {page.name for page in PAGES if not page.terms}
    nothing_of_the_field = {
        "home",
        "log",
        "help",
        "selftest",
        "palette",
        "preferences",
        "timeline",
        "events",
        "dialogue",
    }
    assert nothing_of_the_field == without, "declare the page's terms, or name it here"
    unopened = {page.name for page in WITH_TERMS} - OPENED.keys()
    assert set() == unopened, "say in OPENED by which keys the page opens"
    assert {term for page in PAGES for term in page.terms} == set(TERMS)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_TERMS, ids=lambda page: page.name)
def test_each_term_stands_on_its_screen(page: type) -> None:
    """As written, in some state of the run; nobody looks up a word that is not there."""
    shown = " ".join(
        " ".join(screen(state, 160, 50, OPENED[page.name], desk=BESIDE)).lower() for state in SEEN.values()
    )
    missing = [term.word for term in terms_of(page.terms) if term.word.lower() not in shown]
    assert missing == []


@pytest.mark.parametrize("name", TERMS)
def test_a_term_is_one_line_and_its_figure_is_known_somewhere_and_unknown_without_a_run(name: str) -> None:
    """Never a zero in the place of what was not seen."""
    term = TERMS[name]
    assert len(term.means) <= 76, "it must fit into one row of 80 columns"
    assert "unknown" == term.figure(Shown())
    figures = {
        term.figure(Shown(state.view, BESIDE.scaling, BESIDE.comparison, CARD))
        for state in SEEN.values()
        if state.view is not None
    }
    assert figures - {"unknown"}, "no state of the tests tells it"
    assert all(len(figure) <= 60 for figure in figures)


def test_nothing_is_made_up_of_a_run_of_which_nothing_is_known() -> None:
    """unknown, none or not yet, but no number."""
    view = views.unknown_everything()
    told = {name: term.figure(Shown(view)) for name, term in TERMS.items()}
    numbers = {name: text for name, text in told.items() if any(letter.isdigit() for letter in text)}
    assert numbers == {"evidence": numbers.get("evidence")} or numbers == {}


def test_the_help_shows_terms_with_the_figures_of_the_run() -> None:
    """On 80x24, by turning pages; with a title that names the self-test."""
    text = Keyboard(views.live(views.straggler())).press("2", "?", height=60)
    assert "terms on this screen" in text
    assert "rank 2: 11.7 ms" in text  # the mean over three ranks that wait 35.1 ms together
    assert "the mark of a victim" in text
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.press("?")
    seen = keyboard.press()
    for _ in range(60):
        seen += keyboard.press("down")
    for term in terms_of(("mean", "slowed", "goodput")):
        assert term.word in seen
        assert term.means in seen


def test_what_the_session_decided_stands_with_its_term() -> None:
    """Break-even is of the guided session's card."""
    text = Keyboard(views.live(views.straggler())).press("5", "?", height=60)
    assert BESIDE.session is not None
    figure = dict(BESIDE.session.card)["break-even"]
    rows = text.splitlines()
    (place,) = [at for at, row in enumerate(rows) if row.strip().startswith("break-even")]
    assert f"break-even {figure}" in " ".join(" ".join(rows[place : place + 3]).split())


def test_a_page_without_terms_has_no_empty_part() -> None:
    assert "terms on this screen" not in Keyboard(views.live(views.straggler())).press("L", "?", height=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", thinned(SIZES, [(60, 16), (80, 24), (160, 45)]), ids=lambda size: f"{size[0]}x{size[1]}"
)
@pytest.mark.parametrize("state", SEEN)
def test_the_self_test_fits_every_screen(state: str, size: tuple[int, int]) -> None:
    """Asked and answered."""
    assert "self-test" in " ".join(
        screen(SEEN[state], *size, ("T",))
    ).lower() or "Nothing to ask" in " ".join(screen(SEEN[state], *size, ("T",)))
    screen(SEEN[state], *size, ("T", "down", "enter", "right", "down", "enter"))


ALL_VIEWS: dict[str, RunView] = {name: state.view for name, state in SEEN.items() if state.view is not None}


@pytest.mark.parametrize("name", ALL_VIEWS)
def test_each_question_has_one_right_answer_among_different_ones(name: str) -> None:
    for question in questions(ALL_VIEWS[name]):
        assert question.right in question.choices
        assert len(question.choices) == len(set(question.choices)) >= 2
        assert "unknown" not in " ".join((question.ask, question.because, *question.choices))
        assert question.choices == tuple(sorted(question.choices)), "their order must not tell the right one"


def test_the_answers_are_those_of_the_run() -> None:
    """Straggler, largest part, the network's share, what comes next."""
    asked = {question.ask: question for question in questions(views.straggler())}
    assert "rank 2" == asked["Which rank holds the others up?"].right
    assert "backward" == asked["On what does a mean step spend most?"].right
    network = next(question for ask, question in asked.items() if "infinitely fast network" in ask)
    assert "900 µs" == network.right
    assert {"900 µs", "4.00 ms", "4.90 ms"} == set(network.choices)
    following = next(question for ask, question in asked.items() if "limits the step next" in ask)
    assert "exposed comm" == following.right
    piped = {question.ask: question for question in questions(views.pipeline())}
    assert "stage 2" == piped["Which stage should be split?"].right


def test_nothing_is_asked_of_a_run_of_which_nothing_is_known() -> None:
    assert () == questions(views.unknown_everything())
    assert "Nothing to ask yet" in Keyboard(views.live(views.unknown_everything())).press("T")
    assert "Nothing to ask yet" in Keyboard(views.looking()).press("T")


def test_a_test_is_taken_from_its_first_question_to_its_score() -> None:
    """The first answer counts; a wrong one is told what is right and why; T begins anew."""
    keyboard = Keyboard(views.live(views.straggler()))
    num = len(questions(views.straggler()))
    assert f"question 1 of {num} · 0 right of 0" in keyboard.press("T")
    wrong = keyboard.press("down", "enter")
    assert "✗ rank 0" in wrong
    assert "✓ rank 2" in wrong
    assert "No: rank 2." in wrong
    assert "0 right of 1" in keyboard.press("down", "down", "enter")
    for place, question in enumerate(questions(views.straggler())[1:], 2):
        assert f"question {place} of {num}" in keyboard.press("right")
        text = keyboard.press(*["down"] * question.choices.index(question.right), "enter")
        assert "Right." in text
    assert f"{num - 1} right of {num} answered; T begins anew" in text
    assert f"question {num} of {num}" in keyboard.press("right")
    assert f"question 1 of {num} · 0 right of 0" in keyboard.press("T")


def test_enter_answers_what_is_highlighted_from_the_first_on() -> None:
    """It did nothing and said nothing until down was pressed."""
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.press("T")
    text = keyboard.press("enter")
    assert "✗ none of them" in text
    assert "0 right of 1 answered" in text


def test_nobody_is_an_answer_and_the_right_one_where_nobody_was_named() -> None:
    """Which rank holds the others up? offered ranks alone, of a run whose verdict named none."""
    asked = {question.ask: question for question in questions(views.straggler())}
    assert {"none of them", "rank 0", "rank 1", "rank 2"} == set(
        asked["Which rank holds the others up?"].choices
    )
    calm = {question.ask: question for question in questions(views.healthy())}
    held = calm["Which rank holds the others up?"]
    assert "none of them" == held.right
    assert 3 == len(held.choices)


def test_a_run_that_goes_on_does_not_change_the_questions() -> None:
    """They are of the moment at which the test began."""
    keyboard = Keyboard(views.live(views.straggler()))
    before = keyboard.press("T")
    keyboard.place.take_state(views.live(views.healthy()))
    assert before.splitlines()[1:] == keyboard.press().splitlines()[1:]


@pytest.mark.parametrize("width", [60, 80, 110, 160])
def test_what_a_key_does_is_told_to_its_end(width: int) -> None:
    """Help and palette cut a sentence of each third key at 80 columns."""
    keyboard = Keyboard(views.live(views.straggler()))
    for key in ("?", ":"):
        keyboard.press("K", key)
        rows = [row.text for row in keyboard.place.page.lines(keyboard.place.state, width, 400)]
        text = " ".join(" ".join(rows).split())
        assert all(cell_len(row) <= width for row in rows)
        assert "communication beside compute: hidden, exposed, each collective" in text
        told = (
            rows if key == ":" else rows[: next(place for place, row in enumerate(rows) if "── terms" in row)]
        )
        assert not any(row.rstrip().endswith("…") for row in told)
        keyboard.press("escape")
