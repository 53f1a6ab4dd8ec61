"""Every question that is asked moves something, and what was recorded is not asked."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest
from synthetic_run import MS, Fault, Job, final_view, folded, frames
from test_goodput_waterfall import born
from thinned import thinned

from tuiadvisor.advisor.cluster.host_use import HostUse
from tuiadvisor.session.answers import checked_answers
from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.document import document
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.measured import measured_answers
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.relevance import FIELDS, choices
from tuiadvisor.views.run_view import HostRow, RunView
from tuiadvisor_rules.loader import load_catalog
from tuiadvisor_rules.questions import load_questions

QUESTIONS = load_questions()
BY_ID = {question.id: question for question in QUESTIONS}
# All that could be stated, so that a number that is asked for meets what it is multiplied with.
STATED = Intent(
    remaining_steps=1e6, price_per_device_hour=2.0, failures_per_day=3.0, restart_min=4.0, engineer_hour_price=80.0,
    max_complexity="low", deadline_h=30.0, budget=1e5,
)  # fmt: skip
RUNS = {
    "healthy": (),
    "slow data": (Fault("data", None, 9 * MS),),
    "late rank": (Fault("data", (2,), 6 * MS),),
    "slow exchange": (Fault("comm", None, 12 * MS),),
    "checkpoints": (Fault("checkpoint", None, 0.4, every=40),),
    "late and slow": (
        Fault("forward", (1,), 6 * MS),
        Fault("comm", None, 9 * MS),
        Fault("data", None, 6 * MS),
    ),
    "unequal lengths": (Fault("length", None, 12 * MS),),
}


@cache
def view(name: str, num_ranks: int = 4) -> RunView:
    """One of RUNS at its end."""
    found: RunView = folded(
        born(frames(Job(num_ranks=num_ranks, num_steps=250, faults=RUNS[name])), 20.0, young=num_ranks == 4)
    ).view()
    return found


def held(
    *runs: RunView, intent: Intent | None = None, answers: dict[str, str | float] | None = None
) -> Session:
    """Of these runs."""
    recorded = [Recorded(f"{number}.rec", run) for number, run in enumerate(runs)]
    return conduct(recorded, intent or Intent(), answers or {}, QUESTIONS)


def asked_as(name: str) -> str:
    """A question as people read it, not by its id."""
    return next(f"“{question.ask}”" for question in QUESTIONS if question.id == name)


def open_questions(session: Session) -> list[str]:
    """Ids of what is asked and not answered."""
    return [asked.id for stage in session.stages for asked in stage.asked if asked.answer is None]


def computed(session: Session) -> object:
    """What a session computes, without the words of the answers themselves."""
    told = document(session)
    stages = {stage["pattern"]: stage for stage in told["stages"]}
    evidence = {
        name: [(item["name"], item["text"]) for item in stages[name]["evidence"]]
        for name in ("P2", "P3", "P6")
    }
    # With the figures of each change, without what the answers say of it.
    order = [
        re.sub(r"; “[^”]*” \([^)]*\) speaks (for|against) it", "", item["text"] or "")
        for item in stages["P5"]["evidence"]
    ]
    conclusions = [stages[name]["conclusion"] for name in ("P2", "P3", "P5", "P6")]
    return told["decision"] | {"would_change": None}, evidence, order, conclusions, told["loop"]["change"]


@pytest.mark.slow
@pytest.mark.parametrize("name", thinned(RUNS, ["healthy", "late and slow"]))
@pytest.mark.parametrize("num_runs", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_every_question_asked_moves_a_number_the_order_of_changes_or_the_decision(
    name: str, num_runs: int
) -> None:
    runs = (view(name), view("healthy", 2))[:num_runs]
    asked = open_questions(held(*runs))
    assert "objective" in asked
    for question in asked:
        field = FIELDS.get(question, "objective" if question == "objective" else "")
        intent = replace(STATED, **{field: None}) if field else STATED  # type: ignore[arg-type]
        given: dict[str, str | float] = {"checkpoint_every": 20.0, "effort_hours": 2.0}
        given.pop(question, None)
        seen = [
            computed(held(*runs, intent=intent, answers={**given, question: answer}))
            for answer in choices(BY_ID[question])
        ]
        assert any(one != seen[0] for one in seen[1:]), question


def test_what_moves_nothing_is_not_asked() -> None:
    """Of the 33 questions in the catalogue most say nothing about a run in which nothing is wrong."""
    asked = open_questions(held(view("healthy")))
    assert {"serving", "reproducible", "profile_seen", "utilization_judged", "model_larger"}.isdisjoint(asked)
    assert {"host_cpus_full", "network_ceiling", "lengths_vary"}.isdisjoint(asked)
    assert {"objective", "price", "restart_min", "restarts_per_day", "run_worth_finishing"} <= set(asked)


def test_an_answer_about_the_network_changes_what_is_tried_first() -> None:
    firsts = set()
    for answer in ("as long", "much shorter"):
        session = held(view("slow exchange"), answers=checked_answers({"network_ceiling": answer}, QUESTIONS))
        stage = next(one for one in session.stages if one.pattern == "P5")
        firsts.add((stage.evidence[0].text or "").split(": ")[-1][:12])
        assert f"{asked_as('network_ceiling')} ({answer}) speaks for it" in (stage.evidence[0].text or "")
    assert len(firsts) == 2


def with_hosts(found: RunView, **use: float) -> RunView:
    """The same run on a host that was so busy."""
    row = HostRow("node0", None, None, None, 8, None, None)
    return replace(found, hosts=(replace(row, **use),))  # type: ignore[arg-type]


def test_evidence_is_told_in_words_not_in_identifiers() -> None:
    """By rule: "finding: crowded host", "next constraint: comm exposed", and a sentence that began with "after"."""
    for name in ("late rank", "slow exchange"):
        session = held(with_hosts(view(name), cpu_mean=0.97, iowait_mean=0.02))
        first = next(stage for stage in session.stages if stage.pattern == "P1")
        told = {item.name: item.text or "" for item in first.evidence}
        assert "finding" in told
        assert not [text for text in (*told, *told.values()) if "_" in text or "comm exposed" in text]
        assert told["host cpus full"].startswith("yes, ")
        assert ". after" not in first.conclusion
        assert not re.search(r"[^;] after that the constraint", first.conclusion)


@pytest.mark.parametrize(("busy", "answer"), [(0.97, "yes"), (0.3, "no"), (0.85, None)])
def test_processors_that_were_recorded_are_not_asked_about(busy: float, answer: str | None) -> None:
    """Between the thresholds it is a question."""
    session = held(with_hosts(view("slow data"), cpu_mean=busy, iowait_mean=0.02))
    first = next(stage for stage in session.stages if stage.pattern == "P1")
    told = [item.text for item in first.evidence if item.name == "host cpus full"]
    if answer is None:
        assert told == []
        assert "host_cpus_full" in open_questions(session)
        return
    busy_words = f"processors of the busiest host {100 * busy:.0f} % busy in the mean"
    assert told == [f"{answer}, {busy_words}, 2 % of the time in iowait (of local disks alone)"]
    assert "host_cpus_full" not in open_questions(session)
    fifth = next(stage for stage in session.stages if stage.pattern == "P5")
    speaks = [
        item.text or ""
        for item in fifth.evidence
        if f"{asked_as('host_cpus_full')} ({answer}) speaks" in (item.text or "")
    ]
    assert speaks


def test_what_a_person_says_wins_over_what_was_measured() -> None:
    run = with_hosts(view("slow data"), cpu_mean=0.97)
    session = held(run, answers=checked_answers({"host_cpus_full": "no"}, QUESTIONS))
    fifth = next(stage for stage in session.stages if stage.pattern == "P5")
    assert any(
        f"{asked_as('host_cpus_full')} (no) speaks for it" in (item.text or "") for item in fifth.evidence
    )


@pytest.mark.parametrize(
    ("memory", "retries", "answer"),
    [(0.97, 4, "yes"), (0.5, 0, "no"), (0.97, 0, None), (0.5, 4, None), (0.9, None, None)],
)
def test_memory_is_full_only_with_retries(memory: float, retries: int | None, answer: str | None) -> None:
    """Full by a cache that is never given back is no shortage."""
    run = facts("a", replace(with_hosts(view("healthy"), device_memory_most=memory), alloc_retries=retries))
    found = measured_answers(run).get("memory_nearly_full")
    assert (found.answer if found else None) == answer


def test_devices_that_are_busy_in_an_exposed_exchange_spin() -> None:
    run = with_hosts(view("slow exchange"), device_busy_mean=0.95)
    found = measured_answers(facts("a", run))["spins_in_collective"]
    assert found.answer == "yes"
    assert "95 % busy" in found.because
    assert "spins_in_collective" not in measured_answers(
        facts("a", with_hosts(view("slow data"), device_busy_mean=0.95))
    )


def test_use_of_hosts_is_a_mean_and_what_makes_no_sense_is_no_part_of_it() -> None:
    use = HostUse()
    total = 80 * 2**30
    for cpu, busy, used in ((0.2, 0.5, 10 * 2**30), (0.6, 0.7, 40 * 2**30), (7.0, -1.0, 2 * total)):
        gpus = [{"utilization": busy, "memory_used_bytes": used, "memory_total_bytes": total}]
        use.take("node0", {"cpu": cpu, "iowait": "a lot", "gpus": gpus})
    cpu_mean, iowait, busy_mean, memory = use.means("node0")
    assert cpu_mean == pytest.approx(0.4)
    assert iowait is None
    assert busy_mean == pytest.approx(0.6)
    assert memory == pytest.approx(0.5)
    assert use.means("node1") == (None, None, None, None)


def test_a_recording_of_nothing_about_hosts_measures_no_answer() -> None:
    assert measured_answers(facts("a", final_view(Job(num_steps=60)))) == {}


def test_every_mark_of_an_answer_is_in_an_action_of_a_rule() -> None:
    """Marks are words of actions: an action reworded would silence an answer without a sound."""
    said_by = [said for rule in load_catalog() for said in (rule, *rule.variants)]
    texts = [action.text for said in said_by for action in said.actions or ()]
    marks = [(one.id, mark[1:]) for one in QUESTIONS for said in one.favours.values() for mark in said]
    assert marks
    dead = [
        (name, words)
        for name, words in marks
        if words != "risk low" and not any(words in text for text in texts)
    ]
    assert dead == []
