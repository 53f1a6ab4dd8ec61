"""The gradient all-reduce bucket by bucket: lanes of one scale, and what follows in words.

In: ExchangeView.  Out: lines. A bucket says its number, idle time is dots, so colour is never alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, fit, line, rule, wrap
from tuiadvisor.tui.draw import bars

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.views.communication import ExchangeView, Segment
    from tuiadvisor.views.run_view import RunView

NAME_WIDTH = 14
ROLES = {"backward": "phase:backward", "bucket": "phase:comm_exposed", "idle": "dim"}


def exchange(view: RunView, width: int) -> list[Line]:
    """Return the section; only why it is unknown where no bucket was seen, nothing where there is none to see."""
    seen = view.exchange
    why = next((one.why for one in view.unknown if one.metric == "buckets"), "")
    if seen is None and not why:
        return []
    if seen is None:
        text = f"What more could be hidden is unknown: {why}."
        return [line((each, "dim")) for each in wrap(text, width)]
    title = f"{text_of.count(seen.num_steps, 'step')} seen bucket by bucket"
    rows = [rule("what more could be hidden", width, title), *lanes(seen, width)]
    for words in seen.words:
        rows += [line((each, "text")) for each in wrap(words, width)]
    return rows


def lanes(seen: ExchangeView, width: int) -> list[Line]:
    """Return backward, the buckets as they were and as they would be with another size, one row each."""
    return [
        Line(((fit(name, NAME_WIDTH), "dim"), *_lane(segments, width - NAME_WIDTH)))
        for name, segments in seen.lanes
    ]


def _lane(segments: tuple[Segment, ...], room: int) -> list[Span]:
    cells = bars.cells_of([one.seconds for one in segments], room)
    return [
        (_text(one, size), ROLES[one.kind]) for one, size in zip(segments, cells, strict=True) if size > 0
    ]


def _text(one: Segment, size: int) -> str:
    if one.kind == "idle":
        return "·" * size
    name, figure = (one.kind, text_of.seconds(one.seconds)) if one.bucket is None else (str(one.bucket), "")
    return next(
        (text.ljust(size) for text in (f"▏{name} {figure}".rstrip(), f"▏{name}", "▏") if len(text) <= size),
        "",
    )
