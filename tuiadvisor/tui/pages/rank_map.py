"""The heat map of the ranks screen: which value it shows, which step its cursor stands on, its head and its legend.

In: RunView and what the user chose.  Out: titles, legends, the step under a cell.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, fit
from tuiadvisor.tui.draw import bars

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView
    from tuiadvisor.views.step_map import StepMap


class StepHeat:
    """Mutable: the value and the cell that were chosen; where the map was last drawn."""

    def __init__(self) -> None:
        self.value: tuple[str, str] | None = None  # phase and clock of a StepMap; None: lateness
        self.cell: int | None = None  # the step that the cursor stands on
        self.start = 0  # its first column on the screen
        self.width = 0
        self.left = 0  # number of that column: the step, where steps are consecutive
        self.num_columns = 0  # of the levels
        self.first: int | None = None

    # --- the value

    def shown(self, view: RunView) -> StepMap | None:
        """The values that are shown instead of lateness; a run that does not have them shows lateness."""
        return next((each for each in view.step_maps if (each.phase, each.clock) == self.value), None)

    def next_value(self, view: RunView | None) -> str:
        """Show the next value; returns what to say of it."""
        if view is None or not view.step_maps:
            return "the map shows lateness: no phase of these steps was observed"
        names: list[tuple[str, str] | None] = [None, *((each.phase, each.clock) for each in view.step_maps)]
        current = names.index(self.value) if self.value in names else 0
        self.value = names[(current + 1) % len(names)]
        shown = self.shown(view)
        return f"the map shows {'lateness' if shown is None else said(view, shown)}"

    # --- the place

    def place(self, view: RunView, num_columns: int, start: int, width: int) -> int:
        """Note where the map is drawn; returns the number of its leftmost column."""
        self.start, self.width, self.num_columns = start, width, num_columns
        self.first = view.heat_first_step
        self.left = bars.first_heat_step(view.heat_first_step or 0, num_columns, width)
        if self.cell is not None and self._column_of(view, self.cell) is None:
            self.cell = None
        return self.left

    def step_under(self, view: RunView | None, column: int) -> int | None:
        """The step of a column of the screen; None where no step is drawn."""
        if view is None or self.first is None or not self.start <= column < self.start + self.width:
            return None
        return self._step_of(view, self.left + column - self.start)

    def _step_of(self, view: RunView, number: int) -> int | None:
        place = number - (self.first or 0)
        if not 0 <= place < self.num_columns:
            return None
        return view.heat_steps[place] if place < len(view.heat_steps) else number

    def _column_of(self, view: RunView, step: int) -> int | None:
        """The place on the map of a step, from its left edge."""
        if self.first is None:
            return None
        steps = view.heat_steps
        number = self.first + bisect_left(steps, step) if steps else step
        place = number - self.left
        return place if 0 <= place < self.width and self._step_of(view, number) == step else None

    def move(self, view: RunView | None, by: int) -> str:
        """Move the cursor by cells, first onto the newest one; returns why it cannot, or an empty text."""
        if view is None or self.first is None or not self.num_columns or not self.width:
            return "no step has been seen yet: the map has no cell"
        newest = min(self.num_columns - 1 + self.first - self.left, self.width - 1)
        oldest = max(self.first - self.left, 0)
        here = None if self.cell is None else self._column_of(view, self.cell)
        column = newest if here is None else min(max(here + by, oldest), newest)
        self.cell = self._step_of(view, self.left + column)
        return ""

    # --- what is drawn

    def title(self, view: RunView, width: int) -> str:
        """The head of the map's column: which value of which steps, or the cell of the cursor."""
        shown = self.shown(view)
        name = "lateness" if shown is None else said(view, shown)
        column = None if self.cell is None else self._column_of(view, self.cell)
        if column is not None:
            return _pointer(column, f"step {self.cell:,}", width)
        if not self.num_columns or view.heat_first_step is None:
            return name
        first = self._step_of(view, max(self.left, view.heat_first_step))
        end = min(view.heat_first_step + self.num_columns, self.left + self.width) - 1
        steps = text_of.steps(first, self._step_of(view, end))
        title = f"late in {steps}" if shown is None else f"{name} in {steps}"
        short = "lateness" if shown is None else text_of.phase_name(shown.phase)  # the legend has the clock
        return next((each for each in (title, name) if len(each) <= width), short)

    def legend(self, view: RunView, width: int) -> Line:
        """What the heights of the cells mean."""
        shown = self.shown(view)
        if shown is None:
            return bars.level_legend(width)
        return bars.level_legend(width, f"{said(view, shown)} 0", f"{text_of.seconds(shown.top_s)} or more")


def said(view: RunView, shown: StepMap) -> str:
    """The name of a value, with its clock where a run has two."""
    name = text_of.phase_name(shown.phase)
    if view.clock == "device":
        return f"{name} ({'device' if shown.clock == 'device' else 'host'} clock)"
    return name


def _pointer(column: int, name: str, width: int) -> str:
    """An arrow over a column and the name of its step beside it, on the side where there is room."""
    right = " " * column + f"▼ {name}"
    if len(right) <= width:
        return right
    return fit(name, column - 1, "right") + " ▼" if column > len(name) else " " * column + "▼"
