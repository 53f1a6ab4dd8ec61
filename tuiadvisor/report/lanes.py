"""Compute and communication of a mean step as two lanes of one scale, as SVG: what is hidden, what is exposed.

In: phases of all ranks, of the late ones and of one that waits.  Out: str. A bar says in letters what its colour says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor import phases
from tuiadvisor.report.charts import COLOURS, WIDTH, svg
from tuiadvisor.report.html import NO_PHASE
from tuiadvisor.report.inert import inert
from tuiadvisor.text import format as text_of
from tuiadvisor.text.wording import late_and_waiting
from tuiadvisor.views.shares import known_phases

if TYPE_CHECKING:
    from tuiadvisor.views.communication import ExchangeView
    from tuiadvisor.views.run_view import RunView
    from tuiadvisor.views.shares import Shares

LEFT: Final = 110
RIGHT: Final = 12
ROW: Final = 20
GAP: Final = 8
LETTER: Final = 7.0
SEGMENTS: Final = {"backward": (" light", COLOURS["backward"]), "bucket": ("", COLOURS["comm_exposed"])}
LIGHT: Final = frozenset(phase.name for phase in phases.TABLE if phase.is_dark)


def overlap_lanes(view: RunView) -> str:
    """Two lanes for all ranks together, then for those that come late and for the one that waits longest."""
    shown = [("all ranks", view.step.seconds, view.overlap.hidden_s)]
    shown += [
        (f"{'▶ ' if rank.is_culprit else ''}rank {rank.rank}", rank.seconds, None)
        for rank in late_and_waiting(view, 1)
    ]
    known = [entry for entry in shown if known_phases(entry[1])]
    if not known:
        return NO_PHASE
    longest = max(sum(value for _, value in known_phases(seconds)) for _, seconds, _ in known)
    parts, top = [], 0.0
    for name, seconds, hidden_s in known:
        parts.append(_lanes(name, seconds, hidden_s, (top, (WIDTH - LEFT - RIGHT) / longest)))
        top += 2 * ROW + GAP
    note = "Both lanes have one scale; grey: compute waits for communication."
    if view.overlap.hidden_s:
        note += " Where in backward the hidden part lies is not seen."
    return svg(WIDTH, round(top), "compute and communication", "".join(parts)) + f'<p class="note">{note}</p>'


def bucket_lanes(seen: ExchangeView) -> str:
    """Backward, the buckets as they were and as they would be; nothing where none was drawn."""
    if not seen.lanes:
        return ""
    scale = (WIDTH - LEFT - RIGHT) / sum(one.seconds for one in seen.lanes[0][1])
    parts, top = [], 0.0
    for name, segments in seen.lanes:
        parts.append(f'<text x="{LEFT - 8}" y="{top + 14:.1f}" text-anchor="end">{inert(name)}</text>')
        at = float(LEFT)
        for one in segments:
            width = one.seconds * scale
            if one.kind != "idle":
                label = one.kind if one.bucket is None else str(one.bucket)
                style, colour = SEGMENTS[one.kind]
                parts.append(_bar(label, one.seconds, (at, top, width), colour, style))
            at += width
        top += ROW
    note = "A bucket leaves when its last gradient is ready on the last rank and the one before it has gone."
    picture = svg(WIDTH, round(top), "the gradient all-reduce, bucket by bucket", "".join(parts))
    return f'{picture}<p class="note">{note}</p>'


def _lanes(name: str, seconds: Shares, hidden_s: float | None, place: tuple[float, float]) -> str:
    """place: upper edge, and units of the picture a second."""
    top, scale = place
    parts = [
        f'<text x="{LEFT - 8}" y="{top + 14:.1f}" text-anchor="end">{inert(name)}</text>',
        f'<text x="{LEFT - 8}" y="{top + ROW + 14:.1f}" text-anchor="end">comm</text>',
    ]
    at = float(LEFT)
    for phase, value in known_phases(seconds):
        width = value * scale
        if phase == "comm_exposed":
            parts.append(
                f'<rect class="idle" x="{at:.1f}" y="{top + 7:.1f}" width="{width:.1f}" height="4"/>'
            )
            parts.append(_bar("exposed", value, (at, top + ROW, width), COLOURS[phase], ""))
        else:
            style = " light" if phase in LIGHT else ""
            parts.append(_bar(text_of.phase_name(phase), value, (at, top, width), COLOURS[phase], style))
        if phase == "backward" and hidden_s:
            hidden = min(hidden_s, value) * scale
            lane = (at + width - hidden, top + ROW, hidden)
            parts.append(_bar("hidden", hidden_s, lane, COLOURS["comm_exposed"], "", is_faint=True))
        at += width
    return "".join(parts)


def _bar(
    name: str,
    value: float,
    place: tuple[float, float, float],
    colour: str,
    style: str,
    *,
    is_faint: bool = False,
) -> str:
    x, y, width = place
    texts = (f"{name} {text_of.seconds(value)}", name)
    label = next((text for text in texts if len(text) * LETTER + 8 <= width), "")
    faint = ' fill-opacity=".45"' if is_faint else ""
    bar = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{ROW - 3}" fill="{colour}"{faint}>'
        f"<title>{texts[0]}</title></rect>"
    )
    # On a faint bar the page's own text colour is read, in light and in dark.
    kind = "name" if is_faint else f"in{style}"
    return bar + (f'<text class="{kind}" x="{x + 5:.1f}" y="{y + 13:.1f}">{label}</text>' if label else "")
