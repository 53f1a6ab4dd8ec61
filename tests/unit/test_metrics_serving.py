"""What a histogram tells for certain, held against the observations it was made of."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from tuiadvisor.metrics.serving.histogram import (
    Bounded,
    Histogram,
    HistogramError,
    histogram,
    since,
    together,
)
from tuiadvisor.metrics.serving.slo import Kept, jointly

EDGES = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
VALUES = some.lists(some.floats(0, 20, allow_nan=False), min_size=1, max_size=60)


def counted(values: list[float], edges: tuple[float, ...] = EDGES) -> Histogram:
    """As a server counts."""
    ordered = sorted(values)
    pairs = [(edge, float(bisect_right(ordered, edge))) for edge in edges]
    return histogram([*pairs, (math.inf, float(len(values)))], None, math.fsum(values))


def holds(found: Bounded, truth: float) -> bool:
    """Whether the truth lies within the ends, but for the rounding of sums."""
    return found.low <= truth + 1e-9 and (found.high is None or truth <= found.high + 1e-9)


@example([0.02734375], 1.0)  # the figure was beyond its upper end by a rounding
@given(VALUES, some.sampled_from((0.01, 0.5, 0.9, 0.99, 1.0)))
def test_the_true_quantile_lies_within_the_ends(values: list[float], share: float) -> None:
    """And the figure too; beyond the last edge there is none."""
    found = counted(values).quantile(share)
    assert found is not None
    truth = sorted(values)[max(math.ceil(share * len(values) - 1e-9), 1) - 1]
    assert holds(found, truth)
    if found.value is None:
        assert (found.low, found.high) == (EDGES[-1], None)
        assert truth > EDGES[-1]
    else:
        assert found.low <= found.value <= (found.high or 0) <= EDGES[-1] + 1e-6


@given(VALUES, some.floats(0.001, 30))
def test_the_true_count_within_a_limit_lies_within_the_ends(values: list[float], limit: float) -> None:
    """Exact where the limit is an edge."""
    found = counted(values).within(limit)
    truth = sum(value <= limit for value in values)
    assert holds(found, truth)
    assert found.value is None or found.low <= found.value <= (found.high or 0)
    for edge in EDGES:
        at_edge = counted(values).within(edge)
        assert at_edge.is_exact
        assert at_edge.value == sum(value <= edge for value in values)


@pytest.mark.slow
@given(VALUES, VALUES)
def test_what_came_between_two_readings_is_what_was_observed_between_them(
    before: list[float], more: list[float]
) -> None:
    """Bucket by bucket."""
    found = since(counted(before), counted(before + more))
    assert counted(more).counts == found.counts
    assert math.fsum(more) == pytest.approx(found.total, abs=1e-9)


@pytest.mark.slow
@given(some.lists(some.tuples(some.booleans(), some.booleans()), min_size=1, max_size=30), some.data())
def test_joint_goodput_holds_for_every_joining(kept: list[tuple[bool, bool]], data: some.DataObject) -> None:
    """Requests within both objectives, some of which one histogram has not counted."""
    first, second = ([one[place] for one in kept] for place in (0, 1))
    joined = data.draw(some.permutations(second))
    found = jointly(
        [
            Kept(Bounded(sum(first), sum(first), sum(first)), len(first)),
            Kept(Bounded(sum(second), sum(second), sum(second)), len(second)),
        ],
        0.0,
    )
    truth = sum(one and other for one, other in zip(first, joined, strict=True))
    assert found.low <= truth <= (found.high or 0)


def test_a_single_objective_is_told_as_it_was_counted() -> None:
    found = jointly([Kept(Bounded(7.5, 6, 9), 12)], None)
    assert (7.5, 6, 9) == (found.value, found.low, found.high)


def test_without_knowing_who_was_under_way_the_least_is_none() -> None:
    """The lower end needs to know how many requests only one histogram may hold."""
    kept = [Kept(Bounded(9, 9, 9), 10), Kept(Bounded(8, 8, 8), 10)]
    assert (0.0, 8) == (jointly(kept, None).low, jointly(kept, None).high)
    assert (7.0, 8) == (jointly(kept, 0).low, jointly(kept, 0).high)
    assert (5.0, 8) == (jointly(kept, 2).low, jointly(kept, 2).high)


def test_a_sum_bounds_what_a_wide_bucket_does_not() -> None:
    """A hundred waits of 2 ms: the bucket reaches to 0.3 s, but half of them cannot exceed 4 ms."""
    found = counted([0.002] * 100, (0.3, 0.5)).quantile(0.5)
    assert found is not None
    assert found.high == pytest.approx(0.2 / 51, rel=1e-6)
    assert found.value is not None
    assert found.value <= found.high


def test_a_sum_that_contradicts_the_buckets_is_not_believed() -> None:
    """It was read at another moment."""
    held = histogram([(1.0, 0), (2.0, 10), (math.inf, 10)], 10, 3.0)
    found = held.quantile(0.5)
    assert found is not None
    assert (1.0, 2.0) == (found.low, found.high)


@pytest.mark.parametrize(
    ("pairs", "count", "says"),
    [
        ([(0.1, 5), (0.2, 3), (math.inf, 6)], 6, "fall from one bucket"),
        ([(0.1, 5), (0.1, 4), (math.inf, 6)], 6, "twice"),
        ([(math.nan, 5), (math.inf, 6)], 6, "no edge"),
        ([(0.1, 5)], None, "is missing"),
        ([(0.1, 0.5), (math.inf, 1)], 1, "no whole number"),
        ([(0.1, -1), (math.inf, 1)], 1, "no whole number"),
        ([(0.1, math.nan), (math.inf, 1)], 1, "no whole number"),
        ([(0.1, 1), (math.inf, 1e300)], 1, "no whole number"),
        ([(math.inf, 3)], 3, "no bucket with an upper edge"),
    ],
)
def test_what_is_no_histogram_is_said(
    pairs: list[tuple[float, float]], count: float | None, says: str
) -> None:
    with pytest.raises(HistogramError, match=says):
        histogram(pairs, count)


def test_a_missing_last_bucket_is_the_count() -> None:
    """TensorRT-LLM's documents show pages without it."""
    assert (1, 4) == histogram([(0.5, 1)], 4).counts


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ([0.02] * 5, [0.02] * 4, "restarted"),
        ([0.02] * 5, [0.02] * 4 + [0.3] * 4, "restarted"),
        ([20.0] * 5, [20.0] * 4 + [0.001] * 4, "restarted"),
    ],
    ids=["fewer", "fewer in one bucket", "fewer in the last"],
)
def test_counts_that_fell_are_a_new_beginning(before: list[float], after: list[float], says: str) -> None:
    """Of one process no bucket ever falls, even where all together grew."""
    with pytest.raises(HistogramError, match=says):
        since(counted(before), counted(after))


def test_series_with_other_edges_are_joined_at_those_they_share() -> None:
    """Two versions side by side."""
    old, new = counted([0.02, 0.3], (0.05, 1.0)), counted([0.02, 0.3, 2.0], (0.05, 0.1, 1.0, 2.5))
    found = together([old, new])
    assert (0.05, 1.0, math.inf) == found.edges
    assert (2, 4, 5) == found.counts
    assert found.total == pytest.approx(2.64)
    with pytest.raises(HistogramError, match="share no edge"):
        together([counted([1.0], (0.5,)), counted([1.0], (0.7,))])


def test_quantiles_never_fall_with_their_share() -> None:
    """A median above the 99th percentile would be nonsense."""
    held = counted([0.003, 0.02, 0.02, 0.07, 0.3, 0.3, 0.4, 2.0, 3.0, 4.0])
    values = [held.quantile(share / 100) for share in range(1, 100)]
    figures = [one.value for one in values if one is not None and one.value is not None]
    assert len(figures) == 99
    assert all(low <= high for low, high in pairwise(figures))
