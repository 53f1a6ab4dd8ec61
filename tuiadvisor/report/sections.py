"""Sections of the HTML report with a picture: pipeline or chain of a step, communication, the job at other sizes.

In: RunView, Picture of `scaling`.  Out: str.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.report import charts, curves, gantt, roofs
from tuiadvisor.report.facts import (
    COLLECTIVE_HEADS,
    SIZE_HEADS,
    collective_rows,
    goodput_notes,
    goodput_rows,
    overlap_facts,
    pipeline_facts,
    size_rows,
)
from tuiadvisor.report.html import bullets, facts, table
from tuiadvisor.report.inert import inert
from tuiadvisor.report.lanes import bucket_lanes, overlap_lanes
from tuiadvisor.text import device_work as trace_words
from tuiadvisor.text import format as text_of
from tuiadvisor.text import goodput as words
from tuiadvisor.text import placement as words_of_places
from tuiadvisor.text import stack_card as cards
from tuiadvisor.text.efficiency import efficiency_facts, is_worth_showing, stack_facts
from tuiadvisor.text.wording import (
    MEETS_LEGEND,
    decided_size,
    pipeline_advice,
    pipeline_title,
    why_no_chart,
    why_no_pipeline,
)
from tuiadvisor.views.goodput import kind_words

if TYPE_CHECKING:
    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.views.efficiency import Roofline
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.run_view import RunView


def lines_of_code(view: RunView) -> str:
    """The lines that stacks sampled on request were at; nothing where nobody asked."""
    if not view.cards:
        return ""
    parts = ["<section><h2>Lines of code</h2>"]
    for card in view.cards:
        parts.append(f"<p><b>{inert(card.words)}</b></p>")
        parts += [table(heads, rows, numbers=cards.TEXT_COLUMNS) for heads, rows in cards.tables(card)]
        parts += [f'<p class="note">{inert(text)}</p>' for text in (card.basis, *card.notes) if text]
    return "".join([*parts, "</section>"])


def traced(view: RunView) -> str:
    """What the devices did, by the trace that the run is or that lies beside it; nothing without one."""
    sentences, tables = trace_words.said(view), trace_words.tables(view)
    if not sentences and not tables:
        return ""
    parts = [f"<p>{inert(text)}</p>" for text in sentences]
    parts += [table(heads, rows) for heads, rows in tables]
    return "".join([f"<section><h2>{trace_words.TITLE}</h2>", *parts, "</section>"])


def pipeline(view: RunView) -> str:
    """The step by stage and micro-batch; for a job without stages the chain of its phases."""
    if view.pipeline is not None:
        return f"<section><h2>Pipeline</h2>{_pipeline(view.pipeline)}</section>"
    if not view.chain:
        return ""
    steps = text_of.steps(view.window.first_step, view.window.last_step)
    note = f"Mean over ranks, {steps}. ▶ the longest. No rank holds a stage of a pipeline."
    return (
        f"<section><h2>Chain of a step</h2>{gantt.chain(view.chain)}"
        f'<p class="note">{inert(note)}</p></section>'
    )


def _pipeline(held: PipelineView) -> str:
    if not held.stages:
        return f'<p class="unknown">{inert(why_no_pipeline(held))}</p>'
    title = pipeline_title(held)
    if held.chart:
        title += f", step {held.chart_step:,}"
        picture = gantt.chart(held) + gantt.legend(held)
    else:
        picture = f'<p class="unknown">{inert(why_no_chart(held))}</p>'
    compared = text_of.steps(held.first_step, held.last_step)
    parts = charts.share_bar("what the ranks' time goes into", gantt.idle_parts(held))
    left = len(held.stages) - gantt.MAX_STAGES
    more = f'<p class="note">and {text_of.count(left, "more stage")}</p>' if left > 0 else ""
    return (
        f"<p>{inert(title)}</p>{picture}<h3>Bubble, {inert(compared)}</h3>{parts}{facts(pipeline_facts(held))}"
        f"<h3>Stages: all micro-batches of a step; dashed: all even</h3>{gantt.balance(held)}{more}"
        f"{bullets(pipeline_advice(held))}"
    )


GOODPUT_COLOURS: Final = {
    "useful": charts.COLOURS["optimizer"],
    "lost": charts.COLOURS["data_wait"],
    "unknown": "#b8bec8",
}


def goodput(view: RunView) -> str:
    """The wall time as a waterfall; nothing where no step was seen."""
    wall = view.wall
    if wall is None:
        return ""
    parts = [
        (kind_words(part.kind), part.seconds, part.share, GOODPUT_COLOURS[part.sort])
        for part in wall.waterfall
    ]
    return (
        f"<section><h2>Goodput</h2><p><strong>{inert(words.headline(wall))}</strong></p>"
        f"{charts.waterfall(parts)}{table(('part', 'time', 'share'), goodput_rows(wall))}"
        f"{bullets(goodput_notes(view))}</section>"
    )


def communication(view: RunView) -> str:
    """Lanes of a step, what of the exposed part is waiting, each collective that was seen one by one."""
    overlap = view.overlap
    lanes = overlap_lanes(view) if (view.run.world_size or 2) > 1 else ""
    bar = charts.split_bar(
        (
            ("waiting for the last rank", overlap.skew_s, charts.COLOURS["data_wait"]),
            ("moving data", overlap.transfer_s, charts.COLOURS["comm_exposed"]),
        )
    )
    named = "<h3>Exposed</h3>" + bar if bar else ""
    rows = collective_rows(view)
    seen = f"<h3>Collectives, seen one by one</h3>{table(COLLECTIVE_HEADS, rows)}" if rows else ""
    more = ""
    if view.exchange is not None:
        words = bullets(view.exchange.words)
        more = f"<h3>The gradient all-reduce, bucket by bucket</h3>{bucket_lanes(view.exchange)}{words}"
    return f"<section><h2>Communication</h2>{lanes}{named}{facts(overlap_facts(view))}{more}{seen}</section>"


def efficiency(view: RunView, held: Roofline | None = None) -> str:
    """MFU and what it rests on, model and settings; nothing where nothing is known of them."""
    if not is_worth_showing(view) and held is None:
        return ""
    achieved = view.efficiency.flops_s_per_device if view.efficiency else None
    roof = "" if held is None else f"<h3>Roofline of a traced rank</h3>{roofs.roofline(held, achieved)}"
    settings = facts(stack_facts(view.stack))
    return (
        f"<section><h2>Efficiency</h2>{roofs.mfu_bar(view.efficiency)}{facts(efficiency_facts(view))}{roof}"
        f"<h3>Model and settings, as the probes saw them</h3>{settings}</section>"
    )


def placement(view: RunView) -> str:
    """Where ranks and devices are, and what links carry of what they can; nothing where nobody told."""
    places, links = words_of_places.placement_rows(view.placements), words_of_places.link_rows(view.links)
    shown = f"<h3>Placement</h3>{table(words_of_places.PLACEMENT_HEADS, places)}" if places else ""
    if links:
        shown += f"<h3>Links</h3>{table(words_of_places.LINK_HEADS, links, 2)}"
        shown += bullets(words_of_places.ceiling_sources(view.links))
    return shown


def scaling(held: Picture | None) -> str:
    """Curves, sizes and what follows; what is missing where there is no curve."""
    if held is None:
        return ""
    words, because = decided_size(held)
    said = f"<p><strong>{inert(words)}</strong>{inert(because)}</p>" if held.decision else ""
    drawn = curves.scaling_charts(held)
    rows = size_rows(held)
    sizes = ""
    if rows:
        sizes = table(SIZE_HEADS, rows, 2)
        limits = f" {MEETS_LEGEND}." if any(one.in_time or one.in_budget for one in held.rows) else ""
        sizes += f'<p class="note">cost: {inert(held.cost_unit)}.{limits}</p>'
    stated = [(one.label, one.text) for one in held.entries if one.text]
    follows = [text for text in (held.deadline_note, *held.answers) if text]
    told = [held.basis, *held.notes] if held.basis else list(held.notes)
    return (
        f'<section><h2>Other sizes and cost</h2><p class="dim">{inert(held.source)}</p>{said}{drawn}'
        + (curves.scaling_legend(held) if drawn else "")
        + sizes
        + bullets(follows)
        + (f"<h3>Stated</h3>{facts(stated)}" if stated else "")
        + (f"<h3>What is missing</h3>{bullets(held.missing)}" if held.missing else "")
        + (f"<h3>About these figures</h3>{bullets(told)}" if told else "")
        + "</section>"
    )
