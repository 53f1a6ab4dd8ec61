"""Small charts as spans: stacked bar, columns, heat row, progress and time line.

They scale what they are given to cells; the numbers themselves come from the RunView as they are.
In: shares, series, levels.  Out: spans or lines of exactly the asked width.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tuiadvisor import phases
from tuiadvisor.phases import PHASES
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, Span, clean, fit, to_ascii
from tuiadvisor.views.shares import known_phases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.views.shares import Shares

PHASE_LETTERS = {phase.name: phase.letter for phase in phases.TABLE}  # the legend spells them out
SHORT_NAMES = {phase.name: phase.short for phase in phases.TABLE}
TINY_NAMES = {phase.name: phase.tiny for phase in phases.TABLE}
LEGEND_WIDTH = 25
LEGEND_GAP = 1
COLUMNS = "▁▂▃▄▅▆▇█"
# Lateness 0 (in time) .. 7 (very late). The two commonest are ASCII: a block glyph costs three bytes on the wire.
LEVELS = "._▂▃▄▅▆█"
NOT_SEEN = "?"
LEVEL_UNKNOWN = 255
FEWEST_RIBBON_VALUES = 30
# In a field of a thousand cells jitter is noise, on the eye and on the wire: only lateness is drawn.
VISIBLE_LEVEL = 3
TICK = "╵"  # before the number of a step, in the column of that step
AXIS_GAP = 8  # blank columns between two of them at least


def unknown_phases(shares: Shares) -> list[str]:
    """Return the phases nobody observed."""
    return [phase for phase in PHASES if shares.get(phase) is None]


def cells_of(values: Sequence[float], width: int) -> list[int]:
    """Return whole cells that sum to `width`, by largest remainder; a visible part keeps one cell."""
    total = sum(values)
    if total <= 0 or width <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    cells = [int(size) for size in exact]
    order = sorted(range(len(values)), key=lambda index: exact[index] - cells[index], reverse=True)
    for index in order[: width - sum(cells)]:
        cells[index] += 1
    for index, size in enumerate(exact):
        widest = max(range(len(cells)), key=cells.__getitem__)
        if cells[index] == 0 and size >= 0.25 and cells[widest] > 2:
            cells[index] += 1
            cells[widest] -= 1
    return cells


def stacked_bar(shares: Shares, width: int, *, named: bool = False) -> list[Span]:
    """Return the phases of a step as one bar; `named` writes name and share into parts that have room."""
    phases = known_phases(shares)
    if not phases:
        return [(fit("no phase observed yet" if width > 21 else text_of.UNKNOWN, width), "unknown")]
    spans: list[Span] = []
    for (phase, value), cells in zip(phases, cells_of([value for _, value in phases], width), strict=True):
        if cells:
            role = f"phase:{phase}" if named else f"bar:{phase}"
            spans.append((_bar_text(phase, value, cells, named=named), role))
    return spans


def _bar_text(phase: str, value: float, cells: int, *, named: bool) -> str:
    letter = PHASE_LETTERS[phase]
    if not named:
        return letter * cells
    # The edge parts two phases where colours do not.
    label = phase_label(phase, text_of.share(value), cells - 2)
    if label:
        return f"▏{label} ".ljust(cells)
    return f"▏{letter}".ljust(cells) if cells > 1 else letter


def phase_label(phase: str, figure: str, width: int) -> str:
    """Return the phase's name with its figure, its shorter names where the longer one leaves no room for that.

    Without the figure where none does; "" where the name has no room either.
    """
    names = (text_of.phase_name(phase), SHORT_NAMES.get(phase, ""), TINY_NAMES.get(phase, ""))
    with_figure = [f"{name} {figure}" for name in names if name]
    return next((label for label in (*with_figure, names[0]) if cell_len(label) <= width), "")


def legend(shares: Shares, seconds: Shares, width: int, max_rows: int) -> list[Line]:
    """Return name, share and time of each known phase, largest first, in aligned columns."""
    phases = sorted(known_phases(shares), key=lambda pair: pair[1], reverse=True)
    across = max((width + LEGEND_GAP) // (LEGEND_WIDTH + LEGEND_GAP), 1)
    rows = []
    for start in range(0, len(phases), across):
        spans: list[Span] = []
        for phase, value in phases[start : start + across]:
            if spans:
                spans.append((" " * LEGEND_GAP, "text"))
            spans += _legend_item(phase, value, seconds.get(phase))
        rows.append(Line(tuple(spans)))
    return rows[:max_rows]


def _legend_item(phase: str, value: float, seconds: float | None) -> list[Span]:
    return [
        (PHASE_LETTERS[phase], f"phase:{phase}"),
        (" " + fit(SHORT_NAMES[phase], 9), "text"),
        (fit(text_of.share(value), 6, "right"), "strong"),
        (fit(text_of.seconds(seconds), 8, "right"), "dim"),
    ]


def column_chart(
    values: Sequence[float | None],
    width: int,
    rows: int,
    top: float | None = None,
    *,
    unknown: str = NOT_SEEN,
) -> list[Line]:
    """Return a chart from zero up, newest right, eighths of a cell; an unknown value is marked at the foot.

    Series longer than `width` show the highest value of each column (`squeezed`), shorter ones are widened to it. top:
    what fills a column; higher values are cut. None: the highest. unknown: stands at the foot where nothing is known.
    """
    shown = squeezed(values, width)
    highest = top or max((value for value in shown if value is not None), default=0.0)
    eighths = [
        None
        if value is None
        else min(max(round(value / highest * rows * 8), 1), rows * 8)
        if highest > 0
        else 1
        for value in (shown[column * len(shown) // width] for column in range(width if shown else 0))
    ]
    return [_chart_row(eighths, level, unknown) for level in range(rows - 1, -1, -1)]


def squeezed(
    values: Sequence[float | None], width: int, choose: Callable[..., float] = max
) -> Sequence[float | None]:
    """Return one value a column where there are more: what `choose` takes of those in it, so that no jump is lost."""
    if len(values) <= width:
        return values
    columns: list[float | None] = []
    for column in range(width):
        part = values[column * len(values) // width : (column + 1) * len(values) // width]
        known = [value for value in part if value is not None]
        columns.append(choose(known) if known else None)
    return columns


def spark_line(values: Sequence[float | None], width: int) -> Line:
    """Return a whole series as one row, from its first value to its last whatever the width."""
    shown = [values[column * len(values) // width] for column in range(width)] if values else []
    return column_chart(shown, width, 1)[0]


def _chart_row(eighths: Sequence[int | None], level: int, unknown: str) -> Line:
    """Return one row of a column chart: a bright edge over a quiet area."""
    cells = [_column_cell(size, level, unknown) for size in eighths]
    spans = [(role, glyph) for glyph, role in cells]
    return Line(
        tuple(("".join(glyph for _, glyph in group), role) for role, group in groupby(spans, itemgetter(0)))
    )


def _column_cell(eighths: int | None, level: int, unknown: str) -> Span:
    if eighths is None:
        return (unknown if level == 0 else " ", "heat:unknown")
    filled = eighths - level * 8
    if filled <= 0:
        return " ", "spark"
    return (COLUMNS[7], "area") if filled > 8 else (COLUMNS[filled - 1], "spark")


def chart_marks(
    marks: Sequence[tuple[int, str]], first_step: int, steps_per_bucket: int, num_values: int, width: int
) -> Line:
    """Return the row under a column chart that points at the marked steps and names them where there is room."""
    cells = [" "] * width
    for step, raw_name in marks:
        name = clean(raw_name) if cell_len(raw_name) == len(raw_name) else to_ascii(clean(raw_name))
        column = chart_column(step, first_step, steps_per_bucket, num_values, width)
        if column is None:
            continue
        for text in (f"▲ step {step:,} {name}", f"▲ {name}", "▲"):
            # A label that would leave the screen stands left of its arrow.
            fits = column + len(text) <= width
            shown_text = text if fits else f"{text[2:]} ▲".strip()
            start = column if fits else column - len(shown_text) + 1
            if start >= 0 and not "".join(cells[max(start - 1, 0) : start + len(text) + 1]).strip():
                cells[start : start + len(text)] = shown_text
                break
    return Line((("".join(cells).rstrip(), "mark"),))


def chart_column(
    step: int, first_step: int, steps_per_bucket: int, num_values: int, width: int
) -> int | None:
    """Return the column of a column chart in which a step is drawn; None where it has none."""
    bucket = (step - first_step) // steps_per_bucket if steps_per_bucket > 0 else -1
    if not 0 <= bucket < num_values:
        return None
    # Of a widened value the first column, of a squeezed one the column that holds it.
    return (
        -(-bucket * width // num_values) if num_values <= width else ((bucket + 1) * width - 1) // num_values
    )


def step_axis(
    first_step: int,
    steps_per_bucket: int,
    num_values: int,
    width: int,
    label: Callable[[int], str] = "{:,}".format,
) -> Line:
    """Return the row under a column chart with the numbers of its steps: the first, then round ones where they fit."""
    cells = [" "] * width
    free = 0
    last_step = first_step + num_values * steps_per_bucket - 1
    widest = len(label(last_step)) + AXIS_GAP
    distance = _round_up(widest * steps_per_bucket * num_values / max(width, 1))
    for step in (first_step, *range((first_step // distance + 1) * distance, last_step + 1, distance)):
        column = chart_column(step, first_step, steps_per_bucket, num_values, width)
        text = f"{TICK}{'step ' if step == first_step else ''}{label(step)}"
        if column is None or column < free or column + len(text) > width:
            continue
        cells[column : column + len(text)] = text
        free = column + len(text) + 1
    return Line((("".join(cells).rstrip(), "dim"),))


def _round_up(steps: float) -> int:
    """Return the next of 1, 2, 5, 10, 20 and so on."""
    power = 1
    while True:
        for size in (power, 2 * power, 5 * power):
            if size >= steps:
                return size
        power *= 10


@dataclass(frozen=True, slots=True)
class RibbonScale:
    """Which of so many values a column of the ribbon draws.

    It fills up to the right, so that what is drawn stays in place; one that is full takes the whole width.
    """

    num_values: int
    width: int
    is_full: bool  # nothing more comes

    @property
    def capacity(self) -> int:
        """For how many values there is room."""
        if self.is_full:
            return max(self.num_values, 1)
        capacity = FEWEST_RIBBON_VALUES
        while capacity < self.num_values:
            capacity *= 2
        return capacity

    def columns(self, values: Sequence[float | None]) -> list[float | None]:
        """Return the highest value of each column, so that no jump is lost; columns of the future are left out."""
        capacity = self.capacity
        columns: list[float | None] = []
        for column in range(self.width):
            start = column * capacity // self.width
            if start >= self.num_values:
                break
            end = max((column + 1) * capacity // self.width, start + 1)
            known = [value for value in values[start:end] if value is not None]
            columns.append(max(known, default=None))
        return columns

    def column_of(self, value: int) -> int:
        """Return the column that draws this one, of several the first; within the ribbon."""
        width, capacity = self.width, self.capacity
        column = -(-value * width // capacity) if width >= capacity else ((value + 1) * width - 1) // capacity
        return min(column, width - 1)

    def value_at(self, column: int) -> int | None:
        """Return the first value of a column; None where nothing is drawn yet."""
        value = column * self.capacity // self.width
        return value if 0 <= column < self.width and value < self.num_values else None


def first_heat_step(first_step: int, num_steps: int, width: int) -> int:
    """Return the step of the leftmost column: the map moves by a quarter of its width at a time.

    Moving by one column a step would rewrite every cell over the wire.
    """
    block = max(width // 4, 1)
    earliest = first_step + num_steps - width
    aligned = first_step // block * block
    return aligned if aligned >= earliest else -(-earliest // block) * block


def heat_row(levels: bytes, first_step: int | None, left_step: int, width: int, least: int = 0) -> list[Span]:
    """Return one rank's recent lateness, a column a step, height and colour by level; below `least` as in time."""
    skip = left_step - first_step if first_step is not None else max(len(levels) - width, 0)
    shown = levels[max(skip, 0) :][:width]
    if least:
        shown = shown.translate(bytes(level if level >= least else 0 for level in range(256)))
    lead = " " * min(max(-skip, 0), width)
    spans: list[Span] = [(lead, "heat:0")] if lead else []
    for level, group in groupby(shown):
        text = LEVELS[level] if level < len(LEVELS) else NOT_SEEN
        spans.append((text * len(list(group)), f"heat:{level if level < len(LEVELS) else 'unknown'}"))
    gap = width - len(lead) - len(shown)
    if gap > 0:
        spans.append((" " * gap, "heat:0"))
    return spans


