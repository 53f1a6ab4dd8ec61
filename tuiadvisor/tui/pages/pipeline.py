"""Pipeline: one step as a chart of stages and micro-batches, what keeps ranks idle, how even the stages are.

A job without stages shows the chain a step goes through, the longest link marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text import gantt
from tuiadvisor.text.line import BLANK, Cell, Line, Span, crop, fit, indent, line, row, rule, spread, wrap
from tuiadvisor.text.wording import (
    PIPELINE_PARTS,
    ideal_source,
    pipeline_advice,
    pipeline_title,
    why_no_chart,
    why_no_pipeline,
)
from tuiadvisor.tui.contract.desk import Scale
from tuiadvisor.tui.contract.page import Command, Page, opening
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.by_rank import chain_of_ranks, links_over_steps
from tuiadvisor.tui.pages.waiting import waiting
from tuiadvisor.tui.pages.what_if import all_lines, num_places, what_if_lines

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.pipeline import PipelineStage, PipelineView
    from tuiadvisor.views.run_view import ChainLink, RunView

MANY_RANKS = 10
EVEN = 0.005  # smaller differences are no news
LABEL_WIDTH = 9  # "rank 1023"
LINK_NAMES = {"data_wait": "data", "h2d": "copy"}
# Parts of the ranks' time: field of the view, letter, role.
PARTS = (
    ("busy", "w", "phase:optimizer"),
    ("fill_share", "f", "phase:pipeline_idle"),
    ("imbalance_share", "u", "phase:data_wait"),
    ("delay_share", "d", "phase:other"),
)


def next_place(place: Place) -> None:
    """The next place of the slider; the last one needs the sizes around this run."""
    page, view = place.at(Pipeline), place.state.view
    if view is None:
        return
    if place.page is not page:
        place.show_page(page)
    page.chosen = (page.chosen + 1) % num_places(view)
    if page.chosen > len(view.prospects) and place.desk.scaling is None:
        place.shell.ask(Scale())
    if not page.chosen:
        place.say("the step as it is")


def no_step(state: FeedState, _page: Page) -> str:
    """What is not there cannot be changed."""
    return (
        ""
        if state.view is not None and state.view.step.median_s is not None
        else "no steady step was seen yet"
    )


class Pipeline(Page):
    """The third screen."""

    tells_losses = True
    name = "pipeline"
    title = "Pipeline"
    about = (
        "One step, a row a rank: F forward, B backward, W weight gradients, a dot where it waits. The bubble "
        "is the idle share of all ranks; u is what even stages would take off it, f what more micro-batches would."
    )
    is_screen = True
    may_be_first = True
    commands: ClassVar = (
        opening("pipeline", "3", "Pipeline", "a step by stage and micro-batch, or its chain"),
        Command(
            "what_if",
            ("i",),
            "i",
            "What if",
            "the step if one thing were changed: a rank fixed, more buckets, half the devices",
            "screens",
            next_place,
            no_step,
        ),
    )
    terms = ("stages", "micro_batches", "bubble", "ideal", "uneven")
    keys = ("open", "what_if", "overview", "ranks", "help", "pause", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.chosen = 0  # of the slider: 0 is the step as it is

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the chart of a pipeline, or the chain of any other job."""
        view = state.view
        if view is None:
            self.targets = []
            return waiting(state, width, height)
        room = width - 2
        rows = what_if_lines(view, self.desk, self.chosen, room)
        rows += [BLANK] if rows else []
        if view.pipeline is not None:
            rows += pipeline_lines(view.pipeline, room, sections.clock(view))
        else:
            changed = [] if self.chosen else all_lines(view, room)
            rows += [*_chain(view, room), *([BLANK] if changed else []), *changed]
            for more in (chain_of_ranks, links_over_steps):
                drawn = more(view, room, height - len(rows) - 1)
                rows += [BLANK, *drawn] if drawn else []
        return self.arranged([indent(each, 1) if each.spans else each for each in rows], width, height)


