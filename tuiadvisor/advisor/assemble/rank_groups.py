"""Ranks put together by host, stage and replica: thousands fit on a screen, and none that stands out is lost.

In: rows of all ranks, where each of them belongs.  Out: Grouping. Figures are columns over all ranks; only names go
group by group.

A stage holds the ranks with the same part of the model, which is one data-parallel group; a replica those that hold
one whole copy of it. Where ranks do not say which stage or pipeline is theirs, that way of grouping is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tuiadvisor.metrics.steps.accounting import seconds_of_ranks, shares
from tuiadvisor.metrics.steps.arrays import finite_or_nones
from tuiadvisor.views.rank_group import Grouping, RankGroup
from tuiadvisor.views.step_map import UNKNOWN_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.steps.arrays import Floats, Ints
    from tuiadvisor.views.run_view import RankRow

Levels = npt.NDArray[np.uint8]
MAX_OUTLIERS: Final = 64  # named in a group; what is beyond is counted
LOST: Final = frozenset({"killed", "refused"})


def groupings(
    rows: Sequence[RankRow], stages: Mapping[int, tuple[int, ...]], replicas: Mapping[int, int]
) -> tuple[Grouping, ...]:
    """Every way to group these rows that is known of all of them.

    rows: by rank. stages: of each rank, those it holds. replicas: of each rank, the lowest rank of its pipeline.
    """
    if not rows:
        return ()
    columns = _Columns(rows)
    found = [_grouping("host", [row.host for row in rows], columns)]
    if stages and all(row.rank in stages for row in rows):
        found.append(_grouping("stage", [_stage_name(stages[row.rank]) for row in rows], columns))
    if len(set(replicas.values())) > 1 and all(row.rank in replicas for row in rows):
        number = {first: place for place, first in enumerate(sorted(set(replicas.values())))}
        names = [f"replica {number[replicas[row.rank]]}" for row in rows]
        found.append(_grouping("replica", names, columns))
    return tuple(found)


def _stage_name(stages: tuple[int, ...]) -> str:
    return f"stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))}"


class _Columns:
    """The figures of all rows as arrays, taken once for all groupings."""

    def __init__(self, rows: Sequence[RankRow]) -> None:
        self.rank = np.array([row.rank for row in rows], dtype=np.int64)
        self.live = np.array([row.state == "live" for row in rows])
        self.lost = np.array([row.state in LOST for row in rows])
        self.culprit = np.array([row.is_culprit for row in rows])
        self.outlier = np.array([row.is_outlier for row in rows]) | self.culprit
        self.figures = np.array(
            [
                (row.step_s, row.wait_s, row.caused_wait_s, row.last_arrivals, row.caused_each_s)
                for row in rows
            ],
            dtype=np.float64,
        ).T
        self.seconds = np.array([list(row.seconds.values()) for row in rows], dtype=np.float64).T
        self.lateness = _levels([row.lateness_levels for row in rows])
        self.phases = _levels([row.phase_levels for row in rows])


def _levels(levels: list[bytes]) -> Levels:
    """Rows x steps; +1, so that 0 is unknown and the largest of a group is that of its latest known rank."""
    width = max(map(len, levels))
    padded = b"".join(one.rjust(width, bytes([UNKNOWN_LEVEL])) for one in levels)
    table = np.frombuffer(padded, dtype=np.uint8).reshape(len(levels), width)
    return np.asarray(table + np.uint8(1), dtype=np.uint8)  # UNKNOWN_LEVEL wraps round to 0


def _grouping(by: str, names: list[str], columns: _Columns) -> Grouping:
    first: dict[str, int] = {}
    member = np.array([first.setdefault(name, len(first)) for name in names], dtype=np.int64)
    order = np.argsort(member, kind="stable")
    starts = np.searchsorted(member[order], np.arange(len(first)))
    ends = np.append(starts[1:], order.size)
    num_live, num_lost, num_culprits = (
        np.bincount(member, weights=each, minlength=len(first)).astype(np.int64)
        for each in (columns.live, columns.lost, columns.culprit)
    )
    means, sums = _means_and_sums(columns.figures, member, len(first))
    seconds, _ = _means_and_sums(columns.seconds, member, len(first))
    lateness = _worst(columns.lateness[order], starts)
    phases = _worst(columns.phases[order], starts)
    standing_out: dict[int, list[int]] = {}
    for row in _loudest(columns).tolist():
        standing_out.setdefault(int(member[row]), []).append(int(columns.rank[row]))
    known_seconds = seconds_of_ranks(seconds)
    step_s, wait_s = finite_or_nones(means[0]), finite_or_nones(means[1])
    caused_wait_s, last_arrivals, caused_each_s = (finite_or_nones(sums[figure]) for figure in (2, 3, 4))
    groups = []
    for index, name in enumerate(first):
        ranks = columns.rank[order[starts[index] : ends[index]]]
        outliers = standing_out.get(index, [])
        parts = known_seconds[index]
        groups.append(
            RankGroup(
                name=name,
                ranks=tuple(ranks.tolist()),
                num_live=int(num_live[index]),
                num_lost=int(num_lost[index]),
                step_s=step_s[index],
                wait_s=wait_s[index],
                caused_wait_s=caused_wait_s[index],
                last_arrivals=last_arrivals[index],
                shares=shares(parts),
                seconds=parts,
                lateness_levels=lateness[index].tobytes(),
                phase_levels=phases[index].tobytes(),
                outliers=tuple(outliers[:MAX_OUTLIERS]),
                num_outliers=len(outliers),
                num_culprits=int(num_culprits[index]),
                caused_each_s=caused_each_s[index],
            )
        )
    return Grouping(by, tuple(groups))


def _means_and_sums(values: Floats, member: Ints, num_groups: int) -> tuple[Floats, Floats]:
    """Figures x groups: mean and sum of what is known; NaN where nothing is."""
    known = np.isfinite(values)
    counts = np.stack([np.bincount(member[row], minlength=num_groups) for row in known])
    sums = np.stack(
        [
            np.bincount(member[there], weights=row[there], minlength=num_groups)
            for row, there in zip(values, known, strict=True)
        ]
    )
    sums = np.where(counts > 0, sums, np.nan)
    return np.asarray(sums / np.maximum(counts, 1)), np.asarray(sums, dtype=np.float64)


def _worst(levels: Levels, starts: Ints) -> Levels:
    """Groups x steps: the highest known level, as it was before `_levels`."""
    if not levels.shape[1]:
        return np.zeros((starts.size, 0), dtype=np.uint8)
    return np.asarray(np.maximum.reduceat(levels, starts, axis=0) - np.uint8(1), dtype=np.uint8)


def _loudest(columns: _Columns) -> Ints:
    """Rows that stand out: culprits first, then by the wait they cause, then by rank."""
    rows = np.flatnonzero(columns.outlier)
    caused = np.nan_to_num(columns.figures[2][rows], nan=0.0)
    return rows[np.lexsort((columns.rank[rows], -caused, ~columns.culprit[rows]))]
