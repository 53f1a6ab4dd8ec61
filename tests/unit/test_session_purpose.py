"""What a run is for, the wait in the queue, who would use freed devices, epochs and energy: each is in the figures."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from synthetic_run import Job, final_view, folded, frames
from test_goodput_waterfall import born

from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.economics import move
from tuiadvisor.session.economy import economy, economy_lines
from tuiadvisor.session.entries import stated_in
from tuiadvisor.session.intent import PRESET, Intent, changed, preset
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.views.devices import RankDevice
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

QUESTIONS = load_questions()
STEPS = 1e6


@cache
def view(num_ranks: int = 4) -> RunView:
    """A healthy run that was seen from its start; step times fall little with more ranks."""
    found: RunView = folded(born(frames(Job(num_ranks=num_ranks, num_steps=250)), 20.0, young=True)).view()
    return found


def held(intent: Intent, answers: dict[str, str | float] | None = None, *, both: bool = True) -> Session:
    """Four devices, and two beside them."""
    runs = [Recorded("four.rec", view(4)), Recorded("two.rec", view(2))]
    return conduct(runs if both else runs[:1], intent, {"same_unit": "yes", **(answers or {})}, QUESTIONS)


def said(session: Session, pattern: str, name: str) -> str:
    """One item of evidence; "" where it is not there."""
    stage = next(entry for entry in session.stages if entry.pattern == pattern)
    return next((item.text or "" for item in stage.evidence if item.name == name), "")


@pytest.mark.parametrize(("purpose", "objective"), PRESET.items())
def test_a_purpose_presets_the_objective_everywhere(purpose: str, objective: str) -> None:
    """In the session, in `diagnose`, on the screen of sizes; and is said to have done so."""
    intent = changed(Intent(), {"purpose": purpose, "remaining_steps": STEPS})
    session = held(intent)
    assert session.intent.objective == objective
    assert purpose in said(session, "P3", "objective")
    assert economy(view(), intent)["objective"] == objective
    assert stated_in(intent, 0.8).aim.objective == objective
    by_answer = held(Intent(remaining_steps=STEPS), {"purpose": purpose})
    assert by_answer.decision == session.decision


def test_a_stated_objective_wins_and_is_not_asked_about_again() -> None:
    intent = Intent(objective="time", purpose="production")
    assert preset(intent) == intent
    session = held(intent)
    assert said(session, "P3", "objective") == "time"
    asked = [one.id for stage in session.stages for one in stage.asked if one.answer is None]
    assert "purpose" not in asked
    assert "objective" not in asked
    nothing = [one.id for stage in held(Intent()).stages for one in stage.asked if one.answer is None]
    assert {"purpose", "objective"} <= set(nothing)


@pytest.mark.slow
def test_purposes_differ_in_what_they_decide() -> None:
    """The same two recordings: who explores keeps the faster size, who shares goes on with the cheaper one."""
    decisions = {
        purpose: held(changed(Intent(remaining_steps=STEPS, restart_min=0.0), {"purpose": purpose})).decision
        for purpose in PRESET
    }
    assert decisions["shared"].decision == "rescale"
    assert decisions["shared"].num_devices == 2
    assert decisions["exploratory"].decision != "rescale"


def test_a_wait_in_the_queue_takes_time_and_no_device() -> None:
    now, then = (8, 100.0), (16, 60.0)
    plain, waited = move(now, then, 1.0, 2.0), move(now, then, 1.0, 2.0, 5.0)
    assert waited.hours == plain.hours + 5.0
    assert waited.device_hours == plain.device_hours
    assert waited.cost == plain.cost
    assert plain.break_even_work == pytest.approx(1 / 40)
    assert waited.break_even_work == pytest.approx(6 / 40)


@pytest.mark.slow
def test_the_queue_is_priced_and_may_forbid_another_size() -> None:
    """A deadline that the smaller size keeps, and does not after a day in the queue."""
    intent = Intent(objective="cost", remaining_steps=STEPS, restart_min=0.0, price_of_time=3.0)
    hours = held(intent).decision
    assert hours.decision == "rescale"
    queued = replace(intent, queue_h=24.0, deadline_h=20.0)
    assert held(queued).decision.decision != "rescale"
    assert "24 h, worth 72.00" in said(held(queued), "P6", "wait in the queue for another size")
    assert said(held(intent), "P6", "wait in the queue for another size") == ""
    assert any("queue_h" in text for text in held(intent).would_change)
    assert not any("queue_h" in text for text in held(queued).would_change)


@pytest.mark.slow
def test_devices_that_nobody_else_can_use_are_not_saved() -> None:
    intent = Intent(objective="cost", remaining_steps=STEPS, restart_min=0.0, price_per_device_hour=2.0)
    freed, idle = held(intent, {"queue_and_others": "yes"}), held(intent, {"queue_and_others": "no"})
    assert freed.decision.decision == "rescale"
    assert idle.decision.decision != "rescale"
    assert re.search(r"frees [\d.]+ device-hours for others \([\d,.]+\)", said(freed, "P6", "2 devices"))
    assert "paid for anyway" in said(idle, "P6", "2 devices")


def test_overhead_falls_with_epochs() -> None:
    """Start-up and warm-up as a share of one, ten and a hundred epochs of the recorded step."""
    intent = Intent(steps_per_epoch=5000.0)
    told = said(held(intent, both=False), "P2", "overhead by length")
    shares = [float(text) for text in re.findall(r"([\d.]+) % of \d+", told)]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    step_s = 1 / (view().step.throughput_steps_s or 1)
    once_s = sum(part.seconds for part in view().wall.waterfall if part.kind in {"startup", "warmup"})  # type: ignore[union-attr]
    assert shares[0] == pytest.approx(100 * once_s / (once_s + 5000 * step_s), rel=0.05)
    assert "epochs" in told
    assert "thousand steps" in said(held(Intent(), both=False), "P2", "overhead by length")
    assert re.search(
        r"below 1 % from [\d.]+ thousand steps on",
        said(held(Intent(), both=False), "P2", "overhead by length"),
    )
    unseen: RunView = final_view(Job(num_steps=250))
    session = conduct((Recorded("a.rec", unseen),), Intent(), {}, QUESTIONS)
    assert said(session, "P2", "overhead by length") == ""


def test_a_run_seen_from_its_start_is_not_sent_back_to_be_seen_from_its_start() -> None:
    """`run` was named as what would tell the warm-up of a recording that `run` had made."""

    def warm_up(found: RunView) -> tuple[str, str]:
        session = conduct((Recorded("a.rec", found),), Intent(), {}, QUESTIONS)
        stage = next(entry for entry in session.stages if entry.pattern == "P2")
        return next((item.text or "", item.measure) for item in stage.evidence if item.name == "warm-up")

    wall = view().wall
    assert wall is not None
    assert wall.from_start
    parts = tuple(part for part in wall.waterfall if part.kind != "warmup")
    even = replace(view(), wall=replace(wall, waterfall=parts))
    assert "no slow first steps were seen beyond the start-up" == warm_up(even)[0]
    unjudged = replace(even, wall=replace(wall, waterfall=parts, end_to_end=None))
    longer = "a longer recording from the start: tuiadvisor run -o run.tuirec -- COMMAND"
    assert warm_up(unjudged) == ("", longer)
    attached = folded(frames(Job(num_steps=250))).view()
    assert warm_up(attached) == ("", "tuiadvisor run -o run.tuirec -- COMMAND")


def test_energy_of_the_rest_by_the_meter_else_as_stated_else_unknown() -> None:
    intent = Intent(remaining_steps=STEPS, energy_price_per_kwh=0.3)
    unknown = economy(view(), intent)
    assert unknown["remaining_kwh"] is None
    assert unknown["samples_per_joule"] is None
    stated = economy(view(), replace(intent, device_power_w=400.0))
    assert stated["remaining_kwh"] == pytest.approx(stated["remaining_device_hours"] * 0.4)
    assert stated["remaining_energy_cost"] == pytest.approx(stated["remaining_kwh"] * 0.3)
    metered = replace(view(), rank_devices=tuple(_device(rank, 300.0) for rank in range(4)))
    measured = economy(metered, replace(intent, device_power_w=400.0))
    assert measured["device_power_w"] == pytest.approx(300.0)
    assert measured["remaining_kwh"] == pytest.approx(0.75 * stated["remaining_kwh"])
    assert any("kWh" in text for text in economy_lines(measured, intent))


def _device(rank: int, power_w: float) -> RankDevice:
    return RankDevice(rank=rank, power_w=power_w)
