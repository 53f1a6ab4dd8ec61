"""All ranks wait for data: what whoever reads was met doing sets the dialogue's causes, its change and its question."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from synthetic_run import MS, Fault, Job, final_view, folded
from test_loader_stages import EMPTY, ONE_LATE, sequence_of
from test_readers import COMPUTE, IN_STORAGE, JOB, READS
from test_storage_wait import Told, seen

from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

pytestmark = pytest.mark.slow

STORAGE, WORKERS = "slow storage or mount", "too few loader workers"
COSTLY, NETWORK = "samples that cost much processor time", "a network or lock that samples wait for"


@cache
def told_so(**told: int) -> RunView:
    """Hosts whose processors have room, as where readers wait."""
    view = seen(JOB, dict.fromkeys(range(4), told))
    return replace(view, hosts=tuple(replace(one, cpu_mean=0.3, iowait_mean=0.01) for one in view.hosts))


def session_on(told: Told, **answers: str | float) -> Session:
    return conduct([Recorded("run", told_so(**told))], Intent(), answers, load_questions())


def causes(told: Told) -> dict[str, float]:
    return {one.words: one.now for one in session_on(told).dialogue.causes}


def test_readers_that_wait_for_storage_put_it_first_by_far() -> None:
    """It stood level with too few workers: 44 and 44."""
    found = causes(IN_STORAGE)
    assert STORAGE == next(iter(found))
    assert found[STORAGE] > 3 * max(share for words, share in found.items() if words != STORAGE)


def test_a_training_thread_that_waits_for_storage_for_all_of_its_data_wait_does_too() -> None:
    """It has other work in the rest of the step: 4 looks of 10 are all of a wait of a third."""
    found = causes({**READS, "storage_looks": 4})
    assert STORAGE == next(iter(found))
    assert found[STORAGE] > 0.9


def test_readers_that_compute_speak_for_processor_time_and_workers() -> None:
    found = causes(COMPUTE)
    assert found[STORAGE] < 0.1
    assert found[WORKERS] + found[COSTLY] > 0.8


def test_readers_that_do_neither_wait_for_a_network_or_a_lock() -> None:
    """It said samples that cost much processor time. More workers are its cheap cure."""
    view = told_so(**COMPUTE)
    (bound,) = [one for one in view.findings if one.id == "input_bound"]
    asleep = replace(bound, evidence={**bound.evidence, "readers_running_share": 0.1})
    run = Recorded("run", replace(view, findings=(asleep, *(one for one in view.findings if one != bound))))
    held = conduct([run], Intent(), {}, load_questions())
    found = {one.words: one.now for one in held.dialogue.causes}
    assert [NETWORK, WORKERS] == list(found)[:2]
    assert found[STORAGE] < 0.1
    assert found[COSTLY] < 0.1


def test_where_nobody_looked_no_network_is_made_up() -> None:
    assert NETWORK not in causes({})


@pytest.mark.parametrize("told", [IN_STORAGE, COMPUTE, {}])
def test_the_session_s_one_change_is_the_overview_s_first_action(told: Told) -> None:
    """With storage seen the overview said to ask it for less, the session to have more reads under way."""
    (found,) = [one for one in told_so(**told).findings if one.id == "input_bound"]
    held = session_on(told)
    assert held.dialogue.change.startswith(found.actions[0].text)
    assert held.loop.change.startswith(found.actions[0].text)


def test_an_answer_still_moves_the_one_change() -> None:
    change = session_on(IN_STORAGE, storage_at_ceiling="no").dialogue.change
    assert change.startswith("Have more reads under way")


@pytest.mark.parametrize("told", [IN_STORAGE, {**READS, "storage_looks": 4}, COMPUTE, {}])
def test_the_first_question_is_the_one_that_splits_the_causes(told: Told) -> None:
    """It was whether the result would still be used, which tells nothing of them."""
    asked = session_on(told).dialogue.question
    assert asked is not None
    assert "storage_at_ceiling" == asked.id


@pytest.mark.parametrize(("on_core", "is_costly"), [(0.04, False), (1.0, True)])
def test_a_late_rank_that_makes_its_batches_off_its_core_has_no_costly_samples(
    on_core: float, *, is_costly: bool
) -> None:
    """100 ms of sleep a step in its data set: costly samples led, though its thread used 5 ms of processor time."""
    job = Job(num_ranks=4, num_steps=200, faults=(Fault("data", (2,), 0.02),))
    view = final_view(job)
    late = next(one for one in view.findings if one.id == "straggler")
    told = replace(late, evidence={**late.evidence, "wait_on_core_share": on_core})
    rest = tuple(one for one in view.findings if one != late)
    run = Recorded("run", replace(view, findings=(told, *rest)))
    held = conduct([run], Intent(), {}, load_questions())
    found = {one.words: one.now for one in held.dialogue.causes}
    assert (found[COSTLY] > found[STORAGE]) == is_costly
    assert (found[COSTLY] > found.get(NETWORK, 0.0)) == is_costly


def test_how_long_a_thread_that_makes_its_batches_was_on_a_core_is_known() -> None:
    """By the kernel's count; behind worker processes its own time tells nothing of theirs."""
    job = replace(ONE_LATE, faults=(Fault("data_wait", (1,), 60 * MS),))
    for workers in (0, 2):
        (late,) = [
            one
            for one in folded(sequence_of(job, EMPTY, workers=workers)).view().findings
            if one.id == "straggler"
        ]
        share = late.evidence.get("wait_on_core_share")
        assert share is None if workers else 0.0 < float(str(share)) < 0.6
