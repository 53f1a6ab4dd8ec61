"""What a change costs and when it has paid for itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tuiadvisor.session.economics import (
    break_even_steps,
    checkpoint_plan,
    money,
    move,
    step_without,
    warmup_share,
)
from tuiadvisor.session.limits import amount
from tuiadvisor.session.sums import sum_words

POSITIVE = some.floats(1e-3, 1e3)


def test_a_compilation_of_a_minute_that_saves_20_ms_a_step_pays_after_3000_steps() -> None:
    """60 s / 0.02 s; a change that saves nothing never pays."""
    assert 3000 == pytest.approx(break_even_steps(60, 0.02))
    assert break_even_steps(60, 0) is None
    assert break_even_steps(60, -0.01) is None


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_checkpoint_interval_is_dalys(hours: float, minutes: float) -> None:
    """Five minutes a checkpoint; the published intervals for failures every 24 h, 6 h and 15 min."""
    plan = checkpoint_plan(300, 24 / hours)
    assert plan is not None
    assert minutes == pytest.approx(60 * plan.interval_h, rel=0.01)


def test_no_interval_is_advised_without_failures_or_cost() -> None:
    """Neither is ever assumed."""
    assert checkpoint_plan(10, 0) is None
    assert checkpoint_plan(0, 1) is None


@given(some.floats(1, 600), some.floats(0.01, 20), some.floats(0.01, 50))
def test_no_other_interval_loses_clearly_less(checkpoint_s: float, failures: float, every_h: float) -> None:
    """Daly's estimate is within two points of any interval's loss."""
    plan = checkpoint_plan(checkpoint_s, failures, every_h)
    assert plan is not None
    assert plan.current_lost_share is not None
    assert plan.lost_share <= plan.current_lost_share + 0.02


def test_moving_to_twice_the_devices_counts_the_restart() -> None:
    """100 h on 8 become 60 h on 16 plus 2 h: 38 h sooner, 992 device-hours instead of 800."""
    moved = move((8, 100), (16, 60), 2, 3)
    assert 38 == pytest.approx(moved.hours_saved)
    assert -192 == pytest.approx(moved.device_hours_saved)
    assert -576 == pytest.approx(moved.cost_saved)
    assert 0.05 == pytest.approx(moved.break_even_work)


def test_a_restart_that_is_never_earned_back_has_no_break_even() -> None:
    """Faster by an hour, restarted for two; and slower."""
    assert move((8, 10), (16, 9), 2, None).break_even_work is None
    assert move((8, 10), (4, 19), 0, None).break_even_work is None
    assert move((8, 10), (4, 19), 0, None).cost is None


def test_unknown_stays_unknown() -> None:
    """No price, no length: no number."""
    assert money(10, None) is None
    assert money(None, 2) is None


@given(POSITIVE, POSITIVE, POSITIVE)
def test_a_longer_run_pays_less_for_its_warm_up(warmup_s: float, steps: float, step_s: float) -> None:
    """Amortization itself."""
    share = warmup_share(warmup_s, steps, step_s)
    assert 0 < share < 1
    assert warmup_share(warmup_s, 2 * steps, step_s) < share


@given(POSITIVE, some.lists(some.floats(-1, 1e3), max_size=5), some.floats(-1, 1e3))
def test_removing_a_fault_never_worsens_the_predicted_time(
    step_s: float, losses: list[float], one_more: float
) -> None:
    """Neither the first nor one more, however odd the loss."""
    first = step_without(step_s, tuple(losses))
    assert 0 <= step_without(step_s, (*losses, one_more)) <= first <= step_s


@pytest.mark.parametrize(
    ("value", "said"), [(1234.5, "1,234.50"), (0.0, "0.00"), (-12.346, "-12.35"), (2.5e29, "2.5e+29")]
)
def test_a_sum_that_nobody_counts_in_digits_is_told_in_three(value: float, said: str) -> None:
    """A price of 1e18 an hour: sums of thirty digits on every line."""
    assert said == sum_words(value)
    assert amount(2.5e29) == "2.5e+29"
    assert amount(1234567.0) == "1,234,567"
