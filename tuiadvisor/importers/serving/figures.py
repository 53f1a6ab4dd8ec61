"""Figures of one served model: latencies, load and goodput, each with its bounds or the reason why it is unknown.

In: Pages, objectives, the length of the window.  Out: ServedModel without findings, and the metrics that rules judge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import one_line
from tuiadvisor.importers.serving.names import BESIDE, SIGNALS
from tuiadvisor.importers.serving.signals import (
    Pages,
    UnknownError,
    count_of,
    gauges_of,
    histogram_of,
    mean_of,
)
from tuiadvisor.metrics.serving.histogram import Bounded
from tuiadvisor.metrics.serving.slo import Kept, jointly
from tuiadvisor.views.run_view import Unknown
from tuiadvisor.views.serving import OBJECTIVES, EngineRow, Latency, Objective, ServedModel, SloGoodput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.importers.serving.page import Key
    from tuiadvisor.metrics.serving.histogram import Histogram

P99: Final = 0.99
MAX_NAME: Final = 60
NO_OBJECTIVE: Final = "no objective is stated: --ttft-slo, --tpot-slo or --e2e-slo"
NO_WINDOW: Final = {
    True: "how far apart the pages are is not known: state --every SECONDS",
    False: "how long the server has run is not on the page: import two pages, or the URL with --every SECONDS",
}
NOT_BY_REQUEST: Final = (
    "it is counted by token and not by request: whose tokens came late the page does not tell; leave --tpot-slo "
    "out for the goodput by the other objectives"
)


@dataclass(slots=True)
class _Drawn:
    """One model's figures as they come in."""

    pages: Pages
    limits: Mapping[str, float]  # objectives by signal, seconds
    window_s: float | None
    latencies: dict[str, Latency] = field(default_factory=dict)
    seen: dict[str, Histogram] = field(default_factory=dict)
    unknown: list[Unknown] = field(default_factory=list)

    def gauges(self, signal: str, *, before: bool = False) -> dict[Key, float]:
        """Empty where it is not known; the reason is kept."""
        page = self.pages.before if before else self.pages.after
        if page is None:
            return {}
        try:
            return gauges_of(self.pages, page, signal)
        except UnknownError as error:
            if not before:
                self.lacks(signal, error)
            return {}

    def count(self, signal: str, *, is_said: bool = True) -> float | None:
        """None where it is not known."""
        try:
            return count_of(self.pages, signal)[0]
        except UnknownError as error:
            if is_said:
                self.lacks(signal, error)
            return None

    def lacks(self, signal: str, why: object) -> None:
        """Keep a reason."""
        self.unknown.append(Unknown(signal, one_line(str(why))))


def served_model(pages: Pages, limits: Mapping[str, float], window_s: float | None) -> ServedModel:
    """Everything but findings and decision."""
    drawn = _Drawn(pages, limits, window_s)
    for signal in SIGNALS:
        _latency(drawn, signal)
    engines = _engines(drawn)
    running, waiting = (_sum(getattr(row, name) for row in engines) for name in ("running", "waiting"))
    before = drawn.gauges("waiting", before=True)
    full = [row.kv for row in engines if row.kv is not None]
    generated = drawn.count("generated", is_said=False)
    return ServedModel(
        model=quoted(pages.model or ""),
        latencies=drawn.latencies,
        running=running,
        waiting=waiting,
        waiting_before=sum(before.values()) if before else None,
        engines=engines,
        kv_worst=max(full, default=None),
        preemptions=drawn.count("preemptions"),
        prefix_hit_share=_prefix_hits(drawn),
        tokens_s=generated / window_s if generated is not None and window_s else None,
        requests_s=_requests_s(drawn),
        goodput=_goodput(drawn),
        findings=(),
        decision=None,
        sentence="",
        verify="",
        unknown=tuple(drawn.unknown),
    )


def quoted(name: str) -> str:
    """A name from the page: one line of letters, not too long."""
    shown = one_line(name)
    return shown if len(shown) <= MAX_NAME else shown[: MAX_NAME - 1] + "…"


