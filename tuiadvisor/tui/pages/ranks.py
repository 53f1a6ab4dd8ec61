"""Ranks: a row each, or a row a host, stage or replica, with figures, phases and a heat map; sort, filter, select.

Only the visible rows are built, so 4 and 16,384 ranks cost the same. A rank that stands out is on the screen wherever
one has scrolled to: in its place, or in the block below the table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, Span, Target, indent, length, line, rule, select, spread, wrap
from tuiadvisor.tui.contract.feed import SeekStep
from tuiadvisor.tui.contract.page import Command, Page, only_on, opening
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import rank_row, sections
from tuiadvisor.tui.pages.by_rank import devices_of_ranks, phases_of_ranks
from tuiadvisor.tui.pages.details import rank_lines
from tuiadvisor.tui.pages.rank_list import (
    ASCENDING,
    GROUPED_FROM,
    SORTS,
    Choice,
    RankList,
    listed,
    shown_grouping,
)
from tuiadvisor.tui.pages.rank_map import StepHeat
from tuiadvisor.tui.pages.waiting import waiting
from tuiadvisor.views.shown_ranks import UNWELL
from tuiadvisor.views.unheard import UNHEARD

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.run_view import RunView


# Rows a preview of a rank needs to be worth showing.
PREVIEW_ROWS = 9
NARROWEST_BAR = 8
# Rows that ranks out of sight may take: an eighth of the table, two at least.
PINNED_SHARE = 8
MIN_PINNED = 2
ROOM_FOR_PINNED = 8
ONE_EACH = "rank"  # no grouping
AWAITED = ("stopped", "missing")  # how a rank is held for which the others wait
FILTER_HINT = "7, 8-15, host, stage 2, live, outlier …; enter keeps it, esc clears it"
ON_RANKS = only_on("ranks", "only on the ranks screen: press 2")


def ask_filter(place: Place) -> None:
    """Filter the list that is shown while it is typed."""
    page = place.page

    def change(typed: str) -> None:
        page.filter = typed

    place.ask_for(Prompt("/", page.filter_hint, change, page.filter, change, lambda: change("")))


def move_cell(place: Place, by: int) -> None:
    """Move the cursor on the map."""
    why_not = place.at(Ranks).move_cell(place.state.view, by)
    if why_not:
        place.say(why_not)


def no_list(_state: FeedState, page: Page) -> str:
    """Only lists can be filtered."""
    return "" if page.filter_hint else "only on a list: 2 ranks, 8 runs or E events"


def map_label(_state: FeedState, page: Page) -> str:
    """What the heat map would show next."""
    return "Steps" if isinstance(page, Ranks) and page.shows_phases else ""


class Ranks(Page):
    """The second screen."""

    tells_losses = True
    name = "ranks"
    title = "Ranks"
    about = (
        "Each column of the heat map is a step: taller and warmer is later at the gradient barrier; v shows each phase "
        "instead, < and > move to a cell, enter or a click on one goes to its step. "
        "'waits' is time lost to later ranks, 'causes' how long each of the others waits for this one, on average. "
        "A group (+8: eight ranks, closed) has the mean of its ranks, causes and last summed, and "
        "its latest rank's map; "
        "what stands out (▶ ◆) is always on the screen. A click on a head sorts by it, "
        "another one turns the order round."
    )
    is_screen = True
    may_be_first = True
    filter_hint = FILTER_HINT
    commands: ClassVar = (
        opening("ranks", "2", "Ranks", "a row and a heat map for each rank"),
        Command(
            "sort",
            ("s",),
            "s",
            "Sort",
            "sort the ranks by the next column",
            "ranks",
            lambda place: place.say(f"sorted by {place.at(Ranks).next_sort()}"),
            ON_RANKS,
        ),
        Command(
            "reverse",
            ("r",),
            "r",
            "Reverse",
            "reverse the order",
            "ranks",
            lambda place: place.at(Ranks).turn_round(),
            ON_RANKS,
        ),
        Command(
            "group",
            ("a",),
            "a",
            "Group",
            "a row a host, a stage, a replica, a rank",
            "ranks",
            lambda place: place.say(place.at(Ranks).next_grouping(place.state.view)),
            ON_RANKS,
        ),
        Command(
            "open_all",
            ("e",),
            "e",
            "Open all",
            "open or close all groups; enter does one",
            "ranks",
            lambda place: place.at(Ranks).toggle_all(),
            ON_RANKS,
        ),
        Command(
            "heat",
            ("M",),
            "M",
            "Phases",
            "the map: ranks by steps, or ranks by phases",
            "ranks",
            lambda place: place.at(Ranks).change_map(),
            ON_RANKS,
            map_label,
        ),
        Command(
            "value",
            ("v",),
            "v",
            "Value",
            "the map of steps shows the next value: lateness, then each phase",
            "ranks",
            lambda place: place.say(place.at(Ranks).next_value(place.state.view)),
            ON_RANKS,
        ),
        Command(
            "cell_back",
            ("<",),
            "<",
            "Cell before",
            "the cursor on the map one step back; enter goes to its step",
            "ranks",
            lambda place: move_cell(place, -1),
            ON_RANKS,
        ),
        Command(
            "cell_forward",
            (">",),
            ">",
            "Cell after",
            "the cursor on the map one step on",
            "ranks",
            lambda place: move_cell(place, 1),
            ON_RANKS,
        ),
        Command(
            "filter",
            ("/",),
            "/",
            "Filter",
            "ranks by number, host, group, state; runs by name; events by any word",
            "ranks",
            ask_filter,
            no_list,
        ),
    )
    opens: ClassVar = {
        "group": lambda place, name: place.at(Ranks).toggle(name),
        "step": lambda place, step: place.shell.ask(SeekStep(int(step))),
        "sort": lambda place, name: place.say(place.at(Ranks).sort_by(name)),
    }
    terms = ("waits", "causes", "last", "straggler")
    keys = (
        "open",
        "stacks",
        "group",
        "sort",
        "filter",
        "heat",
        "value",
        "reverse",
        "open_all",
        "capture",
        "overview",
        "help",
        "pause",
        "quit",
    )

    def __init__(self) -> None:
        super().__init__()
        self.sort = "rank"
        self.reversed = False
        self.by: str | None = None  # a grouping, ONE_EACH, or None: as the number of ranks suggests
        self.turned: frozenset[str] = frozenset()  # groups that are not as `all_open` says
        self.all_open = False
        self.shows_phases = False
        self.height = 1
        self.previewed: Target | None = None  # the rank below the table
        self.heat = StepHeat()
        self._view: RunView | None = None  # that was drawn
        self._shown: RankList | None = None
        self._made_of: tuple[object, object] = (None, None)

    # --- what the keys do

    def next_sort(self) -> str:
        """Sort by the next column; returns its name."""
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.reversed = False
        return self.sort

    def sort_by(self, name: str) -> str:
        """Sort by the column whose head was clicked, the second time the other way round; returns what to say."""
        self.reversed = name == self.sort and not self.reversed
        self.sort = name
        return f"sorted by {name}{', reversed' if self.reversed else ''}"

    def turn_round(self) -> None:
        """Reverse the order."""
        self.reversed = not self.reversed

    def next_grouping(self, view: RunView | None) -> str:
        """Group by the next thing the ranks have in common; returns what to say."""
        if view is None or not view.groupings:
            return "no rank known yet: nothing to group"
        names = [*(grouping.by for grouping in view.groupings), ONE_EACH]
        current = shown_grouping(view, self.by)
        self.by = names[(names.index(current.by if current else ONE_EACH) + 1) % len(names)]
        self.turned, self.all_open, self.top = frozenset(), False, 0
        missing = "" if len(names) > 2 else "; no rank names a pipeline stage"
        return "a row a rank" if self.by == ONE_EACH else f"a row a {self.by}{missing}"

    def toggle(self, name: str) -> None:
        """Open or close a group."""
        self.turned = self.turned ^ {name}

    def toggle_all(self) -> None:
        """Open or close all groups."""
        self.turned, self.all_open = frozenset(), not self.all_open

    def change_map(self) -> None:
        """Show the heat map of phases, or that of steps again."""
        self.shows_phases = not self.shows_phases

    def next_value(self, view: RunView | None) -> str:
        """Show the next value on the map of steps; returns what to say."""
        self.shows_phases = False
        return self.heat.next_value(view)

    def move_cell(self, view: RunView | None, by: int) -> str:
        """Move the cursor on the map of steps; returns why it cannot, or an empty text."""
        return "the map shows phases: M shows steps" if self.shows_phases else self.heat.move(view, by)

    def move(self, rows: int) -> None:
        """To another row; enter opens it again, not a step of the map."""
        self.heat.cell = None
        super().move(rows)

    # --- drawing

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return head, visible rows, ranks out of sight that stand out, and the legend."""
        view = state.view
        if view is None:
            self.targets = []
            return waiting(state, width, height)
        shown = self.arrange(view)
        self._view = view
        columns = table_columns(shown, width - 2, phases=self.shows_phases)
        values = self.heat.shown(view)
        if values is not None:
            columns = replace(columns, values=values, least=0)
        left_step = self.heat.place(view, shown.num_levels, rank_row.heat_column(columns) + 1, columns.heat)
        pinned, num_hidden = self._place(max(height - 3, 1))
        visible = self.targets[self.top : self.top + self.height]
        self.num_below = max(self.num_rows - self.top - self.height, 0)
        self.target_rows = {target: self.top + index for index, target in enumerate(visible)}

        def drawn(targets: list[Target]) -> list[Line]:
            return [self._row(view, target, columns, left_step, width) for target in targets]

        rows = drawn(visible) or [
            indent(line((row, "dim")), 1) for row in wrap(self._why_empty(view), width - 2)
        ]
        self.previewed = None
        if len(rows) + PREVIEW_ROWS <= self.height:
            rows += self._preview(view, width, self.height - len(rows))
        for below in (phases_of_ranks, devices_of_ranks):
            if visible and not (self.shows_phases and below is phases_of_ranks):
                block = below(view, width - 2, self.height - len(rows) - 1)
                rows += [BLANK, *(indent(each, 1) for each in block)] if block else []
        rows += [BLANK] * (self.height - len(rows))
        if pinned:
            more = f"{num_hidden - len(pinned):,} more: / outlier" if num_hidden > len(pinned) else ""
            rows += [indent(rule("out of sight, but of note", width - 2, more), 1), *drawn(pinned)]
        by = next(name for name, sort in rank_row.SORTED_BY.items() if sort == self.sort)
        arrow = "▲" if (self.sort in ASCENDING) != self.reversed else "▼"
        head = rank_row.header(columns, self.heat.title(view, columns.heat), by, arrow)
        return [
            indent(rule(*self._title(view, shown, width - 2)), 1),
            indent(head, 1),
            *rows,
            self._legend(view, width),
        ]

    def step_at(self, row: int, column: int) -> int | None:
        """The step of a cell of the heat map."""
        is_cell = 2 <= row < 2 + len(self.target_rows) and not self.shows_phases
        return self.heat.step_under(self._view, column) if is_cell else None

    def arrange(self, view: RunView) -> RankList:
        """Return the rows in their order; made anew only when something has changed."""
        chosen = (self.by, self.sort, self.reversed, self.filter, self.turned, self.all_open)
        if self._shown is None or self._made_of[0] is not view or self._made_of[1] != chosen:
            self._shown = listed(view, Choice(*chosen))
            self._made_of = (view, chosen)
        self.targets = self._shown.targets
        return self._shown

    def order(self, view: RunView | None) -> list[int]:
        """Return the numbers of the ranks that have a row, in the order of the table."""
        targets = self.arrange(view).targets if view is not None else []
        return [int(name) for kind, name in targets if kind == "rank"]

    def _place(self, room: int) -> tuple[list[Target], int]:
        """Choose the visible rows of `room`; ranks that stand out but are not among them take the last ones.

        Returns these ranks, and how many there are.
        """
        self.num_rows = len(self.targets)
        most = max(room // PINNED_SHARE, MIN_PINNED) if room >= ROOM_FOR_PINNED else 0
        num_pinned, hidden = 0, self._hidden_in(room)
        # Rows that give way may hide another one: a second look is enough, what remains is counted.
        for _ in range(2):
            num_pinned = min(len(hidden), most)
            hidden = self._hidden_in(room - num_pinned - 1 if num_pinned else room)
        return hidden[:num_pinned], len(hidden)

    def _hidden_in(self, height: int) -> list[Target]:
        self.height = height
        self._follow_cursor()
        outliers = self._shown.outliers if self._shown is not None else []
        visible = set(self.targets[self.top : self.top + height])
        return [target for target in outliers if target not in visible]

    def _row(
        self, view: RunView, target: Target, columns: rank_row.Columns, left_step: int, width: int
    ) -> Line:
        shown = self.arrange(view)
        if target[0] == "group":
            group = shown.groups[target[1]]
            is_open = self.all_open != (group.name in self.turned)
            drawn = rank_row.group_line(group, columns, view.heat_first_step, left_step, is_open=is_open)
        else:
            drawn = rank_row.rank_line(shown.ranks[target[1]], columns, view.heat_first_step, left_step)
        row = indent(drawn, 1)
        return select(row, width) if target == self.cursor else row

    def opened(self) -> Target | None:
        """Return what enter opens: the step of the map's cursor, the row of the cursor, else the rank shown below."""
        if self.heat.cell is not None and not self.shows_phases:
            step, self.heat.cell = self.heat.cell, None
            return ("step", str(step))
        return self.pointed()

    def pointed(self) -> Target | None:
        """Return the row of the cursor, else the rank shown below, wherever the map's cursor stands."""
        return super().pointed() or self.previewed

    def _preview(self, view: RunView, width: int, height: int) -> list[Line]:
        """Return the selected rank, else the culprit, one lost or awaited, the first: the table leaves room for it."""
        wanted = self.cursor[1] if self.cursor in self.targets and self.cursor else ""
        ranks = self.arrange(view).ranks
        chosen = [ranks[wanted]] if wanted in ranks else [rank for rank in ranks.values() if rank.is_culprit]
        # Its reason does not fit into its row.
        chosen = chosen or [rank for rank in ranks.values() if rank.state in UNWELL]
        chosen = chosen or [rank for rank in ranks.values() if rank.held in AWAITED]
        chosen = chosen or [ranks[name] for kind, name in self.targets[self.top :][:1] if kind == "rank"]
        self.previewed = ("rank", str(chosen[0].rank)) if chosen else None
        if not chosen:
            return []
        rows = [BLANK, *rank_lines(view, chosen[0], width - 2)][:height]
        return [indent(row, 1) if row.spans else row for row in rows]

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

    def _title(self, view: RunView, shown: RankList, width: int) -> tuple[str, int, str, str]:
        rows = f"{shown.grouping.by}s" if shown.grouping is not None else "ranks"
        order = f"{rows} by {self.sort}{', reversed' if self.reversed else ''}"
        chosen = f"filter “{self.filter}”: {len(shown.ranks):,} of {len(view.ranks):,}" if self.filter else ""
        last = min(self.top + self.height, self.num_rows)
        place = (
            f"{self.top + 1:,}{text_of.TO}{last:,} of {self.num_rows:,}"
            if self.num_rows > self.height
            else ""
        )
        live = "" if chosen and place else f"{shown.num_live:,} live"
        if view.ended or any(row.state == UNHEARD for row in view.ranks):
            live = ""
        if view.stall is not None:
            live = text_of.no_progress(view.stall.for_s)
        parts = (chosen, place, live)
        told, shorter = (
            " · ".join(part for part in each if part) for each in ((sections.clock(view), *parts), parts)
        )
        return order, width, told, shorter

    def _why_empty(self, view: RunView) -> str:
        if not view.ranks:
            return "no rank known yet"
        return f"no rank, host, group or state is “{self.filter}”: press / and change it, esc clears it"

    def _legend(self, view: RunView, width: int) -> Line:
        if self.shows_phases:
            return indent(spread(bars.level_legend(width, "typical", "far longer"), BLANK, width - 2), 1)
        marks: list[Span] = [("▶", "bad"), (" culprit ", "dim"), ("◆", "warn"), (" stands out ", "dim")]
        grouped: list[Span] = []
        if shown_grouping(view, self.by) is not None:
            grouped = [(" a group shows its latest rank", "dim")]
        letters = [("  ", "dim"), *(part for item in _letters() for part in item)]
        legend = self.heat.legend(view, width)
        # What the marks mean goes before the letters, which stand in the help, too.
        for right in ([*marks, *grouped, *letters], [*marks, *grouped], marks):
            if length(legend) + length(right) < width - 3:
                return indent(spread(legend, line(*right), width - 2), 1)
        return indent(legend, 1)


def _letters() -> list[tuple[Span, Span]]:
    names = {"D": "data", "F": "fwd", "B": "bwd", "C": "comm", "O": "opt", "r": "other"}
    phases = {letter: phase for phase, letter in bars.PHASE_LETTERS.items()}
    return [((letter, f"phase:{phases[letter]}"), (f" {name}  ", "dim")) for letter, name in names.items()]


def table_columns(shown: RankList, width: int, *, phases: bool) -> rank_row.Columns:
    """Return the widths of the table: figures first, then phases, the heat map takes what is left.

    phases: the heat map is of phases, which takes the place of the bars.
    """
    number, host = shown.number_width, min(max(shown.name_width, 6), 8 if width < 100 else 20)
    left = width - 1 - number - host - rank_row.STATE_WIDTH - 3
    if phases:
        names: tuple[str, ...] = ("step", "caused") if left >= 90 else ("caused",)
        left -= (rank_row.FIGURE_WIDTH + 1) * len(names)
        return rank_row.Columns(number, host, names, 0, left, 0, phases=True)
    choices: tuple[tuple[str, ...], ...] = (
        ("step", "wait", "caused", "last"),
        ("wait", "caused", "last"),
        ("wait", "caused"),
        ("caused",),
    )
    # The bars keep a third of a narrow table, and room enough to be told apart.
    names = next((each for each in choices if left - len(each) * 9 >= 2 * NARROWEST_BAR + 8), choices[-1])
    left -= (rank_row.FIGURE_WIDTH + 1) * len(names)
    now = 18 if left >= 90 else 0
    left -= now + 1 if now else 0
    bar = min(max(left // 3, NARROWEST_BAR), 30)
    least = bars.VISIBLE_LEVEL if shown.num_all >= GROUPED_FROM else 0
    return rank_row.Columns(number, host, names, bar, max(left - bar - 2, 0), now, least=least)
