"""Efficiency: MFU, what it rests on, and the settings that the run was started with.

In: FeedState.  Out: lines. What was not observed is unknown, with what to state or measure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.efficiency import HOW_TO_SEE, dtype_word, efficiency_facts, stack_facts
from tuiadvisor.text.line import BLANK, Line, crop, fit, indent, line, rule, wrap
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.waiting import waiting

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.efficiency import Efficiency
    from tuiadvisor.views.run_view import RunView

MARGIN = 1
NAME_WIDTH = 26
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
NOT_IMPORTED = "The imported source shows neither the model nor its settings."
NOT_TOLD = "No probe says what is trained: the recording is older than this figure, or no model was seen yet."


class EfficiencyPage(Page):
    """FLOPs against the peak, and the stack they run on."""

    tells_losses = True
    name = "efficiency"
    title = "Efficiency"
    about = (
        "MFU is the arithmetic that the model needs over what the devices could do in that time, at their dense peak "
        "in the precision used; HFU also counts what is computed again. Parameters and settings are the probe's. FLOPs "
        "or a peak that are unknown can be stated: --flops-per-step, --peak-flops; a CPU's peak is measured by "
        "`tuiadvisor doctor --measure`."
    )
    commands: ClassVar = (
        opening("efficiency", "F", "FLOPs", "MFU, HFU, roofline and the settings of model, loader and torch"),
    )
    terms = ("mfu", "hfu", "roof")
    keys = ("overview", "ranks", "copy", "help", "quit")

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the bar, the figures and the settings."""
        view = state.view
        if view is None:
            self.targets = []
            return waiting(state, width, height)
        room = width - 2 * MARGIN
        rows = [rule("arithmetic of a steady step", room, *sections.windows(view))]
        if view.efficiency is not None:
            rows += _bar(view.efficiency, room)
        rows += _pairs(efficiency_facts(view), room)
        rows += [BLANK, rule("model and settings", room, "as the probes saw them")]
        not_told = NOT_TOLD if view.imported is None else NOT_IMPORTED
        rows += _pairs(stack_facts(view.stack), room) or [
            line((each, "dim")) for each in wrap(not_told, room)
        ]
        rows += _differing(view, room)
        rows += [BLANK, *(line((each, "dim")) for each in wrap(HOW_TO_SEE, room))]
        shown = [indent(crop(each, room), MARGIN) if each.spans else each for each in rows]
        return self.arranged(shown, width, height)


def _bar(found: Efficiency, width: int) -> list[Line]:
    """Return the share of the peak as a bar with its scale."""
    if found.mfu is None:
        return []
    room = width - 9
    filled = min(max(round(found.mfu * room), 1), room)
    scale = [" "] * (room + 5)
    for tick in TICKS:
        text = f"{tick:.0%}"
        place = round(tick * room) - len(text) // 2 if tick else 0
        scale[place : place + len(text)] = text
    return [
        line((fit("MFU", 4), "strong"), ("█" * filled, "phase:forward"), ("░" * (room - filled), "dim")),
        line("    ", ("".join(scale), "dim")),
        line("    ", (f"100 % = {dtype_word(found.dtype)} peak, dense", "dim")),
    ]


def _pairs(facts: list[tuple[str, str]], width: int) -> list[Line]:
    rows = []
    for name, text in facts:
        role = "unknown" if text.startswith(text_of.UNKNOWN) else "text"
        for index, each in enumerate(wrap(text, width - NAME_WIDTH)):
            rows.append(line((fit("" if index else name, NAME_WIDTH), "dim"), (each, role)))
    return rows


def _differing(view: RunView, width: int) -> list[Line]:
    if view.stack is None or not view.stack.differing:
        return []
    text = f"The lowest rank's; ranks differ in {', '.join(view.stack.differing)}."
    return [line((each, "dim")) for each in wrap(text, width)]
