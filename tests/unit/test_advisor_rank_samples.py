"""What is held of the samples of many ranks, and what of them lies in a span."""

from __future__ import annotations

import pickle
import random

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


def test_a_clock_that_runs_backwards_begins_anew() -> None:
    """The rank's row is its own still; nothing of before is seen, nor of what another process had counted."""
    samples = RankSamples(1, counts=(0,), falls_anew=(0,))
    for time_ns in range(9):
        samples.add(0, time_ns, (9.0 - time_ns,))
    samples.add(0, 3, (2.0,))
    seen = samples.until([0], [100])
    assert seen is not None
    assert [2.0, 1, 3] == [seen.at(0, seen.last)[0], seen.num[0], seen.time_ns[0, 0]]
    assert samples.until([4], None) is None


def test_a_count_goes_on_from_the_former_process() -> None:
    """It falls, or is told no longer: another process has the rank, and what is no count of it stays as it is told."""
    unknown = float("nan")
    samples = RankSamples(2, counts=(0,), falls_anew=(0,))
    for time_ns, count in enumerate((5.0, 7.0, 1.0, 3.0, unknown, 2.0)):
        samples.add(0, time_ns, (count, -1.0))
        samples.add(1, time_ns, (float(time_ns), -1.0))
    seen = samples.until([0, 1], None)
    assert seen is not None
    assert [12.0, 5.0] == seen.at(0, seen.last).tolist()
    assert [-1.0, -1.0] == seen.at(1, seen.last).tolist()


def test_it_does_not_show_when_somebody_looked_or_kept_a_state() -> None:
    """Samples that wait are put in the order they came, each rank's own."""
    lots = random.Random(5)  # noqa: S311
    often, once = (RankSamples(2, counts=(1,), falls_anew=(1,)) for _ in range(2))
    for number in range(4000):
        rank, time_ns = lots.randrange(7), number if lots.random() < 0.97 else lots.randrange(number + 1)
        sample = (lots.random(), lots.choice((lots.random(), 0.0, float("nan"), float(number))))
        for samples in (often, once):
            samples.add(rank, time_ns, sample)
        if lots.random() < 0.1:
            often = pickle.loads(pickle.dumps(often))  # noqa: S301
    for rank in range(7):
        one, other = (samples.until([rank], None) for samples in (often, once))
        assert one is not None
        assert other is not None
        held = int(one.num[0])
        assert one.time_ns.tolist() == other.time_ns.tolist()
        for place in range(held):
            at = np.array([place])
            np.testing.assert_array_equal(one.at(1, at), other.at(1, at))
