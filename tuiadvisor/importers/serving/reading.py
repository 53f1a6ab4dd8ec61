"""One metrics page or two into a ServingView: the server found, its models apart, findings judged.

In: pages, objectives, how far apart the pages are.  Out: ServingView, and of it the JSON document.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.importers.serving.figures import quoted, served_model
from tuiadvisor.importers.serving.judging import judged, serving_rules
from tuiadvisor.importers.serving.names import SERVERS
from tuiadvisor.importers.serving.signals import Pages, models
from tuiadvisor.views.serving import ServingView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.importers.serving.names import Server
    from tuiadvisor.importers.serving.page import Page
    from tuiadvisor.views.run_view import Finding
    from tuiadvisor.views.serving import ServedModel
    from tuiadvisor_rules.loader import Rule

MAX_MODELS: Final = 16
KNOWN: Final = ", ".join(server.name for server in SERVERS)
NOTHING: Final = (
    f"no metric of a known server is on the page ({KNOWN}): name the server's own page, and start SGLang with "
    "--enable-metrics; for another server, state which of its metrics stand for those of one of these"
)


def serving_view(
    pages: tuple[Page, ...],
    limits: Mapping[str, float],
    *,
    every_s: float | None = None,
    since_start_s: float | None = None,
    model: str | None = None,
    rules: tuple[Rule, ...] | None = None,
) -> ServingView:
    """What these pages tell, the earlier first. every_s: between two; since_start_s: of one, if it is known.

    rules: to judge by; None: the shipped ones as the user's folder changes them.
    """
    after, before = pages[-1], pages[0] if len(pages) > 1 else None
    window_s = every_s if before is not None else since_start_s
    sources = tuple(page.source for page in pages)
    if not after.servers:
        return ServingView("", sources, before is not None, window_s, (), None, (NOTHING,))
    server, notes = _server(after)
    if before is not None and server not in before.servers:
        raise TuiadvisorError(
            f"{before.source}: holds no metrics of {server.name}; name two pages of one server"
        )
    if rules is None:
        rules = serving_rules()
    reading = Pages(server, after, before)
    found = [
        judged(served_model(reading.of_model(name), limits, window_s), rules)
        for name in _wanted(models(server, after), model, after.source)
    ]
    # A model that was never asked for is not worth a place beside one that was.
    asked = [one for one in found if one.num_requests] or found[:1]
    if len(asked) == 1:
        return ServingView(server.name, sources, before is not None, window_s, tuple(asked), asked[0], notes)
    total = _total(reading, limits, window_s)
    apart = "several models are on the page: their latencies are kept apart; --model NAME chooses one"
    return ServingView(
        server.name, sources, before is not None, window_s, tuple(asked), total, (*notes, apart)
    )


def _server(page: Page) -> tuple[Server, tuple[str, ...]]:
    """The one that is read, and what is said where the page holds several."""
    first, *others = page.servers
    # Triton carries the metrics of the engine in it, and Dynamo those of its worker.
    beside = [one.name for one in others if one.name not in {"Triton", "Dynamo"}]
    if not beside:
        return first, ()
    return first, (f"the page also holds metrics of {', '.join(beside)}: import that server's own page",)


def _wanted(names: tuple[str, ...], model: str | None, source: str) -> tuple[str, ...]:
    if model is not None:
        if model not in names:
            there = ", ".join(quoted(name) or "one without a name" for name in names[:MAX_MODELS])
            raise TuiadvisorError(f"{source}: no model {model!r}; there is {there}")
        return (model,)
    if len(names) > MAX_MODELS:
        raise TuiadvisorError(f"{source}: {len(names)} models; choose one with --model NAME")
    return names


def _total(reading: Pages, limits: Mapping[str, float], window_s: float | None) -> ServedModel | None:
    """Load of all models; latencies and goodput are of one model, with its objectives, alone."""
    if reading.server.models_overlap:  # an ensemble's requests are those of its parts
        return None
    whole = served_model(reading, limits, window_s)
    goodput = replace(
        whole.goodput, requests=None, num=None, rps=None, why="several models: see each of them"
    )
    return replace(whole, latencies={}, goodput=goodput, prefix_hit_share=None)


def serving_document(view: ServingView) -> dict[str, Any]:
    """The JSON document: the whole page's figures, then each model's."""
    only = view.models[0] if len(view.models) == 1 else view.total
    figures = _figures(only, view)
    figures["findings"] = [
        {**_finding(entry), "model": model.model or None} for model in view.models for entry in model.findings
    ]
    return {
        "schema": 1,
        "kind": "serving",
        "source": {"server": view.server or None, "pages": [one_line(name) for name in view.sources]},
        "window": {
            "kind": "interval" if view.is_interval else "since_start",
            "seconds": view.window_s,
        },
        "serving": figures,
        "models": [{"model": model.model or None, **_figures(model, view)} for model in view.models],
        "notes": list(view.notes),
    }


def _figures(model: ServedModel | None, view: ServingView) -> dict[str, Any]:
    """Null where it is unknown; `unknown` says why."""
    found: dict[str, Any] = {}
    for signal in ("ttft", "tpot", "itl", "e2e", "queue", "prefill"):
        latency = model.latencies.get(signal) if model else None
        for name in ("p50", "p99"):
            value = getattr(latency, name) if latency else None
            found[f"{signal}_{name}_s"] = value.value if value else None
            found[f"{signal}_{name}_bounds_s"] = [value.low, value.high] if value else None
        found[f"{signal}_mean_s"] = latency.mean_s if latency else None
        found[f"{signal}_num"] = latency.num if latency else None
        objective = latency.objective if latency else None
        if objective is not None:
            found[f"{signal}_slo_s"] = objective.limit_s
            found[f"{signal}_slo_met"] = objective.is_met
    found["tpot_per"] = model.latencies["tpot"].per if model and "tpot" in model.latencies else None
    for name in ("running", "waiting", "preemptions", "prefix_hit_share", "tokens_s", "requests_s"):
        found[name] = getattr(model, name) if model else None
    found["kv_cache_usage"] = model.kv_worst if model else None
    found["engines"] = (
        [
            {"name": row.name, "running": row.running, "waiting": row.waiting, "kv_cache_usage": row.kv}
            for row in model.engines
        ]
        if model
        else []
    )
    found |= _goodput(model)
    found["findings"] = [_finding(entry) for entry in model.findings] if model else []
    found["decision"] = model.decision if model else None
    found["sentence"] = model.sentence if model else None
    found["verify"] = (model.verify or None) if model else None
    found["unknown"] = [{"metric": one.metric, "why": one.why} for one in model.unknown] if model else []
    if model is None:
        found["unknown"] = [{"metric": "serving", "why": note} for note in view.notes]
    return found


def _goodput(model: ServedModel | None) -> dict[str, Any]:
    goodput = model.goodput if model else None
    rps = goodput.rps if goodput else None
    share = goodput.share if goodput else None
    return {
        "goodput_rps": rps.value if rps else None,
        "goodput_rps_bounds": [rps.low, rps.high] if rps else None,
        "goodput_share": share.value if share else None,
        "goodput_share_bounds": [share.low, share.high] if share else None,
        "goodput_why": (goodput.why or None) if goodput else None,
    }


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "id": found.id,
        "severity": found.severity,
        "title": found.title,
        "pattern": found.pattern,
        "lens": found.lens,
        "layer": found.layer,
        "message": found.message,
        "evidence": found.evidence,
        "actions": [
            {"text": act.text, "command": act.command, "risk": act.risk, "effort": act.effort}
            for act in found.actions
        ],
        "measure_next": list(found.measure_next),
    }
