"""The line of code that a look at a late rank named stands in the place of the advice to look for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, folded, frames
from unit.test_stack_cards import LATE, WAITING, entry

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

LATE_RANK = Job(num_steps=300, faults=(Fault("backward", (2,), 20 * MS),))
NAMED = "Shorten what rank 2 does at train.py:49 in wait: 20 ± 3 ms a step; its peer, rank 0: none."


def advisor_that_looked(job: Job, *stacks: dict[str, object], at_s: float = 20.0) -> Advisor:
    """Of a run whose rank 2 was looked at; at_s: when that was told, by the host's clock."""
    at_ns = round(at_s * 1e9)
    told = {"mono_ns": at_ns, "ranks": [], "stacks": [*stacks]}
    return folded([*frames(job), Frame(FrameKind.STATUS, "node0/1/1", 9000, 20 * 10**9, told)])


def looked_at(job: Job, *stacks: dict[str, object]) -> RunView:
    """A run whose rank 2 was looked at."""
    return advisor_that_looked(job, *stacks).view()


def first_change(view: RunView) -> str:
    """The ONE change of the dialogue."""
    return conduct([Recorded("run", view)], Intent(), {}, load_questions()).dialogue.change


@pytest.mark.slow
def test_the_one_change_names_the_line_that_a_look_found() -> None:
    """It went on saying "find the lines of code that make it late: key C" once C had found them."""
    unseen = looked_at(LATE_RANK)
    assert "find the lines of code" in first_change(unseen)
    view = looked_at(LATE_RANK, entry(2, [LATE, WAITING] * 75), entry(0, [WAITING] * 150))
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert NAMED == found.actions[0].text
    assert NAMED == first_change(view)
    assert not any("--lines" in (act.command or "") for act in found.actions)


@pytest.mark.parametrize(
    "stacks",
    [
        [entry(2, [LATE, WAITING] * 75)],  # no peer
        [entry(2, [LATE, WAITING] * 75), entry(0, [LATE, WAITING] * 75)],  # no difference
        [entry(2, [LATE, WAITING] * 75, of=1), entry(0, [WAITING] * 150, of=1)],  # of another rank
    ],
)
def test_a_look_that_names_no_line_leaves_the_advice(stacks: list[dict[str, object]]) -> None:
    assert "find the lines of code" in first_change(looked_at(LATE_RANK, *stacks))


def test_a_line_that_explains_little_of_the_loss_leaves_the_advice() -> None:
    """20 ms of 100: the larger part has still to be looked for."""
    job = replace(LATE_RANK, faults=(Fault("backward", (2,), 100 * MS),))
    view = looked_at(job, entry(2, [LATE, WAITING] * 75), entry(0, [WAITING] * 150))
    assert "find the lines of code" in first_change(view)


def test_steps_that_are_over_name_the_lines_that_were_sampled_in_them_and_ask_nothing_of_the_job() -> None:
    """A stretch with the sampled steps in it lost their line; step 100 of a replay asked a job that was gone."""
    seen = (entry(2, [LATE, WAITING] * 75), entry(0, [WAITING] * 150))
    table = advisor_that_looked(LATE_RANK).steps_of_job(0, 299)
    assert table is not None
    begins_s = table[0].end_s_RK[2] + table[0].origin_ns_R[2] * 1e-9
    advisor = advisor_that_looked(LATE_RANK, *seen, at_s=float(begins_s[200]))
    for view in (advisor.view_of_stretch((20, 299)), advisor.view_of((20, 299)), advisor.view_at(250)):
        assert NAMED == first_change(view)
        assert [7] == [card.look for card in view.cards]
    for view in (advisor.view_of_stretch((190, 299)), advisor.view_of((20, 150)), advisor.view_at(150)):
        (found,) = [one for one in view.findings if one.id == "straggler"]
        assert found.actions[0].text.startswith("Look at what this rank alone does")
        assert not any("tuiadvisor stacks" in f"{act.command}" for act in found.actions)
        assert not view.cards
