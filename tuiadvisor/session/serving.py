"""The six patterns on a serving process: what its metrics page settles, what it cannot, one decision.

In: the document that `tuiadvisor import serving -o FILE.json` wrote, an outside file: checked value by value.  Out:
Served, and of it Markdown and JSON. Nothing is asked: what a page cannot tell is named with the way to measure it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.markdown import plain
from tuiadvisor.session.markdown import UNKNOWN, stage_lines
from tuiadvisor.session.material import Item
from tuiadvisor.session.stages import PATTERNS, TITLES, Stage
from tuiadvisor.small_file import read_small
from tuiadvisor_rules.loader import DECISIONS, LAYERS, LEVELS, RISKS
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_FILE_BYTES: Final = 4 << 20
MAX_FINDINGS: Final = 200
MAX_TEXT: Final = 600
LARGEST: Final = 1e15
AGAIN: Final = "tuiadvisor import serving URL --every 60 --ttft-slo 500ms -o after.json"
APART: Final = ", each with latencies of its own: import it with --model NAME."
CONFIDENCE: Final = {
    "interval": "high: an interval of its own",
    "since_start": "medium: everything since the server started, whatever was changed meanwhile",
}


@dataclass(frozen=True, slots=True)
class Lever:
    """One change that a finding speaks for."""

    finding: str
    layer: str
    text: str
    risk: str
    effort: str


@dataclass(frozen=True, slots=True)
class Symptom:
    """A finding of the page."""

    id: str
    severity: str
    pattern: str
    layer: str
    message: str
    model: str


@dataclass(frozen=True, slots=True)
class Served:
    """The whole session."""

    page: str
    decision: str | None
    why: str
    expected: str  # what a cure brings at most
    next_constraint: str
    verify: str
    stages: tuple[Stage, ...]
    levers: tuple[Lever, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    """The document, checked."""

    name: str
    window: str
    confidence: str
    values: dict[str, float | None]
    texts: dict[str, str]
    met: dict[str, bool | None]
    symptoms: tuple[Symptom, ...]
    levers: tuple[Lever, ...]
    num_models: int

    def item(self, name: str, text: str | None, measure: str = AGAIN) -> Item:
        """Evidence of this page."""
        return Item(name, text, self.window, self.confidence, measure)

    def seconds(self, name: str) -> str | None:
        """A duration in words."""
        value = self.values.get(name)
        return None if value is None else seconds(value)


def is_serving(path: str) -> bool:
    """Whether a file is meant as such a document, and not as a recording."""
    return Path(path).suffix == ".json"


def serving_session(path: str) -> Served:
    """The session on a saved import. TuiadvisorError: what is wrong with the file."""
    page = _read(Path(path))
    parts = _parts(page)
    following = f"{parts[1][0]} ({seconds(parts[1][1])} of a mean request)" if len(parts) > 1 else UNKNOWN
    decision = page.texts.get("decision") or None
    return Served(
        page.name,
        decision,
        page.texts.get("sentence") or f"{page.num_models} models on the page{APART}",
        _expected(page, decision),
        following,
        page.texts.get("verify") or AGAIN,
        tuple(_stage(pattern, page) for pattern in PATTERNS),
        page.levers,
    )


def serving_markdown(session: Served) -> str:
    """The decision first, then how it came about."""
    lines = [
        f"# Session on {plain(session.page)}",
        "",
        f"## Decision: {session.decision or 'not decided'}",
        "",
        f"- Why: {plain(session.why)}",
        f"- Expected gain: {plain(session.expected)}",
        f"- Next constraint: {plain(session.next_constraint)}",
        f"- Verify: {plain(session.verify)}",
        "",
        "## Loop",
        "",
        f"1. Baseline: {plain(session.page)}",
        f"2. ONE change: {plain(session.levers[0].text if session.levers else 'none')}",
        f"3. Again at the same load: {AGAIN}",
        "4. Compare: tuiadvisor advise after.json",
        "",
    ]
    for stage in session.stages:
        lines += [*stage_lines(stage), ""]
    return "\n".join(lines)


def serving_json(session: Served) -> dict[str, Any]:
    """One document, schema 1."""
    return {"schema": 1, "kind": "serving-session", **asdict(session)}


def _read(path: Path) -> _Page:
    again = f"save it by tuiadvisor import serving URL|FILE -o {path.name}"
    raw = read_small(path, MAX_FILE_BYTES, again)
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise TuiadvisorError(f"{path}: not JSON; {again}") from error
    if not isinstance(table, dict) or table.get("kind") != "serving" or table.get("schema") != 1:
        raise TuiadvisorError(f"{path}: no document of an imported serving page; {again}")
    served, window = _table(table.get("serving")), _table(table.get("window"))
    if not served:
        raise TuiadvisorError(f"{path}: holds no figures; {again}")
    kind = "interval" if window.get("kind") == "interval" else "since_start"
    length = _number(window.get("seconds"))
    words = "between two pages" if kind == "interval" else "since the server started"
    symptoms, levers = _findings(served.get("findings"))
    decision = served.get("decision")
    source = _table(table.get("source"))
    return _Page(
        _text(f"{source.get('server') or 'an unknown server'}, {path.name}"),
        words if length is None else f"{words}, {seconds(length)}",
        CONFIDENCE[kind],
        {str(name): _number(value) for name, value in served.items()},
        {
            "decision": decision if decision in DECISIONS else "",
            **{name: _text(served.get(name)) for name in ("sentence", "verify", "goodput_why", "tpot_per")},
        },
        {
            name: served[f"{name}_slo_met"] if isinstance(served.get(f"{name}_slo_met"), bool) else None
            for name in ("ttft", "tpot", "e2e")
            if _number(served.get(f"{name}_slo_s")) is not None
        },
        symptoms,
        levers,
        len(models) if isinstance(models := table.get("models"), list) else 1,
    )


def _findings(found: object) -> tuple[tuple[Symptom, ...], tuple[Lever, ...]]:
    """Findings and their levers, the least risky first; those of no known kind are left out."""
    symptoms, levers = [], []
    for entry in found[:MAX_FINDINGS] if isinstance(found, list) else []:
        one = _table(entry)
        if (
            one.get("pattern") not in PATTERNS
            or one.get("severity") not in LEVELS
            or one.get("layer") not in LAYERS
        ):
            continue
        name, message, model = (_text(one.get(key)) for key in ("id", "message", "model"))
        symptom = Symptom(name, one["severity"], one["pattern"], one["layer"], message, model)
        symptoms.append(symptom)
        actions = one.get("actions")
        for action in actions[:10] if isinstance(actions, list) else []:
            act = _table(action)
            if act.get("risk") in RISKS and _text(act.get("text")):
                levers.append(
                    Lever(
                        symptom.id, symptom.layer, _text(act["text"]), act["risk"], _text(act.get("effort"))
                    )
                )
    order = {symptom.id: place for place, symptom in reversed(list(enumerate(symptoms)))}
    levers.sort(key=lambda lever: (order[lever.finding], RISKS.index(lever.risk)))
    return tuple(symptoms), tuple(levers)


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return one_line(value)[:MAX_TEXT] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= LARGEST and math.isfinite(value) else None


def _parts(page: _Page) -> list[tuple[str, float]]:
    """What a mean request consists of, longest first: means are exact, and add up."""
    queue, ttft, e2e = (page.values.get(f"{name}_mean_s") for name in ("queue", "ttft", "e2e"))
    found = []
    if queue is not None:
        found.append(("the queue", queue))
    if ttft is not None:
        name = "the first token" if queue is None else "work on the prompt"
        found.append((name, max(ttft - (queue or 0.0), 0.0)))
    if e2e is not None and (ttft is not None or queue is not None):
        spent = ttft if ttft is not None else queue or 0.0
        name = "decoding" if ttft is not None else "work on prompt and tokens"
        found.append((name, max(e2e - spent, 0.0)))
    return sorted(found, key=lambda part: -part[1])


def _expected(page: _Page, decision: str | None) -> str:
    """The most that a cure can bring; a page has no what-if."""
    if decision == "keep":
        return "none"
    queue, e2e = page.values.get("queue_mean_s"), page.values.get("e2e_mean_s")
    if (
        queue
        and e2e
        and any(one.id.startswith("serving_queue") or one.id == "serving_kv_full" for one in page.symptoms)
    ):
        return f"at most {seconds(queue)} of a mean request of {seconds(e2e)}, if nobody had to wait in the queue"
    return f"{UNKNOWN}: one page shows no other setting; change one thing and import again"


def _stage(pattern: str, page: _Page) -> Stage:
    title, question = TITLES[pattern]
    items, otherwise = STATIONS[pattern](page)
    said = [symptom for symptom in page.symptoms if symptom.pattern == pattern]
    told = [
        (f"Model {symptom.model}: " if symptom.model and len({one.model for one in said}) > 1 else "")
        + f"{symptom.message} (layer {symptom.layer})"
        for symptom in said
    ]
    unknown = tuple((item.name, item.measure) for item in items if item.text is None)
    return Stage(
        pattern,
        title,
        question,
        tuple(items),
        unknown,
        (),
        (),
        " ".join([*told, *([otherwise] if otherwise else [])]),
    )


Station = tuple[list[Item], str]


def _bottleneck(page: _Page) -> Station:
    parts = _parts(page)
    items = [page.item(name, seconds(value)) for name, value in parts]
    if not parts:
        why = f"{page.num_models} models{APART}" if page.num_models > 1 else "the page tells no latencies."
        return [page.item("parts of a mean request", None)], f"Open: {why}"
    whole = sum(value for _, value in parts)
    name, value = parts[0]
    following = f"; shorten it, and {parts[1][0]} is next" if len(parts) > 1 else ""
    share = f" ({100 * value / whole:.0f} %)" if whole else ""
    return items, f"A mean request spends most in {name}: {seconds(value)}{share}{following}."


def _amortized(page: _Page) -> Station:
    kv = page.values.get("kv_cache_usage")
    items = [
        page.item("requests in a batch (running)", _count(page, "running")),
        page.item("KV cache in use", None if kv is None else f"{100 * kv:.0f} %"),
        page.item("preemptions", _count(page, "preemptions")),
    ]
    return items, "Each pass reads the weights once for all requests of the batch: more of them share it."


def _objective(page: _Page) -> Station:
    rate, good = page.values.get("requests_s"), page.values.get("goodput_rps")
    why = page.texts["goodput_why"]
    items = [
        page.item("throughput", None if rate is None else f"{rate:.3g} requests/s"),
        page.item("goodput", None if good is None else f"{good:.3g} requests/s", why or AGAIN),
    ]
    for name in ("ttft", "tpot", "e2e"):
        p99 = page.seconds(f"{name}_p99_s")
        items.append(
            page.item(f"{name.upper()}, 99th percentile", p99, "beyond the last bucket, or not on the page")
        )
    if not page.met:
        return items, "Open: no objective is stated; throughput alone says nothing about who waited."
    said = [
        f"{name.upper()} {'met' if met else 'missed' if met is False else 'met or missed, within a bucket'}"
        for name, met in page.met.items()
    ]
    return items, f"Objectives: {', '.join(said)}. Only requests within all of them are goodput."


def _size(page: _Page) -> Station:
    measure = "the same page at twice the requests, or with one replica more: tuiadvisor import serving URL --every 60"
    return [
        page.item("goodput at another load or number of replicas", None, measure)
    ], "Open: one page is one load."


def _effort(page: _Page) -> Station:
    items = [
        page.item(f"{lever.text}", f"risk {lever.risk}, effort {lever.effort}, for {lever.finding}")
        for lever in page.levers[:8]
    ]
    if not page.levers:
        return items, "Nothing was found that is worth a change."
    return items, f"The least risky lever for the first finding: {page.levers[0].text}"


def _cost(page: _Page) -> Station:
    measure = "price of the replicas an hour over goodput an hour"
    return [page.item("cost of a thousand requests within their objectives", None, measure)], (
        "Open: a metrics page does not tell how many devices serve it, nor what they cost."
    )


def _count(page: _Page, name: str) -> str | None:
    value = page.values.get(name)
    return None if value is None else f"{value:,.0f}"


STATIONS: Final[dict[str, Callable[[_Page], Station]]] = {
    "P1": _bottleneck,
    "P2": _amortized,
    "P3": _objective,
    "P4": _size,
    "P5": _effort,
    "P6": _cost,
}
