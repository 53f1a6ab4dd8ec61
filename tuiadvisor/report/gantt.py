"""A step as bars in time, as SVG: chunks of a pipeline by rank, how even its stages are, the chain of any other job.

In: PipelineView, links of a chain.  Out: str, whole <svg> elements. Letter and number say what colour says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.report.charts import COLOURS, WIDTH, svg
from tuiadvisor.report.html import NO_PHASE
from tuiadvisor.text import format as text_of
from tuiadvisor.text.gantt import NAMES
from tuiadvisor.text.wording import PIPELINE_PARTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.views.pipeline import PipelineChunk, PipelineView
    from tuiadvisor.views.run_view import ChainLink

FILLS: Final = {"F": COLOURS["forward"], "B": COLOURS["backward"], "W": COLOURS["optimizer"]}
PART_COLOURS: Final = {
    "busy": COLOURS["optimizer"],
    "fill_share": COLOURS["pipeline_idle"],
    "imbalance_share": COLOURS["data_wait"],
    "delay_share": COLOURS["other"],
}
LEFT: Final = 92
RIGHT: Final = 12
LETTER: Final = 7.5  # width of one, in the picture's units
ROW: Final = 22
TALLEST: Final = 900
LIGHT: Final = frozenset({"B", "W"})  # fills that light text is read on
MAX_STAGES: Final = 64
POINTED: Final = 6.0  # narrower bars have no label and no tip
READABLE: Final = 12.0  # height from which a label fits


def chart(pipeline: PipelineView) -> str:
    """One step: a row a rank, a bar a chunk; "" where there is none to draw."""
    if not pipeline.chart:
        return ""
    ranks = sorted({chunk.rank for chunk in pipeline.chart})
    height = max(min(ROW, TALLEST / len(ranks)), 2.0)
    several = pipeline.num_stages > pipeline.num_ranks
    parts = []
    for place, rank in enumerate(ranks):
        chunks = [chunk for chunk in pipeline.chart if chunk.rank == rank]
        parts.append(_row(place * height, height, chunks, several=several))
    every = max(-(-14 * len(ranks) // int(max(height * len(ranks), 14))), 1)
    parts += [
        f'<text x="{LEFT - 8}" y="{(place + 0.5) * height + 4:.1f}" text-anchor="end">rank {ranks[place]}</text>'
        for place in range(0, len(ranks), every)
    ]
    below = height * len(ranks) + 15
    parts.append(f'<text x="{LEFT}" y="{below:.1f}">0</text>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{below:.1f}" text-anchor="end">{text_of.seconds(pipeline.chart_s)}</text>'
    )
    return svg(WIDTH, round(below + 8), "one step of the pipeline", "".join(parts))


def _row(top: float, height: float, chunks: Sequence[PipelineChunk], *, several: bool) -> str:
    """The chunks of a rank on the ground of its idle time; those too narrow to point at are one shape a kind."""
    room = WIDTH - LEFT - RIGHT
    thick = max(height - 3, 1.0)
    parts = [f'<rect class="idle" x="{LEFT}" y="{top:.1f}" width="{room}" height="{thick:.1f}"/>']
    narrow: dict[str, list[str]] = {}
    for chunk in chunks:
        begin, width = LEFT + room * chunk.begin, max(room * (chunk.end - chunk.begin), 0.4)
        if width < POINTED:
            shape = f"M{begin:.1f} {top:.1f}h{width:.1f}v{thick:.1f}h-{width:.1f}z"
            narrow.setdefault(chunk.kind, []).append(shape)
        else:
            parts.append(_bar(chunk, (begin, top, width, thick), several=several))
    parts += [f'<path fill="{FILLS[kind]}" d="{"".join(shapes)}"/>' for kind, shapes in narrow.items()]
    return "".join(parts)


def _bar(chunk: PipelineChunk, place: tuple[float, float, float, float], *, several: bool) -> str:
    begin, top, width, thick = place
    long = f"{chunk.kind}{chunk.micro_batch}/{chunk.stage}" if several else ""
    names = (long, f"{chunk.kind}{chunk.micro_batch}", chunk.kind)
    label = next((name for name in names if name and len(name) * LETTER <= width), "")
    tip = f"{NAMES[chunk.kind]}, micro-batch {chunk.micro_batch}, stage {chunk.stage}"
    bar = (
        f'<rect x="{begin:.2f}" y="{top:.1f}" width="{width:.2f}" height="{thick:.1f}" '
        f'fill="{FILLS[chunk.kind]}" stroke="#fff" stroke-width=".5"><title>{tip}</title></rect>'
    )
    if not label or thick < READABLE:
        return bar
    style = "in light" if chunk.kind in LIGHT else "in"
    return (
        f'{bar}<text class="{style}" x="{begin + width / 2:.1f}" y="{top + thick / 2 + 4:.1f}" '
        f'text-anchor="middle">{label}</text>'
    )


def legend(pipeline: PipelineView) -> str:
    """What letters and colours mean."""
    kinds = [kind for kind in FILLS if any(chunk.kind == kind for chunk in pipeline.chart)]
    boxes = " &nbsp; ".join(
        f'<span class="box" style="background:{FILLS[kind]}"></span> {kind} {NAMES[kind]}' for kind in kinds
    )
    number = "micro-batch/stage" if pipeline.num_stages > pipeline.num_ranks else "micro-batch"
    return f'<p class="note">{boxes} &nbsp; <span class="box idle"></span> idle &nbsp; number: {number}</p>'


def idle_parts(pipeline: PipelineView) -> list[tuple[str, float | None, str]]:
    """(what the ranks' time goes into, its share, colour)."""
    return [(name, getattr(pipeline, field), PART_COLOURS[field]) for field, name in PIPELINE_PARTS.items()]


def balance(pipeline: PipelineView) -> str:
    """A bar a stage, as long as its time beside the slowest stage's; a dashed line where all would be even."""
    stages = pipeline.stages[:MAX_STAGES]
    if not stages:
        return ""
    times = [stage.forward_s + stage.backward_s for stage in stages]
    longest, even = max(times), sum(times) / len(times)
    if longest <= 0:
        return ""
    room = WIDTH - LEFT - 230
    place_of_even = LEFT + room * even / longest
    dashed = f'class="mark" stroke="#8a5a00" x1="{place_of_even:.1f}" x2="{place_of_even:.1f}"'
    parts = [f'<line {dashed} y1="0" y2="{ROW * len(stages)}"/>']
    for place, (stage, whole) in enumerate(zip(stages, times, strict=True)):
        top, x = place * ROW, float(LEFT)
        mark = "▶ " if stage.is_heavy else ""
        parts.append(
            f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{mark}stage {stage.stage}</text>'
        )
        for kind, value in (("F", stage.forward_s), ("B", stage.backward_s)):
            width = room * value / longest
            parts.append(
                f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 4}" fill="{FILLS[kind]}"/>'
            )
            if width > 9 * LETTER:
                style = "in light" if kind in LIGHT else "in"
                parts.append(
                    f'<text class="{style}" x="{x + 5:.1f}" y="{top + 13}">{kind} {text_of.seconds(value)}</text>'
                )
            x += width
        told = f"rank {stage.rank}, {text_of.seconds(whole)}, {stage.excess:+.0%}".replace("%", " %")
        told += " heavy" if stage.is_heavy else ""
        beside = max(x, place_of_even) + 8 if x > place_of_even - len(told) * LETTER else x + 8
        parts.append(f'<text x="{beside:.1f}" y="{top + 14}">{told}</text>')
    return svg(WIDTH, ROW * len(stages) + 2, "time of each stage", "".join(parts))


