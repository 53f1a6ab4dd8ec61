"""Ranks: one row each with its figures, its phases and a heat map of its recent steps; sort, filter, select.

Only the visible rows are built, so 4 and 16,384 ranks cost the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.tui import bars, rankrow
from tuiadvisor.tui import format as text_of
from tuiadvisor.tui.details import rank_lines
from tuiadvisor.tui.line import BLANK, Line, Target, indent, line, rule, select, spread
from tuiadvisor.tui.page import Page
from tuiadvisor.tui.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.view import RankRow, RunView
    from tuiadvisor.tui.feed import FeedState


# Rows a preview of a rank needs to be worth showing.
PREVIEW_ROWS = 9
NARROWEST_BAR = 8


def _largest_first(value: Callable[[RankRow], float | None]) -> Callable[[RankRow], tuple[float, int]]:
    """Sort key: largest first, unknown last, then by rank."""

    def key(rank: RankRow) -> tuple[float, int]:
        number = value(rank)
        return (float("inf") if number is None else -number, rank.rank)

    return key


SORTS: dict[str, Callable[[RankRow], tuple[float | str, int]]] = {
    "rank": lambda rank: (0.0, rank.rank),
    "caused wait": _largest_first(lambda rank: rank.caused_wait_s),
    "own wait": _largest_first(lambda rank: rank.wait_s),
    "last arrivals": _largest_first(lambda rank: rank.last_arrivals),
    "step time": _largest_first(lambda rank: rank.step_s),
    "host": lambda rank: (rank.host, rank.rank),
    "state": lambda rank: ("" if rankrow.needs_eyes(rank) else rank.state, rank.rank),
}


class Ranks(Page):
    """The second screen."""

    name = "ranks"
    title = "Ranks"
    keys = ("open", "sort", "filter", "reverse", "overview", "help", "pause", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.sort = "rank"
        self.reversed = False
        self.filter = ""
        self.order: list[RankRow] = []
        self.height = 1
        self.previewed: Target | None = None  # the rank below the table

    def next_sort(self) -> str:
        """Sort by the next column; returns its name."""
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.reversed = False
        return self.sort

    def turn_round(self) -> None:
        """Reverse the order."""
        self.reversed = not self.reversed

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return head, visible rows and the legend."""
        view = state.view
        if view is None:
            self.targets = []
            return waiting(state, width, height)
        self.order = self.chosen(view)
        self.targets = [("rank", str(rank.rank)) for rank in self.order]
        columns = table_columns(view.ranks, width - 2)
        length = max((len(rank.lateness_levels) for rank in view.ranks), default=0)
        left_step = bars.first_heat_step(view.heat_first_step or 0, length, columns.heat)
        self.height = max(height - 3, 1)
        self.num_rows = len(self.order)
        self._follow_cursor()
        self.num_below = max(self.num_rows - self.top - self.height, 0)
        visible = self.order[self.top : self.top + self.height]
        rows = [
            indent(rankrow.rank_line(rank, columns, view.heat_first_step, left_step), 1) for rank in visible
        ]
        self.target_rows = {("rank", str(rank.rank)): self.top + index for index, rank in enumerate(visible)}
        rows = [select(row, width) if row.target == self.cursor else row for row in rows]
        if not rows:
            rows = [indent(line((self._why_empty(view), "dim")), 1)]
        self.previewed = None
        if len(rows) + PREVIEW_ROWS <= self.height:
            rows += self._preview(view, width, self.height - len(rows))
        head = rankrow.header(columns, _heat_title(view, left_step, length, columns.heat))
        rows += [BLANK] * (self.height - len(rows))
        return [indent(rule(*self._title(view, width - 2)), 1), indent(head, 1), *rows, self._legend(width)]

    def opened(self) -> Target | None:
        """Return the selected rank, else the one whose details are shown below."""
        return super().opened() or self.previewed

    def _preview(self, view: RunView, width: int, height: int) -> list[Line]:
        """Return the selected rank, else the culprit, under a table that leaves room for it."""
        wanted = self.cursor[1] if self.cursor in self.targets and self.cursor else ""
        chosen = [rank for rank in self.order if str(rank.rank) == wanted] or [
            rank for rank in self.order if rank.is_culprit
        ]
        self.previewed = ("rank", str(chosen[0].rank)) if chosen else None
        if not chosen:
            return []
        rows = [BLANK, *rank_lines(view, chosen[0], width - 2)][:height]
        return [indent(row, 1) if row.spans else row for row in rows]

    def chosen(self, view: RunView) -> list[RankRow]:
        """Return the ranks that pass the filter, in the order of the sort."""
        wanted = self.filter.strip().lower()
        kept = [rank for rank in view.ranks if passes(rank, wanted)]
        return sorted(kept, key=SORTS[self.sort], reverse=self.reversed)

    def turn(self, rows: int) -> None:
        """A screenful down the table, the cursor with it."""
        self.move(rows)

    def neighbour(self, target: Target, rows: int) -> Target | None:
        """Return the target `rows` further down the table."""
        if target not in self.targets:
            return None
        index = self.targets.index(target) + rows
        return self.targets[min(max(index, 0), len(self.targets) - 1)]

    def scroll(self, rows: int) -> None:
        """Move by rows, cursor and view together."""
        self.top = min(max(self.top + rows, 0), max(self.num_rows - self.height, 0))
        if self.cursor in self.targets:
            self.move(rows)

    def _follow_cursor(self) -> None:
        if self.cursor in self.targets:
            index = self.targets.index(self.cursor)
            self.top = min(max(self.top, index - self.height + 1), index)
        self.top = min(max(self.top, 0), max(self.num_rows - self.height, 0))

    def _title(self, view: RunView, width: int) -> tuple[str, int, str]:
        order = f"by {self.sort}{', reversed' if self.reversed else ''}"
        chosen = f"filter “{self.filter}”: {len(self.order):,} of {len(view.ranks):,}" if self.filter else ""
        last = min(self.top + self.height, self.num_rows)
        place = (
            f"{self.top + 1:,}{text_of.TO}{last:,} of {self.num_rows:,}"
            if self.num_rows > self.height
            else ""
        )
        live = len([rank for rank in view.ranks if rank.state == "live"])
        right = " · ".join(part for part in (chosen, place, f"{live:,} live") if part)
        return f"ranks {order}", width, right

    def _why_empty(self, view: RunView) -> str:
        if not view.ranks:
            return "no rank known yet"
        return f"no rank, host or state contains “{self.filter}”: press / and change it, esc clears it"

    @staticmethod
    def _legend(width: int) -> Line:
        letters = line(*(part for item in _letters() for part in item))
        return indent(spread(bars.level_legend(width), letters, width - 2), 1)


