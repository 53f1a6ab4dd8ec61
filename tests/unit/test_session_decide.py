"""The decision: measured gains and sizes decide, prices and answers forbid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from thinned import num_examples

from tuiadvisor.session.case import Case, Prospect
from tuiadvisor.session.decide import decide
from tuiadvisor.session.economics import move
from tuiadvisor.session.intent import Intent, changed
from tuiadvisor.session.markdown import steps_words
from tuiadvisor.session.sums import sum_words
from tuiadvisor.session.tuning import tuning

LATE = Prospect("straggler", "rank 2 is late", 1.5, 1.4, 1.6)
CASE = Case(
    enough=True,
    step_s=0.36,
    num_devices=8,
    remaining_steps=1e6,  # 100 h
    price_per_device_hour=2.0,
    intent=Intent(),
    prospect=LATE,
)
LARGER = move((8, 100.0), (16, 60.0), 1.0, 2.0)
SMALLER = move((8, 100.0), (4, 150.0), 1.0, 2.0)


def test_a_measured_loss_is_tuned() -> None:
    """100 h become 66.7: a third is saved, 533 in money."""
    decision = decide(CASE)
    assert "tune" == decision.decision
    assert decision.saved_h is not None
    assert decision.saved_money is not None
    assert 100 / 3 == pytest.approx(decision.saved_h.expected)
    assert decision.saved_h.low < decision.saved_h.expected < decision.saved_h.high
    assert 1600 / 3 == pytest.approx(decision.saved_money.expected)


def test_without_prices_cost_and_break_even_stay_unknown() -> None:
    """Nothing is assumed."""
    decision = decide(replace(CASE, price_per_device_hour=None, remaining_steps=None))
    assert "tune" == decision.decision
    assert decision.saved_h is None
    assert decision.saved_money is None
    assert decision.cost_h is None
    assert decision.break_even_steps is None


def test_an_effort_dearer_than_its_gain_stops_the_optimizing() -> None:
    """10 h at 100 for 533 of device time; at 20 it pays, after 37.5 % of the expected gain's steps."""
    dear = replace(CASE, effort_hours=10, intent=Intent(engineer_hour_price=100))
    assert "stop" == decide(dear).decision
    cheap = replace(dear, intent=Intent(engineer_hour_price=20))
    assert "tune" == decide(cheap).decision
    saved_s = 0.36 / 3
    assert 200 / (8 * saved_s / 3600 * 2) == pytest.approx(decide(cheap).break_even_steps)


def test_break_even_and_what_a_change_gives_back_count_the_same_prices() -> None:
    """A change of 200 that 500,000 steps gave 22.5 back for, with their time, broke even by device-hours alone."""
    timed = replace(CASE, effort_hours=10, intent=Intent(engineer_hour_price=20, price_of_time=10))
    found = decide(timed)
    assert found.worth_money is not None
    assert found.saved_h is not None
    assert (8 * 2 + 10) * found.saved_h.expected == pytest.approx(found.worth_money)
    saved_s = 0.36 / 3
    # An hour earlier is worth 10 beside 16 of device-hours, in what the change gives back and in when it has.
    assert 200 / (saved_s / 3600 * (8 * 2 + 10)) == pytest.approx(found.break_even_steps)
    unpriced = replace(timed, effort_hours=None)
    assert steps_words(decide(unpriced)).startswith(
        f"while it costs less than {sum_words(decide(unpriced).worth_money or 0.0)}"
    )


def test_who_wants_time_and_prices_none_is_not_stopped_by_money() -> None:
    """The same dear effort, for a result that matters early."""
    intent = Intent(objective="time", engineer_hour_price=100)
    assert "tune" == decide(replace(CASE, effort_hours=10, intent=intent)).decision


def test_a_change_that_comes_after_the_run_is_not_made() -> None:
    """Two hundred hours of work for a hundred hours of run."""
    decision = decide(replace(CASE, effort_hours=200))
    assert "stop" == decision.decision
    assert "over before" in decision.why


def test_more_complexity_than_accepted_is_not_taken() -> None:
    """The user's limit holds even if the gain is certain."""
    limited = replace(CASE, change_complexity="high", intent=Intent(max_complexity="low"))
    assert "stop" == decide(limited).decision
    assert "tune" == decide(replace(limited, change_complexity="low")).decision


def test_beyond_the_budget_even_at_best_the_run_stops() -> None:
    """1600 to spend, 1000 at best: a budget of 900 cannot be met, one of 1100 can."""
    assert "stop" == decide(replace(CASE, intent=Intent(budget=900))).decision
    assert "tune" == decide(replace(CASE, intent=Intent(budget=1100))).decision


@pytest.mark.parametrize(
    ("objective", "decision", "devices"),
    [("time", "rescale", 16), ("cost", "rescale", 4), ("efficiency", "rescale", 4), (None, "keep", None)],
)
def test_the_objective_chooses_among_measured_sizes(
    objective: str | None, decision: str, devices: int | None
) -> None:
    """Without one no size is better."""
    intent = Intent(objective=objective)  # type: ignore[arg-type]
    result = decide(replace(CASE, prospect=None, moves=(LARGER, SMALLER), intent=intent))
    assert (decision, devices) == (result.decision, result.num_devices)


