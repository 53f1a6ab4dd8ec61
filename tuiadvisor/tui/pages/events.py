"""Events: what has happened in the run, newest first: time, step, ranks. Enter goes to the step.

In: FeedState.  Out: rows; what rang is added by the screens themselves.
"""

from __future__ import annotations

import re
from collections import deque
from time import localtime, strftime
from typing import TYPE_CHECKING, ClassVar, Final

from rich.cells import cell_len

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import (
    BLANK,
    Cell,
    Line,
    clean,
    crop,
    fit,
    indent,
    line,
    row,
    rule,
    wrap,
    wrap_within,
)
from tuiadvisor.tui.contract.feed import SeekStep
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.draw import event_marks
from tuiadvisor.tui.pages.around import LEAST_ROWS, MOST_ROWS, around
from tuiadvisor.tui.pages.details import action
from tuiadvisor.tui.pages.waiting import waiting
from tuiadvisor.views.event import ALERT, ONSET, RESOLVED, Event

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.event import Alert
    from tuiadvisor.views.run_view import RunView

MARGIN: Final = 1
MAX_ALERTS: Final = 500
WIDEST: Final = 12  # of time, step, ranks and kind: as wide as what stands there, the rest is the sentence's
BETWEEN: Final = 6  # blanks and the glyph between these and the sentence
LOWEST_WITH_WHOLE: Final = 12  # rows of the page
WHOLE_ROWS: Final = 4  # at most for the sentence of one event, below the list
FILTER_HINT: Final = "onset, checkpoint, rank 2, a step, any word; enter keeps it, esc clears it"


def go_to(place: Place, name: str) -> None:
    """Show the run as it was at the event, below the list."""
    event = place.at(EventsPage).called(name)
    if event is None or event.step is None:
        place.say("at which step that was is not known")
        return
    place.shell.ask(SeekStep(event.step))
    place.go_back()


class EventsPage(Page):
    """A list over the screen it was opened from."""

    name = "events"
    title = "Events"
    about = (
        "What has happened, newest first, marked as on the ribbon: findings that began (▲) or are over (✓), stalls "
        "(■), no step seen (n), checkpoints (C), evaluations (E) and other pauses (P), new levels of a step (~), "
        "ranks that died (x), restarts (+), captures (*), detail that was asked for (d), bookmarks (b), alerts (!). "
        "“by” a step: seen there, it happened there or before. A time is when the last rank ended that "
        "step, of a stall, a restart and an alert when it began; unknown where the step is no longer held."
    )
    commands: ClassVar = (
        opening("events", "E", "Events", "what has happened, step by step; enter goes there"),
    )
    filter_hint = FILTER_HINT
    keys = ("open", "filter", "back", "page_up", "page_down", "copy", "help", "quit")
    labels: ClassVar = {"open": "Go there"}
    abouts: ClassVar = {
        "open": "the run as it was at this step",
        "filter": "events with all that is typed: a kind, rank 2, a step, any word",
    }
    opens: ClassVar = {"event": go_to}

    def __init__(self) -> None:
        super().__init__()
        self._alerts: deque[tuple[str, Event]] = deque(maxlen=MAX_ALERTS)
        self._shown: dict[str, Event] = {}

    def take_alert(self, when: str, alert: Alert, state: FeedState) -> None:
        """Keep what rang."""
        step = state.view.present_step if state.view is not None else None
        self._alerts.append((when, Event(ALERT, step, alert.ranks, alert.words)))

    def called(self, name: str) -> Event | None:
        """The event of a row."""
        return self._shown.get(name)

    def turn(self, rows: int) -> None:
        """A screenful down the list, the cursor with it."""
        self.move(rows)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the head and the rows that fit."""
        if state.view is None:
            self.targets = []
            return waiting(state, width, height)
        room = width - 2 * MARGIN
        known = self._known(state)
        chosen = [(when, event) for when, event in known if passes(event, self.filter)]
        self._shown = {_name(event): event for _, event in chosen}
        columns = _columns(known)
        rows = [_row(when, event, columns, room) for when, event in chosen]
        below = (
            self._whole(chosen, room - sum(columns) - BETWEEN, room) if height >= LOWEST_WITH_WHOLE else []
        )
        rows = rows or [
            BLANK,
            *(line((text, "dim")) for text in wrap(self._why_empty(len(known), state), room)),
        ]
        found = text_of.count(len(known), "event")
        if state.replay is not None and state.replay.share_read < 1:
            found = f"{found} so far, {text_of.share_read(state.replay.share_read)}"
        if self.filter:
            found = f"filter “{self.filter}”: {len(chosen):,} of {found}"
        head = [rule("events", room, found), crop(_head(columns, room), room)]
        # What the list leaves free shows the steps of the event: the jump that it speaks of.
        spare = height - len(head) - len(below) - len(rows) - 1
        if chosen and spare >= LEAST_ROWS:
            event = self._selected(chosen)
            trend = state.stretch.run if state.stretch is not None else state.view.trend
            is_over, most = bool(state.view.ended), min(spare, MOST_ROWS)
            steps = around(trend, event, state.events, room, most, is_over=is_over)
            below = [*_what_to_do(state.view, event, room, spare - most), *steps, *below]
        left = height - len(head) - len(below)
        body = self.arranged([indent(each, MARGIN) for each in rows], width, left)
        body += [BLANK] * (left - len(body) if below else 0)
        return [*(indent(each, MARGIN) for each in head), *body, *(indent(each, MARGIN) for each in below)]

    def _selected(self, chosen: list[tuple[str, Event]]) -> Event:
        """Return the event of the cursor, else the newest."""
        selected = self.cursor[1] if self.cursor is not None else ""
        return next((each for _, each in chosen if _name(each) == selected), chosen[0][1])

    def _whole(self, chosen: list[tuple[str, Event]], in_row: int, width: int) -> list[Line]:
        """Return the whole sentence of the selected event, else of the newest; nothing where no row is cut.

        in_row: cells that a row has for it.
        """
        if all(cell_len(clean(event.words)) <= in_row for _, event in chosen):
            return []
        event = self._selected(chosen)
        texts = [line((text, "text")) for text in wrap_within(event.words, width, WHOLE_ROWS)]
        # As many rows for each event: the list above must not jump with the cursor.
        most = max(len(wrap_within(each.words, width, WHOLE_ROWS)) for _, each in chosen)
        return [rule("selected", width, _place(event)), *texts, *[BLANK] * (most - len(texts))]

    def _known(self, state: FeedState) -> list[tuple[str, Event]]:
        """All events, newest first, each with its time of day."""
        newest_s = max((event.wall_s for event in state.events if event.wall_s is not None), default=None)
        told = [*((_when(event, newest_s), event) for event in state.events), *self._alerts]
        # What happened at one step in the order of time: an alert does not come after the end of its stall.
        told.sort(key=lambda pair: (-1 if pair[1].step is None else pair[1].step, pair[0]))
        return told[::-1]

    def _why_empty(self, num_known: int, state: FeedState) -> str:
        if num_known:
            return f"no event has “{self.filter}”: press / and change it, esc clears it"
        if state.replay is not None and state.replay.share_read < 1:
            return f"No event so far; {text_of.share_read(state.replay.share_read)}."
        stands = state.view is not None and any(found.severity != "info" for found in state.view.findings)
        if stands and state.replay is None:  # a recording is read from its beginning
            return "Nothing has happened since this screen came: what page 1 shows had begun before."
        return "Nothing has happened yet: no finding began, no pause, no stall and no capture was seen."


def _what_to_do(view: RunView, event: Event, width: int, rows: int) -> list[Line]:
    """Return what the finding of this event says and what to do first; nothing where that does not fit."""
    known = [*view.findings, *(each.finding for each in view.past)]
    found = next((each for each in known if (each.title, each.ranks) == (event.words, event.ranks)), None)
    if found is None or event.kind not in (ONSET, RESOLVED):
        return []
    drawn = [rule("what was found", width), *(line((text, "text")) for text in wrap(found.message, width))]
    drawn += action(1, found.actions[0], width) if found.actions and event.kind == ONSET else []
    return [*drawn, BLANK] if len(drawn) < rows else []


def passes(event: Event, wanted: str) -> bool:
    """Return whether every word typed is in an event's kind, step, ranks or words; "rank 2" is that rank alone."""
    text = wanted.lower().replace(",", "").strip()
    rank = re.fullmatch(r"ranks? ([0-9]{1,9})", text)
    if rank is not None:
        return int(rank[1]) in event.ranks
    said = text_of.ranks(event.ranks) if event.ranks else ""
    held = f"{event.kind} step {event.step} {said} {event.words}".lower()
    return all(word in held for word in text.split())


