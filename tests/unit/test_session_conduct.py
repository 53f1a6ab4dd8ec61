"""A whole session on simulated trainings: evidence, answers, conclusions, history, exports."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from synthetic_run import MS, Fault, Job, final_view
from thinned import num_examples, thinned

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.markdown import plain
from tuiadvisor.session.answers import checked_answers
from tuiadvisor.session.conduct import Bottleneck, Session, conduct
from tuiadvisor.session.document import document, saved_answers, saved_history
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.machine import Machine, Network
from tuiadvisor.session.markdown import markdown
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.whys import NAMES
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

QUESTIONS = load_questions()
LATE = Fault("data", (2,), 6 * MS)
NETWORK = Fault("comm", None, 8 * MS)


@cache
def view(faults: tuple[Fault, ...] = (), num_ranks: int = 4) -> RunView:
    """A simulated run at its end."""
    found: RunView = final_view(Job(num_ranks=num_ranks, faults=faults))
    return found


def held(
    *runs: Recorded,
    intent: Intent | None = None,
    answers: dict[str, str | float] | None = None,
    history: tuple[Bottleneck, ...] = (),
) -> Session:
    """A session with nothing stated unless given."""
    return conduct(runs, intent or Intent(), answers or {}, QUESTIONS, history)


def stage(session: Session, pattern: str) -> str:
    """The conclusion of one pattern."""
    return next(entry.conclusion for entry in session.stages if entry.pattern == pattern)


def test_the_six_patterns_come_in_order_with_evidence_and_a_conclusion() -> None:
    """Each with its window and how far to trust it."""
    session = held(Recorded("late.rec", view((LATE,))))
    assert ["P1", "P2", "P3", "P4", "P5", "P6"] == [entry.pattern for entry in session.stages]
    for entry in session.stages:
        assert entry.conclusion
        assert entry.evidence
        assert all("steady" in item.window and item.confidence for item in entry.evidence)
        assert all(measure for _, measure in entry.unknown)


def test_a_late_rank_is_tuned_with_gain_next_constraint_and_the_loop() -> None:
    """The right rank, the measured interval, one change, and how to prove it."""
    session = held(Recorded("late.rec", view((LATE,))))
    assert "tune" == session.decision.decision
    assert "rank 2" in session.decision.why
    assert session.decision.speedup is not None
    assert 1.3 == pytest.approx(session.decision.speedup.expected, abs=0.1)
    assert session.next_constraint is not None
    assert "tuiadvisor compare late.rec late-after.rec --fail-if-slower 5%" in session.loop.commands
    assert session.loop.change != "none"
    assert any("remaining run" in entry for entry in session.would_change)


def test_commands_of_the_loop_can_be_pasted_whatever_the_files_are_called() -> None:
    """Blanks, options, escape sequences; also in the sentence about the session before this one."""
    before = held(Recorded("-v.rec", view((LATE,))))
    assert "tuiadvisor compare ./-v.rec ./-v-after.rec --fail-if-slower 5%" in before.loop.commands
    after = held(Recorded("a b\x1b[2J.rec", view()), history=before.history)
    assert "tuiadvisor compare ./-v.rec $'a b\\x1b[2J.rec'." in after.loop.last_time


def test_a_healthy_run_is_kept_and_an_empty_one_decides_nothing() -> None:
    """Neither invents a loss."""
    assert "keep" == held(Recorded("a", view())).decision.decision
    empty = held(Recorded("empty", Advisor().view()))
    assert "keep" == empty.decision.decision
    assert "not decided yet" in empty.decision.why
    assert "Open" in stage(empty, "P1")
    assert "Unknown" in empty.whys[NAMES.index("idle")].answer


def test_a_run_that_is_kept_is_kept_for_the_reason_on_its_screen() -> None:
    """A step that is mostly exchange is not called one without a loss."""
    run = view()
    because = "120 steady steps of 2.04 s: compute takes only 28 % of them."
    kept = replace(run.verdict, decision="keep", finding="healthy", because=because, speedup=None)
    session = conduct([Recorded("a", replace(run, verdict=kept, findings=()))], Intent(), {}, QUESTIONS)
    assert session.decision.decision == "keep"
    assert session.decision.why.startswith(because.rstrip("."))
    assert "worth acting on" not in session.decision.why


def test_what_is_stated_prices_the_decision() -> None:
    """Hours and money of the remaining run, and the effort beyond which it no longer pays."""
    intent = Intent(remaining_steps=1e6, price_per_device_hour=2, engineer_hour_price=1)
    session = held(Recorded("late.rec", view((LATE,))), intent=intent, answers={"effort_hours": 2.0})
    assert session.decision.saved_money is not None
    assert session.decision.break_even_steps is not None
    assert 2.0 == session.decision.cost_money
    assert any("effort above" in entry for entry in session.would_change)


def test_answers_are_shown_as_stated_and_a_hint_never_decides() -> None:
    """Three answers speak for tuning a run in which nothing was measured."""
    answers = checked_answers({"recompiles": True, "batch_flat": "rose", "restarts_per_day": 2}, QUESTIONS)
    session = held(Recorded("a", view()), answers=answers)
    assert "keep" == session.decision.decision
    assert any("” (yes) speaks for tune" in entry for entry in session.would_change)
    assert 2.0 == session.intent.failures_per_day
    assert "**yes** (stated)" in markdown(session)


def test_what_the_intent_says_is_not_asked_again() -> None:
    """The objective of the project's file answers its question."""
    session = held(Recorded("a", view()), intent=Intent(objective="cost", price_per_device_hour=3))
    asked = {entry.id: entry.answer for one in session.stages for entry in one.asked}
    assert "cost" == asked["objective"]
    assert 3 == asked["price"]
    assert asked["restart_min"] is None


