"""One metrics page: text of Prometheus' exposition format, from a file of others, into series of known servers.

In: bytes.  Out: Page. prometheus_client's parser reads it, line by line and within bounds; lines of other metrics are
not read at all, so that a page may hold whatever else. TuiadvisorError: what is no page, with its line.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO, cast

from prometheus_client.parser import text_fd_to_metric_families

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.serving.names import SERVERS, usual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from tuiadvisor.importers.serving.names import Server

MAX_BYTES: Final = 8 << 20  # of what is read: vLLM writes some 100 kB for one engine
MAX_LINE: Final = 8 << 10  # characters: the parser's time grows with the square of a line of quotes
MAX_SERIES: Final = 50_000
MAX_LABELS: Final = 40
LARGEST: Final = 1e300  # the parser makes whole numbers of any length of digits
LEAST_TRIED: Final = 200  # lines of a page without any known name: enough to tell a page from something else
START: Final = "process_start_time_seconds"
_NAME: Final = re.compile(r"(?:#\s*(?:TYPE|HELP)\s+)?\"?([a-zA-Z_:][a-zA-Z0-9_:]*)")
_KNOWN: Final = tuple(server.prefix for server in SERVERS)
Key = frozenset[tuple[str, str]]  # labels of a series


@dataclass(frozen=True, slots=True)
class Page:
    """A page's series by name and labels, those of known servers alone. source: for messages."""

    source: str
    series: dict[str, dict[Key, float]]
    gauges: frozenset[str]  # names that the page says are gauges
    start_s: float | None = None  # when its process began, Unix time
    servers: tuple[Server, ...] = ()

    def values(self, name: str) -> dict[Key, float]:
        """Its series; empty where there are none."""
        return self.series.get(name, {})


def read_page(raw: bytes, source: str) -> Page:
    """The page in these bytes. TuiadvisorError: it is none."""
    text = _text(raw, source)
    lines = text.split("\n")
    wanted = [(number, line) for number, line in enumerate(lines, 1) if _is_wanted(line)]
    if not wanted:
        return _without(lines, source)
    # The value of START is parsed with the rest.
    series: dict[str, dict[Key, float]] = {}
    gauges = set()
    num_series = 0
    for family in _families(wanted, source):
        for sample in family.samples:
            name = usual(sample.name)
            if family.type == "gauge":
                gauges.add(name)
            if len(sample.labels) > MAX_LABELS:
                raise TuiadvisorError(
                    f"{source}: a series has more than {MAX_LABELS} labels; no server writes so"
                )
            key = frozenset(sample.labels.items())
            held = series.setdefault(name, {})
            if key in held:
                raise TuiadvisorError(f"{source}: a series of {name} is there twice; save the page again")
            held[key] = float(sample.value) if abs(sample.value) < LARGEST else math.inf
            num_series += 1
            if num_series > MAX_SERIES:
                raise TuiadvisorError(
                    f"{source}: more than {MAX_SERIES} series; import one server's own page"
                )
    found = tuple(server for server in SERVERS if any(name.startswith(server.prefix) for name in series))
    return Page(source, series, frozenset(gauges), _start(series), found)


def _text(raw: bytes, source: str) -> str:
    if len(raw) > MAX_BYTES:
        raise TuiadvisorError(f"{source}: larger than {MAX_BYTES >> 20} MiB; import one server's own page")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise TuiadvisorError(f"{source}: not text; {WHAT_A_PAGE_IS}") from None
    if not text.strip():
        raise TuiadvisorError(f"{source}: empty; {WHAT_A_PAGE_IS}")
    return text


WHAT_A_PAGE_IS: Final = "a metrics page is what curl http://SERVER:PORT/metrics prints"


def _is_wanted(line: str) -> bool:
    found = _NAME.match(line.lstrip())
    return found is not None and (found[1] == START or usual(found[1]).startswith(_KNOWN))


def _families(lines: list[tuple[int, str]], source: str) -> Iterator[Metric]:
    """What the parser makes of these lines; a line it refuses is named."""
    number = 0

    def fed() -> Iterator[str]:
        nonlocal number
        for number, line in lines:
            if len(line) > MAX_LINE:
                raise TuiadvisorError(f"{source}: line {number} has more than {MAX_LINE} characters")
            yield line

    try:
        yield from text_fd_to_metric_families(cast("TextIO", fed()))  # it iterates over it and no more
    except (ValueError, KeyError, IndexError, TypeError, OverflowError):
        raise TuiadvisorError(f"{source}: line {number} is no line of a metrics page") from None


def _without(lines: list[str], source: str) -> Page:
    """A page of other metrics, or something else."""
    told = [(number, line) for number, line in enumerate(lines, 1) if line.strip()][:LEAST_TRIED]
    if not any(family.samples for family in _families(told, source)):
        raise TuiadvisorError(f"{source}: no metrics in it; {WHAT_A_PAGE_IS}")
    return Page(source, {}, frozenset())


def _start(series: dict[str, dict[Key, float]]) -> float | None:
    values = [value for value in series.get(START, {}).values() if math.isfinite(value) and value > 0]
    return min(values, default=None)
