"""`import metrics FILE`: one metric of each rank over time, and which rank's data was late against its peers'.

In: JSON with one list a rank beside the list of times (`rank_metrics`).  Out: the document with episodes in which one
rank's share of ready batches is low while its peers' is not; of a metric that is no share, each rank's mean alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tuiadvisor.importers.rank_metrics import read_rank_metric
from tuiadvisor.metrics.traces.op_table import counted
from tuiadvisor.metrics.traces.readiness import starving

if TYPE_CHECKING:
    from pathlib import Path

SHOWN: Final = 8
EPOCH_S: Final = 10**9  # a count of seconds from here on is from 1970: 2001 to 2100
LAST_S: Final = 4_102_444_800


def metrics_document(path: Path) -> dict[str, Any]:
    """Read it. TuiadvisorError on anything that is no such file."""
    metric = read_rank_metric(path)
    known = metric.values[np.isfinite(metric.values)]
    is_share = bool(known.size) and bool((known >= 0).all()) and bool((known <= 1).all())
    episodes = starving(metric.values) if is_share else ()
    rows = [(rank, row[np.isfinite(row)]) for rank, row in zip(metric.ranks, metric.values, strict=True)]
    why = "the values are no shares from 0 to 1" if known.size else "no value was observed"
    unknown = [] if is_share else [{"metric": "late data", "why": why}]
    return {
        "schema": 1,
        "source": {"kind": "metrics", "path": str(path)},
        "run": {"ranks": list(metric.ranks), "samples": int(metric.time_s.size)},
        "per_rank": [
            {"rank": rank, "mean": float(row.mean()) if row.size else None, "samples": int(row.size)}
            for rank, row in rows
        ],
        "episodes": [
            {
                "rank": metric.ranks[one.row],
                "begin_time": _time(metric.time_s, one.first),
                "end_time": _time(metric.time_s, one.last),
                "samples": one.num_samples,
                "mean": one.readiness,
            }
            for one in episodes
        ],
        "stragglers": {
            "ranks": [{"rank": rank} for rank in dict.fromkeys(metric.ranks[one.row] for one in episodes)]
        },
        "unknown": unknown,
        "losses": [],
    }


def _time(time_s: np.ndarray[Any, Any], at: int) -> float | None:
    value = float(time_s[at])
    return value if np.isfinite(value) else None


def _moment(time: float | None) -> str:
    """Seconds from 1970 on as a date; other counts of time as they are."""
    if time is None:
        return "an unknown time"
    if EPOCH_S <= time < LAST_S:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{time:.0f}"


def metrics_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    run, episodes = document["run"], document["episodes"]
    lines = [
        f"{document['source']['path']}: {counted(len(run['ranks']), 'rank')}, {counted(run['samples'], 'sample')}"
    ]
    for one in episodes[:SHOWN]:
        span = f"from {_moment(one['begin_time'])} to {_moment(one['end_time'])}"
        lines.append(
            f"rank {one['rank']} waits for its data {span}: ready in {100 * one['mean']:.0f} % of samples"
        )
    if len(episodes) > SHOWN:
        lines.append(f"and {len(episodes) - SHOWN} more")
    if not episodes and not document["unknown"]:
        lines.append("no rank's data is late against its peers'")
    means = [
        f"{row['rank']}: {row['mean']:.4g}" for row in document["per_rank"][:SHOWN] if row["mean"] is not None
    ]
    if document["unknown"] and means:
        lines.append("means by rank " + ", ".join(means))
    return "\n".join([*lines, *(f"unknown {item['metric']}: {item['why']}" for item in document["unknown"])])