def _columns(known: list[tuple[str, Event]]) -> tuple[int, int, int, int]:
    """Return the widths of time, step, ranks and kind; of all events, so that a filter moves nothing."""
    told = [
        ("time", "step", "ranks", "event"),
        *((when, _step(each), _ranks(each), each.kind) for when, each in known),
    ]
    when, step, ranks, kind = (min(max(map(cell_len, column)), WIDEST) for column in zip(*told, strict=True))
    return when, step, ranks, kind


def _step(event: Event) -> str:
    return text_of.UNKNOWN if event.step is None else f"{'by ' if event.by_then else ''}{event.step:,}"


def _ranks(event: Event) -> str:
    return text_of.ranks(event.ranks) if event.ranks else ""


def _place(event: Event) -> str:
    """Return what it is and when, for the head of its whole sentence."""
    step = "" if event.step is None else f" · {'by ' if event.by_then else ''}step {event.step:,}"
    return f"{event.kind}{step}"


def _name(event: Event) -> str:
    return f"{event.kind} {event.step} {event.ranks} {event.words}"


def _when(event: Event, newest_s: float | None) -> str:
    if event.wall_s is None or newest_s is None:
        return text_of.UNKNOWN
    moment, newest = localtime(event.wall_s), localtime(newest_s)
    same_day = moment[:3] == newest[:3]
    return strftime("%H:%M:%S" if same_day else "%b %d %H:%M", moment)


def _head(columns: tuple[int, int, int, int], width: int) -> Line:
    when, step, ranks, _ = columns
    return row(
        (
            Cell("time", when, "dim"),
            Cell("step", step, "dim", "right"),
            Cell("ranks", ranks, "dim"),
            Cell("event", max(width - when - step - ranks - 3, 5), "dim"),
        )
    )


def _row(when: str, event: Event, columns: tuple[int, int, int, int], width: int) -> Line:
    glyph, role = event_marks.cell(event.kind)
    when_width, step_width, ranks_width, kind_width = columns
    drawn = line(
        (fit(when, when_width) + " ", "dim"),
        (fit(_step(event), step_width, "right") + " ", "text"),
        (fit(_ranks(event), ranks_width) + " ", "strong"),
        (glyph, role),
        (" ", "text"),
        # A phase's colour fills its cell: enough for the mark.
        (fit(event.kind, kind_width) + " ", "text" if role.startswith("phase:") else role),
        (clean(event.words), "text"),
        target=("event", _name(event)),
    )
    return crop(drawn, width)