def _latency(drawn: _Drawn, signal: str) -> None:
    try:
        found, source = histogram_of(drawn.pages, signal)
    except UnknownError as error:
        _mean_alone(drawn, signal)
        if signal not in BESIDE:
            drawn.lacks(signal, error)
        return
    if not found.num:
        if signal in BESIDE:
            return
        drawn.lacks(signal, f"nothing was counted under {source.name} yet")
        return
    limit = drawn.limits.get(signal)
    objective = _objective(found, limit) if limit is not None else None
    drawn.seen[signal] = found
    drawn.latencies[signal] = Latency(
        source.name, source.per, found.num, found.quantile(0.5), found.quantile(P99), found.mean, objective
    )


def _mean_alone(drawn: _Drawn, signal: str) -> None:
    """Where a server tells sums and no histogram."""
    try:
        found = mean_of(drawn.pages, signal)
    except UnknownError:
        return
    if found is not None:
        mean, num, name = found
        drawn.latencies[signal] = Latency(name, "request", num, None, None, mean)


def _objective(found: Histogram, limit: float) -> Objective:
    within = found.within(limit)
    high = found.num if within.high is None else within.high
    # In whole numbers: 99 of 100 keep to it.
    wanted = 99 * found.num
    is_met = True if 100 * within.low >= wanted else False if 100 * high < wanted else None
    return Objective(limit, within, is_met)


def _engines(drawn: _Drawn) -> tuple[EngineRow, ...]:
    parts = [drawn.gauges(signal) for signal in ("running", "waiting", "kv")]
    if any(value > 1 for value in parts[2].values()):
        drawn.lacks("kv", "the KV cache's use is not a share between 0 and 1 on this page")
        parts[2] = {}
    return tuple(
        EngineRow(name, *(part.get(key) for part in parts))
        for name, key in sorted(_names(set().union(*parts)).items())
    )


def _names(keys: set[Key]) -> dict[str, Key]:
    """Short names of the engines: the labels in which they differ."""
    labels = {key: dict(key) for key in keys}
    values: dict[str, set[str]] = {}
    for found in labels.values():
        for label in {label for each in labels.values() for label in each}:
            values.setdefault(label, set()).add(found.get(label, ""))
    differing = sorted(label for label, seen in values.items() if len(seen) > 1)
    named = {}
    for number, key in enumerate(sorted(keys, key=sorted)):
        name = quoted(", ".join(f"{label} {labels[key].get(label, '')}" for label in differing))
        named[name if name and name not in named else f"engine {number}"] = key
    return named


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _prefix_hits(drawn: _Drawn) -> float | None:
    queries, hits = (drawn.count(name, is_said=False) for name in ("prefix_queries", "prefix_hits"))
    if queries and hits is not None and hits <= queries:
        return hits / queries
    try:
        shares = list(gauges_of(drawn.pages, drawn.pages.after, "prefix_share").values())
    except UnknownError:
        return None
    return shares[0] if len(shares) == 1 and shares[0] <= 1 else None


def _requests_s(drawn: _Drawn) -> float | None:
    """Finished requests a second, by the latency that is counted at a request's end."""
    ended = drawn.latencies.get("e2e")
    return ended.num / drawn.window_s if ended is not None and drawn.window_s else None


def _goodput(drawn: _Drawn) -> SloGoodput:
    if not drawn.limits:
        return SloGoodput(why=NO_OBJECTIVE)
    kept, unseen = [], ""
    for signal in OBJECTIVES:
        latency = drawn.latencies.get(signal)
        if signal not in drawn.limits:
            continue
        if latency is None or latency.objective is None:
            said = [one.why for one in drawn.unknown if one.metric == signal]
            unseen = f"{signal.upper()} is unknown: {said[0] if said else 'the page tells no quantile of it'}"
        elif latency.per != "request":
            unseen = f"{signal.upper()}: {NOT_BY_REQUEST}"
        else:
            kept.append(Kept(latency.objective.within, latency.num))
    if not kept:
        return SloGoodput(why=unseen)
    requests = jointly(kept, _begun_before(drawn))
    if unseen:  # all of them may have missed it
        requests = Bounded(None, 0.0, kept[0].num if requests.high is None else requests.high)
    why = unseen or ("" if drawn.window_s else NO_WINDOW[drawn.pages.before is not None])
    if not why and requests.value is None:
        why = (
            "each histogram knows its own objective alone: which requests kept to all of them lies between these ends"
            if len(kept) > 1
            else "the objective lies beyond the last edge of the buckets"
        )
    return SloGoodput(requests, max(one.num for one in kept), _rate(requests, drawn.window_s), why)


