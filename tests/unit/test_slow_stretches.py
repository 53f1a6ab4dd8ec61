"""Stretches of steps that are slower on all ranks: what they cost, and what is something else."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.views.run_view import Finding, RunView

LONGER_S = 8 * MS
LENGTH = 20
REGULAR = (60, 160, 260, 360)


def stretches(
    begins: tuple[int, ...], kind: str, amount: float, ranks: tuple[int, ...] | None = None
) -> tuple[Fault, ...]:
    """Steps that differ for LENGTH steps from each beginning on."""
    return tuple(Fault(kind, ranks, amount, onset=at, until=at + LENGTH) for at in begins)


def slowed(begins: tuple[int, ...], ranks: tuple[int, ...] | None = None, num_ranks: int = 4) -> RunView:
    """Of steps that take longer in backward."""
    faults = stretches(begins, "backward", LONGER_S, ranks)
    return final_view(Job(num_ranks=num_ranks, num_steps=450, faults=faults))


def told(view: RunView) -> Finding | None:
    return next((found for found in view.findings if found.id == "slow_stretches"), None)


@pytest.mark.parametrize("num_ranks", [1, 2, 8])
def test_what_comes_at_equal_distances_is_a_warning_with_its_cost(num_ranks: int) -> None:
    """How long, how often, where; no rank is blamed."""
    view = slowed(REGULAR, num_ranks=num_ranks)
    found = told(view)
    assert found is not None
    assert "warning" == found.severity
    assert found.loss_s_per_step == pytest.approx(LONGER_S * len(REGULAR) * LENGTH / 450, rel=0.2)
    assert "since step 6" in found.message
    assert "every 100 steps" in found.message
    assert "mostly in backward" in found.message
    assert set(found.ranks) in (set(), set(range(num_ranks)))
    assert not any(each.id == "straggler" for each in view.findings)


def test_what_comes_irregularly_is_a_remark() -> None:
    """Noise of shared machines does, too."""
    found = told(slowed((60, 100, 260, 300, 410)))
    assert found is not None
    assert "info" == found.severity
    assert "at irregular distances" in found.message


def test_a_wait_for_batches_that_comes_and_goes_is_told_once_with_what_to_look_at() -> None:
    """As what is known best of it: that it comes and goes."""
    view = final_view(Job(num_steps=450, faults=stretches(REGULAR, "data", 12 * MS)))
    assert not any(each.id == "input_bound" for each in view.findings)
    found = told(view)
    assert found is not None
    assert "warning" == found.severity
    assert "mostly waiting for their next batch" in found.message
    assert "shard" in found.actions[0].text


def test_a_wait_for_batches_that_limits_the_input_at_all_times_is_told_as_that() -> None:
    """And when it is longer; not once more as stretches."""
    steady = Fault("data", None, 15 * MS)
    view = final_view(Job(num_steps=450, faults=(steady, *stretches(REGULAR, "data", 12 * MS))))
    assert told(view) is None
    found = next(each for each in view.findings if each.id == "input_bound")
    assert found.severity in {"warning", "critical"}
    assert "next batch, longer for about 20 steps every 100 steps" in found.message


@pytest.mark.parametrize("kind", ["data", "backward"])
@pytest.mark.parametrize("length", [12, 25])
def test_many_slow_steps_on_end_are_no_pause(kind: str, length: int) -> None:
    """However slow: none stood still, and a pause of a second every hundred steps is not what happened."""
    faults = tuple(Fault(kind, None, 40 * MS, onset=at, until=at + length) for at in range(60, 600, 120))
    view = final_view(Job(num_steps=620, faults=faults))
    assert not any("pause" in each.id or each.id == "periodic_data_wait" for each in view.findings)
    found = next(each for each in view.findings if each.id in {"slow_stretches", "input_bound"})
    true_s = 40 * MS * length * len(faults) / 620
    assert found.loss_s_per_step == pytest.approx(true_s, abs=0.6 * MS)
    assert found.severity == "critical"
    assert "120 steps" in found.message


@pytest.mark.parametrize(("base_s", "is_bound"), [(0.8 * MS, False), (6 * MS, True)])
def test_an_exchange_that_comes_and_goes_is_told_once(base_s: float, is_bound: bool) -> None:
    """Beside one that is long at all times too: most of that is not in the stretches."""
    view = final_view(Job(num_steps=450, transfer_s=base_s, faults=stretches(REGULAR, "comm", LONGER_S)))
    bound = next((each for each in view.findings if each.id == "communication_bound"), None)
    assert told(view) is not None
    assert is_bound == (bound is not None)
    if bound is not None:
        assert "not hidden by compute, longer for about 20 steps every 100 steps" in bound.message


def waving(slow: int, period: int = 100, num_steps: int = 450) -> RunView:
    """So many steps of each period take longer on all ranks; the first and the last period may be cut."""
    faults = tuple(
        Fault("backward", None, LONGER_S, onset=at, until=at + slow) for at in range(30, num_steps, period)
    )
    return final_view(Job(num_steps=num_steps, faults=faults))


@pytest.mark.parametrize(("slow", "num_steps"), [(65, 450), (65, 490), (75, 460), (75, 500)])
def test_the_slow_level_may_be_had_more_often_than_the_quick_one(slow: int, num_steps: int) -> None:
    """What is lost is lost against the quick one; that the run ends in a slow stretch has begun nothing new."""
    view = waving(slow, num_steps=num_steps)
    found = told(view)
    assert found is not None
    assert found.severity in {"warning", "critical"}
    num_slow = sum(30 <= at and (at - 30) % 100 < slow for at in range(num_steps))
    assert found.loss_s_per_step == pytest.approx(LONGER_S * num_slow / num_steps, rel=0.15)
    assert f"for about {slow} steps every 100 steps" in found.message
    assert not any(each.id == "slower_since" for each in view.findings)


def test_unequal_heights_are_measured_from_the_quick_level() -> None:
    """One of five slow stretches is a little slower still: the slow level is not what is usual for that."""
    faults = tuple(
        Fault("backward", None, (10 if number == 2 else 8) * MS, onset=at, until=at + 65)
        for number, at in enumerate(range(30, 450, 100))
    )
    found = told(final_view(Job(num_steps=450, faults=faults)))
    assert found is not None
    assert found.loss_s_per_step == pytest.approx((3 * 65 * 8 + 65 * 10 + 20 * 8) * MS / 450, rel=0.15)


def test_one_stray_among_many_hides_nothing() -> None:
    """In one of eighteen turns the steps are slow throughout."""
    begins = [at for at in range(30, 1800, 100) if at != 930]
    faults = tuple(
        Fault("backward", None, LONGER_S, onset=at, until=at + (160 if at == 830 else 60)) for at in begins
    )
    found = told(final_view(Job(num_steps=1800, noise=0.2, faults=faults)))
    assert found is not None
    assert "for about 60 steps every 100 steps" in found.message


@pytest.mark.parametrize("begins", [(60, 160, 260), (60, 110, 260)], ids=["regular", "irregular"])
def test_a_level_that_lasts_is_no_further_stretch(begins: tuple[int, ...]) -> None:
    """Slow for a while three times, and then to the end, ten times as long."""
    faults = (
        *stretches(begins, "backward", LONGER_S),
        Fault("forward", None, LONGER_S, onset=340),
    )
    view = final_view(Job(num_steps=540, faults=faults))
    (found,) = [each for each in view.findings if each.id == "slower_since"]
    assert 340 == found.onset_step
    assert "tune" == view.verdict.decision


def test_stretches_that_are_over_promise_nothing() -> None:
    """The run is as quick as it can be since 420 steps."""
    faults = tuple(Fault("backward", None, LONGER_S, onset=at, until=at + 40) for at in range(30, 200, 80))
    view = final_view(Job(num_steps=650, faults=faults))
    assert told(view) is None
    assert "keep" == view.verdict.decision


def test_steps_that_are_quicker_now_and_then_are_no_loss() -> None:
    """What most steps take is what a step takes; that the run ends in such has begun nothing."""
    view = waving(186, 200, 1030)
    assert not any(each.id in ("slow_stretches", "slower_since") for each in view.findings)


@pytest.mark.parametrize(
    ("begins", "ranks"),
    [
        pytest.param(REGULAR, (2,), id="one rank's are its lateness"),
        pytest.param(REGULAR, (0, 1, 2), id="three ranks' of four, for which one waits"),
        pytest.param((60, 200), None, id="two are two events"),
        pytest.param((), None, id="none"),
    ],
)
def test_what_is_something_else(begins: tuple[int, ...], ranks: tuple[int, ...] | None) -> None:
    """Nothing of the kind is said."""
    assert told(slowed(begins, ranks)) is None


def test_a_step_that_stays_longer_has_no_stretches() -> None:
    """It became longer once."""
    fault = Fault("backward", None, LONGER_S, onset=200)
    assert told(final_view(Job(num_ranks=4, num_steps=450, faults=(fault,)))) is None


@pytest.mark.parametrize(("more", "is_told"), [(0, True), (100, True), (500, False)])
def test_more_work_explains_longer_steps(more: int, is_told: bool) -> None:
    """Sequences that are longer for a while cost nothing that could be saved; a little more of them is no excuse."""
    counts = Fault("tokens", None, 1001)  # -1 is unknown
    faults = (counts, *stretches(REGULAR, "tokens", more), *stretches(REGULAR, "backward", LONGER_S))
    assert is_told == (told(final_view(Job(num_steps=450, faults=faults))) is not None)


@pytest.mark.parametrize(("missing", "is_told"), [((), True), ((3,), False)])
def test_an_exchange_that_is_longer_may_be_the_wait_for_a_rank_that_nobody_sees(
    missing: tuple[int, ...], is_told: bool
) -> None:
    """It is all ranks' only where all of them are seen."""
    view = final_view(Job(num_steps=450, faults=stretches(REGULAR, "comm", LONGER_S), missing=missing))
    assert is_told == (told(view) is not None)
