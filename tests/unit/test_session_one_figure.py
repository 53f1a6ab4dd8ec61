"""A session contradicts itself nowhere: one reckoning of the rest behind hours, deadline, cost and goodput."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from synthetic_run import MS, Fault, Job, final_view, folded, frames
from test_goodput_waterfall import born
from thinned import num_examples

from tuiadvisor.scaling.onerun import one_run
from tuiadvisor.scaling.onerundoc import one_run_text
from tuiadvisor.scaling.young_daly import lost_share
from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.economy import economy, economy_lines
from tuiadvisor.session.entries import stated_in
from tuiadvisor.session.evidence import facts, steps_of
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.machine import Machine
from tuiadvisor.session.markdown import markdown
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.recordedsizes import parts_of, table_of
from tuiadvisor.session.sizing import Known, picture_of
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.message import seconds
from tuiadvisor_rules.questions import load_questions

QUESTIONS = load_questions()
CHECKPOINT_S = 0.5
STEPS = 5e6


@cache
def view(*, is_over: bool = False) -> RunView:
    """Checkpoints every 40 steps, slow data, a start-up of 30 s."""
    faults = (Fault("checkpoint", None, CHECKPOINT_S, every=40), Fault("data", None, 0.004))
    found: RunView = folded(born(frames(Job(num_steps=400, faults=faults)), 30.0, young=True)).view()
    if is_over:
        found = replace(found, ranks=tuple(replace(row, state="exited") for row in found.ranks))
    return found


def session(
    intent: Intent, answers: dict[str, str | float] | None = None, *, is_over: bool = False
) -> Session:
    """Of that run alone."""
    return conduct((Recorded("run.rec", view(is_over=is_over)),), intent, answers or {}, QUESTIONS)


def said(held: Session, pattern: str, name: str) -> str:
    """One item of evidence."""
    stage = next(entry for entry in held.stages if entry.pattern == pattern)
    return next(item.text or "" for item in stage.evidence if item.name == name)


def concluded(held: Session, pattern: str) -> str:
    """What a pattern's station concludes."""
    return next(entry.conclusion for entry in held.stages if entry.pattern == pattern)


def number(pattern: str, text: str) -> float:
    """The one number that the pattern finds."""
    found = set(re.findall(pattern, text))
    assert len(found) == 1, (pattern, text)
    return float(found.pop().replace(",", ""))


@pytest.mark.slow
@settings(max_examples=num_examples(25), deadline=None)
@given(
    failures=some.floats(0.1, 40),
    every_min=some.floats(2, 120),
    restart_min=some.floats(0, 30),
    deadline_h=some.floats(5, 200),
    is_over=some.booleans(),
)
def test_hours_deadline_cost_and_goodput_are_of_one_reckoning(
    failures: float, every_min: float, restart_min: float, deadline_h: float, is_over: bool
) -> None:
    """Whatever is stated: every sentence that names hours, a share lost or money agrees with the others."""
    intent = Intent(
        remaining_steps=STEPS, deadline_h=deadline_h, price_per_device_hour=2.0, failures_per_day=failures,
        restart_min=restart_min,
    )  # fmt: skip
    held = session(intent, {"checkpoint_every": every_min}, is_over=is_over)
    lost = lost_share(every_min / 60, CHECKPOINT_S / 3600, 24 / failures, restart_min / 60)
    hours = number(r"^([\d.e+]+) h$", said(held, "P6", "rest of the run"))
    assert hours == pytest.approx(number(r"([\d.e+]+) h left", said(held, "P3", "run.rec")), rel=1e-3)
    concludes = concluded(held, "P6")
    assert number(r"(?:met|missed) \(([\d.e+]+) h\)", concludes) == pytest.approx(hours, rel=0.01)
    if abs(hours / deadline_h - 1) > 0.001:
        assert ("is met" in concludes) == (hours < deadline_h)
    assert number(r"cost ([\d,.]+)", said(held, "P3", "run.rec")) == pytest.approx(hours * 4 * 2.0, rel=0.01)
    assert number(r"^([\d,.]+)$", said(held, "P6", "cost of the rest")) == pytest.approx(
        hours * 4 * 2.0, rel=0.01
    )
    # What the plan of checkpoints says is lost at the present interval is what the hours are longer by.
    plan = number(r"as now loses ([\d.e+-]+) %", concluded(held, "P2"))
    assert plan == pytest.approx(100 * lost, rel=0.1)
    alone = number(r"That is ([\d.e+]+) h of steps", concludes)
    assert alone / (1 - lost) == pytest.approx(hours, rel=0.02)
    goodput = number(r"^(\d+) %", said(held, "P2", "goodput of the rest"))
    assert goodput <= 100 * (1 - lost) + 1
    useful_step_s = (view().wall.steady or 0) * (view().step.mean_s or 0)  # type: ignore[union-attr]
    assert goodput == pytest.approx(100 * STEPS * useful_step_s / 3600 / hours, abs=1)