def test_a_restart_that_was_not_stated_has_no_break_even() -> None:
    """Unknown is never zero; stated, an hour is earned back after 2.5 % of the work."""
    moving = replace(CASE, prospect=None, moves=(LARGER,), intent=Intent(objective="time"))
    unknown = decide(moving)
    assert unknown.break_even_steps is None
    assert unknown.cost_h is None
    assert "restart not stated" in unknown.why
    stated = decide(replace(moving, intent=Intent(objective="time", restart_min=60)))
    assert 25_000 == pytest.approx(stated.break_even_steps)
    assert 32 == stated.cost_money
    assert stated.saved_h is not None
    assert stated.saved_h.low < 39 < stated.saved_h.high


def test_a_deadline_forbids_the_cheaper_but_too_slow_size() -> None:
    """151 h on four devices are too long; a deadline missed now asks for the larger size."""
    moves = (LARGER, SMALLER)
    cheap = replace(CASE, prospect=None, moves=moves, intent=Intent(objective="cost", deadline_h=120))
    assert "keep" == decide(cheap).decision
    late = replace(cheap, intent=Intent(objective="cost", deadline_h=80))
    assert 16 == decide(late).num_devices


def test_devices_that_bought_nothing_are_a_stop() -> None:
    """Four finish as soon as eight do, and time is what counts."""
    same = move((8, 100.0), (4, 100.0), 0.0, 2.0)
    result = decide(replace(CASE, prospect=None, moves=(same,), intent=Intent(objective="time")))
    assert "stop" == result.decision
    assert "4" in result.why


def test_a_result_that_is_good_already_ends_the_run() -> None:
    """By the user's statement, which is named as such."""
    result = decide(replace(CASE, result_as_good_now=True))
    assert "stop" == result.decision
    assert "you said" in result.why


PRICES = some.floats(0.01, 100)
OBJECTIVES = some.sampled_from([None, "time", "efficiency", "cost"])


@some.composite
def cases(draw: some.DrawFn) -> tuple[Case, Case]:
    """A case, and the same with higher prices, a longer restart and more effort."""
    hours, devices = draw(some.floats(1, 1000)), draw(some.integers(1, 64))
    sizes = draw(some.lists(some.tuples(some.integers(1, 128), some.floats(0.5, 2000)), max_size=4))
    given_ratio = draw(some.none() | some.floats(0.5, 4))
    prospect = (
        None if given_ratio is None else Prospect("x", "x", given_ratio, given_ratio * 0.9, given_ratio * 1.1)
    )
    limits = {
        "objective": draw(OBJECTIVES),
        "budget": draw(some.none() | some.floats(1, 1e5)),
        "deadline_h": draw(some.none() | some.floats(1, 2000)),
        "price_of_time": draw(some.none() | some.floats(0.01, 1000)),
    }
    price, restart = draw(PRICES), draw(some.floats(0, 100))
    effort, engineer = draw(some.floats(0, 500)), draw(some.floats(0, 500))
    found = []
    for factor, later in ((1.0, 0.0), (draw(some.floats(1, 10)), draw(some.floats(0, 50)))):
        cost = price * factor
        found.append(
            Case(
                enough=True,
                step_s=0.36,
                num_devices=devices,
                remaining_steps=hours * 1e4,
                price_per_device_hour=cost,
                intent=changed(
                    Intent(engineer_hour_price=engineer * factor, restart_min=60 * (restart + later)), limits
                ),
                prospect=prospect,
                moves=tuple(move((devices, hours), size, restart + later, cost) for size in sizes),
                effort_hours=effort + later,
            )
        )
    return found[0], found[1]


def grows(case: Case) -> bool:
    """Whether more devices are advised."""
    result = decide(case)
    return result.decision == "rescale" and (result.num_devices or 0) > (case.num_devices or 0)


@pytest.mark.slow
@settings(max_examples=num_examples(400))
@given(cases())
def test_more_cost_never_turns_keep_into_more_devices(pair: tuple[Case, Case]) -> None:
    """Dearer devices, restarts and engineers speak against growing, never for it."""
    cheap, dear = pair
    if decide(cheap).decision == "keep":
        assert not grows(dear)


@pytest.mark.slow
@given(cases())
def test_without_evidence_nothing_is_changed(pair: tuple[Case, Case]) -> None:
    """Too few steps, or a finding without a measured gain: neither tunes, nor moves devices."""
    case, _ = pair
    assert "keep" == decide(replace(case, enough=False)).decision
    assert "tune" != decide(replace(case, prospect=None)).decision
    assert "keep" == decide(replace(case, step_s=None)).decision


@pytest.mark.slow
@given(cases())
def test_relieving_a_loss_never_predicts_a_slower_run(pair: tuple[Case, Case]) -> None:
    """Even where the measured ratio lies below one by noise."""
    for case in pair:
        tuned = tuning(case)
        if tuned is not None and tuned.speedup is not None and tuned.saved_h is not None:
            assert 1 <= tuned.speedup.low <= tuned.speedup.expected <= tuned.speedup.high
            assert 0 <= tuned.saved_h.low <= tuned.saved_h.expected <= tuned.saved_h.high


def test_small_sums_do_not_look_like_nothing() -> None:
    """0.006 beyond a budget of 0.0001 was said to be 0 beyond a budget of 0."""
    case = replace(
        CASE, remaining_steps=1.0, price_per_device_hour=0.01, intent=Intent(budget=1e-6), prospect=None
    )
    decision = decide(case)
    assert "stop" == decision.decision
    assert "beyond the budget of 1e-06" in decision.why
    assert "costs 8e-06" in decision.why