def _rate(requests: Bounded, window_s: float | None) -> Bounded | None:
    return requests.scaled(1 / window_s) if window_s else None


def _begun_before(drawn: _Drawn) -> float | None:
    """Requests under way at the first page; none where counting began with the server."""
    if drawn.pages.before is None:
        return 0.0
    under_way = [drawn.gauges(signal, before=True) for signal in ("running", "waiting")]
    return sum(sum(part.values()) for part in under_way) if all(under_way) else None


Judged = dict[str, float | int | str | None]


def rule_metrics(model: ServedModel) -> Judged:
    """What rules of scope serving are judged on; None is unknown."""
    found: Judged = {
        "num_requests": model.num_requests or None,
        "num_running": model.running,
        "num_waiting": model.waiting,
        "num_engines": len(model.engines) or None,
        "kv_share": model.kv_worst,
        "kv_is_known": int(model.kv_worst is not None),
        "preemptions": model.preemptions,
        "prefix_hit_share": model.prefix_hit_share,
        "num_waiting_before": model.waiting_before,
    }
    waits = [row.waiting for row in model.engines if row.waiting is not None]
    found |= {"longest_queue": max(waits, default=None), "shortest_queue": min(waits, default=None)}
    found["kv_least_share"] = min((row.kv for row in model.engines if row.kv is not None), default=None)
    found["preemptions_per_request"] = (
        model.preemptions / model.num_requests
        if model.preemptions is not None and model.num_requests
        else None
    )
    for signal in (*OBJECTIVES, "itl", "queue"):
        found |= _of_latency(signal, model.latencies.get(signal))
    for signal in OBJECTIVES:
        found |= _of_objective(signal, model.latencies.get(signal))
    found["tpot_per"] = model.latencies["tpot"].per if "tpot" in model.latencies else None
    found["queue_of_ttft_share"] = _ratio(model, "queue", "ttft")
    found["queue_of_e2e_share"] = _ratio(model, "queue", "e2e")
    found["queue_words"] = _queue_words(found)
    found["queue_is_known"] = int(found["queue_of_ttft_share"] is not None)
    found["prefill_of_ttft_share"] = _ratio(model, "prefill", "ttft")
    found["prompt_tail"] = _tail(model.latencies.get("prompt_tokens"))
    found["objectives_met"] = _all_met(model)
    return found


def _queue_words(found: Judged) -> str | None:
    """The queue's part of what is known."""
    parts = [
        f"{100 * share:.0f} % of {whole}"
        for name, whole in (("ttft", "the time to the first token"), ("e2e", "the whole request"))
        if isinstance(share := found[f"queue_of_{name}_share"], float)
    ]
    return ", ".join(parts) or None


def _all_met(model: ServedModel) -> int | None:
    """1 or 0; None where none is stated, or one may be met or not."""
    met = [one.objective.is_met for one in model.latencies.values() if one.objective is not None]
    if False in met:
        return 0
    return None if not met or None in met else 1


def _of_latency(signal: str, latency: Latency | None) -> Judged:
    p99 = latency.p99 if latency else None
    return {
        f"{signal}_p50_s": latency.p50.value if latency and latency.p50 else None,
        f"{signal}_p99_s": p99.value if p99 else None,
        f"{signal}_p99_low_s": p99.low if p99 else None,
        f"{signal}_mean_s": latency.mean_s if latency else None,
        f"{signal}_tail": _tail(latency),
    }


def _of_objective(signal: str, latency: Latency | None) -> Judged:
    objective = latency.objective if latency else None
    if latency is None or objective is None:
        return {f"{signal}_slo_s": None, f"{signal}_missed_share": None}
    high = latency.num if objective.within.high is None else objective.within.high
    return {
        f"{signal}_slo_s": objective.limit_s,
        f"{signal}_missed_share": (latency.num - high) / latency.num,
    }


def _tail(latency: Latency | None) -> float | None:
    """The 99th percentile over the median, at least: by the ends of their buckets."""
    if latency is None or latency.p50 is None or latency.p99 is None or not latency.p50.high:
        return None
    return latency.p99.low / latency.p50.high


def _ratio(model: ServedModel, part: str, whole: str) -> float | None:
    """Of two means, each exact."""
    spent, of = (model.latencies[name].mean_s if name in model.latencies else None for name in (part, whole))
    return min(spent / of, 1.0) if spent is not None and of else None