def test_the_contradiction_that_was_seen_is_gone() -> None:
    """Restarts 24 a day, a checkpoint an hour: it said that 52 % is lost, goodput is 93 %, 40 h are kept with 37.4."""
    step_s = 1 / (view().step.throughput_steps_s or 1)
    intent = Intent(remaining_steps=37.4 * 3600 / step_s, deadline_h=40, failures_per_day=24, restart_min=5)
    held = session(intent, {"checkpoint_every": 60})
    assert "missed" in concluded(held, "P6")
    assert number(r"^(\d+) %", said(held, "P2", "goodput of the rest")) < 48


def test_diagnose_says_the_hours_and_cost_of_the_session() -> None:
    intent = Intent(
        remaining_steps=STEPS, deadline_h=60, price_per_device_hour=2.0, failures_per_day=6, restart_min=4
    )
    table, held = economy(view(), intent), session(intent)
    assert table["remaining_h"] == pytest.approx(
        number(r"^([\d.e+]+) h$", said(held, "P6", "rest of the run")), rel=1e-3
    )
    assert table["meets_deadline"] == ("is met" in concluded(held, "P6"))
    assert table["lost_share"] > 0


def test_what_nobody_knows_of_the_rest_is_null_and_named_and_no_0() -> None:
    """Failures that were not stated, and the start of a run that is over and was not seen to start."""
    unseen: RunView = final_view(Job(num_steps=200))
    ended = replace(unseen, ranks=tuple(replace(row, state="exited") for row in unseen.ranks))
    intent = Intent(remaining_steps=1000)
    table = economy(ended, intent)
    assert table["startup_s"] is table["lost_share"] is None
    assert table["counted_as_nothing"] == ["startup", "failures"]
    assert any("counts nothing for starting again" in line for line in economy_lines(table, intent))
    live = economy(unseen, replace(intent, failures_per_day=0.0))
    assert (live["startup_s"], live["lost_share"], live["counted_as_nothing"]) == (0.0, 0.0, [])
    assert not any("counts nothing" in line for line in economy_lines(live, intent))


def test_more_restarts_never_make_the_rest_shorter_or_the_goodput_higher() -> None:
    rows = [
        economy(view(), Intent(remaining_steps=STEPS, failures_per_day=failures, restart_min=3))
        for failures in (0.0, 0.5, 2.0, 12.0, 48.0)
    ]
    assert all(one["remaining_h"] < other["remaining_h"] for one, other in pairwise(rows))
    assert all(one["remaining_goodput"] > other["remaining_goodput"] for one, other in pairwise(rows))


def test_a_run_that_is_over_pays_its_start_up_again_and_a_live_one_does_not() -> None:
    intent = Intent(remaining_steps=1000)
    live, over = economy(view(), intent), economy(view(is_over=True), intent)
    assert over["remaining_h"] - live["remaining_h"] == pytest.approx(30 / 3600, rel=0.01)


