"""Rescale and stop on the first screen: by bounds of one run against what was stated, never from noise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from synthetic_run import Fault, Job, final_view

from tuiadvisor.report.document import document
from tuiadvisor.scaling.onerun import FLOOR
from tuiadvisor.session.against_intent import with_intent
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.tui.pages import sections
from tuiadvisor.views.run_view import RunView, Speedup
from tuiadvisor_rules.questions import load_questions

SAVES = Intent(objective="cost", remaining_steps=1e6, price_per_device_hour=2.0)


@cache
def view(transfer_s: float = 0.03, *, per_host: int = 4) -> RunView:
    """Eight ranks on two hosts of GPUs; the exchange takes so long. No finding that would come first."""
    job = Job(num_ranks=16, ranks_per_host=per_host, num_steps=150, faults=(Fault("comm", None, transfer_s),))
    found: RunView = final_view(job)
    quiet = replace(
        found.verdict, decision="keep", finding=None, speedup=None, sentence="Keep: nothing.", at_best=False
    )
    return replace(found, run=replace(found.run, device="cuda"), verdict=quiet, findings=())


def test_a_run_that_mostly_waits_for_its_exchange_saves_by_fewer_devices() -> None:
    decided = with_intent(view(), SAVES).decided
    assert decided.decision == "rescale"
    assert decided.sentence.startswith("Rescale: 8 devices instead of 16 save ")
    assert "would change it" in decided.because
    assert decided.verify


def as_found(transfer_s: float = 0.03, *faults: Fault) -> RunView:
    """The same run with its own findings and verdict, as a live screen has it."""
    job = Job(
        num_ranks=16, ranks_per_host=4, num_steps=150, faults=(Fault("comm", None, transfer_s), *faults)
    )
    found: RunView = final_view(job)
    return replace(found, run=replace(found.run, device="cuda"))


def test_a_live_run_whose_exchange_could_be_less_at_best_is_rescaled_for_who_pays() -> None:
    """An upper bound is no sure gain: who decides by cost hears of both, who decides by time of the tuning alone."""
    run = as_found()
    assert (run.verdict.decision, run.verdict.at_best) == ("tune", True)
    decided = with_intent(run, SAVES).decided
    assert decided.decision == "rescale"
    assert "Of the steps themselves: Tune: " in decided.because
    assert with_intent(run, replace(SAVES, objective="time")).decided.decision == "tune"
    assert with_intent(run, Intent()).decided.decision == "tune"


def test_a_late_rank_of_a_live_run_comes_before_any_other_size() -> None:
    late = as_found(0.0, Fault("forward", (3,), 0.02))
    assert (late.verdict.decision, late.verdict.at_best) == ("tune", False)
    assert with_intent(late, SAVES).decided.decision == "tune"


def test_where_compute_is_all_of_the_step_no_size_is_advised() -> None:
    """Half the devices take twice as long: nothing is saved for sure."""
    assert with_intent(view(0.0), SAVES).decided.decision == "keep"


@pytest.mark.slow
def test_a_gain_whose_interval_reaches_zero_decides_nothing() -> None:
    """However much is saved at best: the worst case must be a gain beyond noise."""
    seen = {}
    for transfer_ms in (0, 1, 2, 4, 8, 16, 30):
        decided = with_intent(view(transfer_ms * 1e-3), SAVES).decided
        seen[transfer_ms] = decided.decision
        if decided.decision == "rescale":
            low = float(decided.sentence.split("save ")[1].split(" ")[0])
            assert low >= 100 * (1 - FLOOR) - 0.5
    assert seen[0] == "keep"
    assert seen[30] == "rescale"


@pytest.mark.parametrize("objective", ["time", None])
def test_fewer_devices_are_never_advised_to_whom_time_decides_or_who_said_nothing(
    objective: str | None,
) -> None:
    intent = replace(SAVES, objective=objective)  # type: ignore[arg-type]
    assert with_intent(view(), intent).decided.decision == "keep"
    assert with_intent(view(), Intent()) is view()


def test_a_deadline_that_fewer_devices_may_miss_forbids_them() -> None:
    hours = 1e6 / (view().step.throughput_steps_s or 1) / 3600
    near, far = replace(SAVES, deadline_h=1.02 * hours), replace(SAVES, deadline_h=10 * hours)
    assert with_intent(view(), near).decided.decision == "keep"
    far_away = with_intent(view(), far).decided
    assert far_away.decision == "rescale"
    assert "before the deadline" in far_away.sentence


def test_a_loss_that_can_surely_be_removed_comes_first() -> None:
    run = as_found()
    sure = replace(run.verdict, at_best=False, speedup=Speedup(1.4, 1.3, 1.5))
    assert with_intent(replace(run, verdict=sure), SAVES).decided.decision == "tune"
    unsure = replace(sure, speedup=Speedup(1.2, 0.9, 1.5))
    assert with_intent(replace(run, verdict=unsure), SAVES).decided.decision == "rescale"


def test_a_rest_beyond_the_budget_is_stopped_only_where_the_best_case_is_too() -> None:
    hours = 1e6 / (view().step.throughput_steps_s or 1) / 3600
    cost = hours * 16 * 2.0
    wall, steady_s = view().wall, view().step.mean_s
    assert wall is not None
    assert steady_s
    least = (wall.steady or 1.0) * steady_s / (hours * 3600 / 1e6)  # of the step, without all its losses
    assert least < 0.9
    poor = with_intent(view(), replace(SAVES, objective=None, budget=0.8 * least * cost)).decided
    assert poor.decision == "stop"
    assert "beyond the budget" in poor.sentence
    reachable = with_intent(view(), replace(SAVES, objective=None, budget=1.01 * least * cost)).decided
    assert reachable.decision == "tune"
    assert "beyond the budget" in reachable.sentence
    assert "at best" in reachable.sentence
    assert with_intent(view(), replace(SAVES, budget=2 * cost)).decided.decision != "stop"


def test_the_session_reads_the_verdict_of_the_steps_and_not_its_own_conclusion() -> None:
    """What is stated would count twice."""
    seen = with_intent(view(), SAVES)
    assert seen.verdict == view().verdict
    sessions = [conduct([Recorded("a", one)], SAVES, {}, load_questions()) for one in (seen, view())]
    assert sessions[0].decision == sessions[1].decision


STATED = tuple(
    replace(SAVES, objective=objective, budget=budget, deadline_h=deadline_h)
    for objective in ("time", "cost", "efficiency", None)
    for budget in (None, 50.0, 1e9)
    for deadline_h in (None, 0.01, 1e6)
)


@pytest.mark.slow
@pytest.mark.parametrize("found", [view, as_found, lambda: as_found(0.0, Fault("forward", (3,), 0.02))])
@pytest.mark.parametrize(
    "stated", [STATED[::7], pytest.param(STATED, marks=pytest.mark.extended)], ids=["few", "all"]
)
def test_verdict_and_session_come_to_one_decision(
    found: Callable[[], RunView], stated: tuple[Intent, ...]
) -> None:
    """Whoever reads screen 1, the JSON or the session hears the same, for the same reason."""
    run, questions = found(), load_questions()
    kinds = set()
    for intent in stated:
        decided = with_intent(run, intent).decided
        session = conduct([Recorded("a", run)], intent, {}, questions)
        assert (decided.decision, intent) == (session.decision.decision, intent)
        if decided.decision == "rescale":
            assert session.decision.why in decided.sentence
            assert session.decision.num_devices == 8 or intent.deadline_h
            assert decided.would_change in session.would_change
        kinds.add(decided.decision)
    assert kinds >= {"stop", run.verdict.decision}


@pytest.mark.slow
def test_fewer_devices_carry_their_interval_and_what_would_change_them() -> None:
    decided = with_intent(as_found(), SAVES).decided
    assert decided.saving is not None
    assert 1 - FLOOR < decided.saving.low < decided.saving.high < 1
    assert document(with_intent(as_found(), SAVES))["verdict"]["saving"]["low"] == decided.saving.low
    rows = [row.text.strip() for row in sections.verdict(with_intent(as_found(), SAVES), 100, 8)]
    assert any(row.startswith("would change it: Time as the objective") for row in rows)


def test_more_devices_are_said_not_to_be_worth_it_where_even_the_best_case_is_not() -> None:
    """By cost: no fewer device-hours at best. By time: only where an hour costs more than it is worth."""
    short = view(0.002)
    by_cost = with_intent(short, SAVES).decided
    assert by_cost.decision == "keep"
    assert (
        "Keep: not worth more than 16 devices: 32 devices take no fewer device-hours even at best"
        in by_cost.sentence
    )
    assert by_cost.would_change.startswith("Time as the objective")
    narrow = [row.text.strip() for row in sections.verdict(with_intent(short, SAVES), 70, 4)]
    assert narrow[0].endswith("not worth more than 16 devices: 32 devices take no fewer")
    assert any(row.startswith("would change it: Time as the objective") for row in narrow)
    cheap, dear = (replace(SAVES, objective="time", price_of_time=worth) for worth in (0.01, 1e6))
    assert (
        "and the same total batch an hour earlier costs at least"
        in with_intent(short, cheap).decided.sentence
    )
    assert with_intent(short, dear) == short
    assert with_intent(short, replace(SAVES, objective="time")) == short
    late = replace(SAVES, deadline_h=0.1)
    told_late = with_intent(short, late).decided
    assert told_late.decision == "keep"
    assert "but the deadline is in 0.1 h" in told_late.sentence
    assert "not worth more" not in told_late.sentence
    told = conduct([Recorded("a", short)], SAVES, {}, load_questions())
    assert "Not worth more than 16 devices" in told.decision.why
    assert by_cost.would_change in told.would_change


def test_what_was_decided_stays_until_it_is_likelier_not_to_hold() -> None:
    """At its border a figure moves across by chance: who watches must not see stop and keep by turns."""
    run = as_found()
    hours = 1e6 * (run.step.mean_with_pauses_s or 0.0) / 3600
    cost = hours * 16 * 2.0
    poor, later, rich = (
        replace(SAVES, objective="time", budget=share * cost) for share in (0.1, 0.995 * _at_best(run), 1.01)
    )
    before = with_intent(run, poor)
    assert before.decided.decision == "stop"
    assert with_intent(run, later).decided.decision == "tune"
    assert with_intent(run, later, former=before).decided.decision == "stop"
    assert with_intent(run, rich, former=before).decided.decision == "tune"
    earlier = replace(run, last_step=(run.last_step or 0) - 1)
    assert with_intent(earlier, later, former=before).decided.decision == "tune"


def _at_best(run: RunView) -> float:
    assert run.verdict.speedup is not None
    return 1 / run.verdict.speedup.high


@pytest.mark.slow
def test_fewer_devices_stay_advised_while_they_save_at_all() -> None:
    """A view that alone would not be enough is, after one that was; one without any saving is not."""
    before = with_intent(view(), SAVES)
    assert before.decided.decision == "rescale"
    seen = []
    for transfer_ms in (1, 3, 5, 7, 9):
        now = view(transfer_ms * 1e-3)
        alone, after = (with_intent(now, SAVES, former=one).decided.decision for one in (None, before))
        seen.append((alone, after))
    assert ("keep", "rescale") in seen
    assert seen == sorted(seen)
    assert with_intent(view(0.0), SAVES, former=before).decided.decision == "keep"


def test_devices_that_nobody_else_can_use_are_not_given_back() -> None:
    run, questions = as_found(), load_questions()
    free, paid = (
        conduct([Recorded("a", run)], SAVES, {"queue_and_others": answer}, questions).decision.decision
        for answer in ("yes", "no")
    )
    assert (free, paid) == ("rescale", "tune")


def test_a_restart_that_eats_what_fewer_devices_save_forbids_them() -> None:
    short = replace(SAVES, remaining_steps=2000.0)
    assert with_intent(as_found(), short).decided.decision == "rescale"
    assert with_intent(as_found(), replace(short, restart_min=60.0)).decided.decision == "tune"


def test_a_live_run_starts_again_for_fewer_devices_and_an_ended_one_in_any_case() -> None:
    """Its start-up was seen: a short rest does not give it back. Nobody stated what a restart takes."""
    run = as_found()
    assert run.wall is not None
    started = replace(run, wall=replace(run.wall, startup_s=600.0, from_start=True))
    over = replace(started, ranks=tuple(replace(row, state="exited") for row in started.ranks))
    short, long = (replace(SAVES, remaining_steps=steps) for steps in (2000.0, 1e6))
    assert with_intent(started, long).decided.decision == "rescale"
    assert with_intent(started, short).decided.decision == "tune"
    assert with_intent(over, short).decided.decision == "rescale"


def test_where_restarts_let_nothing_be_finished_no_size_is_advised() -> None:
    never = replace(SAVES, failures_per_day=1e6, restart_min=10.0)
    assert with_intent(as_found(), never).decided.decision == "tune"


def test_screen_and_document_show_what_was_decided() -> None:
    seen = with_intent(view(), SAVES)
    text = " ".join(row.text for row in sections.verdict(seen, 78, 4))
    assert "RESCALE" in text
    assert "8 devices instead of 16" in " ".join(text.split())
    assert json.loads(json.dumps(document(seen)))["verdict"]["decision"] == "rescale"


def test_nothing_is_decided_before_there_is_enough() -> None:
    few: RunView = final_view(Job(num_ranks=16, ranks_per_host=4, num_steps=5))
    assert with_intent(few, SAVES) is few


@pytest.mark.slow
def test_noise_alone_never_stops_a_run_whose_rest_fits_the_budget() -> None:
    """Short and noisy recordings: their mean is above the true one in every second. 1 % of the budget is left."""
    for noise in (0.08, 0.6):
        job = Job(num_ranks=8, ranks_per_host=4, noise=noise)
        true_s = 1 / (final_view(replace(job, num_steps=1500, seed=99)).step.throughput_steps_s or 1)
        fits = replace(SAVES, objective=None, budget=1.01 * 1e6 * true_s / 3600 * 8 * 2.0)
        seen = [final_view(replace(job, num_steps=30, seed=seed)) for seed in range(12)]
        costs = [1e6 / (run.step.throughput_steps_s or 1) / 3600 * 8 * 2.0 for run in seen]
        assert max(costs) > (fits.budget or 0)  # some of them look too dear
        assert {with_intent(run, fits).decided.decision for run in seen} == {"keep"}
        # Stragglers that vary cost 40 % of the noisier ones' step: half of the budget would be enough without them.
        dear = replace(fits, budget=0.3 * (fits.budget or 0))
        assert {with_intent(run, dear).decided.decision for run in seen} == {"stop"}


def test_the_interval_of_the_mean_holds_it_and_nothing_that_no_step_can_take() -> None:
    """A step that grows all the time says little of its mean: not that it may be negative."""
    growing = tuple(Fault("forward", None, 0.05, onset=step) for step in range(0, 40, 4))
    for job in (Job(num_ranks=2, num_steps=40, faults=growing), Job(num_ranks=2, num_steps=40, noise=0.6)):
        step = final_view(job).step
        assert step.mean_low_s is not None
        assert step.mean_s is not None
        assert step.mean_high_s is not None
        assert 0 < step.mean_low_s <= step.mean_s <= step.mean_high_s
