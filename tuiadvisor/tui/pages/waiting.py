"""The body while there is no view yet: what is being done, how far it is, and what helps when it takes long.

In: FeedState without a view.  Out: lines, centred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text.line import BLANK, Line, indent, length, line, wrap
from tuiadvisor.tui.draw import bars

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState

LOOKING_HINT = (
    "Nothing found? Start the training, or name it: tuiadvisor watch --pid PID. "
    "tuiadvisor doctor says what this machine allows."
)


def waiting(state: FeedState, width: int, height: int) -> list[Line]:
    """Return the phase, its progress and its message, in the middle of the screen."""
    room = min(width - 4, 60)
    looking = state.mode == "live" and state.phase in {"", "finding ranks"}
    phase = "looking for ranks…" if looking else state.phase or "opening the recording…"
    rows: list[Line] = [line(("◌ ", "accent"), (phase, "strong"))]
    if state.progress is not None:
        done, whole = state.progress
        rows += [BLANK, line(*bars.progress(done, whole, min(room - 12, 36)), f"  {done:,} of {whole:,}")]
    if state.message:
        rows += [BLANK, *(line(text) for text in wrap(state.message, room))]
    if looking:
        rows += [BLANK, *(line((text, "dim")) for text in wrap(LOOKING_HINT, room))]
    elif not state.message:
        rows += [BLANK, line(("no step seen yet: the figures come with the first one", "dim"))]
    centred = [indent(row, max((width - length(row)) // 2, 0)) if row.spans else row for row in rows]
    above = max((height - len(centred)) // 2 - 1, 0)
    return ([BLANK] * above + centred)[:height]