def chain(links: Sequence[ChainLink]) -> str:
    """The phases of a step one after the other, each beginning where the one before it ends; unknown ones say so."""
    known = [link.seconds for link in links if link.seconds is not None]
    whole = sum(known)
    if whole <= 0:
        return NO_PHASE
    room, at = WIDTH - LEFT - 240, 0.0
    parts = []
    for place, link in enumerate(links):
        top = place * ROW
        mark = "▶ " if link.is_slowest else ""
        name = text_of.phase_name(link.phase)
        parts.append(f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{mark}{name}</text>')
        begin = LEFT + room * at / whole
        if link.seconds is None:
            parts.append(f'<text x="{begin + 4:.1f}" y="{top + 14}" font-style="italic">unknown</text>')
            continue
        width = room * link.seconds / whole
        parts.append(
            f'<rect x="{begin:.1f}" y="{top}" width="{max(width, 0.6):.1f}" height="{ROW - 4}" '
            f'fill="{COLOURS[link.phase]}"/>'
        )
        told = f"{text_of.seconds(link.seconds)}, {text_of.share(link.share)}"
        if link.slowest_rank is not None:
            told += f"; rank {link.slowest_rank} {text_of.seconds(link.slowest_s)}"
        parts.append(f'<text x="{begin + width + 6:.1f}" y="{top + 14}">{told}</text>')
        at += link.seconds
    return svg(WIDTH, ROW * len(links) + 2, "chain of a step", "".join(parts))