@pytest.mark.slow
def test_a_stated_start_up_counts_only_where_none_was_measured() -> None:
    unseen: RunView = final_view(Job(num_steps=200))
    ended = replace(unseen, ranks=tuple(replace(row, state="exited") for row in unseen.ranks))
    intent = Intent(remaining_steps=1000)
    rows = [
        said(conduct((Recorded("a.rec", ended),), intent, answers, QUESTIONS), "P6", "rest of the run")
        for answers in ({}, {"start_up_min": 6.0})
    ]
    none, stated = (number(r"^([\d.e+]+) h$", text) for text in rows)
    assert stated - none == pytest.approx(0.1, rel=0.02)
    measured = [session(intent, answers, is_over=True) for answers in ({}, {"start_up_min": 6.0})]
    assert said(measured[0], "P6", "rest of the run") == said(measured[1], "P6", "rest of the run")


def test_a_rest_that_never_ends_is_said_to_and_not_called_unknown() -> None:
    held = session(
        Intent(remaining_steps=STEPS, failures_per_day=2000, restart_min=60), {"checkpoint_every": 600}
    )
    assert "nothing would ever finish" in concluded(held, "P6")
    assert held.decision.decision in {"keep", "stop", "tune"}


def test_recorded_goodput_is_one_figure_in_everything_the_session_says() -> None:
    """The share that P2 names is that of the view, and no other share is called goodput."""
    held = session(Intent(remaining_steps=STEPS))
    share = view().useful_share
    assert share is not None
    assert view().wall is not None
    told = said(held, "P2", "goodput")
    assert number(r"^(\d+) %", told) == round(100 * share)
    assert "from the start of the process" in told
    lines = [text for text in markdown(held).splitlines() if re.search(r"goodput.*\d+ %", text)]
    assert len(lines) == 2  # what was, and what will be


@pytest.mark.parametrize("is_over", [False, True])
def test_the_screen_of_sizes_reckons_the_hours_of_the_session(*, is_over: bool) -> None:
    """Screen 6 and the session name the same hours, deadline and cost for the run as it is."""
    intent = Intent(
        remaining_steps=STEPS, deadline_h=60, price_per_device_hour=2.0, failures_per_day=8, restart_min=6
    )
    recorded = Recorded("run.rec", view(is_over=is_over), 1000)
    small: RunView = final_view(Job(num_ranks=2, num_steps=300))
    known = Known(recorded, (Recorded("small.rec", small, 1000),))
    own = next(row for row in picture_of(known, stated_in(intent, 0.8), Machine()).rows if row.devices == 4)
    table = economy(recorded.view, intent)
    assert own.hours is not None
    assert own.cost is not None
    assert own.hours.expected == pytest.approx(table["remaining_h"], rel=1e-6)
    assert own.cost.expected == pytest.approx(table["remaining_cost"], rel=1e-6)
    assert table["lost_share"] > 0.03


def test_a_part_of_the_step_is_the_same_share_in_the_table_and_in_every_sentence() -> None:
    """A short window ends where a step did not: its length is not the sum of its parts, which the table shares."""
    short: RunView = final_view(
        Job(num_ranks=2, num_steps=26, noise=0.5, faults=(Fault("comm", None, 0.008),))
    )
    share = short.step.shares["comm_exposed"]
    assert share is not None
    short = replace(
        short, step=replace(short.step, throughput_steps_s=1.1 * (short.step.throughput_steps_s or 0))
    )
    text = markdown(conduct((Recorded("run.rec", short),), Intent(), {}, QUESTIONS))
    told = re.findall(r"exposed communication[^.;,(]*?(?:: |\()(\d+) %", text)
    told += re.findall(r"(\d+) % of the step is exposed communication", text)
    assert len(told) >= 2
    assert set(told) == {f"{100 * share:.0f}"}


