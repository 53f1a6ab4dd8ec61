"""Back in time while a run goes on: earlier steps of a live run from what the fold still holds of them.

In: commands of the screens, the Advisor that folds on behind them.  Out: the view at a step, and how far one may go.
Nothing is kept for it: the steps are those that every view is made of, 2,048 of up to 256 ranks and fewer of more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.whole_recording import finding_marks
from tuiadvisor.tui.contract.feed import NextFinding, PastState, PreviousFinding, SeekStep, Step, Stride

if TYPE_CHECKING:
    from tuiadvisor.advisor.fold import Advisor
    from tuiadvisor.views.run_view import RunView

LooksBack = SeekStep | Step | Stride | NextFinding | PreviousFinding
STRIDES: Final = 32  # from the oldest step that is held to the newest


class Lookback:
    """Mutable: the step that is shown; None at the live edge."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.is_drawn = False

    def leave(self) -> None:
        """Return to the live edge."""
        self.step = None

    def go(
        self, command: LooksBack, advisor: Advisor, view: RunView | None, *, is_frozen: bool = False
    ) -> str:
        """Move; returns what to say about it, "" where the screen says it all."""
        held = advisor.held_steps()
        if held is None:
            return "no step has been seen yet"
        first, last = held
        # From what is on the screen: a picture that was frozen, else the live edge.
        shown = view.last_step if is_frozen and view is not None and view.last_step is not None else last
        here = min(shown, last) if self.step is None else self.step
        match command:
            case SeekStep(step):
                wanted: int | None = step
            case Step(by):
                wanted = here + by
            case Stride(by):
                wanted = here + by * max((last - first) // STRIDES, 1)
            case NextFinding() | PreviousFinding():
                wanted = _finding(view, here, forward=isinstance(command, NextFinding))
        if wanted is None:
            return "no finding begins there, as far as it is known"
        if wanted >= last:
            self.leave()
            return ""
        self.step, self.is_drawn = max(wanted, first), False
        return (
            ""
            if wanted >= first
            else f"steps before {first:,} are no longer held: a recording (-o FILE) keeps them"
        )

    def picture(self, advisor: Advisor) -> RunView:
        """The view to show; what ranks did at that moment is not known any more."""
        if self.step is None:
            return advisor.view()
        self.is_drawn = True
        view = advisor.view_at(self.step)
        return replace(view, ranks=tuple(replace(row, now="", so_far=()) for row in view.ranks))

    def state(self, advisor: Advisor) -> PastState | None:
        """Where one looks; None at the live edge."""
        held = advisor.held_steps()
        if self.step is None or held is None:
            return None
        first, last = min(held[0], self.step), max(held[1], self.step)
        return PastState(self.step, first, last, (self.step - first) / max(last - first, 1))


def _finding(view: RunView | None, here: int, *, forward: bool) -> int | None:
    steps = {step for step, _ in finding_marks(view)} if view is not None else set()
    if forward:
        return min((step for step in steps if step > here), default=None)
    return max((step for step in steps if step < here), default=None)
