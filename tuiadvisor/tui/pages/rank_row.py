"""One rank as a table row, in the width at hand; used by the overview, the ranks screen and `once`.

In: RankRow, Columns.  Out: Line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from tuiadvisor import phases
from tuiadvisor.phases import PHASES
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Align, Cell, Line, Span, fit
from tuiadvisor.tui.draw import bars
from tuiadvisor.views.deaths import GONE
from tuiadvisor.views.unheard import UNHEARD

if TYPE_CHECKING:
    from tuiadvisor.views.rank_group import RankGroup
    from tuiadvisor.views.run_view import RankRow
    from tuiadvisor.views.step_map import StepMap

STATES = {
    "found": ("○ found", "dim"),
    "waiting_to_attach": ("◌ waiting", "warn"),
    "live": ("● live", "good"),
    "detached": ("◇ detached", "dim"),
    "exited": ("■ exited", "dim"),
    "killed": ("✖ killed", "bad"),
    "refused": ("⊘ refused", "warn"),
    UNHEARD: ("? unknown", "warn"),
}
# Of a live rank while the job is stalled.
HELD = {"waits": ("║ waits", "warn"), "stopped": ("■ stopped", "bad"), "missing": ("■ missing", "bad")}
STATE_WIDTH = 10


def state_text(rank: RankRow) -> Span:
    """Return glyph and word of a rank's state, and its role."""
    return HELD.get(rank.held) or STATES.get(rank.state, (f"? {rank.state}", "warn"))


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of the fields; 0 leaves a field out."""

    rank: int
    host: int
    figures: tuple[str, ...]  # of FIGURES, each FIGURE_WIDTH wide
    bar: int
    heat: int
    now: int
    phases: bool = False  # the heat map's columns are phases, not steps
    least: int = 0  # the heat map draws this level and those above
    values: StepMap | None = None  # what the heat map draws instead of lateness


FIGURES = {
    "step": "step",
    "wait": "waits",
    "caused": "causes",
    "last": "last",
}
FIGURE_WIDTH = 8
# Columns whose heads can be clicked, and what they sort by.
SORTED_BY = {
    "rank": "rank",
    "host": "host",
    "state": "state",
    "step": "step time",
    "wait": "own wait",
    "caused": "caused wait",
    "last": "last arrivals",
}


def mark(row: RankRow) -> Span:
    """Return what stands before a rank: a culprit's arrow, or the diamond of one that stands out."""
    if row.is_culprit:
        return "▶", "bad"
    return ("◆", "warn") if row.is_outlier else (" ", "bad")


def group_size(group: RankGroup, *, is_open: bool) -> str:
    """Return how many ranks a group has, behind what enter would do with it."""
    return f"{'-' if is_open else '+'}{len(group.ranks):,}"


def figure_text(rank: RankRow | RankGroup, name: str) -> str:
    """Return one of FIGURES of a rank."""
    if name == "last":
        return text_of.share(rank.last_arrivals)
    value = {"step": rank.step_s, "wait": rank.wait_s, "caused": rank.caused_each_s}[name]
    return text_of.seconds(value)


def number_width(ranks: tuple[RankRow, ...]) -> int:
    """Return the width of the rank column."""
    return max(len(str(max((rank.rank for rank in ranks), default=0))), 4)


def host_width(ranks: tuple[RankRow, ...], most: int) -> int:
    """Return the width of the host column."""
    return min(max(max((len(rank.host or text_of.UNKNOWN) for rank in ranks), default=0), 4), most)


def header(columns: Columns, heat_title: str, sorted_by: str = "", arrow: str = "") -> Line:
    """Return the head of the table. sorted_by: of SORTED_BY, with its arrow; "" where no head can be clicked."""

    def head(name: str, text: str, width: int, align: Align = "left") -> Cell:
        is_chosen = name == sorted_by
        # No room behind the narrowest one: its arrow stands in the column of the marks.
        shown = f"{text} {arrow}" if is_chosen and name != "rank" else text
        return Cell(shown, width, "strong" if is_chosen else "dim", align)

    cells = [
        ("", Cell(arrow if sorted_by == "rank" else "", 1, "strong")),
        ("rank", head("rank", "rank", columns.rank, "right")),
        ("host", head("host", "host", columns.host)),
        ("state", head("state", "state", STATE_WIDTH)),
        *((name, head(name, FIGURES[name], FIGURE_WIDTH, "right")) for name in columns.figures),
        ("", Cell("phases", columns.bar, "dim")),
        ("", Cell(phase_header(columns.heat) if columns.phases else heat_title, columns.heat, "dim")),
        ("", Cell("now", columns.now, "dim")),
    ]
    shown = [(name, cell) for name, cell in cells if cell.width]
    drawn = _joined([((fit(cell.text, cell.width, cell.align), cell.role),) for _, cell in shown])
    if not sorted_by:
        return drawn
    begins = list(accumulate((cell.width + 1 for _, cell in shown), initial=0))
    spots = [
        (begin, begin + cell.width, f"sort:{SORTED_BY[name]}")
        for begin, (name, cell) in zip(begins, shown, strict=False)
        if name in SORTED_BY
    ]
    return replace(drawn, spots=tuple(spots))


def heat_column(columns: Columns) -> int:
    """Return the column in which the heat map of a row begins."""
    before = [1, columns.rank, columns.host, STATE_WIDTH, *[FIGURE_WIDTH] * len(columns.figures), columns.bar]
    return sum(width + 1 for width in before if width)


