"""A serving process as a report: the same rows as in the terminal, in Markdown or as one HTML file.

In: ServingView.  Out: str; what came from the page is inert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.markdown import plain
from tuiadvisor.report import html, markdown
from tuiadvisor.report.inert import inert
from tuiadvisor.report.page import document, finding
from tuiadvisor.text import serving as words

if TYPE_CHECKING:
    from tuiadvisor.views.serving import ServedModel, ServingView

NOTHING: str = "Nothing stands out."
ABOUT_QUANTILES: str = (
    "A quantile is interpolated within its bucket; its edges stand beside it and are certain. Beyond the last edge "
    "only the edge is told."
)


def markdown_serving(view: ServingView, made_by: str) -> str:
    """The whole report as Markdown."""
    lines = ["# Serving", "", plain(words.headline(view)), ""]
    for model in view.models:
        lines += [f"## {plain(words.model_title(model))}", ""]
        lines += [f"**{plain(words.verdict(model))}**", ""]
        lines += markdown.table(words.HEADS, words.latency_rows(model)) if model.latencies else []
        lines += [ABOUT_QUANTILES, "", *markdown.pairs(words.load_facts(model))]
        lines += (
            markdown.table(words.ENGINE_HEADS, words.engine_rows(model)) if len(model.engines) > 1 else []
        )
        for found in model.findings:
            lines += markdown.finding(found)
        lines += [] if model.findings else [NOTHING, ""]
        lines += markdown.pairs(words.unknown_facts(model))
    if len(view.models) > 1 and view.total is not None:
        lines += ["## All models together", "", *markdown.pairs(words.load_facts(view.total)[1:])]
    lines += [f"- {plain(note)}" for note in view.notes]
    return "\n".join([*lines, "", f"*{plain(made_by)}. What was not observed is unknown, never 0.*", ""])


def html_serving(view: ServingView, made_by: str) -> str:
    """The whole report as one file."""
    body = [f'<h1>Serving</h1><p class="dim">{inert(words.headline(view))}</p>']
    body += [_model(model) for model in view.models]
    if len(view.models) > 1 and view.total is not None:
        body.append(f"<h2>All models together</h2>{html.facts(words.load_facts(view.total)[1:])}")
    return document("Serving report", "".join(body) + html.bullets(view.notes), made_by)


def _model(model: ServedModel) -> str:
    findings = "".join(finding(found, "the whole server") for found in model.findings) or f"<p>{NOTHING}</p>"
    rows, engines = words.latency_rows(model), words.engine_rows(model)
    unknown = words.unknown_facts(model)
    return (
        f"<h2>{inert(words.model_title(model))}</h2>"
        f'<div class="verdict {inert(model.decision or "")}"><strong>{inert(words.verdict(model))}</strong></div>'
        + (html.table(words.HEADS, rows) if rows else "")
        + f'<p class="note">{inert(ABOUT_QUANTILES)}</p>{html.facts(words.load_facts(model))}'
        + (f"<h3>Engines</h3>{html.table(words.ENGINE_HEADS, engines)}" if engines else "")
        + f"<h3>Findings</h3>{findings}"
        + (f"<h3>Not known</h3>{html.facts(unknown)}" if unknown else "")
    )
