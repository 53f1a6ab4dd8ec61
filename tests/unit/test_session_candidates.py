"""Changes as purchases, the seven questions, workloads beside each other, energy."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, final_view, folded
from test_advisor_deviceclocks import recorded
from test_device_counters import gpu
from test_session_conduct import LATE, held, view

from tuiadvisor.session import whys
from tuiadvisor.session.candidates import candidates, gain_of
from tuiadvisor.session.conclusions import workload_words
from tuiadvisor.session.conduct import Session
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.levers import levers
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.markdown import gain_words, markdown
from tuiadvisor.session.material import gather
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.views.efficiency import Stack
from tuiadvisor.views.run_view import RunView

PRICED = Intent(remaining_steps=1e6, price_per_device_hour=2.0, engineer_hour_price=80.0)


def texts(session: Session, pattern: str) -> dict[str, str | None]:
    """Evidence of a stage by name; of several of one name the last."""
    stage = next(one for one in session.stages if one.pattern == pattern)
    return {item.name: item.text for item in stage.evidence}


def gathered(intent: Intent, answers: dict[str, str | float] | None = None):  # noqa: ANN201
    run = view((LATE,))
    return gather(facts("late.rec", run), (), run.verdict, intent, answers or {})


def test_each_change_has_its_own_bill() -> None:
    """Net saving is what the devices' hours cost less the engineer's, at both ends of the measured interval."""
    material = gathered(PRICED)
    assert material.candidates
    case, run = material.case, material.run
    assert case.num_devices is not None
    assert run.step_s is not None
    for one in material.candidates:
        assert one.gain_s is not None
        assert 0 < one.gain_s.low <= one.gain_s.expected <= one.gain_s.high < run.step_s
        assert one.net is not None
        assert one.saved_h is not None
        assert one.effort_hours is not None
        left_h = (case.hours_now or 0.0) - one.effort_hours
        assert one.saved_h.low == pytest.approx(left_h * one.gain_s.low / run.step_s)
        assert one.net.low == pytest.approx(
            one.saved_h.low * case.num_devices * 2.0 - 80.0 * one.effort_hours
        )
    nets = [one.net.low for one in material.candidates if one.net and not one.why_not]
    assert nets == sorted(nets, reverse=True)


def test_planned_runs_pay_for_a_change_that_this_run_does_not() -> None:
    """Some hours are left: only runs to come can pay for it; the decision moves with them."""
    short = replace(PRICED, engineer_hour_price=300.0)
    answers: dict[str, str | float] = {"effort_hours": 2.0}
    alone, planned = gathered(short, answers), gathered(replace(short, planned_runs=300.0), answers)
    (own,) = [one for one in alone.candidates if one.is_stated]
    assert own.why_not == "it costs more than it saves"
    assert own.pays_below_h is not None
    assert own.pays_below_h < 2.0
    assert own.net is not None
    assert own.net.expected == pytest.approx((own.pays_below_h - 2.0) * 300.0)
    # What a rule's word says of hours refuses nothing.
    assert not any(one.why_not for one in alone.candidates if not one.is_stated)
    assert not any(one.why_not for one in planned.candidates)
    assert alone.candidates[0].saved_h is not None
    assert planned.candidates[0].saved_h is not None
    decided = [
        held(Recorded("late.rec", view((LATE,))), intent=one, answers=answers).decision.decision
        for one in (short, replace(short, planned_runs=300.0))
    ]
    assert decided == ["stop", "tune"]


def test_an_interval_that_reaches_zero_is_below_the_cut_off() -> None:
    material = gathered(PRICED)
    (finding, *_) = material.run.findings
    nothing = replace(finding, evidence={**finding.evidence, "speedup_low": 0.99})
    unknown = replace(finding, evidence={})
    for odd, why in ((nothing, "may be nothing"), (unknown, "unknown")):
        run = replace(material.run, findings=(odd,))
        found = candidates(run, material.case, levers(run, {}, ()))
        assert found
        assert all(why in one.why_not for one in found)
    assert gain_of(unknown, material.run.step_s) is None


def test_what_is_not_stated_is_named_and_gives_no_net() -> None:
    session = held(Recorded("late.rec", view((LATE,))))
    stage = next(one for one in session.stages if one.pattern == "P5")
    assert ("net saving", "tuiadvisor intent --set remaining_steps=N") in stage.unknown
    assert all("net " not in (item.text or "") for item in stage.evidence if item.name.startswith("change"))


@pytest.mark.slow
def test_the_card_answers_seven_questions_and_leaves_open_what_nobody_saw() -> None:
    shown = texts(held(Recorded("late.rec", view((LATE,))), answers={"reproducible": "no"}), "P5")
    asked = {name: text for name, text in shown.items() if name[0].isdecimal()}
    assert "rank 2" in (asked["2 where is the bottleneck?"] or "")
    assert "risk low" in (asked["5 what is the lowest-risk fix?"] or "")
    assert "fix that first" in (asked["7 can we reproduce it?"] or "")
    stage = next(one for one in held(Recorded("late.rec", view((LATE,)))).stages if one.pattern == "P5")
    assert {"6 did goodput improve?", "7 can we reproduce it?"} <= {what for what, _ in stage.unknown}


def test_a_healthy_run_has_no_change_and_no_card() -> None:
    assert not texts(held(Recorded("a.rec", view(()))), "P5")


def test_other_workloads_stand_beside_this_one_and_are_not_ranked() -> None:
    """Another size of model: refused as an alternative, shown with measures of its own."""
    small, large = view((LATE,)), final_view(Job(num_steps=250, faults=(Fault("backward", None, 20 * MS),)))
    one, other = facts("small", small, 1000, 3), facts("large", large, 9000, 3)
    material = gather(
        one, (other,), small.verdict, Intent(price_per_device_hour=2.0, device_power_w=500.0), {}
    )
    assert [found.name for found in material.different] == ["large"]
    assert material.case.moves == ()
    words = workload_words(other, 2.0, 500.0)
    assert other.step_s is not None
    hours = 4 * other.step_s * 1000 / 3600
    assert f"1000 steps take {hours:.3g} device-hours, cost {2 * hours:,.2f}, {hours / 2:.3g} kWh" in words
    assert "samples" not in words
    session = held(Recorded("a", small, 1000, 3), Recorded("b", large, 9000, 3))
    shown = texts(session, "P4")
    assert "workload a" in shown
    assert "workload b" in shown
    assert "not ranked" in (shown["workloads"] or "")


def test_one_rank_has_no_communication_to_measure() -> None:
    """It was to be measured, above the sentence "one device: there is no gradient communication"."""
    alone = final_view(Job(num_ranks=1, num_steps=250))
    session = held(Recorded("a", alone))
    shown = texts(session, "P4")
    assert shown["compute against communication"] == "no communication: one rank"
    stage = next(one for one in session.stages if one.pattern == "P4")
    assert {"MFU"} == set(dict(stage.unknown))
    assert "no communication" in workload_words(facts("a", alone), None, None)


def test_changes_of_which_none_passes_the_cut_off_are_not_worth_trying_in_their_order() -> None:
    """Twenty minutes are left: each change was below the cut-off, and "worth trying" stood below them."""
    short = replace(PRICED, remaining_steps=50_000)
    material = gathered(short)
    assert material.candidates
    assert {one.why_not for one in material.candidates} == {"the rest of the run is over before it is ready"}
    stage = next(
        one for one in held(Recorded("late.rec", view((LATE,))), intent=short).stages if one.pattern == "P5"
    )
    assert stage.conclusion.startswith(
        "None passes the cut-off by its rule's hours: the rest of the run is over"
    )
    long = held(Recorded("late.rec", view((LATE,))), intent=PRICED)
    assert "Worth trying" in next(one for one in long.stages if one.pattern == "P5").conclusion


def test_fewer_devices_is_no_way_to_win_the_exchange_back() -> None:
    """It was the ONE change, at a gain of all 31 ms a step that the exchange took."""
    run = final_view(Job(num_ranks=16, ranks_per_host=4, num_steps=150, faults=(Fault("comm", None, 0.03),)))
    material = gather(facts("a", run), (), run.verdict, PRICED, {})
    assert run.verdict.finding == "communication_bound"
    (last,) = [one for one in material.candidates if "none of this fits" in one.action]
    assert last is material.candidates[-1]
    assert last.gain_s is last.saved_h is last.net is None
    assert last.why_not == "a way out where none of the others fits: it takes nothing off this step"
    session = held(Recorded("a", run), intent=PRICED)
    # Whose verdict is an upper bound has no gain to expect: "4.58x the speed" beside a half that could be hidden.
    assert run.verdict.at_best
    assert gain_words(session.decision).startswith("at best ")
    assert " a step takes at best " in session.loop.hypothesis
    assert not gain_words(held(Recorded("late.rec", view((LATE,))), intent=PRICED).decision).startswith(
        "at best"
    )
    assert "none of this fits" not in str(session.loop.change)
    assert "none of this fits" not in (texts(session, "P5")["5 what is the lowest-risk fix?"] or "")


def test_what_a_change_gains_is_said_as_a_loss_with_its_interval() -> None:
    """At most 30.8 ms a step (30.8 ms to 31.7 ms) is more than at most."""
    shown = [text for name, text in texts(held(Recorded("late.rec", view((LATE,)))), "P5").items()]
    told = [text for text in shown if text and "a step (" in text]
    assert told
    assert all(text.startswith("at most the loss of ") for text in told)


def test_what_a_change_saves_is_said_of_the_time_after_it_is_made() -> None:
    """Less than the verdict's saving: the run goes on as it is while somebody works on the change."""
    intent = Intent(remaining_steps=1e6)
    session = held(Recorded("a", view((LATE,), 4)), intent=intent, answers={"effort_hours": 1.0})
    assert re.search(r"saves [\d.]+ to [\d.]+ h once it is made", markdown(session))