def _letters() -> list[tuple[tuple[str, str], tuple[str, str]]]:
    names = {"D": "data", "F": "fwd", "B": "bwd", "C": "comm", "O": "opt", "r": "other"}
    phases = {letter: phase for phase, letter in bars.PHASE_LETTERS.items()}
    return [((letter, f"phase:{phases[letter]}"), (f" {name}  ", "dim")) for letter, name in names.items()]


def passes(rank: RankRow, wanted: str) -> bool:
    """Return whether a rank passes the filter: a number is the beginning of a rank's, a text is anywhere."""
    if not wanted:
        return True
    if wanted.isdecimal():
        return str(rank.rank).startswith(wanted)
    culprit = "culprit" if rank.is_culprit else ""
    return wanted in f"{rank.host} {rank.state} {rank.state_detail} {culprit}".lower()


def _heat_title(view: RunView, left_step: int, length: int, width: int) -> str:
    if not length or view.heat_first_step is None:
        return "lateness"
    last = min(view.heat_first_step + length, left_step + width) - 1
    title = f"late in {text_of.steps(max(left_step, view.heat_first_step), last)}"
    return title if len(title) <= width else "lateness"


def table_columns(ranks: tuple[RankRow, ...], width: int) -> rankrow.Columns:
    """Return the widths of the table: figures first, then phases, the heat map takes what is left."""
    number = rankrow.number_width(ranks)
    host = rankrow.host_width(ranks, 8 if width < 100 else 20)
    left = width - 1 - number - host - rankrow.STATE_WIDTH - 3
    choices = (
        ("step", "wait", "caused", "last"),
        ("wait", "caused", "last"),
        ("wait", "caused"),
        ("caused",),
    )
    # The bars keep a third of a narrow table, and room enough to be told apart.
    names = next((each for each in choices if left - len(each) * 9 >= 2 * NARROWEST_BAR + 8), choices[-1])
    left -= (rankrow.FIGURE_WIDTH + 1) * len(names)
    now = 18 if left >= 90 else 0
    left -= now + 1 if now else 0
    bar = min(max(left // 3, NARROWEST_BAR), 30)
    return rankrow.Columns(number, host, names, bar, max(left - bar - 2, 0), now)
