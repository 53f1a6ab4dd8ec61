"""The lines of code on a rank's or a finding's page: its card, and what asks for one.

In: RunView, a rank.  Out: lines; the command that samples stacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text import stack_card as words
from tuiadvisor.text.line import BLANK, Cell, crop, line, row, rule, wrap
from tuiadvisor.tui.contract.feed import Stacks
from tuiadvisor.tui.pages.sections import stands_from_the_start
from tuiadvisor.views.finding_keys import keyed

if TYPE_CHECKING:
    from tuiadvisor.text.line import Line
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.run_view import Finding, RunView
    from tuiadvisor.views.stack_card import CardLine, StackCard

FIGURE = 11
MOST_ROOM = 70  # of a line of code: its figures stay beside it on a wide screen
MAX_ROWS = 6
MAX_NATIVE = 8
SUBJECTS = {"input_bound": "input", "host_bound": "host", "loader_without_workers": "input", "hang": "hang"}


def card_of(view: RunView, rank: int, subject: str | None = None) -> StackCard | None:
    """The newest look at this rank; subject: for this alone."""
    fits = (each for each in view.cards if each.rank == rank and subject in {None, each.subject})
    return next(fits, None)


def subject_of(view: RunView) -> str:
    """What is to be explained of a rank now."""
    return "hang" if view.stall is not None or stands_from_the_start(view) else "straggler"


def meant_rank(view: RunView | None) -> int | None:
    """Whose code one wants to see where no rank is chosen: whom the others wait for, else the first that stands."""
    if view is None:
        return None
    if view.stall is not None and view.stall.missing:
        return view.stall.missing[0]
    late = next((row.rank for row in view.ranks if row.is_culprit), None)
    if late is None and stands_from_the_start(view):
        return next(row.rank for row in view.ranks if row.state == "live")
    return late


def ask_if_late(place: Place, rank: int) -> None:
    """Sample the stacks of a rank that others wait for, as it is opened; once, and never of a recording."""
    view = place.state.view
    if view is None or place.state.mode != "live" or place.state.past is not None or view.ended:
        return
    shown = next((each for each in view.ranks if each.rank == rank), None)
    is_late = shown is not None and (shown.is_culprit or shown.held in {"stopped", "missing"})
    subject = subject_of(view)
    if is_late and card_of(view, rank, subject) is None:
        place.shell.ask(Stacks(rank, subject))


def ask_for_finding(place: Place, key: str) -> None:
    """Sample what explains a finding whose cause is a line of code, as it is opened."""
    view = place.state.view
    if view is None or place.state.mode != "live" or place.state.past is not None or view.ended:
        return
    found = keyed(view.findings).get(key)
    asked = None if found is None else of_finding(view, found)
    if asked is not None and card_of(view, asked.rank, asked.subject) is None:
        place.shell.ask(asked)


def of_finding(view: RunView, found: Finding) -> Stacks | None:
    """Whose stacks explain a finding; None where none do."""
    subject = SUBJECTS.get(found.id)
    if subject is None or not view.ranks:
        return None
    live = [each.rank for each in view.ranks if each.state == "live"]
    ranks = found.ranks or tuple(live[:1])
    return Stacks(ranks[0], subject) if ranks else None


def finding_card(view: RunView, found: Finding) -> StackCard | None:
    """The card that explains a finding, where stacks were sampled for it."""
    asked = of_finding(view, found)
    return None if asked is None else card_of(view, asked.rank, asked.subject)


def why_no_card(state: FeedState, rank: int | None) -> str:
    """What stands in the way of a look at a rank's stacks."""
    if state.mode == "replay":
        return "only in a live run: this is a recording"
    if state.view is not None and state.view.ended:
        return "the run has ended: there is nothing more to see"
    return "" if rank is not None else "choose a rank first: press 2, then enter"


def rank_card_lines(view: RunView, rank: int, width: int) -> list[Line]:
    """Return the newest card of a rank, or nothing; of a stall that is over it says where the rank stood."""
    card = card_of(view, rank)
    if card is None:
        return []
    is_over = card.subject == "hang" and view.stall is None and not stands_from_the_start(view)
    if not is_over:
        return card_lines(card, width)
    return [rule("lines of code", width, words.IS_OVER), *card_lines(words.in_the_past(card), width)[1:]]


def card_lines(card: StackCard, width: int) -> list[Line]:
    """Return the card: its sentence, the lines of code, what they rest on."""
    rows = [rule("lines of code", width), *(line((text, "strong")) for text in wrap(card.words, width))]
    if card.stands:
        rows += _stand_lines(card, width)
    if card.lines:
        rows += _table(card, width)
    if card.workers:
        rows += [line((words.workers_title(card), "dim"))]
        rows += [
            _worker_line(place, name, calls, share, width)
            for place, name, calls, share in words.worker_rows(card)[:MAX_ROWS]
        ]
    for text in (card.basis, *card.notes):
        rows += [line((each, "dim")) for each in wrap(text, width)]
    return [*(crop(each, width) for each in rows), BLANK]


def _table(card: StackCard, width: int) -> list[Line]:
    has_peer = bool(card.num_peer_samples)
    figures = (3 if has_peer else 1) * (FIGURE + 1)
    room = min(max(width - figures - 1, 20), MOST_ROOM)
    head = [Cell("line", room, "dim"), Cell(f"rank {card.rank}", FIGURE, "dim", "right")]
    if has_peer:
        head += [Cell(f"rank {card.peer}", FIGURE, "dim", "right"), Cell("", FIGURE)]
    return [row(head), *(_line(each, room, has_peer=has_peer) for each in card.lines[:MAX_ROWS])]


def _line(each: CardLine, room: int, *, has_peer: bool) -> Line:
    cells = [
        Cell(_where(each.place, each.name, each.calls), room, "strong" if each.differs else "text"),
        Cell(words.own_time(each), FIGURE, "text", "right"),
    ]
    if has_peer:
        cells += [
            Cell(words.peer_time(each), FIGURE, "text", "right"),
            Cell(words.verdict(each), FIGURE + 1, "accent" if each.differs else "dim", "right"),
        ]
    return row(cells)


def _worker_line(place: str, name: str, calls: str, share: str, width: int) -> Line:
    return row([Cell(share, 7, "text", "right"), Cell(_where(place, name, calls), max(width - 8, 20))])


def _stand_lines(card: StackCard, width: int) -> list[Line]:
    rows = [
        crop(line((f"{who:<9}", "dim"), _where(place, name, calls), (why, "dim")), width)
        for who, place, name, calls, why in words.stand_rows(card)
    ]
    native = card.stands[0].native[:MAX_NATIVE] if card.stands[0].rank == card.rank else ()
    if native:
        rows += [line((f"rank {card.rank}, frames in C too, innermost first", "dim"))]
        rows += [crop(line(f"  {frame}"), width) for frame in native]
    return rows


def _where(place: str, name: str, calls: str) -> str:
    return "  ".join(filter(None, (place, name))) + (f" → {calls}" if calls else "")
