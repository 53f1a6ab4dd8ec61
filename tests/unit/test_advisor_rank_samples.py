"""What is held of the samples of many ranks, and what of them lies in a span."""

from __future__ import annotations

import numpy as np

from tuiadvisor.advisor.cluster.rank_samples import MAX_SAMPLES, ROOM, RankSamples


def test_the_newest_samples_stay_and_the_oldest_go() -> None:
    """At least MAX_SAMPLES of each rank, whatever others have; a sum is of those that lie in the span."""
    samples = RankSamples(2)
    for time_ns in range(3 * ROOM + 9):
        samples.add(5, time_ns, (float(time_ns), 1.0))
    samples.add(2, 7, (0.5, 1.0))
    seen = samples.until([2, 5, 1], None)
    assert seen is not None
    last = 3 * ROOM + 8
    assert [7, last] == [int(seen.time_ns[row, seen.last[row]]) for row in (0, 1)]
    assert [0, -1] == seen.last[[0, 2]].tolist()
    assert MAX_SAMPLES <= seen.num[1] < ROOM
    assert [0.5, float(last)] == seen.at(0, seen.last)[:2].tolist()
    begin = np.maximum(seen.last - 9, 0)
    assert [1.0, 10.0] == seen.total(1, begin)[:2].tolist()


def test_a_rank_that_is_forgotten_begins_anew() -> None:
    """Its row is its own still; nothing of before is seen."""
    samples = RankSamples(1)
    for time_ns in range(9):
        samples.add(0, time_ns, (1.0,))
    samples.forget(0)
    assert samples.last(0) is None
    samples.add(0, 3, (2.0,))
    seen = samples.until([0], [100])
    assert seen is not None
    assert ((3, [2.0]), 1) == (samples.last(0), int(seen.num[0]))
    assert samples.until([4], None) is None
