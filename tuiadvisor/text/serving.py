"""A serving process in words: the same rows in the terminal, in Markdown and in HTML.

In: ServingView.  Out: rows of text; a quantile stands with the edges of its bucket, what is unknown with its reason.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from tuiadvisor.metrics.serving.histogram import Bounded
    from tuiadvisor.views.serving import Latency, ServedModel, ServingView, SloGoodput

NAMES: Final = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "between tokens",
    "e2e": "whole request",
    "queue": "in the queue",
    "prefill": "prefill",
    "running": "running",
    "waiting": "waiting",
    "kv": "KV cache",
    "preemptions": "preemptions",
}
HEADS: Final = ("", "median", "99th percentile", "mean", "of", "objective")
ENGINE_HEADS: Final = ("engine", "running", "waiting", "KV cache")
FEW: Final = 100  # observations: of fewer the 99th percentile is the slowest one
DECISIONS: Final = {"tune": "TUNE", "rescale": "RESCALE", "stop": "STOP", "keep": "KEEP"}


def headline(view: ServingView) -> str:
    """What was read."""
    read = " and ".join(view.sources)
    if not view.server:
        return f"unknown server, {read}"
    if view.is_interval:
        apart = (
            f"{text_of.seconds(view.window_s)} between two pages" if view.window_s else "between two pages"
        )
        return f"{view.server}, {read}: {apart}"
    since = f", {text_of.seconds(view.window_s)} ago" if view.window_s else ""
    return f"{view.server}, {read}: since the server started{since}"


def model_title(model: ServedModel) -> str:
    """Its name and how many requests its figures rest on, where the page or what came between two pages tells."""
    name = f"model {model.model}" if model.model else "one model"
    if not model.num_requests and model.requests_s != 0:
        return name
    return f"{name}, {text_of.count(model.num_requests, 'request')}"


def verdict(model: ServedModel) -> str:
    """The decision and why."""
    return f"{DECISIONS.get(model.decision or '', 'NOT DECIDED')}: {model.sentence}"


def seconds_between(value: Bounded | None) -> str:
    """'182 ms (100 ms to 250 ms)', 'beyond 10.0 s', 'unknown'."""
    if value is None:
        return text_of.UNKNOWN
    if value.value is None or value.high is None:
        return f"beyond {text_of.seconds(value.low)}"
    return f"{text_of.seconds(value.value)} ({text_of.seconds(value.low)} to {text_of.seconds(value.high)})"


def latency_rows(model: ServedModel) -> list[tuple[str, ...]]:
    """A row a latency, as HEADS says; one that is told under two names stands once."""
    told = {one.metric: signal for signal, one in reversed(model.latencies.items())}
    return [
        (
            NAMES[signal],
            seconds_between(latency.p50),
            seconds_between(latency.p99),
            text_of.seconds(latency.mean_s),
            text_of.count(latency.num, latency.per),
            objective(latency),
        )
        for signal, latency in model.latencies.items()
        if signal in NAMES and told[latency.metric] == signal
    ]


def objective(latency: Latency) -> str:
    """'missed: 0.5 s, 93 % within', '' where none is stated."""
    held = latency.objective
    if held is None:
        return ""
    met = {True: "met", False: "missed", None: "met or missed"}[held.is_met]
    return f"{met}: {text_of.seconds(held.limit_s)}, {_share(held.within.scaled(1 / latency.num))} within"


def goodput(found: SloGoodput) -> str:
    """Requests a second within the objectives, or what is missing to tell."""
    if found.requests is None or found.share is None:
        return f"{text_of.UNKNOWN}: {found.why}"
    words = f"{_share(found.share)} of {text_of.count(found.num, 'request')}"
    if found.rps is not None:
        words = f"{_rate(found.rps)}, {words}"
    return f"{words}; {found.why}" if found.why else words


def _share(value: Bounded) -> str:
    high = "" if value.high is None else f" to {_percent(value.high)}"
    ends = f"{_percent(value.low)}{high}"
    if value.value is None:
        return f"{ends} %"
    return f"{_percent(value.value)} %" if value.is_exact else f"{_percent(value.value)} % ({ends})"


def _percent(share: float) -> str:
    """Never rounded up to all of them."""
    shown = f"{100 * share:.1f}".removesuffix(".0")
    return "99.9" if shown == "100" and share < 1 else shown


def _ends(value: Bounded) -> str:
    low = text_of.significant(value.low)
    return f"{low} or more" if value.high is None else f"{low} to {text_of.significant(value.high)}"


def _rate(value: Bounded) -> str:
    if value.value is None:
        return f"{_ends(value)} requests/s"
    shown = f"{text_of.significant(value.value)} requests/s"
    return shown if value.is_exact else f"{shown} ({_ends(value)})"


def load_facts(model: ServedModel) -> list[tuple[str, str]]:
    """Load at the moment of the last page, and what was counted in the window."""
    waiting = _count(model.waiting)
    if model.waiting_before is not None:
        waiting += f" (before: {_count(model.waiting_before)})"
    rows = [
        ("goodput", goodput(model.goodput)),
        ("running", _count(model.running)),
        ("waiting", waiting),
        (
            "KV cache in use",
            text_of.share(model.kv_worst) + (" (fullest engine)" if len(model.engines) > 1 else ""),
        ),
        ("preemptions", _count(model.preemptions)),
    ]
    if model.requests_s is not None:
        rows.append(("requests finished", f"{text_of.significant(model.requests_s)}/s"))
    if model.tokens_s is not None:
        rows.append(("tokens generated", f"{text_of.significant(model.tokens_s)}/s"))
    if model.prefix_hit_share is not None:
        rows.append(("prefix cache hits", f"{text_of.share(model.prefix_hit_share)} of the prompt tokens"))
    return rows


def engine_rows(model: ServedModel) -> list[tuple[str, ...]]:
    """One an engine where there are several."""
    if len(model.engines) < 2:
        return []
    return [
        (row.name, _count(row.running), _count(row.waiting), text_of.share(row.kv)) for row in model.engines
    ]


def _count(value: float | None) -> str:
    return text_of.UNKNOWN if value is None else f"{value:,.0f}"


def unknown_facts(model: ServedModel) -> list[tuple[str, str]]:
    """What is unknown, and why; and where a figure rests on few observations."""
    rows = [(NAMES.get(one.metric, one.metric), f"{text_of.UNKNOWN}: {one.why}") for one in model.unknown]
    few = [
        NAMES[signal]
        for signal, one in model.latencies.items()
        if signal in NAMES and one.p99 is not None and one.num < FEW
    ]
    if few:
        rows.append(
            (", ".join(few), f"the 99th percentile of fewer than {FEW} observations is the slowest of them")
        )
    return rows


def summary(view: ServingView) -> str:
    """The page in lines for a terminal."""
    lines = [headline(view)]
    for model in view.models:
        lines += ["", model_title(model), verdict(model), "", *_table(HEADS, latency_rows(model))]
        lines += [f"  {name:<18} {text}" for name, text in load_facts(model)]
        lines += ["", *_table(ENGINE_HEADS, engine_rows(model))] if engine_rows(model) else []
        for found in model.findings:
            lines += ["", f"{found.severity}: {found.title}  [{found.pattern}, layer {found.layer}]"]
            lines += [f"  {found.message}"]
            lines += [f"  {number}. {act.text}" for number, act in enumerate(found.actions, 1)]
    if len(view.models) > 1 and view.total is not None:
        lines += [
            "",
            "all models together",
            *(f"  {name:<18} {text}" for name, text in load_facts(view.total)[1:]),
        ]
    unknown = _of_models(view)
    lines += ["", *(f"  {name:<18} {text}" for name, text in unknown)] if unknown else []
    return "\n".join([*lines, *(f"note: {note}" for note in view.notes)])


def _of_models(view: ServingView) -> list[tuple[str, str]]:
    """What is unknown, each once; of how many models, where others tell it."""
    rows = Counter(row for model in view.models for row in unknown_facts(model))
    num = len(view.models)
    return [
        (name, text if seen == num else f"{text} (of {seen} of {num} models)")
        for (name, text), seen in rows.items()
    ]


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they need to be."""
    if not rows:
        return []
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    wide = [max(len(row[place]) for row in (heads, *rows)) for place in kept]
    return [
        "  " + "  ".join(f"{row[place]:<{width}}" for place, width in zip(kept, wide, strict=True)).rstrip()
        for row in (heads, *rows)
    ]
