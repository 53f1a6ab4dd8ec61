"""Predictions obey physics, units and their own intervals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import num_examples

from tuiadvisor.scaling.choose import choose
from tuiadvisor.scaling.models import AMDAHL, GUSTAFSON, POWER, PRIOR, USL, Array, Family, fit_law
from tuiadvisor.scaling.predict import predict

SIZES = st.lists(st.integers(1, 4096), min_size=2, max_size=6, unique=True).map(sorted)
REGIMES = st.sampled_from(["strong", "weak", "unknown", "result"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Array, Array]:
    """Two to six sizes and any positive device-times within a factor of a thousand."""
    sizes = draw(SIZES)
    works = [draw(st.floats(1.0, 1000.0)) for _ in sizes]
    return np.array(sizes, float), np.array(works)


def test_amdahl_is_found_again() -> None:
    """T = 100·(0.05 + 0.95/N) gives back its serial fraction."""
    sizes = np.array([1.0, 4.0, 16.0, 64.0])
    fit = fit_law(AMDAHL, sizes, 100 * (0.05 * sizes + 0.95))
    assert {"serial_fraction": pytest.approx(0.05)} == fit.parameters()
    assert pytest.approx(0.0, abs=1e-12) == fit.squares


def test_usl_is_found_again() -> None:
    """C(N) = N/(1 + a(N-1) + bN(N-1)) with its peak at √((1-a)/b)."""
    sizes = np.array([1.0, 2.0, 8.0, 32.0, 128.0])
    fit = fit_law(USL, sizes, 7 * (1 + 0.03 * (sizes - 1) + 1e-4 * sizes * (sizes - 1)))
    expected = {"alpha": 0.03, "beta": 1e-4, "peak_devices": (0.97 / 1e-4) ** 0.5}
    assert pytest.approx(expected, rel=1e-6) == fit.parameters()


def test_gustafson_is_found_again() -> None:
    """Speed = s + (1-s)·N, s = 0.2."""
    sizes = np.array([1.0, 2.0, 8.0, 32.0])
    fit = fit_law(GUSTAFSON, sizes, sizes / (0.2 + 0.8 * sizes))
    assert {"serial_fraction": pytest.approx(0.2)} == fit.parameters()


@pytest.mark.parametrize("regime", ["strong", "weak", "unknown", "result"])
def test_no_term_is_negative(regime: Family) -> None:
    """Rows faster than linear are fitted by perfect scaling, not by overhead that pays back."""
    sizes = np.array([8.0, 16.0, 32.0, 64.0])
    fits = [fit_law(law, sizes, np.array([10.0, 9.0, 8.0, 7.0])) for law, _ in PRIOR[regime]]
    assert [] == [fit for fit in fits if min(fit.coefficients) < 0]


def test_power_is_found_again() -> None:
    """W = 5·N^0.3 gives back its exponent."""
    sizes = np.array([8.0, 64.0, 512.0])
    assert {"exponent": pytest.approx(0.3)} == fit_law(POWER, sizes, 5 * sizes**0.3).parameters()


@pytest.mark.parametrize("family", ["strong", "weak", "unknown", "result"])
def test_two_rows_leave_the_prior(family: Family) -> None:
    """Two rows can't tell laws of two terms apart: each keeps the weight it had before."""
    choice = choose(family, np.array([8.0, 16.0]), np.array([80.0, 88.0]))
    prior = {law.name: weight for law, weight in PRIOR[family] if law.num_coefficients == 2}
    expected = {name: pytest.approx(weight / sum(prior.values())) for name, weight in prior.items()}
    assert expected == {fit.law.name: weight for fit, weight in zip(choice.fits, choice.weights, strict=True)}
    assert choice.loo_error is None


def test_clear_law_is_preferred() -> None:
    """Eight exact rows of a quadratic overhead leave no doubt."""
    sizes = 2.0 ** np.arange(3, 11)
    choice = choose("strong", sizes, 1 + 1e-5 * sizes * (sizes - 1))
    assert "ring" == choice.fits[0].law.name
    assert 0.9 < sum(
        w for w, fit in zip(choice.weights, choice.fits, strict=True) if fit.law.name in {"ring", "usl"}
    )


