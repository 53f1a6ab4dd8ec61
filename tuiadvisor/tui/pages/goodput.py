"""Goodput: where the wall time went, from the start of the process to the last step seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text import goodput as words
from tuiadvisor.text.line import BLANK, Line, indent, line, rule, wrap
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.draw import waterfall
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.details import bullet
from tuiadvisor.tui.pages.waiting import waiting
from tuiadvisor.views.goodput import kind_words
from tuiadvisor.views.lost_by import by_layer

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.run_view import RunView

MARGIN = 1
MOST_PHASES = 5  # rows of them


class GoodputPage(Page):
    """The waterfall of the wall time."""

    tells_losses = True
    name = "goodput"
    title = "Goodput"
    about = (
        "Useful steps as a share of the wall time since the process started. A row a part: start-up, warm-up, what "
        "each step loses, pauses, restarts. What nobody saw is neither useful nor lost. Session, report and "
        "comparison use the same figure."
    )
    is_screen = True
    commands: ClassVar = (
        opening("goodput", "W", "Goodput", "the wall time as a waterfall: useful, lost, not known"),
    )
    terms = ("goodput", "useful", "startup", "warmup")
    keys = ("overview", "advisor", "help", "pause", "quit")

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return figure, waterfall and notes."""
        if state.view is None:
            self.targets = []
            return waiting(state, width, height)
        room = width - 2 * MARGIN
        wall = state.view.wall
        why = words.NO_STEPS if state.view.last_step is None else words.EARLIER
        unknown = [line((row, "dim")) for row in wrap(f"goodput unknown: {why}", room)]
        rows = goodput_lines(wall, room) if wall else [*unknown, *steady_lines(state.view, room)]
        late = words.late_words(state.view) if wall else ""
        rows += bullet("·", late, room) if late else []
        rows += layer_lines(state.view, room)
        return self.arranged([indent(each, MARGIN) if each.spans else each for each in rows], width, height)


def steady_lines(view: RunView, width: int) -> list[Line]:
    """Return what is known without the wall time: the goodput of steady steps, where one goes, what it loses."""
    if view.useful_share is None or view.last_step is None:
        return []
    rows = [BLANK, rule("what is known at this moment", width, *sections.windows(view))]
    useful = f"{words.name_of(view)} {text_of.share(view.useful_share)}: pauses, start-up and restarts aside"
    rows += [line((text, "strong")) for text in wrap(useful, width)]
    rows += [*sections.step_figures(view, width), *sections.phases(view, width, MOST_PHASES)]
    lost = [
        f"{text_of.seconds(each.loss_s_per_step)} a step: {each.title}"
        for each in view.findings
        if each.loss_s_per_step
    ]
    unpriced = [each.title for each in view.findings if each.severity != "info" and not each.loss_s_per_step]
    if lost or unpriced:
        rows += [BLANK, rule("what a step loses to", width)]
    for text in (*lost, *(f"in no seconds of its own: {title}" for title in unpriced)):
        rows += bullet("▪", text, width)
    return rows


def layer_lines(view: RunView, width: int) -> list[Line]:
    """Return what each layer of the stack takes of the wall time, a row each."""
    told = by_layer(view)
    if not told:
        return []
    rows = [BLANK, rule("the lost time by layer", width)]
    for row in told:
        kinds = ", ".join(kind_words(kind) for kind in row.kinds)
        text = f"{text_of.share(row.share)} {row.name} ({text_of.seconds(row.seconds)}): {kinds}"
        rows += bullet("▪", text, width)
    return rows


def goodput_lines(found: Goodput, width: int) -> list[Line]:
    """Return the whole picture."""
    head = [line((text, "strong")) for text in wrap(words.headline(found), width)]
    told = [each for text in words.notes(found) for each in bullet("·", text, width, "dim")]
    return [
        *head,
        rule(words.title(found), width),
        *waterfall.rows(found, width, len(found.waterfall)),
        BLANK,
        waterfall.one_bar(found, width),
        waterfall.legend(),
        BLANK,
        *told,
    ]