def pipeline_lines(pipeline: PipelineView, width: int, clock: str = "") -> list[Line]:
    """Return the whole picture of a pipeline; the idle time first where the chart would push it off the screen.

    clock: whose its times are by, where that is not the host's.
    """
    if not pipeline.stages:
        told = wrap(why_no_pipeline(pipeline), width)
        return [rule("pipeline", width), *(line((each, "dim")) for each in told)]
    chart, idle, advice = _chart(pipeline, width), _idle(pipeline, width, clock), _advice(pipeline, width)
    stages = _stages(pipeline, width)
    if pipeline.num_ranks > MANY_RANKS:
        return [*idle, BLANK, *advice, *chart, BLANK, *stages]
    return [*chart, BLANK, *idle, BLANK, *stages, *([BLANK, *advice[:-1]] if advice else [])]


def _chart(pipeline: PipelineView, width: int) -> list[Line]:
    title = pipeline_title(pipeline)
    if not pipeline.chart:
        return [rule(title, width), line((why_no_chart(pipeline), "dim"))]
    room = width - LABEL_WIDTH - 1
    ranks = sorted({chunk.rank for chunk in pipeline.chart})
    several = pipeline.num_stages > pipeline.num_ranks
    rows = [rule(title, width, f"step {pipeline.chart_step:,}")]
    for rank in ranks:
        chunks = [chunk for chunk in pipeline.chart if chunk.rank == rank]
        label: Span = (fit(f"rank {rank}", LABEL_WIDTH) + " ", "text")
        rows.append(Line((label, *gantt.gantt_row(chunks, room, with_stage=several)), ("rank", str(rank))))
    kinds = [kind for kind in gantt.ROLES if any(chunk.kind == kind for chunk in pipeline.chart)]
    legend: list[Span] = []
    for kind in kinds:
        legend += [(kind, gantt.ROLES[kind]), (f" {gantt.NAMES[kind]}  ", "dim")]
    number = "micro-batch/stage" if several else "micro-batch"
    legend.append((f"{gantt.IDLE} idle  number: {number}", "dim"))
    foot = spread(Line(tuple(legend)), line((text_of.seconds(pipeline.chart_s), "dim")), room)
    return [*rows, indent(foot, LABEL_WIDTH + 1)]


def _idle(pipeline: PipelineView, width: int, clock: str) -> list[Line]:
    of = text_of.steps(pipeline.first_step, pipeline.last_step)
    right = f"{of}, {clock}" if clock else of
    rows = [
        rule("bubble", width, right),
        line(
            ("measured ", "dim"),
            (text_of.share(pipeline.bubble), "unknown" if pipeline.bubble is None else "strong"),
            ("   ideal ", "dim"),
            (text_of.share(pipeline.ideal_bubble), "strong"),
            (f" {ideal_source(pipeline)}", "dim"),
            ("   first chunk to last ", "dim"),
            (text_of.seconds(pipeline.span_s), "strong"),
        ),
    ]
    parts = [(getattr(pipeline, field), letter, role, PIPELINE_PARTS[field]) for field, letter, role in PARTS]
    known = [(value, letter, role, name) for value, letter, role, name in parts if value is not None]
    if len(known) < len(parts):
        why = pipeline.why_unknown or "the order of chunks could not be followed"
        return [crop(each, width) for each in (*rows, line((f"its parts are unknown: {why}", "dim")))]
    cells = bars.cells_of([value for value, *_ in known], width)
    bar = tuple(
        (letter * size, role) for size, (_, letter, role, _) in zip(cells, known, strict=True) if size
    )
    legend: list[Span] = []
    for value, letter, role, name in known:
        legend += [(letter, role), (f" {name} ", "dim"), (f"{text_of.share(value)}  ", "text")]
    return [crop(each, width) for each in (*rows, Line(bar), Line(tuple(legend)))]


