"""The roofline as a picture: memory's slope, the arithmetic's ceiling, operations of a trace as dots under it.

In: Efficiency, Roofline.  Out: str. Both axes are logarithmic; a dot's area is its time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tuiadvisor.report import charts
from tuiadvisor.report.html import table
from tuiadvisor.report.inert import inert
from tuiadvisor.text import format as text_of
from tuiadvisor.text.efficiency import dtype_word, scaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.views.efficiency import Efficiency, Roofline

WIDTH: Final = 1000
HEIGHT: Final = 340
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 18, 42
MAX_ROWS: Final = 12
HEADS: Final = ("operation", "shape", "calls", "time", "FLOP/s", "FLOP/byte", "bound by", "of its roof")


def mfu_bar(found: Efficiency | None) -> str:
    """The share of the peak that the model takes; nothing where it is unknown."""
    if found is None or found.mfu is None:
        return ""
    part = min(found.mfu, 1.0)
    return charts.share_bar(
        "share of the devices' peak",
        (("MFU", part, charts.COLOURS["forward"]), ("left", 1 - part, "#c6ccd6")),
    )


def roofline(held: Roofline, achieved: float | None = None) -> str:
    """The picture and its table; achieved: FLOP/s of a device in the whole step, drawn as a line."""
    if held.peak_flops is None or held.peak_bytes_s is None or not held.dots:
        return f'<p class="unknown">unknown: {inert(held.why or "the memory bandwidth is not known")}</p>'
    picture = _picture(held, held.peak_flops, held.peak_bytes_s, achieved)
    note = f"{held.device}, {dtype_word(held.dtype)}, {held.source}. Bytes are the least that an operation can move."
    if len(held.dots) > MAX_ROWS:
        note += f" The table holds the {MAX_ROWS} longest of {len(held.dots)} operations drawn."
    return f'{picture}<p class="note">{inert(note)}</p>{table(HEADS, dot_rows(held), 2)}'


def dot_rows(held: Roofline) -> list[tuple[str, ...]]:
    """Below HEADS, the longest first."""
    return [
        (
            dot.name,
            dot.shape,
            f"{dot.calls:,}",
            text_of.seconds(dot.seconds),
            scaled(dot.flops_s, "FLOP/s"),
            text_of.significant(dot.intensity),
            dot.bound or text_of.UNKNOWN,
            text_of.share(dot.of_roof),
        )
        for dot in held.dots[:MAX_ROWS]
    ]


def _picture(held: Roofline, peak: float, bytes_s: float, achieved: float | None) -> str:
    ridge = peak / bytes_s
    intensities = [dot.intensity for dot in held.dots if dot.intensity > 0]
    rates = [dot.flops_s for dot in held.dots if dot.flops_s > 0] + ([achieved] if achieved else [])
    first, last = min([*intensities, ridge / 10]) / 1.5, max([*intensities, ridge * 10]) * 1.5
    low, high = min([*rates, peak / 100]) / 1.5, max([*rates, peak]) * 1.6

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / first) / math.log(last / first)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - math.log(max(value, low) / low) / math.log(high / low))

    parts = [*_grid(low, high, y, is_upright=False), *_grid(first, last, x, is_upright=True)]
    start = max(first, low / bytes_s)
    parts.append(
        f'<polyline class="edge" points="{x(start):.1f},{y(start * bytes_s):.1f} {x(ridge):.1f},{y(peak):.1f} '
        f'{x(last):.1f},{y(peak):.1f}"/>'
    )
    parts.append(
        f'<text x="{x(last) - 4:.1f}" y="{y(peak) - 6:.1f}" text-anchor="end">{scaled(peak, "FLOP/s")}</text>'
    )
    if achieved:
        words = f"the whole step: {scaled(achieved, 'FLOP/s')}"
        parts.append(
            f'<line class="mark" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(achieved):.1f}" y2="{y(achieved):.1f}"/>'
            f'<text class="mark" x="{LEFT + 6}" y="{y(achieved) - 5:.1f}">{words}</text>'
        )
    longest = max(dot.seconds for dot in held.dots)
    for dot in held.dots:
        if dot.intensity <= 0 or dot.flops_s <= 0:
            continue
        radius = 3 + 11 * math.sqrt(dot.seconds / longest)
        # A type whose peak nobody knows has no roof, though the trace's main type has one.
        under = (
            f"{dot.bound}-bound, {text_of.share(dot.of_roof)} of its roof" if dot.bound else "roof unknown"
        )
        words = f"{dot.name} {dot.shape}: {scaled(dot.flops_s, 'FLOP/s')}, {under}"
        parts.append(
            f'<circle class="seen" fill-opacity="0.55" cx="{x(dot.intensity):.1f}" cy="{y(dot.flops_s):.1f}" '
            f'r="{radius:.1f}"><title>{inert(words)}</title></circle>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">FLOP a byte</text>'
    )
    return charts.svg(WIDTH, HEIGHT, "roofline", "".join(parts))


def _grid(low: float, high: float, place: Callable[[float], float], *, is_upright: bool) -> list[str]:
    parts = []
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        at = place(10.0**power)
        if is_upright:
            parts.append(
                f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            )
            parts.append(
                f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{scaled(10.0**power, "")}</text>'
            )
        else:
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(
                f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{scaled(10.0**power, "FLOP/s")}</text>'
            )
    return parts
