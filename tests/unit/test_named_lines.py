"""The line of code that a look at a late rank named stands in the place of the advice to look for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, folded, frames
from unit.test_loader_stages import EMPTY, ONE_LATE, sequence_of
from unit.test_stack_cards import LATE, WAITING, entry

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.tui.pages.sections import culprits
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

LATE_RANK = Job(num_steps=300, faults=(Fault("backward", (2,), 20 * MS),))
NAMED = "Shorten what rank 2 does at train.py:49 in wait: 20 ± 3 ms a step; its peer, rank 0: none."


def advisor_that_looked(job: Job, *stacks: dict[str, object], at_s: float = 20.0) -> Advisor:
    """Of a run whose rank 2 was looked at; at_s: when that was told, by the host's clock."""
    return folded([*frames(job), answer_at(at_s, *stacks)])


def answer_at(at_s: float, *stacks: dict[str, object]) -> Frame:
    """What an agent tells of stacks."""
    told = {"mono_ns": round(at_s * 1e9), "ranks": [], "stacks": [*stacks]}
    return Frame(FrameKind.STATUS, "node0/1/1", 9000, 20 * 10**9, told)


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


@pytest.mark.parametrize(("looked_at_step", "is_named"), [(60, False), (220, True)])
def test_a_look_from_before_the_trouble_names_no_line_of_it(looked_at_step: int, is_named: bool) -> None:
    """The card says at which step it was taken."""
    job = replace(LATE_RANK, faults=(Fault("backward", (2,), 20 * MS, onset=150),))
    table = advisor_that_looked(job).steps_of_job(0, 299)
    assert table is not None
    end_s = table[0].end_s_RK[2] + table[0].origin_ns_R[2] * 1e-9
    seen = (entry(2, [LATE, WAITING] * 75), entry(0, [WAITING] * 150))
    view = advisor_that_looked(job, *seen, at_s=float(end_s[looked_at_step - 1])).view()
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert is_named == found.actions[0].text.startswith("Shorten what rank 2 does at train.py:49")
    (shown,) = view.cards
    assert abs((shown.step or 0) - looked_at_step) <= 1
    assert f"at step {shown.step}" in shown.basis


def without_workers() -> list[Frame]:
    """Rank 1 is late in data, and no rank has worker processes."""
    told = []
    for one in sequence_of(ONE_LATE, EMPTY, workers=0):
        if one.kind is FrameKind.HELLO:
            ranks = [
                {**each, "model": {"models": 1, "params": 1000, "workers": 0}}
                for each in one.payload["ranks"]
            ]
            told.append(replace(one, payload={**one.payload, "ranks": ranks}))
        else:
            told.append(one)
    return told


def test_a_rank_that_makes_its_batches_itself_has_the_line_of_its_data_set_named() -> None:
    """It sleeps in its data set: the overview said workers, the dialogue its shard, neither the line."""
    stacks = [entry(1, [LATE, WAITING] * 75, of=1), entry(0, [WAITING] * 150, of=1)]
    unseen = folded(without_workers()).view()
    assert "tuiadvisor stacks 1 --lines" in first_change(unseen)
    view = folded([*without_workers(), answer_at(20.0, *stacks)]).view()
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert found.actions[0].text.startswith("Shorten what rank 1 does at train.py:49 in wait")
    assert found.actions[0].text == first_change(view)
    assert found.actions[1].text.startswith("Give the DataLoader worker processes")


@pytest.mark.parametrize(("busy", "place"), [(0.97, 1), (0.3, 0), (0.85, 1)])
def test_the_overview_and_the_dialogue_begin_with_the_same_change(busy: float, place: int) -> None:
    """Measured processors ordered the dialogue's changes alone.

    Full ones put the first workers of a loader last, behind hosts to be left, on two cores whose data set sleeps.
    """
    hosts = [
        Frame(
            FrameKind.HOST, "node0/1/1", 9100 + num, at_ns, {"host": "node0", "mono_ns": at_ns, "cpu": busy}
        )
        for num, at_ns in enumerate(range(10**9, 9 * 10**9, 10**9))
    ]
    advisor = folded([*without_workers(), *hosts])
    # Of steps that are over nobody is asked for the lines of code: there the workers come first.
    (past,) = [one for one in advisor.view_of_stretch((20, 150)).findings if one.id == "straggler"]
    assert past.actions[0].text.startswith("Give the DataLoader worker processes")
    view = advisor.view()
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert found.actions[place].text.startswith("Give the DataLoader worker processes")
    first = found.actions[0]
    assert first_change(view) == first.text + (f" ({first.command})" if first.command else "")


def test_a_line_of_ones_own_is_no_fault_of_the_host() -> None:
    """A json.dump in the loop: the bottleneck was "host", its layer cpu-os, beside the line that is to change."""
    view = looked_at(
        replace(LATE_RANK, faults=(Fault("other", (2,), 20 * MS),)),
        entry(2, [LATE, WAITING] * 75),
        entry(0, [WAITING] * 150),
    )
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert (found.phase, found.layer, found.actions[0].text) == ("host", "application", NAMED)
    session = conduct([Recorded("run", view)], Intent(), {}, load_questions())
    assert "(layer: application)" in session.stages[0].conclusion
    said = [row.text for row in culprits(view, 100, 3)]
    assert ["rank 2 arrives last: own code or host," in text for text in said] == [True]
