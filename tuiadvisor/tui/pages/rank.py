"""Rank: what enter opens on one: its state, phases, arrivals, findings; and what can be asked of it alone.

In: FeedState and the rank that was opened.  Out: lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text.line import BLANK, indent, line
from tuiadvisor.tui.contract.feed import Capture, Detail, Stacks
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.pages.details import MARGIN, rank_lines
from tuiadvisor.tui.pages.ranks import Ranks
from tuiadvisor.tui.pages.stack_card import ask_if_late, meant_rank, subject_of, why_no_card
from tuiadvisor.tui.pages.waiting import waiting

if TYPE_CHECKING:
    from tuiadvisor.text.line import Line
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place


def open_rank(place: Place, rank: int) -> None:
    """Show a rank."""
    page = place.at(RankPage)
    page.rank = rank
    page.cursor = None
    place.show_detail(page)


def open_and_look(place: Place, rank: int) -> None:
    """Show a rank; where others wait for it, sample which lines of code it spends its time at."""
    open_rank(place, rank)
    ask_if_late(place, rank)


def ask_for_stacks(place: Place) -> None:
    """Sample the stacks of the rank that is shown or selected, else of the one that holds up, and show its page."""
    rank, view = _looked_at(place.state, place.page), place.state.view
    if rank is not None and view is not None:
        if not isinstance(place.page, RankPage):
            open_rank(place, rank)  # where the answer will be
        place.shell.ask(Stacks(rank, subject_of(view)))


def _looked_at(state: FeedState, page: Page) -> int | None:
    chosen = rank_at(page)
    return meant_rank(state.view) if chosen is None else chosen


def open_beside(place: Place, by: int) -> None:
    """Show the rank beside this one in the order of the table."""
    page, ranks = place.at(RankPage), place.at(Ranks)
    order = ranks.order(place.state.view)
    if page.rank in order:
        index = min(max(order.index(page.rank) + by, 0), len(order) - 1)
        open_rank(place, order[index])
        ranks.cursor = ("rank", str(order[index]))


def rank_at(page: Page) -> int | None:
    """Return the rank that is shown or selected."""
    if isinstance(page, RankPage):
        return page.rank
    pointed = page.pointed()
    return int(pointed[1]) if pointed is not None and pointed[0] == "rank" else None


def capture(place: Place) -> None:
    """Ask for a profiler window in the rank that is shown or selected."""
    rank = rank_at(place.page)
    if rank is not None:
        place.shell.ask(Capture(rank))


def detail(place: Place) -> None:
    """Ask for steps in detail: of the rank whose details are open, else of all."""
    place.shell.ask(Detail((place.page.rank,) if isinstance(place.page, RankPage) else ()))


def not_running(state: FeedState, _page: Page) -> str:
    """What is asked of processes needs them."""
    if state.mode == "replay":
        return "only in a live run: this is a recording"
    ended = state.view is not None and bool(state.view.ended)
    return "the run has ended: there is nothing more to see" if ended else ""


def cannot_capture(state: FeedState, page: Page) -> str:
    """A capture needs a rank that runs."""
    reason = not_running(state, page)
    return reason or ("" if rank_at(page) is not None else "choose a rank first: press 2, then enter")


class RankPage(Page):
    """One rank: state, phases beside the job's mean, arrival at the barrier, its findings."""

    tells_losses = True
    name = "rank"
    title = "Rank"
    about = (
        "'mean' is the mean of all ranks: a phase well above it is what makes this rank late. Lines of code: shares of "
        "samples times the step's time; 'within noise': so few samples do not tell the two ranks apart."
    )
    commands: ClassVar = (
        Command(
            "capture",
            ("P",),
            "P",
            "Capture",
            "3 steps of this rank under PyTorch's profiler: exact overlap, a trace for Perfetto",
            "ranks",
            capture,
            cannot_capture,
        ),
        Command(
            "stacks",
            ("C",),
            "C",
            "Code",
            "2 s of samples of this rank's stacks and a peer's: which lines of code it spends more time at",
            "ranks",
            ask_for_stacks,
            lambda state, page: why_no_card(state, _looked_at(state, page)),
        ),
        Command(
            "detail",
            ("D",),
            "D",
            "Detail",
            "each call of the next 3 s one by one: of all ranks, or of the one whose details are open",
            "ranks",
            detail,
            not_running,
        ),
    )
    does: ClassVar = {
        "next_rank": lambda place: open_beside(place, 1),
        "previous_rank": lambda place: open_beside(place, -1),
    }
    labels: ClassVar = {"next_rank": "Next", "previous_rank": "Previous"}
    opens: ClassVar = {"rank": lambda place, rank: open_and_look(place, int(rank))}
    terms = ("data_wait", "exposed", "last", "waits", "overlap")
    keys = ("next_rank", "previous_rank", "stacks", "capture", "back", "help", "pause", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.rank = 0

    def shows_announced(self, state: FeedState) -> bool:
        """The card of this rank."""
        return state.notice_card is not None and state.notice_card[0] == self.rank

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the rank, or that it is not in this run."""
        if state.view is None:
            return waiting(state, width, height)
        rank = next((each for each in state.view.ranks if each.rank == self.rank), None)
        room = width - 2 * MARGIN
        if rank is None:
            rows = [BLANK, line((f"Rank {self.rank} is not in this run any more. Press esc.", "dim"))]
        else:
            rows = rank_lines(state.view, rank, room)
        return self.arranged([indent(each, MARGIN) if each.spans else each for each in rows], width, height)
