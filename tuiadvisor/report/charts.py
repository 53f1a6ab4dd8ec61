"""Charts as SVG for a report: step time, where a step goes, heat map of ranks. No scripts, nothing from elsewhere.

In: series, shares and levels of a RunView.  Out: str, whole <svg> elements; text from outside is escaped.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Final

from tuiadvisor import phases
from tuiadvisor.phases import PHASES
from tuiadvisor.report.html import NO_PHASE
from tuiadvisor.report.inert import inert
from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.views.run_view import RankRow, Trend
    from tuiadvisor.views.shares import Shares

WIDTH: Final = 960
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 34
COLOURS: Final = {phase.name: phase.colour for phase in phases.TABLE}
# Lateness 0 (in time) .. 7 (very late), then unknown: light to dark, so that it prints.
HEAT: Final = (
    (232, 237, 243), (214, 226, 238), (170, 205, 230), (120, 178, 217),
    (247, 190, 90), (236, 140, 40), (220, 70, 40), (160, 10, 20), (200, 200, 200),
)  # fmt: skip
UNKNOWN_LEVEL: Final = 8
MAX_HEAT_ROWS: Final = 4096
LABEL_WIDTH: Final = 260


def svg(width: int, height: int, title: str, body: str) -> str:
    """A whole picture with its name for whoever cannot see it."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{inert(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{inert(title)}</title>{body}</svg>'
    )


def trend_chart(trend: Trend, height: int = 230) -> str:
    """Step time over the steps, with the marks at which something begins."""
    values = trend.step_s
    known = [value for value in values if value is not None]
    if not known:
        return '<p class="unknown">unknown: no step was seen</p>'
    top_s = text_of.readable_top(known) * 1.08
    plot_width, plot_height = WIDTH - LEFT - RIGHT, height - TOP - BOTTOM
    step_width = plot_width / len(values)

    def x(bucket: float) -> float:
        return LEFT + bucket * step_width

    def y(value: float) -> float:
        return TOP + plot_height * (1 - min(value, top_s) / top_s)

    parts = [
        grid(top_s, y, (LEFT, WIDTH - RIGHT), text_of.seconds),
        *_step_labels(trend, len(values), x, height),
    ]
    path = []
    for bucket, value in enumerate(values):
        if value is not None:
            path.append(f"M{x(bucket):.1f} {y(value):.1f}H{x(bucket + 1):.1f}")
    bars = "".join(
        f'<rect x="{x(bucket):.1f}" y="{y(value):.1f}" width="{step_width:.2f}" '
        f'height="{TOP + plot_height - y(value):.1f}"/>'
        for bucket, value in enumerate(values)
        if value is not None
    )
    parts += [
        f'<g class="area" fill="#b7cfe8">{bars}</g>',
        f'<path class="edge" fill="none" stroke="#2f6fb0" d="{"".join(path)}"/>',
    ]
    parts += _marks(trend, x, plot_height)
    cut = len([value for value in known if value > top_s])
    note = ""
    if cut:
        note = (
            f'<p class="note">{text_of.count(cut, "value")} above {text_of.seconds(top_s)} '
            f"cut, the longest {text_of.seconds(max(known))}.</p>"
        )
    return svg(WIDTH, height, "step time", "".join(parts)) + note


def _marks(trend: Trend, x: Callable[[float], float], plot_height: float) -> list[str]:
    """A line and a label each; labels that would touch stand below each other."""
    parts: list[str] = []
    taken: list[float] = []
    for step, name in trend.marks:
        place = x((step - trend.first_step) / trend.steps_per_bucket)
        if not LEFT <= place <= WIDTH - RIGHT:
            continue
        row = len([other for other in taken if abs(other - place) < LABEL_WIDTH])
        taken.append(place)
        left = place > WIDTH * 0.7
        parts.append(
            f'<line class="mark" stroke="#8a5a00" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" '
            f'y2="{TOP + plot_height:.1f}"/><text class="mark" x="{place + (-5 if left else 5):.1f}" '
            f'y="{TOP + 11 + 14 * row}" text-anchor="{"end" if left else "start"}">step {step:,}: {inert(name)}</text>'
        )
    return parts


