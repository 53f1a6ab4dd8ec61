"""Short steps beside others' work, which comes and goes within a second: no burst of it is the present level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, final_view, folded, frames

from tuiadvisor.metrics.series.change_points import Change
from tuiadvisor.metrics.steps.arrays import Floats
from tuiadvisor.metrics.steps.barrier import find_barrier
from tuiadvisor.metrics.window import window
from tuiadvisor.metrics.window.phase_levels import SETTLED_S, Settled, settled
from tuiadvisor.metrics.window.waves import new_levels

KINDS = ("comm", "other", "forward", "backward")
NUM_BURSTS = 14


def bursts(seed: int) -> tuple[Fault, ...]:
    """Of all ranks: 30 to 90 steps, half a millisecond to six longer, at any distance."""
    random = np.random.default_rng(seed)
    begins = np.sort(random.choice(np.arange(100, 2400, 25), NUM_BURSTS, replace=False))
    return tuple(
        Fault(
            str(random.choice(KINDS)),
            None,
            float(random.uniform(0.5, 6)) * MS,
            int(begin),
            int(begin + length),
        )
        for begin, length in zip(begins, random.integers(30, 90, NUM_BURSTS), strict=True)
    )


def job(num_steps: int, seed: int, *more: Fault) -> Job:
    """Two ranks with steps of 1.6 ms where nobody disturbs them."""
    return Job(
        num_ranks=2,
        num_steps=num_steps,
        data_s=0.05 * MS,
        forward_s=0.5 * MS,
        backward_s=0.6 * MS,
        optimizer_s=0.1 * MS,
        other_s=0.1 * MS,
        transfer_s=0.3 * MS,
        spike_s=0.5 * MS,
        noise=0.15,
        faults=(*bursts(seed), *more),
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_steps", [1500, 1800, 2100, 2400])
def test_what_is_judged_lasted_longer_than_a_burst(num_steps: int, seed: int) -> None:
    """It was a fifth of a second again and again, and another mean step with each."""
    view = final_view(job(num_steps, seed))
    assert view.step.mean_s is not None
    assert view.window.num_steps * view.step.mean_s > 0.9 * SETTLED_S


@pytest.mark.parametrize("after", [45, 300])
def test_what_lasts_is_told_from_when_on(after: int) -> None:
    """6 ms of backward on all, the first time that it is so long: of a second and more it is no burst."""
    begun = 2400
    view = final_view(job(begun + 4 * after, 1, Fault("backward", None, 6 * MS, begun)))
    assert begun == pytest.approx(view.window.first_step, abs=2)


@pytest.mark.parametrize("kind", ["forward", "comm"])
def test_on_a_calm_host_a_level_is_told_after_twenty_steps(kind: str) -> None:
    """Nothing else changed in all that is held: nothing says that it is a burst."""
    calm = Job(num_steps=224, faults=(Fault(kind, None, 8 * MS, 200),))
    assert 200 == pytest.approx(final_view(calm).window.first_step, abs=2)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["comm", "data"])
def test_slow_for_longer_than_ever_before_is_the_present_level(kind: str, seed: int) -> None:
    """17 s of exchange, a third of the step, were "keep": together with the quick steps before them."""
    begun = 1150
    faults = (Fault(kind, None, 7 * MS, 200, 350), Fault(kind, None, 16 * MS, 600, 900))
    slow = Fault(kind, None, 11 * MS, begun)
    view = final_view(
        Job(num_ranks=8, num_steps=begun + 600, transfer_s=3 * MS, faults=(*faults, slow), seed=seed)
    )
    assert begun == pytest.approx(view.window.first_step, abs=2)
    assert "tune" == view.verdict.decision


UP, DOWN = Change(100, 1.0, 2.0), Change(140, 2.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "num_new"),
    [
        ((), 0),
        ((UP,), 1),
        ((UP, DOWN, Change(300, 1.0, 2.1)), 3),  # two may be two events
        ((UP, DOWN, Change(300, 1.0, 3.0), Change(340, 3.0, 1.0), Change(500, 1.0, 1.8)), 2),
        ((UP, DOWN, Change(300, 1.0, 2.0), Change(340, 2.0, 1.0), Change(500, 1.0, 9.0)), 1),
        ((UP, DOWN, Change(190, 1.0, 2.0), Change(230, 2.0, 1.0), Change(260, 1.0, 2.0)), 1),
        ((UP, DOWN, Change(300, 1.0, 2.0), Change(340, 2.0, 1.0), Change(490, 1.0, 2.0)), 1),
        ((UP, DOWN, Change(300, 1.0, 2.0), Change(340, 2.0, 1.0), Change(500, 1.0, 2.0)), 0),
    ],
    ids=[
        "none",
        "one",
        "twice",
        "as high again",
        "higher than ever",
        "came to stay",
        "slow for longer than ever",
        "as long as before",
    ],
)
def test_what_passes_the_same_middle_again_and_again_is_no_level_that_begins(
    changes: tuple[Change, ...], num_new: int
) -> None:
    """Of any size: what counts is where it has been before, and for how long."""
    assert num_new == len(new_levels(changes, 540))


def test_of_a_restless_series_a_level_has_to_last_for_a_second() -> None:
    """Twenty steps of 3 ms are less than a burst of others' work."""
    since = settled(np.full(2000, 3 * MS))
    assert (1980, 1666) == (since.since((UP,)), since.since((UP, DOWN)))
    assert 80 == settled(np.full(100, 1.0)).since((UP, DOWN))


def test_steps_that_are_not_measured_pass_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in sixteen on a device: what lasts does so for a second of the job, and not of what was measured."""
    found = folded(frames(Job(num_steps=60))).store.table()
    assert found is not None
    table = found[0]
    barrier = find_barrier(table, np.ones(table.num_ranks, dtype=np.bool_))
    spans: list[float] = []

    def seen(span: Floats) -> Settled:
        spans.append(float(span.sum()))
        return settled(span)

    monkeypatch.setattr(window, "settled", seen)
    steady, alive = np.isfinite(barrier.cycle_K), np.ones(table.num_ranks, dtype=np.bool_)
    for gap in (1, 16):
        gaps = np.full(barrier.cycle_K.size, gap)
        window.find_window(table, replace(barrier, gap_K=gaps), steady, alive)
    assert 16 * spans[0] == pytest.approx(spans[1])
