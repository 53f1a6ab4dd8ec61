"""Slow first steps: a warm-up has a warm-up's shape, and a run that becomes faster in its middle has none."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, final_view
from thinned import thinned

from tuiadvisor.metrics.pauses.warmup import find_warmup

NONE = np.zeros(300, dtype=np.bool_)


def steps(*head_s: float) -> np.ndarray:
    """300 steps of about 20 ms, the first ones as given."""
    values = np.random.default_rng(0).normal(20 * MS, 0.5 * MS, 300)
    values[: len(head_s)] = head_s
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_slow", "num_seen"),
    thinned([(121, 242), (121, 320), (121, 900), (40, 300)], [(121, 242), (40, 300)], is_row=True),
)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_run_that_becomes_faster_in_its_middle_has_changed(
    num_ranks: int, num_slow: int, num_seen: int
) -> None:
    """What was slow for long, and fast at once, is the level before a change: no finding, and the window says why."""
    job = Job(
        num_ranks=num_ranks, num_steps=num_seen, faults=(Fault("forward", None, 15 * MS, until=num_slow),)
    )
    view = final_view(job)
    assert "warmup" not in {finding.id for finding in view.findings} | set(view.window.excluded)
    assert [] == above_info(view)
    assert num_slow == pytest.approx(view.window.first_step, abs=2)
    assert f"since step {view.window.first_step} a step is 1" in view.window.change
    assert "shorter" in view.window.change


def test_a_warm_up_before_such_a_change_is_still_one() -> None:
    """Three steps of compilation, then 100 slow steps, then fast ones."""
    found = find_warmup(steps(*[3.0] * 3, *[40 * MS] * 100), NONE)
    assert found is not None
    assert (3, 40 * MS) == (found.num_steps, pytest.approx(found.steady_step_s))


@pytest.mark.parametrize(
    ("head_s", "num_steps"),
    [
        ([1.0], 1),
        ([120 * MS] * 15, 15),
        ([20 * MS + 100 * MS * 0.95**k for k in range(80)], 45),  # caches fill little by little
        ([20 * MS + 60 * MS * (1 - k / 60) for k in range(60)], 50),
    ],
    ids=["spike", "plateau", "decay", "slope"],
)
def test_what_is_slow_at_first_or_becomes_faster_little_by_little_is_a_warm_up(
    head_s: list[float], num_steps: int
) -> None:
    """Until the step is within half of what it takes later."""
    found = find_warmup(steps(*head_s), NONE)
    assert found is not None
    assert num_steps == pytest.approx(found.num_steps, abs=3)


def test_compilation_much_later_is_no_warm_up() -> None:
    """Marked steps 0 to 2 and 20 belong to the start or are near enough; step 120 is a pause of its own."""
    values, compiling = steps(1.0, 0.5, 0.5), NONE.copy()
    compiling[[0, 1, 2, 20, 120]] = True
    values[[20, 120]] = 0.3
    found = find_warmup(values, compiling)
    assert found is not None
    assert 21 == found.num_steps
