"""The roofline in letters: both axes logarithmic, operations of a trace as digits under the roof.

In: Roofline.  Out: lines of plain text, at most the width asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.text.efficiency import dtype_word, scaled

if TYPE_CHECKING:
    from tuiadvisor.views.efficiency import Roofline

MARKS: Final = "123456789abcdefghijklmnop"
LABEL_WIDTH: Final = 14
SLOPE: Final = "\N{BOX DRAWINGS LIGHT DIAGONAL UPPER RIGHT TO LOWER LEFT}"
MAX_NAMED: Final = 8


def letters(held: Roofline, width: int = 80, height: int = 14) -> list[str]:
    """The picture with its legend; one line with the reason where there is no roof."""
    peak, bytes_s = held.peak_flops, held.peak_bytes_s
    dots = [dot for dot in held.dots if dot.intensity > 0 and dot.flops_s > 0]
    if not dots:
        return [f"roofline {text_of.UNKNOWN}: {held.why or 'no operation with counted FLOPs'}"]
    rows = [] if peak is None or bytes_s is None else _picture(held, peak, bytes_s, width, height)
    if not rows:
        rows = [f"roof {text_of.UNKNOWN}: {held.why or 'the memory bandwidth is not known'}"]
    for mark, dot in zip(MARKS, dots[:MAX_NAMED], strict=False):
        where = (
            f"{dot.bound}-bound, {text_of.share(dot.of_roof)} of its roof" if dot.bound else "roof unknown"
        )
        rows.append(
            f" {mark} {dot.name} {dot.shape}: {text_of.count(dot.calls, 'call')}, {text_of.seconds(dot.seconds)}, "
            f"{scaled(dot.flops_s, 'FLOP/s')}, {where}"
        )
    return rows


def _picture(held: Roofline, peak: float, bytes_s: float, width: int, height: int) -> list[str]:
    dots = [dot for dot in held.dots if dot.intensity > 0 and dot.flops_s > 0]
    ridge, room = peak / bytes_s, width - LABEL_WIDTH - 1
    first = min([dot.intensity for dot in dots] + [ridge / 10]) / 1.3
    last = max([dot.intensity for dot in dots] + [ridge * 10]) * 1.3
    low = min([dot.flops_s for dot in dots] + [peak / 100]) / 1.3
    high = max([dot.flops_s for dot in dots] + [peak])

    def column(value: float) -> int:
        return min(max(round((room - 1) * math.log(value / first) / math.log(last / first)), 0), room - 1)

    def row(value: float) -> int:
        return min(
            max(round((height - 1) * (1 - math.log(value / low) / math.log(high / low))), 0), height - 1
        )

    field = [[" "] * room for _ in range(height)]
    for place in range(room):
        intensity = first * (last / first) ** (place / (room - 1))
        roof = min(intensity * bytes_s, peak)
        if roof >= low:
            field[row(roof)][place] = "─" if intensity >= ridge else SLOPE
    for mark, dot in reversed(list(zip(MARKS, dots, strict=False))):
        field[row(dot.flops_s)][column(dot.intensity)] = mark
    labels = {row(peak): scaled(peak, "FLOP/s"), height - 1: scaled(low, "FLOP/s")}
    rows = [
        f"{labels.get(index, ''):>{LABEL_WIDTH}} {''.join(cells)}".rstrip()
        for index, cells in enumerate(field)
    ]
    axis = list(" " * room)
    end = f"{text_of.significant(last)} FLOP/byte"
    for value, text in ((first, text_of.significant(first)), (ridge, f"ridge {text_of.significant(ridge)}")):
        place = min(
            column(value), room - len(end) - 1 - len(text)
        )  # beside the end of the axis, never under it
        axis[place : place + len(text)] = text
    axis[room - len(end) :] = end
    head = f"roofline: {held.device}, {dtype_word(held.dtype)}, {held.source}"
    return [head, *rows, " " * (LABEL_WIDTH + 1) + "".join(axis)]