@pytest.mark.slow
@settings(max_examples=num_examples(40), deadline=None)
@given(tables(), REGIMES)
def test_interval_contains_expected(table: tuple[Array, Array], regime: Family) -> None:
    """0 < low <= expected <= high, finite, inside and far outside the measured sizes."""
    for found in predict(choose(regime, *table), (1, 7, 5000, 100_000)):
        assert 0 < found.low <= found.expected <= found.high < float("inf")


@pytest.mark.slow
@settings(max_examples=num_examples(40), deadline=None)
@given(tables(), REGIMES)
def test_device_time_never_falls_with_devices(table: tuple[Array, Array], regime: Family) -> None:
    """Overhead only grows: more devices never use less device-time for the same work, so efficiency never rises."""
    curve = choose(regime, *table).device_time(np.geomspace(1, 1e5, 60))
    assert [] == [pair for pair in itertools.pairwise(curve) if pair[1] < pair[0] * (1 - 1e-9)]


@pytest.mark.slow
@settings(max_examples=num_examples(30), deadline=None)
@given(tables(), REGIMES, st.sampled_from([1e-3, 60.0, 3600.0, 86400.0]))
def test_units_change_nothing_but_the_unit(table: tuple[Array, Array], regime: Family, factor: float) -> None:
    """The table in other units predicts the same in those units, interval included."""
    sizes, works = table
    here = predict(choose(regime, sizes, works), (3, 6000))
    there = predict(choose(regime, sizes, works * factor), (3, 6000))
    for one, other in zip(here, there, strict=True):
        assert [one.low * factor, one.expected * factor, one.high * factor] == pytest.approx(
            [other.low, other.expected, other.high], rel=1e-4
        )


@pytest.mark.slow
@settings(max_examples=num_examples(20), deadline=None)
@given(tables(), REGIMES, st.randoms())
def test_order_of_rows_and_company_do_not_matter(
    table: tuple[Array, Array], regime: Family, random: object
) -> None:
    """A size's point prediction is the same for shuffled rows, its interval whichever sizes are asked beside it."""
    sizes, works = table
    order = np.random.default_rng(len(sizes)).permutation(len(sizes))
    choice, shuffled = choose(regime, sizes, works), choose(regime, sizes[order], works[order])
    assert choice.device_time(np.array([777.0])) == pytest.approx(
        shuffled.device_time(np.array([777.0])), rel=1e-5
    )
    (alone,), (_, beside, _) = predict(choice, (777,)), predict(choice, (3, 777, 9999))
    assert [alone.low, alone.expected, alone.high] == pytest.approx(
        [beside.low, beside.expected, beside.high],
        rel=1e-9,  # a matrix product rounds by its shape
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    ["usl", *(pytest.param(law, marks=pytest.mark.extended) for law in ("amdahl", "tree", "imbalance"))],
)
def test_intervals_keep_their_promise(law: str) -> None:
    """Three rows with 2 % noise, predicted at twice the largest: at least 85 of 100 truths inside a 90 % interval."""
    random = np.random.default_rng(7)
    sizes = np.array([64.0, 128.0, 256.0, 512.0])
    overhead = {
        "amdahl": lambda share: share * sizes / 512,
        "usl": lambda share: share * sizes * (sizes + 100) / (512 * 612),
        "tree": lambda share: share * sizes * np.log2(sizes) / (512 * 9),
        "imbalance": lambda share: share * np.log2(sizes) / 9,
    }[law]
    inside = 0
    for _ in range(num_tables := num_examples(100)):
        works = (1 + overhead(random.uniform(0.02, 0.6))) * np.exp(0.02 * random.standard_normal(4))
        found = predict(choose("strong", sizes[:3], works[:3], with_loo=False), (512,))[0]
        inside += found.low <= works[3] <= found.high
    assert 0.85 * num_tables <= inside


def test_interval_widens_with_distance() -> None:
    """Further out is less sure."""
    choice = choose("strong", np.array([256.0, 512.0, 768.0]), np.array([8192.0, 8448.0, 8832.0]))
    widths = [found.high / found.low for found in predict(choice, (512, 1024, 2048, 8192))]
    assert sorted(widths) == widths
