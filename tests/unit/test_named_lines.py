"""The line of code that a look at a late rank named stands in the place of the advice to look for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, folded, frames
from unit.test_stack_cards import LATE, WAITING, entry

from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

LATE_RANK = Job(num_steps=300, faults=(Fault("backward", (2,), 20 * MS),))
NAMED = "Shorten what rank 2 does at train.py:49 in wait: 20 ± 3 ms a step; its peer, rank 0: none."


def looked_at(job: Job, *stacks: dict[str, object]) -> RunView:
    """A run whose rank 2 was looked at."""
    answer = Frame(
        FrameKind.STATUS,
        "node0/1/1",
        9000,
        20 * 10**9,
        {"mono_ns": 20 * 10**9, "ranks": [], "stacks": [*stacks]},
    )
    return folded([*frames(job), answer]).view()


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