def grid(
    top: float, y: Callable[[float], float], edges: tuple[float, float], label: Callable[[float], str]
) -> str:
    """Five lines from zero to the top, from edge to edge, each with its value."""
    left, right = edges
    parts = []
    for tick in range(5):
        value = top * tick / 4
        parts.append(
            f'<line class="grid" stroke="#c6ccd6" x1="{left}" x2="{right}" '
            f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label(value)}</text>'
        )
    return "".join(parts)


def _step_labels(trend: Trend, num_values: int, x: Callable[[float], float], height: int) -> list[str]:
    parts = []
    for tick in range(6):
        bucket = num_values * tick / 5
        step = trend.first_step + round(bucket * trend.steps_per_bucket)
        anchor = "start" if tick == 0 else "end" if tick == 5 else "middle"
        parts.append(
            f'<text x="{x(bucket):.1f}" y="{height - 16}" text-anchor="{anchor}">{max(step, 0):,}</text>'
        )
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{height - 2}" text-anchor="middle">step</text>')
    return parts


def phase_bar(shares: Shares, seconds: Shares, *, height: int = 34, named: bool = True) -> str:
    """One step as a bar of its phases, with name and share where there is room."""
    known = [(phase, shares.get(phase)) for phase in PHASES]
    parts, place = [], 0.0
    whole = sum(value for _, value in known if value)
    for phase, value in known:
        if not value or not whole:
            continue
        width = WIDTH * value / whole
        tip = f"{text_of.phase_name(phase)}: {text_of.share(value)}, {text_of.seconds(seconds.get(phase))}"
        parts.append(
            f'<rect x="{place:.1f}" y="0" width="{width:.1f}" height="{height}" fill="{COLOURS[phase]}">'
            f"<title>{tip}</title></rect>"
        )
        if named and width > 12 * len(text_of.phase_name(phase)):
            dark = phases.BY_NAME[phase].is_dark
            parts.append(
                f'<text x="{place + 7:.1f}" y="{height / 2 + 5:.1f}" class="in{" light" if dark else ""}">'
                f"{text_of.phase_name(phase)} {text_of.share(value)}</text>"
            )
        place += width
    if not parts:
        return NO_PHASE
    return svg(WIDTH, height, "where a step goes", "".join(parts))