def test_costs_beside_hours_say_what_they_are() -> None:
    """An epoch took 0.2218, 0.48 device-hours, and a wait 1.4e+02 % of the rest."""
    stated = replace(
        PRICED,
        remaining_steps=1e5,
        steps_per_epoch=1000,
        queue_h=2.0,
        energy_price_per_kwh=0.3,
        device_power_w=500.0,
    )
    run = view((LATE,))
    shown = texts(held(Recorded("late.rec", run), intent=stated), "P6")
    assert ", cost " in (shown["device-hours of an epoch"] or "")
    assert ", cost " in (shown["energy of the rest"] or "")
    assert "e+" not in (shown["wait in the queue for another size"] or "")
    assert "times what remains" in (shown["wait in the queue for another size"] or "")


def test_batches_that_were_recorded_say_what_a_batch_brings() -> None:
    """Batches that were recorded are the measure, not what one run would bring if compute grew in proportion."""
    run = final_view(Job(num_ranks=2, num_steps=250))
    assert run.step.throughput_steps_s is not None
    other = replace(
        run,
        step=replace(
            run.step,
            throughput_steps_s=run.step.throughput_steps_s / 1.5,
            throughput_samples_s=(run.step.throughput_samples_s or 0.0) * 2 / 1.5,
        ),
    )
    alone, both = held(Recorded("a", run)), held(Recorded("a", run), Recorded("b", other))
    told = [
        next(one for one in session.stages if one.pattern == "P2").conclusion for session in (alone, both)
    ]
    assert "Twice the work a step would raise throughput 1.0" in told[0]
    assert "if compute and input grow in proportion, more where they do not" in told[0]
    assert "By the batches recorded twice the work a step raises throughput 1.33x." in told[1]
    assert "in proportion" not in told[1]
    assert "by the batches recorded" in (texts(both, "P2")["fixed and growing part"] or "")
    said = whys.why("batch", facts("a", run), (facts("b", other),), Machine()).answer
    assert "at best" not in said
    assert "brings 1.33x the samples a second" in said
    assert "Measured: " in said


