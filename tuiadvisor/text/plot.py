"""A curve with its interval as rows of cells: braille over a shaded band, points, a limit, marks below.

In: numbers as they are drawn, no meaning.  Out: lines of exactly the asked width. ASCII comes from `line.to_ascii`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import groupby
from math import floor, log2, log10
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tuiadvisor.text.line import Line, Span, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

BAND: Final = "░"
LEVEL: Final = "┄"
UPRIGHT: Final = "┊"
# The dots of a braille cell, left and right column, from the top.
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
GLYPHS: Final = {"yours": "■", "measured": "●", "asked": "○"}
# Upper ends of an axis whose halves are short numbers too.
ROUND: Final = (1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10, 12)
ROLES: Final = {"yours": "mark", "measured": "strong", "asked": "accent"}


@dataclass(frozen=True, slots=True)
class Plot:
    """What to draw. x: positive, ascending, on a logarithmic axis; low and high run along expected."""

    x: Sequence[float]
    expected: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    points: Sequence[tuple[float, float, str]] = ()  # (x, y, a name of GLYPHS)
    level: float | None = None  # a horizontal line
    upright: float | None = None  # a vertical line
    marks: Sequence[tuple[float, str]] = ()  # below the axis: an arrow and a word


def plot(drawn: Plot, width: int, height: int) -> list[Line]:
    """`height` rows of the chart, one of the axis, one of marks if there are any."""
    xs = [*drawn.x, *(x for x, _, _ in drawn.points)]
    top = top_of(drawn)
    labels = {value: short(value) for value in (top, top / 2, 0.0)}
    margin = max(map(len, labels.values())) + 1
    field = _Field(width - margin, height, min(xs), max(xs), top)
    # Where the same value is drawn: a limit of 0.8 stood a row above the 0.8 of the axis.
    named = {field.row(value): label for value, label in labels.items()}
    field.band(drawn)
    if drawn.level is not None and drawn.level <= top:
        field.level(drawn.level)
    if drawn.upright is not None and min(xs) <= drawn.upright <= max(xs):
        field.upright(drawn.upright)
    field.curve(drawn)
    for x, y, kind in sorted(drawn.points, key=lambda point: point[2] == "yours"):
        field.point(x, y, kind)
    rows = []
    for place, spans in enumerate(field.rows()):
        label = named.get(place, "")
        rows.append(Line(((fit(label, margin - 1, "right"), "dim"), ("┤" if label else "│", "rule"), *spans)))
    rows.append(Line(((" " * (margin - 1), "dim"), ("└", "rule"), *_axis(field, xs, drawn))))
    if drawn.marks:
        rows.append(Line(((" " * margin, "dim"), *_marks(field, drawn.marks))))
    return rows


def top_of(drawn: Plot) -> float:
    """The upper end: all that is expected, as much of the intervals as leaves the curve readable, a limit if near."""
    likely = max((*drawn.expected, *(y for _, y, _ in drawn.points)), default=1.0)
    highest = min(max((*drawn.high, likely)), 2 * likely)
    if drawn.level is not None and drawn.level <= 2 * highest:
        highest = max(highest, drawn.level)
    if highest <= 0:
        return 1.0
    power: float = 10.0 ** floor(log10(highest))
    return next(step * power for step in ROUND if step * power >= 1.02 * highest)


class _Field:
    """Cells of a chart."""

    def __init__(self, width: int, height: int, first: float, last: float, top: float) -> None:
        self.width, self.height, self.top = max(width, 4), height, top
        self.first = log2(first)
        self.span = max(log2(last) - self.first, 1e-9)
        self.cells: list[list[Span]] = [[(" ", "text")] * self.width for _ in range(height)]

    def column(self, x: float) -> int:
        """The cell of an x. A margin of a cell at both ends keeps points off the frame."""
        return 1 + round((log2(x) - self.first) / self.span * (self.width - 3))

    def row(self, y: float) -> int:
        """The cell of a y, kept within."""
        return min(max(self.height - 1 - int(y / self.top * self.height), 0), self.height - 1)

    def at(self, values: Sequence[float], xs: Sequence[float], column: float) -> float | None:
        """A value between two that are known, by the logarithm of x; None outside."""
        if not xs:
            return None
        wanted = self.first + (column - 1) / max(self.width - 3, 1) * self.span
        ends = log2(xs[0]), log2(xs[-1])
        if not ends[0] - 0.02 * self.span <= wanted <= ends[1] + 0.02 * self.span:
            return None
        right = min(max(bisect_right(xs, 2**wanted), 1), len(xs) - 1)
        if right < 1:
            return values[0]
        start, end = log2(xs[right - 1]), log2(xs[right])
        share = min(max((wanted - start) / (end - start), 0.0), 1.0) if end > start else 0.0
        return values[right - 1] + share * (values[right] - values[right - 1])

    def band(self, drawn: Plot) -> None:
        for column in range(self.width):
            low, high = self.at(drawn.low, drawn.x, column), self.at(drawn.high, drawn.x, column)
            if low is None or high is None:
                continue
            for row in range(self.row(high), self.row(low) + 1):
                self.cells[row][column] = (BAND, "band")

    def level(self, y: float) -> None:
        row = self.row(y)
        for column in range(self.width):
            self.cells[row][column] = (LEVEL, "limit")

    def upright(self, x: float) -> None:
        for row in range(self.height):
            self.cells[row][self.column(x)] = (UPRIGHT, "limit")

    def curve(self, drawn: Plot) -> None:
        """Two by four dots a cell; a steep stretch is drawn without gaps."""
        dots = self.height * 4
        masks: dict[tuple[int, int], int] = {}
        former: int | None = None
        for half in range(self.width * 2):
            value = self.at(drawn.expected, drawn.x, half / 2 - 0.25)
            if value is None:
                former = None
                continue
            here = min(max(dots - 1 - int(value / self.top * dots), 0), dots - 1)
            between = range(min(here, former), max(here, former) + 1) if former is not None else (here,)
            for dot in between:
                place = dot // 4, half // 2
                masks[place] = masks.get(place, 0) | DOTS[half % 2][dot % 4]
            former = here
        for (row, column), mask in masks.items():
            ground = self.cells[row][column]
            role = "curve_band" if ground[1] == "band" else "curve"
            self.cells[row][column] = (chr(0x2800 + mask), role)

    def point(self, x: float, y: float, kind: str) -> None:
        self.cells[self.row(y)][self.column(x)] = (GLYPHS[kind], ROLES[kind])

    def rows(self) -> list[tuple[Span, ...]]:
        return [
            tuple(
                ("".join(text for text, _ in group), role) for role, group in groupby(row, key=itemgetter(1))
            )
            for row in self.cells
        ]


def _axis(field: _Field, xs: Sequence[float], drawn: Plot) -> list[Span]:
    """The sizes that were measured or asked for, as many as there is room for."""
    cells = ["─"] * field.width
    named = list(dict.fromkeys(x for x, _, _ in drawn.points)) or [min(xs), max(xs)]
    # The ends first, then what is left from the middle out.
    for x in sorted(named, key=lambda each: (each not in {min(named), max(named)}, each)):
        text = f"{x:,.0f}"
        start = min(max(field.column(x) - len(text) // 2, 0), field.width - len(text))
        around = cells[max(start - 1, 0) : start + len(text) + 1]
        if start >= 0 and set(around) <= {"─"}:
            cells[start : start + len(text)] = text
    return [
        ("".join(group), "rule" if is_line else "dim")
        for is_line, group in (
            (key, list(each)) for key, each in groupby(cells, key=lambda cell: cell == "─")
        )
    ]


def _marks(field: _Field, marks: Sequence[tuple[float, str]]) -> list[Span]:
    cells = [" "] * field.width
    for x, word in marks:
        column = min(max(field.column(x), 0), field.width - 1)
        for text, start in ((f"▲ {word}", column), (f"{word} ▲", column - len(word) - 1), ("▲", column)):
            inside = start >= 0 and start + len(text) <= field.width
            if inside and not "".join(cells[max(start - 1, 0) : start + len(text) + 1]).strip():
                cells[start : start + len(text)] = text
                break
    return [("".join(cells), "mark")]


def short(value: float) -> str:
    """At most six characters for a number of an axis or a table."""
    if abs(value) < 9_999.5:
        return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    for limit, divisor, unit in ((999_500, 1e3, "k"), (999.5e6, 1e6, "M"), (999.5e9, 1e9, "G")):
        if abs(value) < limit:
            return f"{value / divisor:.3g}{unit}"
    return f"{value:.1e}"
