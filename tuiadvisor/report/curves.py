"""How a job scales, as SVG: efficiency, cost and hours over device counts, each with its interval.

In: Picture of `scaling`.  Out: str, whole <svg> elements. Points differ by shape, lines by dashes, not by colour alone.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Final

from tuiadvisor.report.charts import grid, svg
from tuiadvisor.report.inert import inert
from tuiadvisor.text.plot import Plot, short, top_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.scaling.picture import Curve, Picture

WIDTH: Final = 470
HEIGHT: Final = 260
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 26, 42
MARGIN: Final = 14  # keeps points off the frame
LABEL: Final = 26  # least distance of two numbers below the axis


def scaling_charts(held: Picture) -> str:
    """All curves side by side where there is room for two."""
    drawn = [curve_chart(held, curve) for curve in held.curves if curve.points or curve.devices]
    return f'<div class="plots">{"".join(f"<div>{each}</div>" for each in drawn)}</div>' if drawn else ""


def curve_chart(held: Picture, curve: Curve) -> str:
    """One quantity: band and line of what is expected, points, limit, deadline, the size the decision names."""
    sizes = [*curve.devices, *(point.devices for point in curve.points)]
    first, last = log2(min(sizes)), log2(max(sizes))
    top = top_of(Plot(curve.devices, curve.expected, curve.low, curve.high,
                      [(point.devices, point.value, "") for point in curve.points], curve.limit))  # fmt: skip
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(devices: float) -> float:
        if last <= first:
            return LEFT + width / 2
        return LEFT + MARGIN + (log2(devices) - first) / (last - first) * (width - 2 * MARGIN)

    def y(value: float) -> float:
        return TOP + height * (1 - min(max(value / top, 0.0), 1.0))

    unit = f", {inert(curve.unit)}" if curve.unit else ""
    parts = [
        f'<text class="name" x="{LEFT}" y="14">{inert(curve.name)}{unit}</text>',
        grid(top, y, (LEFT, WIDTH - RIGHT), short),
        *_band(curve, x, y),
        *_limits(held, curve, x, y, top),
        *_points(held, curve, x, y),
        *_sizes(held, sizes, x),
    ]
    return svg(WIDTH, HEIGHT, f"{curve.name} over devices", "".join(parts))


def _band(curve: Curve, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    if not curve.devices:
        return []
    there = [f"{x(size):.1f} {y(high):.1f}" for size, high in zip(curve.devices, curve.high, strict=True)]
    back = [f"{x(size):.1f} {y(low):.1f}" for size, low in zip(curve.devices, curve.low, strict=True)]
    line = [
        f"{x(size):.1f} {y(value):.1f}" for size, value in zip(curve.devices, curve.expected, strict=True)
    ]
    return [
        f'<path class="area" fill="#b7cfe8" d="M{"L".join([*there, *reversed(back)])}Z"/>',
        f'<path class="edge" fill="none" stroke="#2f6fb0" d="M{"L".join(line)}"/>',
    ]


def _limits(
    held: Picture, curve: Curve, x: Callable[[float], float], y: Callable[[float], float], top: float
) -> list[str]:
    parts = []
    dashed = 'class="mark" stroke="#8a5a00"'
    if curve.limit is not None:
        name = inert(curve.limit_name)
        if curve.limit <= top:
            at = y(curve.limit)
            parts.append(f'<line {dashed} x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        else:
            name += " (above)"
        parts.append(f'<text class="mark" x="{WIDTH - RIGHT}" y="14" text-anchor="end">{name}</text>')
    least = held.deadline_from
    if (
        least is not None
        and held.deadline_note
        and curve.devices
        and curve.devices[0] <= least <= curve.devices[-1]
    ):
        parts.append(
            f'<line {dashed} x1="{x(least):.1f}" x2="{x(least):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text class="mark" x="{x(least) + 4:.1f}" y="{HEIGHT - BOTTOM - 5}">in time</text>'
        )
    return parts


def _points(
    held: Picture, curve: Curve, x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    parts = []
    for point in curve.points:
        across, down = x(point.devices), y(point.value)
        kind = "measured" if point.is_measured else "predicted"
        tip = f"<title>{point.devices:,} devices, {kind}: {short(point.value)}</title>"
        if point.is_measured and point.devices == held.yours:
            parts.append(
                f'<rect class="yours" fill="#23282f" x="{across - 5:.1f}" y="{down - 5:.1f}" width="10" height="10">'
                f"{tip}</rect>"
            )
        else:
            style = "seen" if point.is_measured else "asked"
            fill = "#2f6fb0" if point.is_measured else "#fff"
            parts.append(
                f'<circle class="{style}" fill="{fill}" stroke="#2f6fb0" cx="{across:.1f}" cy="{down:.1f}" r="4.5">'
                f"{tip}</circle>"
            )
    return parts


def _sizes(held: Picture, sizes: Sequence[int], x: Callable[[float], float]) -> list[str]:
    """The device counts below the axis, as many as there is room for, the decision's below them."""
    parts: list[str] = []
    taken: list[float] = []
    ends = (min(sizes), max(sizes))
    named = {row.devices for row in held.rows if ends[0] <= row.devices <= ends[1]} | set(ends)
    for size in sorted(named, key=lambda each: (each not in ends, each)):
        across = x(size)
        if all(abs(across - other) >= LABEL for other in taken):
            taken.append(across)
            parts.append(
                f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{size:,}</text>'
            )
    if held.chosen is not None and ends[0] <= held.chosen <= ends[1]:
        parts.append(
            f'<text class="mark" x="{x(held.chosen):.1f}" y="{HEIGHT - BOTTOM + 30}" text-anchor="middle">'
            f"▲ {inert(held.decision or '')}</text>"
        )
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">devices</text>')
    return parts


def scaling_legend(held: Picture) -> str:
    """What shapes and dashes mean."""
    is_fitted = not held.basis.startswith("bounds")
    texts = [
        "■ yours",
        "● measured",
        f"○ {'predicted' if is_fitted else 'expected'}",
        f"shaded: {'90 % interval' if is_fitted else 'best to worst case'}",
        "dashed: limit",
    ]
    return f'<p class="note">{" &nbsp; ".join(texts)}</p>'