def level_legend(width: int, least: str = "in time", most: str = "very late") -> Line:
    """Return what the heights of the heat map mean."""
    spans: list[Span] = [(f"{least} ", "dim")]
    spans += [(LEVELS[level], f"heat:{level}") for level in range(len(LEVELS))]
    spans += [(f" {most}", "dim")]
    return Line(tuple(spans)) if width >= 26 else Line()


def progress(done: int, whole: int, width: int) -> list[Span]:
    """Return a progress bar."""
    filled = min(max(round(width * done / whole), 0), width) if whole > 0 else 0
    return [("█" * filled, "accent"), ("░" * (width - filled), "dim")]


def time_line(position: float, marks: Sequence[tuple[float, str]], width: int) -> list[Span]:
    """Return a recording as a line: what was played, the head, and the marks of its findings."""
    head = min(max(round(position * (width - 1)), 0), width - 1)
    cells: list[Span] = [
        ("━" if cell < head else "─", "accent" if cell < head else "dim") for cell in range(width)
    ]
    for place, _ in marks:
        cells[min(max(round(place * (width - 1)), 0), width - 1)] = ("▲", "mark")
    cells[head] = ("●", "strong")
    merged: list[Span] = []
    for role, group in groupby(cells, key=lambda span: span[1]):
        merged.append(("".join(text for text, _ in group), role))
    return merged