def test_questions_without_point_are_left_out() -> None:
    """No questions about storage where nobody waits for data."""
    first = held(Recorded("a", view())).stages[0]
    assert {"host_cpus_full", "storage_at_ceiling"} <= set(first.not_asked)
    slow = held(Recorded("a", view((Fault("data", None, 9 * MS),)))).stages[0]
    assert "host_cpus_full" in {entry.id for entry in slow.asked}


def test_runs_of_one_size_are_not_ranked_by_their_noise() -> None:
    """Which of two runs on as many devices is faster is told by a comparison, with its interval."""
    session = held(Recorded("a", view((), 4)), Recorded("b", view((LATE,), 4)))
    assert stage(session, "P3").startswith(
        "2 runs of one size: tuiadvisor compare tells whether one is faster."
    )


def test_the_session_says_what_a_change_may_cost() -> None:
    """The same bound as diagnose: with a price it is no question of hours alone."""
    intent = Intent(objective="cost", remaining_steps=1e6, price_per_device_hour=1)
    session = held(Recorded("a", view((LATE,), 4)), intent=intent)
    money = session.decision.saved_money
    assert money is not None
    assert f"while it costs less than {money.expected:,.2f}, if ready within " in markdown(session)
    late = held(Recorded("a", view((LATE,), 4)), intent=intent, answers={"effort_hours": 1e4})
    assert "costs less than" not in markdown(late)


@pytest.mark.slow
def test_two_sizes_are_ranked_under_three_metrics() -> None:
    """Time, efficiency and cost disagree, and the objective chooses."""
    large, small = view((NETWORK,), 8), view((), 4)
    intent = Intent(objective="cost", remaining_steps=1e6, price_per_device_hour=1, restart_min=10)
    session = held(Recorded("eight", large), Recorded("four", small), intent=intent)
    assert "The metrics disagree: time prefers eight, efficiency prefers four" in stage(session, "P3")
    assert "weak scaling" in stage(session, "P4")
    assert "From 4 to 8 devices" in session.whys[NAMES.index("devices")].answer
    assert "fault of its own" not in session.whys[NAMES.index("devices")].answer
    faulty = held(Recorded("eight", view((LATE,), 8)), Recorded("four", small))
    assert (
        "fault of its own, which is no matter of size: The others wait"
        in faulty.whys[NAMES.index("devices")].answer
    )


