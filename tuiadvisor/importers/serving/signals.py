"""Signals of one model out of one page or two: series summed where that is right, refused where it is not.

In: Pages and the table of names.  Out: histograms, counts and gauges, or why there are none. Between two pages each
series is set against itself before anything is summed, so that a server that began anew in between shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tuiadvisor.importers.serving.names import MODEL_LABELS
from tuiadvisor.metrics.serving.histogram import Histogram, HistogramError, histogram, since, together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tuiadvisor.importers.serving.names import Server, Source
    from tuiadvisor.importers.serving.page import Key, Page

# Tensor, pipeline and expert ranks of one engine work on the same requests: the fullest stands for all of them.
SAME_REQUESTS: Final = frozenset(
    {"tp_rank", "pp_rank", "ep_rank", "moe_ep_rank", "moe_tp_rank", "attn_tp_rank"}
)
ANEW: Final = (
    "the server restarted between the two pages, or they are in the wrong order: import the later one alone"
)
Value = TypeVar("Value")
MOST: Final = 1e15  # of anything counted: beyond it floats no longer tell one from two
START_TOLERANCE_S: Final = 1.0  # of one process; the figure is rounded by some platforms


class UnknownError(Exception):
    """A signal that is not known, and why."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What is read: the later page, and an earlier one where there is one."""

    server: Server
    after: Page
    before: Page | None = None
    model: str | None = None  # None: series of all models

    def of_model(self, model: str) -> Pages:
        """Series of this model alone."""
        return Pages(self.server, self.after, self.before, model)

    @property
    def began_anew(self) -> bool:
        """Another process wrote the second page."""
        if self.before is None or self.before.start_s is None or self.after.start_s is None:
            return False
        return abs(self.after.start_s - self.before.start_s) > START_TOLERANCE_S


def models(server: Server, page: Page) -> tuple[str, ...]:
    """Names of the models that this server's series speak of; one without a name where none is named."""
    names = {
        model_of(key)
        for name, series in page.series.items()
        if name.startswith(server.prefix)
        for key in series
    }
    return tuple(sorted(names - {""})) or ("",)


def model_of(key: Key) -> str:
    """The model that a series names, or nothing."""
    labels = dict(key)
    return next((labels[label] for label in MODEL_LABELS if labels.get(label)), "")


def histogram_of(pages: Pages, signal: str) -> tuple[Histogram, Source]:
    """What was observed in the window, and under which name. UnknownError: why that is not known."""
    found = []
    for source in pages.server.histograms.get(signal, ()):
        after = _histograms(pages, source, pages.after)
        if after:
            parts = _between(pages, source.name, after, partial(_histograms, pages, source), since)
            found.append((_summed(source.name, parts), source))
    if not found:
        raise UnknownError(pages.server.lacks.get(signal, _absent(pages, signal, pages.server.histograms)))
    # The first name is the best one, but a server may write a new name and count under the old one.
    return next((one for one in found if one[0].num), found[0])


def count_of(pages: Pages, signal: str) -> tuple[float, str]:
    """How often it happened in the window, and the name it was counted under. UnknownError: why that is not known."""
    for source in pages.server.counters.get(signal, ()):
        if parts := counted(pages, source):
            return math.fsum(parts.values()) * source.factor, source.name
    raise UnknownError(pages.server.lacks.get(signal, _absent(pages, signal, pages.server.counters)))


def counted(pages: Pages, source: Source) -> dict[Key, float]:
    """Increases of a counter by series; empty where it is not on the page."""
    name = next((one for one in (f"{source.name}_total", source.name) if pages.after.values(one)), "")
    if not name or name in pages.after.gauges:
        return {}
    after = _series(pages, pages.after, name, source)

    def difference(early: float, late: float) -> float:
        if late < early:
            raise HistogramError(f"it fell: {ANEW}")
        return late - early

    parts = _between(pages, source.name, after, lambda page: _series(pages, page, name, source), difference)
    if not _are_counts(parts.values()):
        raise UnknownError(f"{source.name} is no count on this page")
    return _fullest(parts, lambda value: value)


def mean_of(pages: Pages, signal: str) -> tuple[float, int, str] | None:
    """(mean, how many, name) where a server tells nothing but sums; None where it tells none."""
    found = pages.server.means.get(signal)
    if found is None:
        return None
    spent, often = (math.fsum(counted(pages, source).values()) for source in found)
    return (spent * found[0].factor / often, int(often), found[0].name) if 0 < often <= MOST else None


