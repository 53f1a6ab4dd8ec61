"""Timeline: what each stream of each rank of a trace did, a letter a cell, at any zoom.

In: DeskState with a Timeline.  Out: lines. Keys ask the desk for another stretch; the next picture comes from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, crop, fit, indent, line, rule, wrap
from tuiadvisor.tui.contract.desk import LookAt
from tuiadvisor.tui.contract.page import Command, Page

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.timeline import Timeline, TimelineLane

MARGIN = 1
NAME_WIDTH = 13
BUSY_WIDTH = 6
FOOT_ROWS = 4  # names that the lane of the cursor spent most of the stretch on, and the legend
ZOOM = 2.0
PAN = 0.25  # of the stretch
LEAST_CELLS = 20
ROLES = {"c": "phase:forward", "n": "phase:comm_exposed", "m": "phase:h2d", ".": "dim", "?": "unknown"}
LEGEND = "C compute  N communication  M copies  . nothing  small letter: under half"


def look(place: Place, begin_s: float, end_s: float | None) -> None:
    """Ask for a stretch, in as many cells as there is room for."""
    place.shell.ask(
        LookAt(begin_s, end_s, max(place.width - NAME_WIDTH - BUSY_WIDTH - 2 * MARGIN, LEAST_CELLS))
    )


def show_timeline(place: Place) -> None:
    """The stretch that was looked at last, else all of it."""
    held = place.desk.timeline
    look(place, held.begin_s if held else 0.0, held.end_s if held else None)
    place.show("timeline")


def zoom(place: Place, factor: float) -> None:
    """About the middle; beyond the ends there is nothing."""
    held = place.desk.timeline
    if held is None:
        return
    middle, half = (held.begin_s + held.end_s) / 2, (held.end_s - held.begin_s) / 2 * factor
    if 2 * half >= held.whole_s:
        look(place, 0.0, None)
        return
    begin_s = min(max(middle - half, 0.0), held.whole_s - 2 * half)
    look(place, begin_s, begin_s + 2 * half)


def pan(place: Place, share: float) -> None:
    """Along the time, by a share of the stretch."""
    held = place.desk.timeline
    if held is None:
        return
    span = held.end_s - held.begin_s
    begin_s = min(max(held.begin_s + share * span, 0.0), held.whole_s - span)
    look(place, begin_s, begin_s + span)


class TimelinePage(Page):
    """Rank x stream x time."""

    name = "timeline"
    title = "Timeline"
    about = (
        "Each row is a stream of a rank, each cell the kind of work that took most of that time. + and - zoom "
        "about the middle, h and l (or left and right) move by a quarter, j and k choose a row: what "
        "took longest there stands below. Only traces have it: imported, or put beside a recording."
    )
    commands: ClassVar = (
        Command(
            "timeline",
            ("Z",),
            "Z",
            "Timeline",
            "of a trace: what each stream of each rank did, zoomed with + - h l",
            "screens",
            show_timeline,
        ),
    )
    does: ClassVar = {
        "zoom_in": lambda place: zoom(place, 1 / ZOOM),
        "zoom_out": lambda place: zoom(place, ZOOM),
        "next_rank": lambda place: pan(place, PAN),
        "previous_rank": lambda place: pan(place, -PAN),
        "refresh": lambda place: look(place, 0.0, None),
    }
    labels: ClassVar = {
        "zoom_in": "Closer",
        "zoom_out": "Farther",
        "next_rank": "Later",
        "previous_rank": "Earlier",
        "refresh": "Whole",
    }
    abouts: ClassVar = {
        "zoom_in": "half the time on the screen",
        "zoom_out": "twice the time on the screen",
        "next_rank": "a quarter of the stretch later",
        "previous_rank": "a quarter of the stretch earlier",
        "refresh": "the whole trace",
    }
    keys = ("zoom_in", "zoom_out", "previous_rank", "next_rank", "refresh", "kernels", "copy", "help", "quit")

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - it is the desk's
        """Return time, lanes, and the names of the lane of the cursor."""
        held, room = self.desk.timeline, width - 2 * MARGIN
        if held is None:
            self.targets = []
            said = self.desk.timeline_note or "The timeline has not been read yet: Z reads it."
            return [indent(line((each, "dim")), MARGIN) for each in wrap(said, room)]
        head = _head(held, room)
        rows = [_lane(each) for each in held.lanes]
        if self.cursor is None:
            self.cursor = rows[0].target
        body = self.arranged(
            [indent(crop(row, room), MARGIN) for row in rows], width, max(height - len(head) - FOOT_ROWS, 1)
        )
        chosen = next((each for each in held.lanes if _target(each) == self.cursor), held.lanes[0])
        shown = [*head, *_foot(held, chosen, room)]
        shown = [indent(crop(each, room), MARGIN) for each in shown]
        return [*shown[: len(head)], *body, *shown[len(head) :]][:height]


def _target(lane: TimelineLane) -> tuple[str, str]:
    return "lane", f"{lane.rank}/{lane.stream}"


def _head(held: Timeline, width: int) -> list[Line]:
    span = (
        f"{text_of.seconds(held.begin_s)} to {text_of.seconds(held.end_s)} of {text_of.seconds(held.whole_s)}"
    )
    joined = f"joined below {text_of.seconds(held.resolution_s)}" if held.resolution_s else ""
    left_out = f"{held.num_left_out} streams left out" if held.num_left_out else ""
    notes = ", ".join(note for note in (joined, left_out) if note)
    return [rule(span, width, notes), line((fit("step", NAME_WIDTH), "dim"), (_marks(held), "dim"))]


def _marks(held: Timeline) -> str:
    """Return each step's number where it begins, as far as they do not meet."""
    text = ""
    for cell, step in held.steps:
        if not text or cell > len(text):
            text = f"{text.ljust(cell)}▏{step}"
    return text


def _lane(lane: TimelineLane) -> Line:
    spans: list[Span] = [(fit(f"r{lane.rank} s{lane.stream}", NAME_WIDTH), "strong")]
    for letter in lane.cells:
        role = ROLES.get(letter.lower(), "text")
        if len(spans) > 1 and spans[-1][1] == role:
            spans[-1] = (spans[-1][0] + letter, role)
        else:
            spans.append((letter, role))
    spans.append((fit(text_of.share(lane.busy), BUSY_WIDTH, "right"), "dim"))
    return Line(tuple(spans), _target(lane))


def _foot(held: Timeline, lane: TimelineLane, width: int) -> list[Line]:
    names = [f"{text_of.seconds(took)} {name}" for name, took in lane.longest]
    said = [fit(name, width) for name in names] or ["nothing ran on it here"]
    rows = [line((text, "text")) for text in said[: FOOT_ROWS - 1]]
    rows += [line("")] * (FOOT_ROWS - 1 - len(rows))
    return [*rows, line((LEGEND, "dim"))] if held.lanes else rows
