"""The run that is shown, in a few rows, below a screen that has nothing of its own to show yet.

In: RunView, width, rows that are left.  Out: lines; nothing where they do not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.text.line import BLANK, rule
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.what_if import all_lines

if TYPE_CHECKING:
    from tuiadvisor.text.line import Line
    from tuiadvisor.views.run_view import RunView

VERDICT_ROWS, PHASE_ROWS = 3, 4
LEAST_ROWS: Final = 4 + VERDICT_ROWS + PHASE_ROWS
LEAST_CHART_ROWS, MOST_CHART_ROWS = 6, 14


def as_it_is(view: RunView | None, width: int, rows: int, *, with_prospects: bool = False) -> list[Line]:
    """Return verdict, figures and step time. with_prospects: also what one thing changed would make of a step."""
    if view is None or view.last_step is None or rows < LEAST_ROWS:
        return []
    drawn = [
        BLANK,
        rule("this run as it is now", width, *sections.windows(view)),
        *sections.verdict(view, width, VERDICT_ROWS),
        BLANK,
        *sections.step_figures(view, width),
        *sections.phases(view, width, PHASE_ROWS),
    ]
    changed = all_lines(view, width) if with_prospects else []
    if changed and len(drawn) + len(changed) < rows:
        drawn += [BLANK, *changed]
    room = min(rows - len(drawn), MOST_CHART_ROWS)
    if room > LEAST_CHART_ROWS:
        drawn += [BLANK, rule("its step time", width), *sections.trend(view, width, room - 2)]
    return drawn