@pytest.mark.slow
def test_limits_name_the_cheapest_in_time_and_the_fastest_within_the_budget() -> None:
    """Eight devices for four's work: the exchange makes them faster and dearer."""
    runs = Recorded("eight", view((NETWORK,), 8)), Recorded("four", view((), 4))
    free = held(
        *runs, intent=Intent(remaining_steps=1e6, price_per_device_hour=1, deadline_h=100, budget=1e6)
    )
    assert "Cheapest size that meets the deadline: 4 devices." in stage(free, "P6")
    assert "Fastest size within the budget: 8 devices." in stage(free, "P6")
    tight = held(
        *runs, intent=Intent(remaining_steps=1e6, price_per_device_hour=1, deadline_h=0.01, budget=0.01)
    )
    assert 2 == stage(tight, "P6").count("none of the measured ones")


def test_another_model_is_no_size_of_this_one() -> None:
    """Samples of a model ten times as large are another unit of work."""
    runs = Recorded("a", view(), 1_000_000), Recorded("b", view((), 8), 10_000_000)
    session = held(*runs)
    assert "another unit of work" in markdown(session)
    assert "Cannot be told" in session.whys[NAMES.index("devices")].answer


@pytest.mark.slow
def test_bottlenecks_are_followed_from_session_to_session() -> None:
    """The late rank is gone, the exchange is what is left; the same run read again is not counted twice."""
    first = held(Recorded("before", view((LATE, NETWORK))))
    second = held(Recorded("after", view((NETWORK,))), history=first.history)
    assert [entry.run for entry in second.history] == ["before", "after"]
    assert "predicted" in second.loop.last_time
    assert "tuiadvisor compare before after" in second.loop.last_time
    again = held(Recorded("after", view((NETWORK,))), history=second.history)
    assert second.history == again.history


def test_a_saved_session_is_resumed_on_its_own_run_only() -> None:
    """Answers belong to a run, history to the project."""
    session = held(Recorded("a", view((LATE,))), answers={"effort_hours": 3.0})
    saved = json.loads(orjson.dumps(document(session)))
    assert {"effort_hours": 3.0} == saved_answers(saved, session.identity)
    assert {} == saved_answers(saved, "another")
    assert session.history == saved_history(saved, "file")
    assert () == saved_history(None, "file")


@pytest.mark.parametrize(
    "saved",
    [[], {"schema": 2, "history": []}, {"schema": 1}, {"schema": 1, "history": [1]},
     {"schema": 1, "history": [{"run": "a", "identity": "b", "decision": "keep", "ranks": ["x"]}]},
     {"schema": 1, "history": [{"run": "\x1b[2J", "identity": "b", "decision": "keep", "ranks": []}]},
     {"schema": 1, "history": [{}] * 1001}],
)  # fmt: skip
def test_a_damaged_session_file_is_one_clear_line(saved: object) -> None:
    """It may come from anywhere."""
    with pytest.raises(TuiadvisorError, match=r"mine\.json") as caught:
        saved_history(saved, "mine.json")
    assert "\n" not in str(caught.value)


def test_foreign_text_cannot_act_in_markdown() -> None:
    """No links, code, tables, new lines or escape sequences."""
    assert "\\[x\\](y) \\`z\\`  \\|" == plain("[x](y) `z`\n\x1b|").replace("   ", "  ")
    session = held(Recorded("[run](http://x)\n# Title", view()))
    assert "\n# Title" not in markdown(session)


