"""Scaling and cost: efficiency, cost and hours over devices with their intervals, what is stated, the decision.

In: DeskState with a Picture.  Out: lines. Every number comes from the picture; keys change what is stated, and the next
picture comes from the desk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text.line import (
    BLANK,
    Cell,
    Line,
    beside,
    clean,
    crop,
    fit,
    indent,
    length,
    line,
    row,
    rule,
    wrap,
)
from tuiadvisor.text.plot import Plot, plot
from tuiadvisor.text.wording import MEETS, MEETS_LEGEND, because_of_size, size_figures
from tuiadvisor.tui.contract.desk import NudgeSize, Scale, StateSize
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.as_it_is import as_it_is
from tuiadvisor.tui.pages.details import bullet

if TYPE_CHECKING:
    from tuiadvisor.scaling.picture import Curve, Entry, Picture, SizeRow
    from tuiadvisor.text.line import Span, Target
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place

MARGIN = 1
WIDE = 116  # columns from which three curves and the table stand side by side
GAP = 3
LABEL = 23
DECISION_ROWS = 3
ROOMY = 90  # columns from which the table spells its limits out
MARK = 2  # cells of a size's mark
HEADS = ("devices", "time", "efficiency", "cost", "hours")
LIMITS, SHORT_LIMITS = ("in time", "in budget"), ("t", "$")
SHORTEST, TALLEST = 5, 14
BESIDE_PLOTS = (16, 29)  # rows that all but the plots want, narrow and wide
ROLES = {"yes": "good", "no": "bad", "perhaps": "warn", "": "dim"}  # of a limit's glyph


def show_scaling(place: Place) -> None:
    """How what is shown scales."""
    place.shell.ask(Scale())
    place.show("scaling")


def ask_size(place: Place) -> None:
    """Ask for what may be stated about sizes."""
    entry = place.at(ScalingPage).entry()
    if entry is not None:
        hint = f"{entry.hint}; empty takes it back, esc stops"
        place.ask_for(Prompt(entry.label, hint, lambda typed: state_size(place, typed), entry.text))


def state_size(place: Place, typed: str) -> None:
    """Send what was typed, if it is anything new."""
    entry = place.at(ScalingPage).entry()
    if entry is not None and typed.strip() != entry.text:
        place.shell.ask(StateSize(entry.name, typed))


def nudge(place: Place, by: int) -> None:
    """A little more or less of what the cursor stands on."""
    pointed = place.at(ScalingPage).opened()
    if pointed is not None:
        place.shell.ask(NudgeSize(pointed[1], by))


class ScalingPage(Page):
    """The sixth screen."""

    name = "scaling"
    title = "Scaling and cost"
    about = (
        "Curves over devices: what is expected, within its 90 % interval (one run alone: best to "
        "worst case). "
        "Cost and hours are of the work that is left. A limit counts as kept where the whole "
        "interval keeps it. Enter on a "
        "row of what is stated changes it, left and right a tenth; curves and decision follow."
    )
    is_screen = True
    commands: ClassVar = (
        Command(
            "scaling",
            ("6",),
            "6",
            "Scaling",
            "efficiency and cost of other sizes, your limits, one decision",
            "screens",
            show_scaling,
        ),
    )
    does: ClassVar = {
        "next_rank": lambda place: nudge(place, 1),
        "previous_rank": lambda place: nudge(place, -1),
        "refresh": lambda place: place.shell.ask(Scale()),
    }
    opens: ClassVar = {"entry": lambda place, _: ask_size(place)}
    of_run = False
    about_run = True
    terms = ("efficiency", "cost")
    keys = ("open", "next_rank", "previous_rank", "refresh", "up", "down", "advisor", "copy", "help", "quit")
    labels: ClassVar = {"open": "Change", "next_rank": "More", "previous_rank": "Less"}
    abouts: ClassVar = {
        "open": "type another value of what the cursor stands on",
        "next_rank": "a tenth more of it",
        "previous_rank": "a tenth less of it",
    }

    def __init__(self) -> None:
        super().__init__()

    def headline(self, state: FeedState) -> str:
        """What the sizes come from, where no run is open."""
        held = self.desk.scaling
        return "" if state.view is not None or held is None else f"SCALING {held.source}"

    def entry(self) -> Entry | None:
        """What the cursor stands on."""
        held = self.desk.scaling
        wanted = self.cursor[1] if self.cursor else ""
        return next((one for one in held.entries if one.name == wanted), None) if held else None

    def opened(self) -> Target | None:
        """What the cursor stands on; without one the first."""
        if super().opened() is None and self.targets:
            self.cursor = self.targets[0]
        return super().opened()

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return decision, curves, what is stated and the sizes; without curves what the one run tells."""
        held, room = self.desk.scaling, width - 2 * MARGIN
        if held is None:
            self.targets = []
            said = self.desk.scaling_note or "The sizes have not been looked at yet: u looks."
            rows = [rule("scaling and cost", room), *(line((text, "dim")) for text in wrap(said, room))]
        else:
            rows = self._screen(held, room, height)
        if held is None or not held.curves:
            rows += as_it_is(state.view, room, height - len(rows), with_prospects=True)
        return self.arranged(
            [indent(crop(each, room), MARGIN) if each.spans else each for each in rows], width, height
        )

    def _screen(self, held: Picture, room: int, height: int) -> list[Line]:
        wide = room >= WIDE
        rows = [rule("scaling and cost", room, fit(held.source, min(len(held.source), room - 24)).strip())]
        if self.desk.scaling_note:
            rows.append(line((f"… {self.desk.scaling_note}", "accent")))
        rows += _decision(held, room)
        if not held.curves:
            rows += [row for text in held.missing for row in bullet("○", text, room, "text")]
            rows += [BLANK, *self._entries(held, room)]
        else:
            wanted = len(rows) + BESIDE_PLOTS[wide]
            shown = held.curves if wide else held.curves[:2]
            rows += _plots(held, shown, room, min(max(height + 4 - wanted, SHORTEST), TALLEST))
            rows.append(_legend(held, room))
            rows += self._below(held, room) if wide else self._entries(held, room)
        if not (wide and held.curves):
            rows += [BLANK, *_sizes(held, room)] if held.rows else []
            rows += _remarks(held, room, room)
        return rows

    def _below(self, held: Picture, room: int) -> list[Line]:
        left = max(room * 2 // 5, 60)
        right = room - left - GAP
        entries = self._entries(held, left)
        if _taken(_widths(held, right)) > right:  # figures are not cut: the table gets the whole width
            rows = beside(entries, left, _remarks(held, right, room), GAP)
            return [*rows, BLANK, *_sizes(held, room)]
        return beside([*entries, BLANK, *_remarks(held, left, room)], left, _sizes(held, right), GAP)

    def _entries(self, held: Picture, width: int) -> list[Line]:
        rows = [rule("what is stated", width, "enter changes it, left and right a little")]
        for one in held.entries:
            target = ("entry", one.name)
            here = self.cursor == target
            value: Span = (one.text, "strong") if one.text else (one.unstated, "dim")
            spans: list[Span] = [("▶ " if here else "  ", "accent"), (fit(one.label, LABEL), "text"), value]
            room = width - sum(len(text) for text, _ in spans) - 2
            if here and room > 12:
                spans += [("  ", "text"), (fit(one.hint, room).rstrip(), "dim")]
            rows.append(Line(tuple(spans), target))
        return rows


def _decision(held: Picture, width: int) -> list[Line]:
    if held.decision is None:
        return [line((" … NO DECISION ", "badge"), (" there is too little to judge by", "strong"))]
    badge, because = _badge(held)
    texts = wrap(because, width - len(badge) - 1)
    if len(texts) <= DECISION_ROWS:
        rows = [line((badge, f"badge:{held.decision}"), " ", (texts[0] if texts else "", "strong"))]
        return [*rows, *(indent(line((text, "strong")), len(badge) + 1) for text in texts[1:])]
    # A long badge leaves little room beside it: the sentence goes on below, over the whole width.
    below = wrap(" ".join(clean(because).split())[len(texts[0]) :], width)
    if len(below) > DECISION_ROWS:
        below = [*below[: DECISION_ROWS - 1], fit(f"{below[DECISION_ROWS - 1]} …", width).rstrip()]
    first = line((badge, f"badge:{held.decision}"), " ", (texts[0], "strong"))
    return [first, *(line((text, "strong")) for text in below)]


def _badge(held: Picture) -> tuple[str, str]:
    """What to do, and why."""
    decision = held.decision or "keep"
    words = held.words.partition(decision.upper())[2]
    return f" {sections.DECISIONS[decision]}{words} ", because_of_size(held)


def _plots(held: Picture, curves: tuple[Curve, ...], room: int, height: int) -> list[Line]:
    size = (room - GAP * (len(curves) - 1)) // len(curves)
    blocks = [[_plot_head(curve, size), *plot(_drawn(held, curve), size, height)] for curve in curves]
    rows = blocks[0]
    for place, block in enumerate(blocks[1:], 1):
        rows = beside(rows, place * size + (place - 1) * GAP, block, GAP)
    return rows


def _plot_head(curve: Curve, width: int) -> Line:
    unit = f", {curve.unit}" if curve.unit else ""
    left: list[Span] = [(curve.name, "title"), (unit, "dim")]
    limit = curve.limit_name
    gap = width - length(left) - len(limit)
    if limit and gap > 1:
        left += [(" " * gap, "text"), (limit, "limit")]
    return crop(Line(tuple(left)), width)


def _drawn(held: Picture, curve: Curve) -> Plot:
    points = tuple(
        (
            float(one.devices),
            one.value,
            "asked" if not one.is_measured else "yours" if one.devices == held.yours else "measured",
        )
        for one in curve.points
    )
    sizes = [*curve.devices, *(one.devices for one in curve.points)]
    chosen = held.chosen is not None and min(sizes) <= held.chosen <= max(sizes)
    marks = ((float(held.chosen), str(held.decision)),) if chosen and held.chosen is not None else ()
    return Plot(
        x=tuple(map(float, curve.devices)),
        expected=curve.expected,
        low=curve.low,
        high=curve.high,
        points=points,
        level=curve.limit,
        upright=None if held.deadline_from is None or not held.deadline_note else float(held.deadline_from),
        marks=marks,
    )


def _legend(held: Picture, width: int) -> Line:
    is_fitted = not held.basis.startswith("bounds")
    parts: list[tuple[str, str, str]] = [
        ("■", "mark", "yours"),
        ("●", "strong", "measured"),
        ("○", "accent", "predicted" if is_fitted else "expected"),
        ("░", "band", "90 % interval" if is_fitted else "best to worst case"),
        ("┄", "limit", "limit"),
    ]
    if held.deadline_from is not None and held.deadline_note:
        parts.append(("┊", "limit", "in time"))
    spans: list[Span] = []
    for glyph, role, text in parts:
        spans += [(glyph, role), (f" {text}  ", "dim")]
    return crop(Line((*spans[:-1], (spans[-1][0].rstrip(), "dim"))), width)


def _sizes(held: Picture, width: int) -> list[Line]:
    """One row a size: what was measured or predicted, with its interval."""
    roomy, has_limits = width >= ROOMY, _has_limits(held)
    widths = _widths(held, width)
    names = (*HEADS, *((LIMITS if roomy else SHORT_LIMITS) if has_limits else ()))
    rows = [rule("sizes", width, held.cost_unit)]
    heads = [Cell(name, size, "dim", "right") for name, size in zip(names, widths, strict=True)]
    rows.append(indent(row(heads), MARK))
    for one in held.rows:
        rows.append(_size(held, one, widths))
        rows += [indent(line((text, "warn")), 4) for text in wrap(one.note, width - 4)] if one.note else []
    if has_limits:
        said = MEETS_LEGEND if roomy else f"t in time, $ in budget: {MEETS_LEGEND}"
        rows += [line((text, "dim")) for text in wrap(said, width)]
    return rows


def _has_limits(held: Picture) -> bool:
    return any(one.in_time or one.in_budget for one in held.rows)


def _widths(held: Picture, width: int) -> tuple[int, ...]:
    """Cells of each column: the usual ones where figures fit them, else no more than the longest figure takes."""
    roomy, has_limits = width >= ROOMY, _has_limits(held)
    limits = ((7, 9) if roomy else (2, 2)) if has_limits else ()
    # Without limits to mark there is room for times and hours of any length.
    usual = (7, 12, 16, 18, 22) if roomy and not has_limits else (7, 8, 16, 18, 16)
    figures = [(f"{one.devices:,}", *size_figures(one, held.time_unit)) for one in held.rows]
    longest = [max(map(len, column)) for column in zip(HEADS, *figures, strict=True)]
    widened = (*map(max, usual, longest), *limits)
    return widened if _taken(widened) <= width else (*longest, *limits)


def _taken(widths: tuple[int, ...]) -> int:
    """Cells of a row: the mark, and a blank between columns."""
    return MARK + sum(widths) + len(widths) - 1


def _size(held: Picture, one: SizeRow, widths: tuple[int, ...]) -> Line:
    mark: Span = ("○ ", "accent")
    if one.is_measured:
        mark = ("■ ", "mark") if one.devices == held.yours else ("● ", "strong")
    time, share, cost, hours = size_figures(one, held.time_unit)
    cells = [
        Cell(f"{one.devices:,}", widths[0], "strong", "right"),
        Cell(time, widths[1], "text", "right"),
        Cell(share, widths[2], "text" if one.efficiency else "unknown", "right"),
        Cell(cost, widths[3], "text" if one.cost else "unknown", "right"),
        Cell(hours, widths[4], "text" if one.hours else "unknown", "right"),
    ]
    for meets, size in zip((one.in_time, one.in_budget), widths[len(HEADS) :], strict=False):
        cells.append(Cell(MEETS[meets], size, ROLES[meets], "right"))
    return Line((mark, *row(cells).spans))


def _remarks(held: Picture, width: int, room: int) -> list[Line]:
    """What follows for the limits, what is missing, and what has to be known about the figures.

    room: cells that the decision above has; what was cut there is said whole here.
    """
    rows: list[Line] = []
    whole = held.because if _decision(held, room)[-1].text.endswith("…") else ""
    found = [text for text in (whole, held.deadline_note, *held.answers) if text]
    if found:
        rows += [
            rule("what follows", width),
            *(each for text in found for each in bullet("→", text, width, "text")),
        ]
    if held.curves and held.missing:
        rows += [rule("what is missing", width)]
        rows += [each for text in held.missing for each in bullet("○", text, width, "text")]
    told = [held.basis, *held.notes] if held.basis else list(held.notes)
    if told:
        rows += [rule("about these figures", width)]
        rows += [each for text in told for each in bullet("·", text, width, "dim")]
    return rows
