"""The slider "what if" on the step's picture: the step as it is, and as it would be with one thing changed.

In: RunView, the picture of sizes, which place is chosen.  Out: lines. Everything was predicted before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, crop, fit, line, rule, wrap
from tuiadvisor.text.wording import size_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.views.prospect import Prospect
    from tuiadvisor.views.run_view import RunView

LABEL = 34  # columns at least
BAR = "█"
HALF = "half the devices"
NO_SIZE = "the sizes around this run are not known: key 6 says what is missing"


def num_places(view: RunView) -> int:
    """As it is, each prospect, and half the devices."""
    return 2 + len(view.prospects)


def what_if_lines(view: RunView, desk: DeskState, chosen: int, width: int) -> list[Line]:
    """Return the chosen place, nothing for 0: the step as it is."""
    if not 0 < chosen < num_places(view):
        return []
    head = rule("what if", width, f"{chosen} of {num_places(view) - 1} · i shows the next one")
    if chosen <= len(view.prospects):
        return [head, *_prospect(view.prospects[chosen - 1], width)]
    return [head, *(line((text, "text")) for text in wrap(_half(desk), width))]


def all_lines(view: RunView, width: int) -> list[Line]:
    """Return a bar each for the step as it is and as it would be, nothing where there is no prospect."""
    if not view.prospects:
        return []
    label = _label(view.prospects, width)
    room = _room(width, label)
    now = text_of.seconds(view.prospects[0].now_s)
    rows = _bar("as it is", now, BAR * room, "dim", label)
    for one in view.prospects:
        rows += _changed(one, room, label, now)
    head = rule("a step if one thing were changed", width, "i: what each rests on")
    return [head, *(crop(row, width) for row in rows)]


def _label(shown: Sequence[Prospect], width: int) -> int:
    """Return the width of the names: as long as the longest where the bars keep more than half; else they wrap."""
    return max(min(max(cell_len(one.words) for one in shown) + 2, width // 3), LABEL)


def _room(width: int, label: int) -> int:
    return max(width - label - 24, 10)


def _changed(one: Prospect, room: int, label: int, shown: str = "") -> list[Line]:
    """The step as it would be; of which step, where that is not the one shown: pauses count in a mean with them."""
    least = "≥ " if one.at_best else ""
    bar = BAR * max(round(room * one.share), 1)
    now = text_of.seconds(one.now_s)
    first, *rest = _bar(one.words, f"{least}{text_of.seconds(one.step_s)}", bar, "good", label)
    return [first if shown in {"", now} else line(*first.spans, (f" of {now}", "dim")), *rest]


def _prospect(one: Prospect, width: int) -> list[Line]:
    label = _label((one,), width)
    room = _room(width, label)
    interval = (
        "at best: a bound, no prediction"
        if one.at_best
        else f"{text_of.seconds(one.low_s)} to {text_of.seconds(one.high_s)}"
    )
    rows = [
        *_bar("as it is", text_of.seconds(one.now_s), BAR * room, "dim", label),
        *_changed(one, room, label),
    ]
    rows += [line((text, "dim")) for text in wrap(f"{interval}; {one.basis}", width)]
    return [crop(row, width) for row in rows]


def _bar(name: str, value: str, bar: str, role: str, label: int) -> list[Line]:
    """Return a row with the bar, and more of them where the name is longer than its column."""
    first, *rest = wrap(name, label - 2)
    head = line((fit(first, label), "text"), (fit(value, 10, "right") + "  ", "strong"), (bar, role))
    return [head, *(line((each, "text")) for each in rest)]


def _half(desk: DeskState) -> str:
    held = desk.scaling
    if held is None:
        return f"{HALF}: {desk.scaling_note or 'looking …'}"
    row = held.half
    if row is None:
        why = held.missing[0] if held.missing else held.words or NO_SIZE
        return f"{HALF}: not predicted: {why}"
    time, efficiency, _, _ = size_figures(row, held.time_unit)
    low, high = text_of.seconds(row.time.low), text_of.seconds(row.time.high)
    kind = "measured" if row.is_measured else f"{low} to {high}, {held.basis or 'a bound'}"
    return f"{HALF} ({row.devices}): {time} a step instead of now's, efficiency {efficiency}; {kind}"
