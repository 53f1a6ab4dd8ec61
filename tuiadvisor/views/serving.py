"""A serving process by its metrics page: latencies with their bounds, load, goodput against objectives, findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.metrics.serving.histogram import Bounded
    from tuiadvisor.views.run_view import DecisionWord, Finding, Unknown

OBJECTIVES: Final = ("ttft", "tpot", "e2e")  # latencies that may have one


@dataclass(frozen=True, slots=True)
class Objective:
    """What a latency may be, and how many kept to it."""

    limit_s: float
    within: Bounded  # observations
    is_met: bool | None  # by the 99th percentile; None: it may be either


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of waiting. Quantiles are interpolated within the bucket that bounds them."""

    metric: str  # its name on the page
    per: str  # what one observation is of: a request or a token
    num: int
    p50: Bounded | None  # None: the page tells no quantile of it
    p99: Bounded | None
    mean_s: float | None
    objective: Objective | None = None


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine, or data-parallel rank, at the moment of the last page."""

    name: str
    running: float | None
    waiting: float | None
    kv: float | None


@dataclass(frozen=True, slots=True)
class SloGoodput:
    """Requests within all objectives. None: unknown, and why says what to state or measure."""

    requests: Bounded | None = None
    num: int | None = None  # requests that were counted
    rps: Bounded | None = None
    why: str = ""

    @property
    def share(self) -> Bounded | None:
        """Of the requests counted."""
        return self.requests.scaled(1 / self.num) if self.requests is not None and self.num else None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model's requests in the window, its engines at the end of it."""

    model: str  # "" where the page names none
    latencies: dict[str, Latency]  # by signal
    running: float | None
    waiting: float | None
    waiting_before: float | None  # on the first of two pages
    engines: tuple[EngineRow, ...]
    kv_worst: float | None  # the fullest engine's
    preemptions: float | None
    prefix_hit_share: float | None
    tokens_s: float | None  # generated
    requests_s: float | None
    goodput: SloGoodput
    findings: tuple[Finding, ...]
    decision: DecisionWord | None  # of the first finding above info; keep where all objectives are met
    sentence: str
    verify: str  # what must be seen once the finding that decides is gone; "" where none does
    unknown: tuple[Unknown, ...]

    @property
    def num_requests(self) -> int:
        """That left a latency of a request."""
        return max((one.num for one in self.latencies.values() if one.per == "request"), default=0)


@dataclass(frozen=True, slots=True)
class ServingView:
    """What a page tells, or two of them."""

    server: str  # "" where no metric of a known server was there
    sources: tuple[str, ...]
    is_interval: bool  # between two pages; else since the server started
    window_s: float | None
    models: tuple[ServedModel, ...]
    total: ServedModel | None  # all models together as far as that is right; None where nothing is known
    notes: tuple[str, ...] = ()