def heat_map(ranks: Sequence[RankRow], first_step: int | None) -> str:
    """Lateness at the gradient barrier: a row a rank, a column a step, as a picture inside the picture."""
    rows = [rank.lateness_levels for rank in ranks[:MAX_HEAT_ROWS]]
    num_steps = max((len(row) for row in rows), default=0)
    if not num_steps:
        return '<p class="unknown">unknown: no arrival at a barrier was seen</p>'
    row_height = max(min(18.0, 640 / len(rows)), 0.5)
    plot_height = row_height * len(rows)
    plot_width = WIDTH - LEFT - RIGHT
    picture = base64.b64encode(png(rows, num_steps)).decode()
    image = (
        f'<image x="{LEFT}" y="{TOP}" width="{plot_width}" height="{plot_height:.1f}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{picture}"/>'
    )
    parts = [image]
    every = max(-(-len(rows) * 14 // int(max(plot_height, 14))), 1)
    for place in range(0, len(rows), every):
        middle = TOP + row_height * (place + 0.5) + 4
        mark = "▶ " if ranks[place].is_culprit else ""
        parts.append(
            f'<text x="{LEFT - 6}" y="{middle:.1f}" text-anchor="end">{mark}{ranks[place].rank}</text>'
        )
    if first_step is not None:
        last = first_step + num_steps - 1
        below = TOP + plot_height + 15
        parts.append(f'<text x="{LEFT}" y="{below:.1f}">step {max(first_step, 0):,}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{below:.1f}" text-anchor="end">step {last:,}</text>')
    left_out = ""
    if len(ranks) > len(rows):
        left_out = f'<p class="note">the first {len(rows):,} of {len(ranks):,} ranks</p>'
    return svg(WIDTH, round(TOP + plot_height + BOTTOM), "lateness of each rank", "".join(parts)) + left_out


def heat_legend() -> str:
    """What the colours of the heat map mean."""
    boxes = "".join(
        f'<span class="box" style="background:rgb{HEAT[level]}"></span>' for level in range(UNKNOWN_LEVEL)
    )
    unknown = f'<span class="box" style="background:rgb{HEAT[UNKNOWN_LEVEL]}"></span>'
    return f'<p class="note">in time {boxes} very late &nbsp; {unknown} not seen</p>'


def png(rows: Sequence[bytes], num_steps: int) -> bytes:
    """Levels as a picture of indexed colours, a pixel each; rows shorter than num_steps are unknown before."""
    raw = bytearray()
    for row in rows:
        raw.append(0)  # no filter
        raw += bytes([UNKNOWN_LEVEL]) * (num_steps - len(row))
        raw += bytes(min(level, UNKNOWN_LEVEL) for level in row)
    palette = bytes(part for colour in HEAT for part in colour)
    header = struct.pack(">IIBBBBB", num_steps, len(rows), 8, 3, 0, 0, 0)
    body = zlib.compress(bytes(raw), 9)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def split_bar(parts: Sequence[tuple[str, float | None, str]], height: int = 26) -> str:
    """A bar of named seconds: (name, seconds, colour); unknown ones are left out."""
    known = [(name, value, colour) for name, value, colour in parts if value]
    whole = sum(value for _, value, _ in known)
    if not whole:
        return ""
    shapes, place = [], 0.0
    for name, value, colour in known:
        width = WIDTH * value / whole
        shapes.append(
            f'<rect x="{place:.1f}" y="0" width="{width:.1f}" height="{height}" fill="{colour}">'
            f"<title>{inert(name)}: {text_of.seconds(value)}</title></rect>"
        )
        label = f"{name} {text_of.seconds(value)}"
        if width > 9 * len(label):
            shapes.append(
                f'<text x="{place + 7:.1f}" y="{height / 2 + 5:.1f}" class="in">{inert(label)}</text>'
            )
        place += width
    return svg(WIDTH, height, "communication", "".join(shapes))


def share_bar(title: str, parts: Sequence[tuple[str, float | None, str]], height: int = 26) -> str:
    """A bar of named shares of one whole: (name, share, colour); "" where one of them is unknown."""
    if any(value is None for _, value, _ in parts):
        return ""
    shapes, place = [], 0.0
    for name, value, colour in parts:
        width = WIDTH * min(max(value or 0.0, 0.0), 1.0)
        label = f"{name} {text_of.share(value)}"
        shapes.append(
            f'<rect x="{place:.1f}" y="0" width="{width:.1f}" height="{height}" fill="{colour}">'
            f"<title>{inert(label)}</title></rect>"
        )
        if width > 8 * len(label):
            shapes.append(
                f'<text x="{place + 7:.1f}" y="{height / 2 + 5:.1f}" class="in">{inert(label)}</text>'
            )
        place += width
    return svg(WIDTH, height, title, "".join(shapes))


WATERFALL_ROW: Final = 22
WATERFALL_NAME: Final = 250


def waterfall(parts: Sequence[tuple[str, float, float, str]]) -> str:
    """(name, seconds, share of the whole, colour): a row each, a bar that begins where the one above it ends."""
    shapes, place, room = [], float(WATERFALL_NAME), WIDTH - WATERFALL_NAME - 60
    for index, (name, spent, share, colour) in enumerate(parts):
        top, width = index * WATERFALL_ROW, max(room * share, 1.0)
        middle = top + WATERFALL_ROW / 2 + 4
        shapes += [
            f'<text x="{WATERFALL_NAME - 8}" y="{middle:.1f}" text-anchor="end">{inert(name)}</text>',
            (
                f'<rect x="{place:.1f}" y="{top + 3}" width="{width:.1f}" height="{WATERFALL_ROW - 6}" '
                f'fill="{colour}"><title>{inert(name)}: {text_of.seconds(spent)}</title></rect>'
            ),
            f'<text x="{place + width + 5:.1f}" y="{middle:.1f}">{text_of.share(share)}</text>',
        ]
        place += room * share
    return (
        svg(WIDTH, len(parts) * WATERFALL_ROW, "where the wall time went", "".join(shapes)) if parts else ""
    )