def rank_line(rank: RankRow, columns: Columns, heat_first_step: int | None, left_step: int) -> Line:
    """Return the row of a rank; a rank that is gone says why where its figures were."""
    glyph, role = state_text(rank)
    fields: list[tuple[Span, ...]] = [
        (mark(rank),),
        ((fit(str(rank.rank), columns.rank, "right"), "strong" if rank.is_culprit else "text"),),
        ((fit(rank.host or text_of.UNKNOWN, columns.host), "dim"),),
        ((fit(glyph, STATE_WIDTH), role),),
    ]
    target = ("rank", str(rank.rank))
    finished = rank.state == "exited" and rank.step_s is not None
    is_without = rank.step_s is None and (rank.state != "live" or rank.is_apart)
    if not finished and (rank.state in GONE or is_without):
        room = _tail_width(columns)
        why = rank.why_no_figures or ("no reason given" if rank.state in GONE else "no step seen yet")
        return _joined([*fields, ((fit(why, room), role if rank.state in GONE else "dim"),)], target)
    fields += _measured(rank, columns, heat_first_step, left_step, is_loud=rank.is_culprit)
    if columns.now:
        fields.append(
            ((fit(text_of.activity(rank.now, columns.now) or rank.state_detail, columns.now), "dim"),)
        )
    return _joined(fields, target)


def _group_state(group: RankGroup) -> Span:
    """Return what became of a group's ranks: the worst first."""
    if group.num_lost:
        return (f"✖ {group.num_lost:,} lost", "bad")
    if group.num_live is None:
        return STATES[UNHEARD]
    if group.num_live < len(group.ranks):
        return (f"○ {group.num_live:,} live", "dim")
    return (f"● {group.num_live:,} live", "good")


def group_line(
    group: RankGroup, columns: Columns, heat_first_step: int | None, left_step: int, *, is_open: bool
) -> Line:
    """Return the row of a group: how many ranks, how many of them live; its heat is that of its latest rank."""
    arrow: Span = (
        ("▶", "bad") if group.num_culprits else ("◆", "warn") if group.num_outliers else (" ", "text")
    )
    state = _group_state(group)
    fields: list[tuple[Span, ...]] = [
        (arrow,),
        ((fit(group_size(group, is_open=is_open), columns.rank, "right"), "accent"),),
        ((fit(group.name or text_of.UNKNOWN, columns.host), "strong"),),
        ((fit(state[0], STATE_WIDTH), state[1]),),
    ]
    fields += _measured(group, columns, heat_first_step, left_step, is_loud=bool(group.num_culprits))
    if columns.now:
        odd = f"{text_of.count(group.num_outliers, 'outlier')}" if group.num_outliers else ""
        fields.append(((fit(odd, columns.now), "warn"),))
    return _joined(fields, ("group", group.name))


def _measured(
    row: RankRow | RankGroup, columns: Columns, heat_first_step: int | None, left_step: int, *, is_loud: bool
) -> list[tuple[Span, ...]]:
    fields: list[tuple[Span, ...]] = []
    for name in columns.figures:
        text = figure_text(row, name)
        loud = "strong" if is_loud and name != "step" else "text"
        fields.append(((fit(text, FIGURE_WIDTH, "right"), "unknown" if text == text_of.UNKNOWN else loud),))
    if columns.bar:
        fields.append(tuple(bars.stacked_bar(row.shares, columns.bar)))
    if columns.heat and columns.phases:
        fields.append(tuple(phase_cells(row, columns.heat)))
    elif columns.heat:
        heat = bars.heat_row(_levels(row, columns), heat_first_step, left_step, columns.heat, columns.least)
        fields.append(tuple(heat))
    return fields


def _levels(row: RankRow | RankGroup, columns: Columns) -> bytes:
    if columns.values is None:
        return row.lateness_levels
    return columns.values.of(row.ranks if hasattr(row, "ranks") else (row.rank,))


# Phases that every training has; the others are told by the letters of the steps' bars.
MAPPED_PHASES = phases.EVERY_STEP
PHASE_WIDTH = 10  # of a cell that holds a figure


def _phase_width(width: int) -> int:
    return max((width + 1) // len(MAPPED_PHASES), 2)


def phase_header(width: int) -> str:
    """Return the names of the phases over their columns."""
    size = _phase_width(width)
    names = [
        bars.SHORT_NAMES[phase] if size >= PHASE_WIDTH else bars.TINY_NAMES[phase] for phase in MAPPED_PHASES
    ]
    align: Align = "right" if size >= PHASE_WIDTH else "left"  # as what stands below
    return " ".join(fit(name, size - 1, align) for name in names)


def phase_cells(row: RankRow | RankGroup, width: int) -> list[Span]:
    """Return a cell a phase: how much longer than its peers by height and colour, and how long where there is room."""
    size = _phase_width(width)
    spans: list[Span] = []
    for phase in MAPPED_PHASES:
        place = PHASES.index(phase)
        level = row.phase_levels[place] if place < len(row.phase_levels) else bars.LEVEL_UNKNOWN
        is_known = level < len(bars.LEVELS)
        glyph, role = (bars.LEVELS[level], f"heat:{level}") if is_known else (bars.NOT_SEEN, "heat:unknown")
        value = row.seconds.get(phase)
        if size < PHASE_WIDTH:
            spans.append((glyph * (size - 1) + " ", role))
        elif value is None:
            spans.append((fit(text_of.UNKNOWN, size - 1, "right") + " ", "unknown"))
        else:
            spans += [(glyph, role), (fit(text_of.seconds(value), size - 2, "right") + " ", role)]
    # The gap behind the last cell is the field's own, where there is room.
    *before, (text, role) = spans
    return [*before, (text.removesuffix(" "), role), (" " * (width - size * len(MAPPED_PHASES) + 1), "text")]


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