@pytest.mark.slow
def test_one_batch_does_not_tell_whether_a_late_rank_is_as_late_at_any() -> None:
    """One late by a constant: "at best 1.10x" by its time counted as growing, where twice the batch brought 1.96x."""
    run = view((LATE,))
    told = next(one for one in held(Recorded("a", run)).stages if one.pattern == "P2")
    assert texts(held(Recorded("a", run)), "P2")["fixed and growing part"] is None
    assert told.conclusion.startswith("What twice the work a step brings is unknown: ")
    said = whys.why("batch", facts("a", run), (), Machine())
    assert said.answer.startswith(f"Unknown: {run.findings[0].message}")
    assert "twice the batch" in said.unknown
    without = replace(run, findings=())
    assert texts(held(Recorded("a", without)), "P2")["fixed and growing part"] is not None


def test_sums_are_in_the_stated_currency_and_no_id_stands_in_the_text() -> None:
    """It said "28.88 in money" and "2.5 money a device-hour" where EUR was stated, and named rules by their ids."""
    stated = replace(PRICED, currency="EUR", remaining_steps=100_000.0)
    session = held(Recorded("late.rec", view((LATE,))), intent=stated)
    text = markdown(session)
    assert "EUR a device-hour" in text
    assert session.decision.saved_money is not None
    assert " EUR" in gain_words(session.decision, "EUR")
    assert "money" not in gain_words(session.decision, "EUR")
    assert not re.search(r"\d in money", text)
    not_asked = {name for stage in session.stages for name in stage.not_asked}
    assert not_asked
    assert not any(f"{name}," in text for name in not_asked if "_" in name)
    assert f"change for {view((LATE,)).findings[0].id}" not in text


