"""One rank as a table row, in the width at hand; used by the overview, the ranks screen and `once`.

In: RankRow, Columns.  Out: Line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiadvisor.tui import bars
from tuiadvisor.tui import format as text_of
from tuiadvisor.tui.line import Cell, Line, Span, fit

if TYPE_CHECKING:
    from tuiadvisor.advisor.view import RankRow

STATES = {
    "found": ("○ found", "dim"),
    "waiting_to_attach": ("◌ waiting", "warn"),
    "live": ("● live", "good"),
    "detached": ("◇ detached", "dim"),
    "exited": ("■ exited", "dim"),
    "killed": ("✖ killed", "bad"),
    "refused": ("⊘ refused", "warn"),
}
GONE = frozenset({"exited", "killed", "refused"})
STATE_WIDTH = 10


def state_text(rank: RankRow) -> Span:
    """Return glyph and word of a rank's state, and its role."""
    return STATES.get(rank.state, (f"? {rank.state}", "warn"))


def needs_eyes(rank: RankRow) -> bool:
    """Return whether a rank must be on the screen even where most ranks are not."""
    return rank.is_culprit or rank.state in GONE or rank.state == "waiting_to_attach"


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the fields; 0 leaves a field out."""

    rank: int
    host: int
    figures: tuple[str, ...]  # of FIGURES, each FIGURE_WIDTH wide
    bar: int
    heat: int
    now: int


FIGURES = {
    "step": "step",
    "wait": "waits",
    "caused": "causes",
    "last": "last",
}
FIGURE_WIDTH = 8


def figure_text(rank: RankRow, name: str) -> str:
    """Return one of FIGURES of a rank."""
    if name == "last":
        return text_of.share(rank.last_arrivals)
    value = {"step": rank.step_s, "wait": rank.wait_s, "caused": rank.caused_wait_s}[name]
    return text_of.seconds(value)


def number_width(ranks: tuple[RankRow, ...]) -> int:
    """Return the width of the rank column."""
    return max(len(str(max((rank.rank for rank in ranks), default=0))), 4)


def host_width(ranks: tuple[RankRow, ...], most: int) -> int:
    """Return the width of the host column."""
    return min(max(max((len(rank.host or text_of.UNKNOWN) for rank in ranks), default=0), 4), most)


def header(columns: Columns, heat_title: str) -> Line:
    """Return the head of the table."""
    cells = [
        Cell("", 1),
        Cell("rank", columns.rank, "dim", "right"),
        Cell("host", columns.host, "dim"),
        Cell("state", STATE_WIDTH, "dim"),
        *(Cell(FIGURES[name], FIGURE_WIDTH, "dim", "right") for name in columns.figures),
        Cell("phases", columns.bar, "dim"),
        Cell(heat_title, columns.heat, "dim"),
        Cell("now", columns.now, "dim"),
    ]
    return _joined([((fit(cell.text, cell.width, cell.align), cell.role),) for cell in cells if cell.width])


def rank_line(rank: RankRow, columns: Columns, heat_first_step: int | None, left_step: int) -> Line:
    """Return the row of a rank; a rank that is gone says why where its figures were."""
    glyph, role = state_text(rank)
    fields: list[tuple[Span, ...]] = [
        (("▶" if rank.is_culprit else " ", "bad"),),
        ((fit(str(rank.rank), columns.rank, "right"), "strong" if rank.is_culprit else "text"),),
        ((fit(rank.host or text_of.UNKNOWN, columns.host), "dim"),),
        ((fit(glyph, STATE_WIDTH), role),),
    ]
    target = ("rank", str(rank.rank))
    finished = rank.state == "exited" and rank.step_s is not None
    if not finished and (rank.state in GONE or (rank.state != "live" and rank.step_s is None)):
        room = _tail_width(columns)
        why = rank.state_detail or ("no reason given" if rank.state in GONE else "no step seen yet")
        return _joined([*fields, ((fit(why, room), role if rank.state in GONE else "dim"),)], target)
    for name in columns.figures:
        text = figure_text(rank, name)
        loud = "text" if name == "step" or not rank.is_culprit else "strong"
        fields.append(((fit(text, FIGURE_WIDTH, "right"), "unknown" if text == text_of.UNKNOWN else loud),))
    if columns.bar:
        fields.append(tuple(bars.stacked_bar(rank.shares, columns.bar)))
    if columns.heat:
        fields.append(tuple(bars.heat_row(rank.lateness_levels, heat_first_step, left_step, columns.heat)))
    if columns.now:
        fields.append(((fit(text_of.activity(rank.now) or rank.state_detail, columns.now), "dim"),))
    return _joined(fields, target)


def _tail_width(columns: Columns) -> int:
    widths = [FIGURE_WIDTH] * len(columns.figures) + [columns.bar, columns.heat, columns.now]
    present = [width for width in widths if width]
    return sum(present) + max(len(present) - 1, 0)


def _joined(fields: list[tuple[Span, ...]], target: tuple[str, str] | None = None) -> Line:
    spans: list[Span] = []
    for field in fields:
        if spans:
            spans.append((" ", "text"))
        spans.extend(field)
    return Line(tuple(spans), target)