def gauges_of(pages: Pages, page: Page, signal: str) -> dict[Key, float]:
    """The signal at the moment of this page, by engine. UnknownError: why that is not known."""
    for source in pages.server.gauges.get(signal, ()):
        found = _series(pages, page, source.name, source)
        if source.of is not None:
            most = _series(pages, page, source.of[0], source, source.of[1])
            found = {key: value / most[key] for key, value in found.items() if most.get(key)}
        if found:
            if not _are_counts(found.values()):
                raise UnknownError(f"{source.name} is no number of its kind on this page")
            return _fullest(_without_parts(found), lambda value: value)
    raise UnknownError(pages.server.lacks.get(signal, _absent(pages, signal, pages.server.gauges)))


def _series(
    pages: Pages, page: Page, name: str, source: Source, labels: tuple[tuple[str, str], ...] | None = None
) -> dict[Key, float]:
    """A metric's series of the wanted model, without the labels that only chose them."""
    wanted = frozenset(source.labels if labels is None else labels)
    left_out = {label for label, _ in wanted}
    return {
        frozenset(pair for pair in key if pair[0] not in left_out): value
        for key, value in page.values(name).items()
        if wanted <= key and _is_of(pages, key)
    }


def _is_of(pages: Pages, key: Key) -> bool:
    """A series that names no model belongs to any."""
    return not pages.model or model_of(key) in {"", pages.model}


def _histograms(pages: Pages, source: Source, page: Page) -> dict[Key, Histogram]:
    buckets: dict[Key, list[tuple[float, float]]] = {}
    for key, value in _series(pages, page, f"{source.name}_bucket", source).items():
        labels = dict(key)
        rest = frozenset(pair for pair in key if pair[0] != "le")
        buckets.setdefault(rest, []).append((_edge(labels.get("le", "")) * source.factor, value))
    counts = _series(pages, page, f"{source.name}_count", source)
    sums = _series(pages, page, f"{source.name}_sum", source)
    found = {}
    for key, pairs in buckets.items():
        total = sums.get(key)
        try:
            found[key] = histogram(pairs, counts.get(key), None if total is None else total * source.factor)
        except HistogramError as error:
            raise UnknownError(f"{source.name} is damaged: {error}") from None
    return found


def _are_counts(values: Iterable[float]) -> bool:
    """Numbers of requests, or shares; NaN is none."""
    return all(0 <= value <= MOST for value in values)


def _edge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _between(
    pages: Pages,
    name: str,
    after: dict[Key, Value],
    read: Callable[[Page], dict[Key, Value]],
    difference: Callable[[Value, Value], Value],
) -> dict[Key, Value]:
    """Each series less what it was on the first page; all of it where there is one page."""
    if pages.before is None:
        return after
    before = read(pages.before)
    if pages.began_anew or _created_anew(pages, name):
        raise UnknownError(f"{name}: {ANEW}")
    if before.keys() - after.keys():
        raise UnknownError(f"{name}: an engine of the first page is gone on the second: import that alone")
    try:
        # A series that was not there yet had counted nothing.
        return {
            key: difference(before[key], value) if key in before else value for key, value in after.items()
        }
    except HistogramError as error:
        raise UnknownError(f"{name}: {error}") from None


def _created_anew(pages: Pages, name: str) -> bool:
    """prometheus_client tells when it made each series."""
    then = pages.before.values(f"{name}_created") if pages.before is not None else {}
    now = pages.after.values(f"{name}_created")
    return any(abs(now[key] - value) > START_TOLERANCE_S for key, value in then.items() if key in now)


def _summed(name: str, parts: Mapping[Key, Histogram]) -> Histogram:
    try:
        return together(list(_fullest(parts, lambda part: part.num).values()))
    except HistogramError as error:
        raise UnknownError(f"{name}: {error}") from None


def _fullest(parts: Mapping[Key, Value], size: Callable[[Value], float]) -> dict[Key, Value]:
    """Of the ranks of one engine the one with most."""
    found: dict[Key, Value] = {}
    for key, part in parts.items():
        rest = frozenset(pair for pair in key if pair[0] not in SAME_REQUESTS)
        if rest not in found or size(part) > size(found[rest]):
            found[rest] = part
    return found


def _without_parts(found: dict[Key, float]) -> dict[Key, float]:
    """SGLang writes the whole under an empty priority and its parts under each priority's own."""
    wholes = {_without(key, "priority") for key in found if ("priority", "") in key}
    return {
        key: value
        for key, value in found.items()
        if ("priority", "") in key or _without(key, "priority") not in wholes
    }


def _without(key: Key, label: str) -> Key:
    return frozenset(pair for pair in key if pair[0] != label)


def _absent(pages: Pages, signal: str, table: Mapping[str, Iterable[Source]]) -> str:
    names = list(dict.fromkeys(source.name for source in table.get(signal, ())))
    if not names:
        return f"{pages.server.name} has no metric of it"
    return f"{' or '.join(names[:2])} is not on the page"
