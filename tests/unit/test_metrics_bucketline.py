"""What of an exchange compute could hide: timelines whose answer is worked out by hand, and what must hold of any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.metrics.communication.bucket_timeline import (
    MIB,
    Exchanges,
    bucket_line,
    exposed_s,
    lasts_of,
    lasts_with_cap,
    rates,
)

K = 4


def exchanges(before_s: list[float], mib: list[int], bucket: list[int], backward_s: float = 1.0) -> Exchanges:
    """The same step four times."""
    return Exchanges(
        steps_K=np.arange(K),
        before_s_KP=np.tile(before_s, (K, 1)),
        backward_s_K=np.full(K, backward_s),
        bytes_P=np.array(mib) * MIB,
        bucket_P=np.array(bucket),
    )


def test_one_bucket_hides_nothing_and_small_ones_most_of_it() -> None:
    """Four pieces of 5 MiB, 0.1 s apart, sent as one 20 MiB bucket that takes 0.2 s: 100 MiB/s.

    In buckets of 5 MiB each takes 0.05 s, within the 0.1 s to the next; only the last one stays exposed.
    """
    line = bucket_line(exchanges([0.5, 0.4, 0.3, 0.2], [5] * 4, [0] * 4, backward_s=0.6))
    assert line is not None
    assert 100 * MIB == pytest.approx(line.rate_bytes_s)
    assert (0.2, 0.2) == pytest.approx((line.transfer_s, line.exposed_s_K.mean()))
    assert (0.4, 0.3) == pytest.approx((line.backward_s, line.window_s))
    assert 0.15 == pytest.approx(line.most_saved_s_K.mean())
    assert {1: 0.15, 5: 0.15, 10: 0.1, 25: 0.0, 50: 0.0} == pytest.approx(
        {one.cap_mib: one.saved_s_K.mean() for one in line.others}
    )
    assert [4, 4, 2, 1, 1] == [one.num_buckets for one in line.others]
    assert ("smaller_buckets", 5) == (line.lever, line.best.cap_mib if line.best else None)
    (only,) = line.buckets
    assert (0.4, 0.4, 0.6) == pytest.approx((only.ready_s, only.begin_s, only.end_s))


def test_a_bucket_waits_for_the_one_before_it() -> None:
    """Two buckets of 10 MiB ready 0.15 and 0.1 s before the end: only 200 MiB/s from the second on, or 133 in all."""
    line = bucket_line(exchanges([0.15, 0.1], [10, 10], [0, 1], backward_s=0.2))
    assert line is not None
    assert 20 * MIB / 0.15 == pytest.approx(line.rate_bytes_s)
    first, second = line.buckets
    assert (0.05, 0.05, 0.125) == pytest.approx((first.ready_s, first.begin_s, first.end_s))
    assert (0.1, 0.125, 0.2) == pytest.approx((second.ready_s, second.begin_s, second.end_s))


def test_a_link_that_is_never_free_leaves_no_lever_but_fewer_bytes() -> None:
    """All gradients within 10 ms of a 1 s exchange: at most those 10 ms could be hidden."""
    line = bucket_line(exchanges([1.01, 1.005, 1.0], [50] * 3, [0, 1, 2]))
    assert line is not None
    assert ("fewer_bytes", None) == (line.lever, line.best)
    assert line.most_saved_s_K.max() <= 0.01


def test_what_is_ready_last_cannot_be_hidden() -> None:
    """A small bucket long before, the rest ready when backward ends: no size of buckets changes anything."""
    line = bucket_line(exchanges([0.9, 0.1], [1, 100], [0, 1]))
    assert line is not None
    assert ("last_gradients", None) == (line.lever, line.best)
    assert 0 == line.most_saved_s_K.max()


def test_an_exchange_that_ends_with_backward_has_no_rate() -> None:
    """Nothing was exposed, so nothing tells how fast the link is, and nothing can be saved."""
    line = bucket_line(exchanges([0.5, 0.0], [10, 10], [0, 1]))
    assert line is not None
    assert (None, None, "nothing_exposed", ()) == (
        line.rate_bytes_s,
        line.transfer_s,
        line.lever,
        line.buckets,
    )
    assert 0 == line.most_saved_s_K.max()


def test_three_steps_are_an_anecdote() -> None:
    """One burst at least."""
    seen = exchanges([0.5, 0.1], [10, 10], [0, 1])
    few = Exchanges(
        seen.steps_K[:3], seen.before_s_KP[:3], seen.backward_s_K[:3], seen.bytes_P, seen.bucket_P
    )
    assert bucket_line(few) is None


def test_ddp_closes_a_bucket_as_soon_as_it_is_full() -> None:
    """A gradient beyond the size fills one alone; the last one holds what is left."""
    assert [0, 2, 3, 4] == lasts_with_cap(np.array([7, 3, 3, 9, 1]), 5)
    assert [1, 3] == lasts_of(np.array([0, 0, 2, 2]))


@st.composite
def any_exchanges(draw: st.DrawFn) -> Exchanges:
    """Pieces that become ready one after another, in buckets of any sizes."""
    num = draw(st.integers(1, 12))
    gaps = st.integers(0, 10**9)  # ns
    apart_s = np.array([[draw(gaps) for _ in range(num)] for _ in range(K)])
    before = np.cumsum(apart_s[:, ::-1], axis=1)[:, ::-1] * 1e-9
    begins = [0, *(draw(st.integers(0, 1)) for _ in range(num - 1))]
    return Exchanges(
        steps_K=np.arange(K),
        before_s_KP=before,
        backward_s_K=before[:, 0] + draw(gaps) * 1e-9,
        bytes_P=np.array([draw(st.integers(1, 64 * MIB)) for _ in range(num)]),
        bucket_P=np.cumsum(begins),
    )


@pytest.mark.slow
@given(any_exchanges())
def test_as_it_was_comes_out_and_no_promise_exceeds_it(seen: Exchanges) -> None:
    """The rate explains the observed end; 0 <= saved <= most saved <= exposed, whatever the buckets."""
    line = bucket_line(seen)
    assert line is not None
    lasts = lasts_of(seen.bucket_P)
    rate = rates(seen.before_s_KP, seen.bytes_P, lasts)
    as_it_was = exposed_s(seen.before_s_KP, seen.bytes_P, lasts, rate)
    np.testing.assert_allclose(as_it_was, seen.before_s_KP[:, -1], atol=1e-9)
    assert (line.most_saved_s_K >= 0).all()
    assert (line.most_saved_s_K <= line.exposed_s_K).all()
    for one in line.others:
        assert (one.saved_s_K >= 0).all()
        assert (one.saved_s_K <= line.most_saved_s_K + 1e-9).all()


@given(any_exchanges(), st.floats(1.0, 100.0))
def test_a_faster_link_never_exposes_more(seen: Exchanges, factor: float) -> None:
    """At any number of times the rate, in any buckets."""
    rate = rates(seen.before_s_KP, seen.bytes_P, lasts_of(seen.bucket_P))
    for cap in (MIB, 16 * MIB):
        lasts = lasts_with_cap(seen.bytes_P, cap)
        slow = exposed_s(seen.before_s_KP, seen.bytes_P, lasts, rate)
        assert (exposed_s(seen.before_s_KP, seen.bytes_P, lasts, factor * rate) <= slow + 1e-9).all()
