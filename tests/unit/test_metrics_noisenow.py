"""Noise that grows on all ranks alike names nobody, and the noise of now is known from a few steps."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, frames
from thinned import thinned

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.metrics.lateness.precedent import beyond_past
from tuiadvisor.metrics.series.recent_noise import (
    growth,
    log_chance_of_hits,
    noise_s,
    repetition,
    separate_hits,
)

LOUDER_SINCE = 160


def said_since(job: Job, first_step: int) -> set[tuple[str, tuple[int, ...], str | None]]:
    """Everything above info in any view, one every eight steps."""
    advisor, said = Advisor(), set()
    for frame in frames(job, rows_per_frame=8):
        advisor.feed_frame(frame)
        if advisor.store.span() and advisor.store.span()[1] >= first_step:
            said |= set(above_info(advisor.view()))
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_ranks", "seed"), thinned([(4, 0), (4, 4), (8, 0), (2, 1)], [(4, 0), (2, 1)], is_row=True)
)
def test_noise_that_grows_alike_on_all_ranks_names_nobody(num_ranks: int, seed: int) -> None:
    """Ten times as restless since step 160: neither late ranks nor lateness that wanders, in any view."""
    job = Job(num_ranks, 320, noise=0.03, louder=(LOUDER_SINCE, 0.3), seed=seed)
    assert set() == said_since(job, LOUDER_SINCE)


def test_who_is_late_amid_grown_noise_is_still_named() -> None:
    """10 ms are more than it explains."""
    job = Job(
        4, 320, noise=0.03, louder=(LOUDER_SINCE, 0.2), faults=(Fault("data", (2,), 10 * MS, onset=200),)
    )
    assert {("straggler", (2,), "data_wait")} == said_since(job, 300)


def test_a_level_that_moves_and_steps_that_are_late_are_no_noise() -> None:
    """Four ranks with a step's noise of 1."""
    calm = np.random.default_rng(0).normal(0, 1, (4, 240))
    moved, third = calm.copy(), calm.copy()
    moved[1, 120:] += 50
    third[1, ::3] += 50
    for values in (calm, moved, third):
        assert 1 == pytest.approx(noise_s(values), rel=0.15)
    assert 1 == growth(calm, 200)


def test_a_past_that_was_quieter_says_less() -> None:
    """Twice as late as ever before, where all are three times as restless now, is no more than chance."""
    values = np.random.default_rng(1).normal(0, 1, (4, 220))
    values[:, 180:] *= 3
    (now,) = beyond_past(values, np.array([0]), 200)
    assert 3 == pytest.approx(growth(values, 180), rel=0.3)
    quiet = values.copy()
    quiet[1:, 200:] /= 3
    (alone,) = beyond_past(quiet, np.array([0]), 200)
    assert now is not None
    assert alone is not None
    assert abs(now) < abs(alone)


def test_late_steps_of_one_rank_among_few_are_chance() -> None:
    """5 of 12 late steps of eight ranks fall on one of them by lot; 30 of 33 do not."""
    few, many = (np.array([1.0, 2, 1, 1, 1, 0, 1, num]) for num in (5, 30))
    assert log_chance_of_hits(few, 7, np.array([0, 1])) > np.log(0.1)
    assert log_chance_of_hits(many, 7, np.array([0, 1])) < np.log(1e-4)


def test_a_burst_of_late_steps_is_one_event() -> None:
    """Twenty in a row say as much as one; every third of sixty steps says what twenty do."""
    burst, every_third = np.zeros(60, dtype=np.bool_), np.arange(60) % 3 == 0
    burst[20:40] = True
    few, many = separate_hits(np.stack((burst, every_third)))
    assert few < 2
    assert many == pytest.approx(20)


def test_steps_that_resemble_each_other_say_less() -> None:
    """Independent noise counts in full, noise correlated by 0.8 from step to step a ninth."""
    rng = np.random.default_rng(0)
    fresh = rng.standard_normal((8, 400))
    drifting = np.empty_like(fresh)
    drifting[:, 0] = fresh[:, 0]
    for k in range(1, fresh.shape[1]):
        drifting[:, k] = 0.8 * drifting[:, k - 1] + 0.6 * fresh[:, k]
    assert repetition(fresh) == 1
    assert repetition(drifting) == pytest.approx(9, rel=0.3)
