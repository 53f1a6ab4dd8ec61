"""The report as Markdown: for a pull request, a ticket or a logbook.

In: Dossiers, a Comparison where there are two.  Out: str; what came from outside is inert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.markdown import code, plain
from tuiadvisor.report.facts import (
    MAX_RANKS,
    SIZE_HEADS,
    WHAT_IF_NOTE,
    change_rows,
    decision_word,
    environment_facts,
    goodput_notes,
    goodput_rows,
    losses_rows,
    nothing_found,
    overlap_facts,
    pipeline_facts,
    rank_rows,
    sentence,
    size_rows,
    step_facts,
    what_if_facts,
    window_note,
)
from tuiadvisor.text import device_work as trace_words
from tuiadvisor.text import evidence, goodput, placement
from tuiadvisor.text import format as text_of
from tuiadvisor.text import stack_card as cards
from tuiadvisor.text.efficiency import efficiency_facts, is_worth_showing, stack_facts
from tuiadvisor.text.gantt import gantt_row
from tuiadvisor.text.roofline import letters
from tuiadvisor.text.wording import (
    MEETS_LEGEND,
    decided_size,
    left_out_ranks,
    past_facts,
    pipeline_advice,
    pipeline_title,
    reasons,
    steps_seen,
    why_no_chart,
    why_no_pipeline,
)
from tuiadvisor.views.shown_ranks import shown_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.report.page import Dossier
    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.run_view import Finding, RunView

SPARK: Final = "▁▂▃▄▅▆▇█"
CHART: Final = 100  # columns of a step drawn in letters


def markdown_report(
    runs: Sequence[Dossier], comparison: Comparison | None, made_by: str, sizes: Picture | None = None
) -> str:
    """The whole report; sizes: the job among other sizes, if that was asked."""
    lines: list[str] = []
    if comparison is not None:
        lines += ["# Before and after", "", f"**{plain(comparison.sentence)}**", ""]
        lines += [plain(comparison.bottleneck.sentence), ""]
        lines += [*(f"- {plain(text)}" for text in comparison.cautions), ""]
        lines += table(("", "before", "after", "change"), change_rows(comparison))
    for run in runs:
        lines += _run(run)
    lines += _sizes(sizes)
    return "\n".join([*lines, f"*{plain(made_by)}. A figure that was not observed is unknown, never 0.*", ""])


def _run(run: Dossier) -> list[str]:
    view, verdict = run.view, run.view.decided
    decision = decision_word(view)
    lines = [
        f"# {plain(view.run.label or 'unnamed job')}",
        "",
        f"{plain(run.name)}, {steps_seen(view)}",
        "",
    ]
    lines += [f"**{decision.upper()}**: {plain(sentence(view))}", ""]
    for name, text in (
        ("Because", reasons(verdict)),
        ("Verify", verdict.verify),
        *losses_rows(view.losses),
    ):
        lines += [f"- {name}: {plain(text)}"] if text else []
    lines += ["", *pairs(step_facts(view)), f"Step time: `{_spark(view)}`", ""]
    lines += ["## Where a step goes", "", plain(window_note(view)), ""]
    lines += table(
        ("phase", "a step", "share"),
        (
            (text_of.phase_name(phase), text_of.seconds(view.step.seconds.get(phase)), text_of.share(value))
            for phase, value in view.step.shares.items()
        ),
    )
    lines += _goodput(view)
    lines += _pipeline(view)
    shown, left = shown_ranks(view.ranks, MAX_RANKS)
    lines += ["## Ranks", ""]
    lines += table(
        ("rank", "host", "state", "step", "waits", "causes", "last", "main phase"), rank_rows(shown)
    )
    lines += [left_out_ranks(left), ""] if left else []
    lines += ["## Findings", ""]
    for found in view.findings:
        lines += finding(found)
    lines += [nothing_found(view), ""] if not view.findings else []
    lines += ["### Over by now", ""] if view.past else []
    lines += [
        f"- **{plain(past.finding.title)}** ({plain(past_facts(past))}): {plain(past.finding.message)}"
        for past in view.past
    ]
    lines += [""] if view.past else []
    lines += _cards(view)
    lines += ["## Communication", "", *pairs(overlap_facts(view))]
    lines += [*(f"- {plain(text)}" for text in view.exchange.words), ""] if view.exchange else []
    lines += _traced(view)
    lines += _efficiency(run)
    rows = what_if_facts(view)
    lines += ["## What if", "", *pairs(rows), WHAT_IF_NOTE, ""] if rows else []
    lines += _session(run)
    lines += ["## Environment", "", *pairs(environment_facts(view)), *_placement(view)]
    return (
        lines
        + [
            f"- not observed: {plain(text_of.phase_name(item.metric))}: {plain(item.why)}"
            for item in view.unknown
        ]
        + [""]
    )


def _goodput(view: RunView) -> list[str]:
    """The wall time as a waterfall; nothing where no step was seen."""
    if view.wall is None:
        return []
    lines = ["## Goodput", "", plain(goodput.headline(view.wall)), ""]
    lines += table(("part", "time", "share"), goodput_rows(view.wall))
    return [*lines, *(f"- {plain(text)}" for text in goodput_notes(view)), ""]


def _placement(view: RunView) -> list[str]:
    """Where ranks and devices are, and what links carry of what they can."""
    places, links = placement.placement_rows(view.placements), placement.link_rows(view.links)
    lines = ["### Placement", "", *table(placement.PLACEMENT_HEADS, places)] if places else []
    if links:
        lines += ["### Links", "", *table(placement.LINK_HEADS, links)]
        lines += [*(f"- {plain(text)}" for text in placement.ceiling_sources(view.links)), ""]
    return lines


def _cards(view: RunView) -> list[str]:
    """The lines of code that stacks sampled on request were at."""
    lines = ["## Lines of code", ""] if view.cards else []
    for card in view.cards:
        lines += [f"**{plain(card.words)}**", ""]
        for heads, rows in cards.tables(card):
            lines += table(heads, rows)
        lines += [f"- {plain(text)}" for text in (card.basis, *card.notes) if text] + [""]
    return lines


def _traced(view: RunView) -> list[str]:
    """What the devices did, by a trace."""
    sentences, tables = trace_words.said(view), trace_words.tables(view)
    lines = [f"## {trace_words.TITLE}", ""] if sentences or tables else []
    for text in sentences:
        lines += [plain(text), ""]
    for heads, rows in tables:
        lines += table(heads, rows)
    return lines


def _efficiency(run: Dossier) -> list[str]:
    """MFU, settings, and the roofline in letters."""
    view = run.view
    if not is_worth_showing(view) and run.roofline is None:
        return []
    drawn = (
        ["```", *(row.replace("`", "'") for row in letters(run.roofline)), "```", ""]
        if run.roofline is not None
        else []
    )
    return ["## Efficiency", "", *pairs(efficiency_facts(view)), *pairs(stack_facts(view.stack)), *drawn]


def _pipeline(view: RunView) -> list[str]:
    """The step by stage and micro-batch, drawn in letters; for a job without stages the chain of its phases."""
    held = view.pipeline
    if held is None:
        rows = [
            (
                f"{'▶ ' if link.is_slowest else ''}{text_of.phase_name(link.phase)}",
                text_of.seconds(link.seconds),
                text_of.share(link.share),
                "none stands out" if link.slowest_rank is None else f"rank {link.slowest_rank}",
            )
            for link in view.chain
        ]
        heads = ("in this order", "a step", "share", "slowest")
        return ["## Chain of a step", "", *table(heads, rows)] if rows else []
    if not held.stages:
        return ["## Pipeline", "", plain(why_no_pipeline(held)), ""]
    lines = ["## Pipeline", "", plain(pipeline_title(held)), ""]
    if held.chart:
        several = held.num_stages > held.num_ranks
        ranks = sorted({chunk.rank for chunk in held.chart})
        drawn = [
            gantt_row([chunk for chunk in held.chart if chunk.rank == rank], CHART, with_stage=several)
            for rank in ranks
        ]
        letters = ["".join(text for text, _ in row) for row in drawn]
        told = [f"rank {rank:<4} {row}" for rank, row in zip(ranks, letters, strict=True)]
        lines += ["```text", *told, f"{held.chart_step:>9,} step, {text_of.seconds(held.chart_s)}", "```", ""]
    else:
        lines += [plain(why_no_chart(held)), ""]
    stages = [
        (
            f"{'▶ ' if stage.is_heavy else ''}{stage.stage}",
            str(stage.rank),
            text_of.seconds(stage.forward_s),
            text_of.seconds(stage.backward_s),
            f"{stage.excess:+.0%}".replace("%", " %"),
        )
        for stage in held.stages
    ]
    lines += pairs(pipeline_facts(held))
    lines += table(("stage", "rank", "forward", "backward", "beyond the typical"), stages)
    return [*lines, *(f"- {plain(text)}" for text in pipeline_advice(held)), ""]


def _sizes(held: Picture | None) -> list[str]:
    if held is None:
        return []
    lines = ["# Other sizes and cost", "", plain(held.source), ""]
    words, because = decided_size(held)
    lines += [f"**{plain(words)}**{plain(because)}", ""] if held.decision else []
    lines += table(SIZE_HEADS, size_rows(held)) if held.rows else []
    lines += [f"Cost: {plain(held.cost_unit)}. {MEETS_LEGEND}.", ""] if held.rows else []
    told = [held.deadline_note, *held.answers, *(f"missing: {text}" for text in held.missing), held.basis]
    return [*lines, *(f"- {plain(text)}" for text in (*told, *held.notes) if text), ""]


def finding(found: Finding) -> list[str]:
    """A finding with its evidence and actions."""
    lines = [f"### {found.severity}: {plain(found.title)}", "", plain(found.message), ""]
    lines += [
        f"- {plain(evidence.name_of(name))}: {plain(evidence.value_of(name, value))}"
        for name, value in found.evidence.items()
    ]
    lines += [
        "",
        *(_action(number, act.text, act.command) for number, act in enumerate(found.actions, 1)),
        "",
    ]
    return lines


def _action(number: int, text: str, command: str | None) -> str:
    return f"{number}. {plain(text)}" + (f" {code(command)}" if command else "")


def _session(run: Dossier) -> list[str]:
    session = run.session
    if session is None:
        return []
    lines = [
        "## Guided session",
        "",
        f"**{session.decision.upper()}**: {plain(session.why)}",
        "",
        *pairs(session.card),
    ]
    return [*lines, *(f"- {stage.pattern}: {plain(stage.conclusion)}" for stage in session.stages), ""]


def _spark(view: RunView) -> str:
    values = view.trend.step_s[-60:]
    highest = max((value for value in values if value is not None), default=0.0)
    if not highest:
        return text_of.UNKNOWN
    return "".join("?" if value is None else SPARK[min(int(value / highest * 8), 7)] for value in values)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows under their heads."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*lines, *("| " + " | ".join(plain(cell) for cell in row) + " |" for row in rows), ""]


def pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Names and values."""
    return [*(f"- {plain(name)}: {plain(text)}" for name, text in rows), ""]