def test_energy_is_the_devices_own_meter_or_unknown() -> None:
    gpus = [gpu(rank, power_w=600.0) for rank in range(2)]
    run = folded(recorded(Job(num_ranks=2, num_steps=300), gpus)).view()
    assert [600.0, 600.0] == [one.power_w for one in run.rank_devices]
    shown = texts(held(Recorded("a", run), intent=replace(PRICED, energy_price_per_kwh=0.3)), "P6")
    assert shown["power of a device"] == "600 W, measured"
    spent = float((shown["device-hours"] or "").split()[0])
    assert f"{spent * 0.6:.3g}" == f"{float((shown['energy of the rest'] or '').split()[0]):.3g}"
    lame = folded(recorded(Job(num_ranks=2, num_steps=300), [gpus[0], gpu(1, power_w=None)])).view()
    assert "power of a device" not in texts(held(Recorded("a", lame), intent=PRICED), "P6")


def test_an_epoch_has_its_price() -> None:
    shown = texts(held(Recorded("a", view((LATE,))), intent=replace(PRICED, steps_per_epoch=1000.0)), "P6")
    assert shown["device-hours of an epoch"] is not None
    spent, cost = (float(word) for word in shown["device-hours of an epoch"].split(", cost "))
    assert f"{spent:.3g}" == shown["device-hours of 1000 steps"]
    assert cost == pytest.approx(2.0 * spent, abs=0.01)


def test_two_models_of_a_single_device_each_are_told_apart_by_class_and_parameters() -> None:
    """They send no gradients. A part of the same model, or the same under another wrapper, is no other model."""
    alone = final_view(Job(num_ranks=1, num_steps=120))

    def of(name: str, params: int) -> RunView:
        return replace(alone, stack=Stack({"class": name, "params": params}))

    def apart(one: RunView, other: RunView) -> bool:
        runs = facts("one", one), facts("other", other)
        return bool(gather(runs[0], runs[1:], one.verdict, Intent(), {}).different)

    assert apart(of("GPT", 659_000), of("Model", 67_210))
    assert not apart(of("GPT", 659_000), of("FSDPGPT", 659_000))
    assert not apart(of("GPT", 659_000), of("GPT", 164_750))
    assert not apart(of("GPT", 659_000), alone)
