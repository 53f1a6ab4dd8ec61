"""What keeps a session from seeing anything: refusals that stand, and what is still waited for.

In: views, one after the other.  Out: whether there is nothing left to wait for; each reason once, as a sentence for
whoever waits without screens.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.host_clocks import NOT_READY
from tuiadvisor.advisor.cluster.membership import STEPLESS
from tuiadvisor.advisor.cluster.unwatched import NO_STEP, WAITING_FOR_INTERPRETER, is_held_up
from tuiadvisor.errors import one_line
from tuiadvisor.text.printed import redraw, say_on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.views.run_view import RankRow, RunView

REFUSED_S: Final = 3.0  # the ranks of another agent, or a restarted one, may still be on their way
PASSES_S: Final = 2.0  # another watcher's injection, one long call in C
# Their detail is why; that the interpreter is waited for passes as a rule, and at the end it is the reason.
NEVER_SEEN: Final = ("exited", "killed", "waiting_to_attach")
_FINAL: Final = "not watched: "
_PASSING: Final = "not watched yet: "


class HoldUp:
    """Mutable: look at each new view."""

    def __init__(self, command: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = command
        self._clock = clock
        self._refused_since_s: float | None = None
        self._waits: tuple[str | None, float] = (None, 0.0)  # for what, since when
        self._said: set[str] = set()

    def is_final(self, view: RunView | None) -> bool:
        """Whether every rank of the job has been refused for a while, for a reason that does not pass."""
        if not _all_refused(view):
            self._refused_since_s = None
            return False
        self._refused_since_s = self._refused_since_s or self._clock()
        return self._clock() - self._refused_since_s >= REFUSED_S

    def say(self, view: RunView | None) -> None:
        """Print what is waited for once it has not passed by itself, each reason once."""
        why = _waits_for(view)
        if why != self._waits[0]:
            self._waits = (why, self._clock())
        if why is not None and why not in self._said and self._clock() - self._waits[1] >= PASSES_S:
            self._said.add(why)
            if sys.stderr.isatty():
                redraw("")  # of a line of progress
            what = why if why == WAITING_FOR_INTERPRETER else f"waiting: {one_line(why)}"
            say_on_stderr(f"tuiadvisor {self._command}: {what}")


def why_unwatched(view: RunView | None) -> str | None:
    """Why not one rank is watched, where that is known; None while one is, or is on the way."""
    if view is None or view.last_step is not None:
        return None
    if not view.ranks:
        return next((note for note in reversed(view.losses.notes) if note.startswith("not watched")), None)
    if all(row.state == "refused" for row in view.ranks):
        return _FINAL + _first(view.ranks, len(view.ranks))
    if all(row.state == "refused" or _is_held_up(row) for row in view.ranks):
        return _PASSING + _first(tuple(filter(_is_held_up, view.ranks)), len(view.ranks))
    return None


def why_stepless(view: RunView | None) -> str | None:
    """Why no step was seen of ranks that were attached to, as far as was found out; None where there is more to say.

    A few steps that were measured before the reason was known are not more.
    """
    if view is None or not view.ranks or view.findings:
        return None
    found = next((note for note in view.losses.notes if STEPLESS in note), None)
    if view.last_step is not None:
        return found if view.verdict.decision is None else None
    # A rank that cannot be entered is why the others wait, and says what lets it go on.
    held = tuple(filter(_is_held_up, view.ranks))
    if held:
        return _first(held, 1)
    if found is not None:
        return found
    told = tuple(row for row in view.ranks if row.state_detail and _never_seen(row))
    return "no training step was seen" + (f" ({_first(told, len(view.ranks))})" if told else "")


def _all_refused(view: RunView | None) -> bool:
    why = why_unwatched(view)
    if view is None or why is None or not why.startswith(_FINAL):
        return False
    return len(view.ranks) >= (view.run.world_size or 0)


def _waits_for(view: RunView | None) -> str | None:
    why = why_unwatched(view)
    if why is None or not why.startswith(_PASSING) or why.endswith(NO_STEP):
        return None
    return why.removeprefix(_PASSING)


def _never_seen(row: RankRow) -> bool:
    return row.state in NEVER_SEEN or row.state_detail in NOT_READY


def _is_held_up(row: RankRow) -> bool:
    return is_held_up(row.state, row.state_detail)


def _first(rows: tuple[RankRow, ...], num_ranks: int) -> str:
    whom = (
        f"rank {rows[0].rank}" if num_ranks == 1 else f"none of {num_ranks} ranks, e.g. rank {rows[0].rank}"
    )
    return f"{whom}: {rows[0].state_detail}"