@pytest.mark.slow
@settings(max_examples=num_examples(20), deadline=None)
@given(
    some.sampled_from([(), (LATE,), (NETWORK,), (LATE, NETWORK)]),
    some.builds(
        Intent,
        objective=some.sampled_from([None, "time", "cost"]),
        remaining_steps=some.none() | some.floats(1, 1e9),
        price_per_device_hour=some.none() | some.floats(0.01, 100),
    ),
)
def test_same_inputs_same_session(faults: tuple[Fault, ...], intent: Intent) -> None:
    """Byte for byte, and always a document."""
    one, two = (held(Recorded("a", view(faults)), intent=intent) for _ in range(2))
    assert orjson.dumps(document(one)) == orjson.dumps(document(two))
    assert markdown(one) == markdown(two)


@pytest.mark.slow
@pytest.mark.parametrize("seed", thinned(range(4), [0]))
def test_removing_a_simulated_fault_never_worsens_the_predicted_time(seed: int) -> None:
    """The prediction without the dominant finding: with two faults no better than with one of them."""
    both = held(Recorded("a", final_view(Job(faults=(LATE, NETWORK), seed=seed))))
    one = held(Recorded("a", final_view(Job(faults=(LATE,), seed=seed))))
    predicted = [entry.history[-1].predicted_step_s for entry in (one, both)]
    measured = [entry.history[-1].step_s for entry in (one, both)]
    assert None not in predicted
    assert predicted[0] <= predicted[1]  # type: ignore[operator]
    assert all(then <= now for then, now in zip(predicted, measured, strict=True))  # type: ignore[operator]


def test_slow_first_steps_are_held_against_shorter_ones() -> None:
    """A second recording that compiles: when it has paid for itself, and whether the run is long enough."""
    plain_run = view()
    compiled = final_view(Job(backward_s=6 * MS, faults=(Fault("warmup", None, 400 * MS, until=10),)))
    intent = Intent(remaining_steps=1e5)
    text = stage(held(Recorded("a", plain_run), Recorded("compiled", compiled), intent=intent), "P2")
    assert "compiled loses" in text
    assert "more in slow first steps and its steps are 3" in text
    assert "100,000 remain, so it pays" in text
    short = stage(
        held(Recorded("a", plain_run), Recorded("compiled", compiled), intent=Intent(remaining_steps=100)),
        "P2",
    )
    assert "100 remain, so it does not pay" in short
    slower = final_view(Job(backward_s=12 * MS, faults=(Fault("warmup", None, 400 * MS, until=10),)))
    assert "it never pays" in stage(held(Recorded("a", plain_run), Recorded("compiled", slower)), "P2")


def test_an_exchange_worth_the_question_is_held_against_the_links_ceiling() -> None:
    """Unknown with the way to measure it, until the ceiling was imported."""
    seen = view((NETWORK,))
    recorded = Recorded("a", replace(seen, run=replace(seen.run, backend="nccl")), 400_000_000, 16)
    fourth = held(recorded).stages[3]
    assert any(name == "link or message" and "all_reduce_perf" in measure for name, measure in fourth.unknown)
    machine = Machine((Network(4, 1, ((1e6, 1e-4), (1e9, 0.1))),))
    known = conduct((recorded,), Intent(), {}, QUESTIONS, machine=machine)
    assert any(item.name == "link or message" and item.text for item in known.stages[3].evidence)
    assert all(item.name != "link or message" for item in held(Recorded("a", view())).stages[3].evidence)


def test_checkpoints_that_were_seen_beside_an_evaluation_are_not_asked_for_again() -> None:
    """4 ms each beside an evaluation of 300 ms: their length is not known, but two of them were recorded."""
    faults = (Fault("eval", None, 300 * MS, every=40), Fault("checkpoint", (0,), 4 * MS, every=40))
    beside, without = (
        dict(held(Recorded("a", view(some))).stages[1].unknown) for some in (faults, faults[:1])
    )
    assert "that come alone" in beside["one checkpoint"]
    assert "record across two checkpoints" == without["one checkpoint"]