def test_two_ways_of_what_remains_that_contradict_make_it_unknown_and_say_what_to_take_back() -> None:
    intent = Intent(
        remaining_steps=100_000,
        remaining_epochs=3,
        steps_per_epoch=1000,
        price_per_device_hour=2.0,
        deadline_h=9,
    )
    table, held = economy(view(), intent), session(intent)
    assert (table["remaining_steps"], table["remaining_h"], table["meets_deadline"]) == (None, None, None)
    assert "remaining_steps 100,000 steps, remaining_epochs 3,000 steps" in table["contradiction"]
    assert table["contradiction"] in concluded(held, "P6")
    assert table["contradiction"] in economy_lines(table, intent)
    rounded = replace(intent, remaining_epochs=100)
    assert economy(view(), rounded)["contradiction"] is None
    assert economy(view(), rounded)["remaining_steps"] == 100_000


def test_the_step_of_the_evidence_is_the_one_that_its_parts_are_of() -> None:
    """A step of 37.3 ms stood above "other 14.7 ms (42 %)", which is of 35.3: hours are reckoned with pauses, too."""
    found = view()
    step = found.step
    assert step.throughput_steps_s is not None
    parts_s = sum(part for part in step.seconds.values() if part is not None)
    text = said(session(Intent()), "P1", "step")
    assert text == f"{seconds(parts_s)} steady, {seconds(1 / step.throughput_steps_s)} pauses included"
    loop = session(Intent()).loop
    assert f": step {text}, steps " in loop.baseline  # it was "step 37.3 ms" of the steps that take 35.3
    assert loop.hypothesis.endswith(", pauses included.") or " a step takes " not in loop.hypothesis
    calm = final_view(Job(num_ranks=2, num_steps=200))
    one = conduct((Recorded("run.rec", calm),), Intent(), {}, QUESTIONS)
    assert "steady" not in said(one, "P1", "step")


def test_a_late_rank_costs_no_more_than_it_is_late() -> None:
    """Late by 122 ms in all steps, as a median, at a cost of 133 ms, a mean: read as an error."""
    now_and_then = Fault("forward", (2,), 60 * MS, every=10)
    found = final_view(Job(num_steps=300, faults=(Fault("forward", (2,), 20 * MS), now_and_then)))
    late = next(one for one in found.findings if one.id == "straggler")
    lateness_s = float(str(late.evidence["excess_s"]))
    assert late.loss_s_per_step is not None
    assert late.loss_s_per_step <= 1.01 * lateness_s
    (row,) = [one for one in found.ranks if one.rank == 2]
    assert row.caused_each_s == pytest.approx(lateness_s, rel=0.05)
    session = conduct([Recorded("run", found)], Intent(), {}, QUESTIONS)
    taken = re.search(r"a step takes ([\d.]+ ms)", session.loop.hypothesis)
    assert taken is not None
    assert f"would still take {taken[1]};" in session.stages[0].conclusion


def test_every_command_says_of_which_steps_its_figure_is() -> None:
    """59.3, 62.5 and 66.8 ms were the mean step of one file: with pauses, of the steps since a change, of all."""
    spread = Job(
        num_ranks=4, num_steps=400, ranks_per_host=1,
        faults=(Fault("forward", None, 20 * MS, onset=200), Fault("checkpoint", (0,), 0.3, every=50)),
    )  # fmt: skip
    runs = [
        Recorded(name, final_view(replace(spread, num_ranks=ranks)))
        for name, ranks in (("four", 4), ("two", 2))
    ]
    said = steps_of(facts("four", runs[0].view))
    window = runs[0].view.window
    assert said == (
        f"steps {window.first_step:,} to {window.last_step:,}, {window.num_steps:,} steady, pauses included"
    )
    assert f"  of {said}\n" in one_run_text("four", one_run(parts_of(runs[0]), ()))
    (note,) = [note for note in table_of(runs).notes if note.startswith("step_s is of ")]
    assert f"four: {said}; two: " in note
