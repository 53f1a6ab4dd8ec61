"""The whole run above a page: step time compressed to the width, what happened, and the steps that the figures are of.

In: RunView, Events.  Out: one to three rows; the step under a column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, Span, clean, crop, fit, length, to_ascii
from tuiadvisor.tui.draw import bars, event_marks
from tuiadvisor.views.event import (
    BOOKMARK,
    CAPTURE,
    CHANGE,
    DETAIL,
    DIED,
    NO_STEP,
    ONSET,
    RESTART,
    SAME_STEPS,
    STALLED,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.tui.contract.feed import StretchState
    from tuiadvisor.views.event import Event
    from tuiadvisor.views.run_view import RunView, Trend

LOWEST: Final = 20  # rows of a screen from which there is room for it
TALL: Final = 30  # rows of a screen from which its events have a row of their own
# Rows of it: marks in the chart itself, marks below the chart, and the last events in words.
ALL_IN_ONE, WITH_MARKS, WITH_EVENTS = 1, 2, 3
HEAD: Final = 8  # columns before it: what it is, the first step
TAIL: Final = 10  # columns behind it: the newest step and its time
NAMED: Final = {
    CAPTURE: "capture",
    DETAIL: "detail",
    DIED: "died",
    NO_STEP: "no step",
    STALLED: "stalled",
}  # the others by their words
NUM_EVENTS: Final = 12
EMPTY: Final[Span] = (" ", "text")


def rows(
    view: RunView,
    width: int,
    stretch: StretchState | None = None,
    *,
    events: Sequence[Event] = (),
    num_rows: int = WITH_EVENTS,
    with_brackets: bool = True,
    share_read: float = 1.0,
) -> list[Line]:
    """Return step time, marks and brackets, the last events; nothing before the first step.

    stretch: that the figures are of, with the run's own trend; None: the steps that the view used. events: of the whole
    run, for a view knows what happened in the steps it held alone. num_rows: as `num_rows_for` says. with_brackets: the
    figures below are of those steps. share_read: of a recording, beyond which no event is known yet.
    """
    trend = stretch.run if stretch is not None else view.trend
    room = width - HEAD - TAIL
    if not trend.step_s or room < 1:
        return []
    values = _scale(view, trend, width).columns(trend.step_s)
    chart = bars.column_chart(values, len(values), 1, text_of.readable_top(trend.step_s))[0]
    newest = next((value for value in reversed(trend.step_s) if value is not None), None)
    tail: Span = (fit(text_of.seconds(newest), TAIL - 1, "right"), "dim")
    gap: Span = (" " * (room - length(chart)), "text")
    # Where ranks were met in different steps the first one may stand before the count of all.
    first = f"{max(trend.first_step, 0):,}"
    told = (_within(each, trend) for each in events if event_marks.on_ribbon(each.kind))
    seen = [each for each in told if each is not None]
    used = _used(view, stretch) if with_brackets else None
    if num_rows == ALL_IN_ONE:
        name = f" run {first}"
        head: Span = (fit(name if len(name) < HEAD else f" {first}", HEAD), "dim")
        over = _marks(view, trend, width, seen, used, is_over_chart=True, named=False)
        drawn = _cells(Line((*chart.spans, gap)))
        marked = [above if mark == EMPTY else mark for above, mark in zip(drawn, over, strict=True)]
        return [crop(Line((head, *_joined(marked), tail)), width)]
    last: Span = (fit(text_of.count(view.present_step), TAIL - 1, "right"), "dim")
    has_words = num_rows == WITH_EVENTS
    marks = _marks(view, trend, width, seen, used, is_over_chart=False, named=not has_words)
    rows = [
        Line(((fit(" run", HEAD), "dim"), *chart.spans, gap, tail)),
        Line(((fit(f" {first}", HEAD), "dim"), *marks, last)),
    ]
    return [
        *(crop(each, width) for each in rows),
        *([_events(view, width, seen, share_read)] if has_words else []),
    ]


def num_rows_for(height: int, *, is_screen: bool, has_stretch: bool) -> int:
    """Return how many rows there are for it above a page, 0 to 3.

    height: rows of the screen. is_screen: of the run's figures; other pages are texts and lists, and keep all rows but
    one on a low screen. has_stretch: the figures are of steps that were chosen.
    """
    if height >= TALL or has_stretch:
        return WITH_EVENTS
    if height < LOWEST:
        return 0
    return WITH_MARKS if is_screen else ALL_IN_ONE


def step_at(view: RunView, trend: Trend, column: int, width: int) -> int | None:
    """Return the step under a column of the screen. trend: that the ribbon shows."""
    bucket = _scale(view, trend, width).value_at(column - HEAD)
    return None if bucket is None else trend.first_step + bucket * trend.steps_per_bucket


def _cells(row: Line) -> list[Span]:
    """Return a row cell by cell; its characters are one cell wide."""
    return [(each, role) for text, role in row.spans for each in text]


def _joined(cells: Sequence[Span]) -> list[Span]:
    """Return the same cells with neighbours of one colour in one span."""
    spans: list[Span] = []
    for text, role in cells:
        if spans and spans[-1][1] == role:
            spans[-1] = (spans[-1][0] + text, role)
        else:
            spans.append((text, role))
    return spans


def _scale(view: RunView, trend: Trend, width: int) -> bars.RibbonScale:
    return bars.RibbonScale(len(trend.step_s), max(width - HEAD - TAIL, 1), is_full=bool(view.ended))


def _within(event: Event, trend: Trend) -> Event | None:
    """Return the event where its step is drawn; None where it is not.

    What had begun by a step before the first one that is drawn, as of a device's clock, had begun by that one, too.
    """
    end = trend.first_step + len(trend.step_s) * max(trend.steps_per_bucket, 1)
    if event.step is None or event.step > end:
        return None
    if event.step >= trend.first_step:
        return event
    return replace(event, step=trend.first_step) if event.by_then and event.kind == ONSET else None


def _used(view: RunView, stretch: StretchState | None) -> tuple[int, int] | None:
    """Return the first and the last step of the figures."""
    if stretch is not None:
        return stretch.first_step, stretch.last_step
    first, last = view.window.first_step, view.window.last_step
    return None if first is None or last is None else (first, last)


def _marks(
    view: RunView,
    trend: Trend,
    width: int,
    events: Sequence[Event],
    used: tuple[int, int] | None,
    *,
    is_over_chart: bool,
    named: bool,
) -> list[Span]:
    """Return what happened where; named: also what each mark is, where there is room for it.

    is_over_chart: what lies between brackets stays free, for the steps are drawn there.
    """
    scale = _scale(view, trend, width)
    cells: list[Span] = [EMPTY] * scale.width

    def column(step: int) -> int:
        return scale.column_of(max(step - trend.first_step, 0) // max(trend.steps_per_bucket, 1))

    if used is not None:
        start, end = column(used[0]), column(used[1])
        if not is_over_chart:
            cells[start : end + 1] = [("═", "accent")] * (end + 1 - start)
        cells[start], cells[end] = ("[", "accent"), ("]", "accent")
    paused = [(event_marks.pause_kind(pause.kind), step) for pause in view.pauses for step in pause.steps]
    told = [*paused, *((each.kind, each.step or 0) for each in events)]
    for kind, step in sorted(told, key=lambda each: event_marks.RANKED.index(each[0])):
        cells[column(step)] = event_marks.cell(kind)
    for step, _ in view.trend.marks:
        cells[column(step)] = event_marks.cell(ONSET)
    for step, name in _names(view, events) if named else ():
        _name(cells, column(step), f"{step:,} {clean(name)}")
    return cells


def _names(view: RunView, events: Sequence[Event]) -> list[tuple[int, str]]:
    """Return what a mark is called: those of the view, then what it no longer holds, without what is told already."""
    known = list(view.trend.marks)
    steps = {step for step, _ in known}
    steps.update(step for pause in view.pauses for step in pause.steps)
    for each in events:
        if each.step is None or each.step in steps or each.kind == CHANGE:
            continue
        # The view dates a beginning anew as steps come: the same one is not told twice.
        if any(name == each.words and abs(step - each.step) <= SAME_STEPS for step, name in view.trend.marks):
            continue
        name = NAMED.get(each.kind) or (each.words if each.kind in {ONSET, RESTART, BOOKMARK} else "")
        known.append((each.step, f"{'or before: ' if each.by_then else ''}{name or each.kind}"))
    return known


def _name(cells: list[Span], place: int, text: str) -> None:
    """Say behind a mark, else before it, what it is; nothing where others stand or the row ends."""
    text = text if cell_len(text) == len(text) else to_ascii(text)
    for start in (place + 2, place - len(text) - 1):
        end = start + len(text)
        taken = {
            index for index in range(max(start - 1, 0), min(end + 1, len(cells))) if cells[index][0] != " "
        }
        if start >= 0 and end <= len(cells) and taken <= {place}:
            cells[start:end] = [(each, "mark") for each in text]
            return


def _kind(name: str) -> str:
    """What a mark is of, without its rank: "pause, rank 3" is the pause at its step."""
    return name.partition(",")[0]


def _events(view: RunView, width: int, events: Sequence[Event], share_read: float) -> Line:
    """Return the newest events that fit, the oldest of them first."""
    known: list[tuple[int, str]] = []
    for pause in view.pauses:
        what = event_marks.pause_kind(pause.kind)
        # Each with its own length where they were measured one by one: the mean of two is the length of neither.
        lengths_s = pause.lengths_s or (pause.length_s,) * len(pause.steps)
        timed = tuple(zip(pause.steps, lengths_s, strict=False))[-NUM_EVENTS:]
        known += [(step, f"{what} {text_of.seconds(length_s)}") for step, length_s in timed]
    lengths = tuple(known)
    for step, name in _names(view, events):  # a pause that is marked, too, stands once: with its length
        if not any(step == begin and said.startswith(_kind(name)) for begin, said in lengths):
            known.append((step, clean(name)))
    said = [f"step {step:,} {name}" for step, name in sorted(known)[-NUM_EVENTS:]]
    if view.stall is not None:
        said.append(f"now: {text_of.stalled(view.stall.for_s)}")
    elif view.without_step_s is not None:
        said.append(f"now: no step for {text_of.timer(view.without_step_s)}")
    head = fit(" events", HEAD)
    shown: list[str] = []
    if share_read < 1:
        said.append(f"{text_of.share_read(share_read)}: later events are not known yet")
    for each in reversed(said):
        if len(" · ".join([each, *shown])) > width - HEAD - 1:
            break
        shown.insert(0, each)
    return Line(((head, "dim"), (" · ".join(shown) or _nothing_named(events), "mark" if shown else "dim")))


def _nothing_named(events: Sequence[Event]) -> str:
    """Changes of the job's pace are too many for this row: the list has them."""
    steps = [each.step for each in events if each.kind == CHANGE and each.step is not None]
    if not steps:
        return "none at a known step"
    return f"{text_of.count(len(steps), 'change')} of the job's pace, the last at step {max(steps):,}: E lists them"
