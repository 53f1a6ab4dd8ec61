"""Per-rank metrics over time as JSON: one list a rank, beside the list of event times.

In: {"event_time": [...], "0": [...], "1": [...]}, numbers or numbers as text, "" where nothing was observed.
Out: ranks, times in seconds, and a matrix ranks x times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import read_whole
from tuiadvisor.importers.jsontext import parsed

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.metrics.steps.arrays import Floats

MAX_BYTES: Final = 64 << 20
TIME: Final = "event_time"


@dataclass(frozen=True, slots=True)
class RankMetric:
    """values: ranks x times, NaN where not observed."""

    ranks: tuple[int, ...]
    time_s: Floats
    values: Floats


def read_rank_metric(path: Path) -> RankMetric:
    """The file's matrix. TuiadvisorError on anything that is not one."""
    try:
        content = parsed(read_whole(path, MAX_BYTES))
    except orjson.JSONDecodeError as error:
        raise TuiadvisorError(f"{path}: truncated or not JSON ({error}); export it again") from None
    if not isinstance(content, dict) or not isinstance(content.get(TIME), list):
        raise TuiadvisorError(
            f"{path}: no list {TIME!r}: write one list of times and one list of values a rank"
        )
    times = _numbers(path, TIME, content[TIME])
    rows = {
        int(key): value for key, value in content.items() if key.isascii() and key.isdigit() and len(key) < 9
    }
    if not rows:
        raise TuiadvisorError(f'{path}: no rank has a list: name the lists by rank, as in "0"')
    ranks = tuple(sorted(rows))
    values = np.stack([_numbers(path, str(rank), rows[rank], times.size) for rank in ranks])
    return RankMetric(ranks, times, values)


def _numbers(path: Path, name: str, items: Any, size: int | None = None) -> Floats:
    if not isinstance(items, list) or (size is not None and len(items) != size):
        raise TuiadvisorError(f"{path}: {name!r} is no list as long as {TIME!r}: export all lists together")
    return np.array([_number(path, name, item) for item in items], dtype=np.float64)


def _number(path: Path, name: str, item: Any) -> float:
    if item is None or item == "":
        return math.nan
    try:
        value = math.inf if isinstance(item, bool) else float(item)
    except (TypeError, ValueError):
        value = math.inf
    if math.isinf(value):
        raise TuiadvisorError(f"{path}: {str(item)[:40]!r} in {name!r} is no number: write numbers")
    return value
