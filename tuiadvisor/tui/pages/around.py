"""Step time around one event: the jump that it is about, with the marks of what else happened there.

In: Trend, Events.  Out: rows; nothing where no step was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, clean, crop, rule, to_ascii
from tuiadvisor.tui.draw import bars, event_marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.text.line import Span
    from tuiadvisor.views.event import Event
    from tuiadvisor.views.run_view import Trend

LEAST_ROWS: Final = 7  # head, axis and marks among them
MOST_ROWS: Final = 18
BESIDE_CHART: Final = 3
EACH_SIDE: Final = 30  # values of the trend: a jump is seen where some lie before and behind it
MOST_VALUES: Final = 2 * EACH_SIDE + 1
EMPTY: Final[Span] = (" ", "text")


def around(
    trend: Trend, event: Event, events: Sequence[Event], width: int, rows: int, *, is_over: bool
) -> list[Line]:
    """Return `rows` rows: a head, the steps before and after the event, their numbers, what happened where.

    events: all of the run. is_over: no step follows, so what there is takes the whole width; else it has a place for
    each step to come, and nothing moves as they do. An event of a step that is not drawn has those next to it.
    """
    size, num_values = max(trend.steps_per_bucket, 1), len(trend.step_s)
    if event.step is None or not num_values:
        return [BLANK] * rows
    place = min(max((event.step - trend.first_step) // size, 0), num_values - 1)
    begin = max(min(place - EACH_SIDE, num_values - MOST_VALUES) if is_over else place - EACH_SIDE, 0)
    values = trend.step_s[begin : begin + MOST_VALUES]
    known = [value for value in values if value is not None]
    if not known:
        return [BLANK] * rows
    first = trend.first_step + begin * size
    top = text_of.readable_top(values)
    cut = f"cut at {text_of.seconds(top)}, " if max(known) > top else ""
    mean = "" if size == 1 else f"means of {text_of.count(size, 'step')}, "
    head = rule("step time around it", width, f"{mean}{cut}tallest {text_of.seconds(max(known))}")
    used = width if is_over else width * len(values) // MOST_VALUES
    chart = bars.column_chart(values, used, max(rows - BESIDE_CHART, 1), top)
    axis = bars.step_axis(first, size, len(values), used)
    marks = _marks(event, events, (first, size, len(values), used), width)
    return [crop(each, width) for each in (head, *chart, axis, marks)]


def _marks(event: Event, events: Sequence[Event], scale: tuple[int, int, int, int], width: int) -> Line:
    """Return what happened in these steps, the event with its kind.

    scale: first step, steps a value, values, columns.
    """
    cells: list[Span] = [EMPTY] * width
    drawn = [each for each in events if event_marks.on_ribbon(each.kind) and each.step is not None]
    for each in sorted(drawn, key=lambda each: event_marks.RANKED.index(each.kind)):
        column = bars.chart_column(each.step or 0, *scale)
        if column is not None:
            cells[column] = event_marks.cell(each.kind)
    column = bars.chart_column(event.step or 0, *scale)
    if column is not None:
        glyph, role = event_marks.cell(event.kind)
        text = f"{event.kind} · {'by ' if event.by_then else ''}step {event.step or 0:,}"
        text = clean(text) if cell_len(text) == len(text) else to_ascii(clean(text))
        # Behind the mark, else before it: its letters may cover other marks, never leave the row.
        start = column + 2 if column + 2 + len(text) <= width else column - 1 - len(text)
        if start >= 0:
            cells[start : start + len(text)] = [(letter, "mark") for letter in text]
        cells[column] = glyph, role
    return Line(tuple(cells))