def _stages(pipeline: PipelineView, width: int) -> list[Line]:
    room = max(width - 58, 8)
    head = rule("stages", width, "time of all micro-batches of a step")
    return [head, *(_stage(stage, room) for stage in pipeline.stages)]


def _stage(stage: PipelineStage, width: int) -> Line:
    filled = max(round(width * stage.balance), 1)
    forward, backward = bars.cells_of([stage.forward_s, stage.backward_s], filled)
    tail = "even" if abs(stage.excess) < EVEN else f"{stage.excess:+.0%}".replace("%", " %")
    figures = row(
        [
            Cell(f"stage {stage.stage}", 9, "strong" if stage.is_heavy else "text"),
            Cell(f"rank {stage.rank}", LABEL_WIDTH, "dim"),
            Cell(f"F {text_of.seconds(stage.forward_s)}", 10, "dim", "right"),
            Cell(f"B {text_of.seconds(stage.backward_s)}", 10, "dim", "right"),
            Cell(tail, 7, "bad" if stage.is_heavy else "dim", "right"),
        ]
    )
    bar: list[Span] = [("F" * forward, "bar:forward"), ("B" * backward, "bar:backward")]
    mark: Span = (" ▶ heavy", "bad") if stage.is_heavy else ("", "text")
    spans = (*figures.spans, (" ", "text"), *bar, mark)
    return Line(tuple(span for span in spans if span[0]), ("rank", str(stage.rank)))


def _advice(pipeline: PipelineView, width: int) -> list[Line]:
    texts = pipeline_advice(pipeline)
    return [
        *(line((each, "text")) for text in texts for each in wrap(text, width)),
        *([BLANK] if texts else []),
    ]


def _chain(view: RunView, width: int) -> list[Line]:
    """What a step goes through where no rank holds a stage."""
    right = text_of.steps(view.window.first_step, view.window.last_step)
    right = "no steps" if view.is_without_steps else right
    head = rule("chain of a step", width, right)
    if not view.chain:
        none = "no step finished yet: the chain starts with the first one"
        return [head, line((sections.NO_STEP_SEEN if view.is_without_steps else none, "dim"))]
    why = {entry.metric: entry.why for entry in view.unknown}
    rows = [head]
    for place, link in enumerate(view.chain):
        rows += [line(("     │" if place else "", "dim"))] if place else []
        rows.append(_link(link, why.get(link.phase, ""), width))
    note = "No rank is seen to hold a pipeline stage. Where some are, this screen draws their schedule and bubble."
    return [*rows, BLANK, *(line((each, "dim")) for each in wrap(note, width))]


def _link(link: ChainLink, why: str, width: int) -> Line:
    name = LINK_NAMES.get(link.phase, text_of.phase_name(link.phase))
    mark: Span = ("▶ ", "bad") if link.is_slowest else ("  ", "text")
    label: Span = (fit(name, 12), "strong" if link.is_slowest else "text")
    if link.seconds is None or link.share is None:
        reason = f"  {why}" if why else ""
        return crop(
            Line((mark, label, (fit(text_of.UNKNOWN, 10, "right"), "unknown"), (reason, "dim"))), width
        )
    room = max(width - 68, 10)
    length = round(room * link.share)
    letter = bars.PHASE_LETTERS[link.phase]
    slowest = ""
    if link.slowest_rank is not None:
        slowest = f"  slowest rank {link.slowest_rank}: {text_of.seconds(link.slowest_s)}"
    spans: list[Span] = [
        mark,
        label,
        (fit(text_of.seconds(link.seconds), 10, "right"), "strong"),
        (fit(text_of.share(link.share), 8, "right") + "  ", "text"),
        (letter * length, f"phase:{link.phase}"),
        ("  longest" if link.is_slowest else "", "bad"),
        (slowest, "dim"),
    ]
    target = ("rank", str(link.slowest_rank)) if link.slowest_rank is not None else None
    return Line(crop(Line(tuple(span for span in spans if span[0])), width).spans, target)
