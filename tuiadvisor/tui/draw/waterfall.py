"""The wall time of a job as a waterfall in letters: a row a part, each bar beginning where the one above it ends.

In: Goodput.  Out: lines of at most the asked width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, crop, fit, line
from tuiadvisor.tui.draw.bars import cells_of
from tuiadvisor.views.goodput import kind_words

if TYPE_CHECKING:
    from tuiadvisor.views.goodput import Goodput

# Letters say it where colours do not.
GLYPHS = {"useful": ("█", "good"), "lost": ("▓", "warn"), "unknown": ("?", "dim")}
NAME_WIDTH, SECONDS_WIDTH, SHARE_WIDTH = 27, 11, 7  # "at rest between recordings", "59 min 54 s"
MIN_BAR = 12
LEGEND = (("█", "good", "useful"), ("▓", "warn", "lost"), ("?", "dim", "not known: neither"))


def rows(found: Goodput, width: int, most: int) -> list[Line]:
    """Return the parts, the smallest in one row where there is no room."""
    told = found.waterfall
    parts = told if len(told) <= most else told[: max(most - 1, 1)]
    bar_width = width - NAME_WIDTH - SECONDS_WIDTH - SHARE_WIDTH - 1
    sizes = cells_of([part.share for part in found.waterfall], max(bar_width, 0))
    lines, place = [], 0
    for part, size in zip(parts, sizes, strict=False):
        glyph, role = GLYPHS[part.sort]
        spans = [
            (fit(kind_words(part.kind), NAME_WIDTH), "text" if part.sort != "unknown" else "dim"),
            (fit(text_of.seconds(part.seconds), SECONDS_WIDTH, "right"), "dim"),
            (fit(text_of.share(part.share), SHARE_WIDTH, "right"), "strong"),
        ]
        if bar_width >= MIN_BAR:
            spans += [(" " * (place + 1), "text"), (glyph * size, role)]
        place += size
        lines.append(crop(Line(tuple(spans)), width))
    left = len(told) - len(parts)
    if left:
        lines.append(line((f"and {text_of.count(left, 'smaller part')}", "dim")))
    return lines


def one_bar(found: Goodput, width: int) -> Line:
    """Return all parts beside each other in one row."""
    sizes = cells_of([part.share for part in found.waterfall], width)
    glyphs = [GLYPHS[part.sort] for part in found.waterfall]
    spans = [
        ("▏" + glyph * (size - 1), role) for (glyph, role), size in zip(glyphs, sizes, strict=True) if size
    ]
    return Line(tuple(spans))


def legend() -> Line:
    """Return what the letters mean."""
    spans = []
    for glyph, role, meaning in LEGEND:
        spans += [(glyph, role), (f" {meaning}   ", "dim")]
    return Line(tuple(spans))
