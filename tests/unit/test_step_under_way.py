"""Phases of a long step while it lasts: from the word in a rank's ring to the rank's page."""

from __future__ import annotations

from synthetic_run import Job, folded, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.agent.step_under_way import StepUnderWay
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.text import format as text_of
from tuiadvisor.tui.pages.details import rank_lines

S = 10**9
DATA, FORWARD, BACKWARD = (PHASES.index(name) for name in ("data_wait", "forward", "backward"))


def test_the_phases_of_a_long_step_are_told_while_it_lasts() -> None:
    """Each by when the next one began; the one that it is in until now."""
    under_way = StepUnderWay()
    for phase, since_ns in ((DATA, 100 * S), (DATA, 100 * S), (FORWARD, 103 * S), (BACKWARD, 110 * S)):
        under_way.look(phase, since_ns, 7)
    assert under_way.so_far_ms(112 * S) == {"data_wait": 3000, "forward": 7000, "backward": 2000}


def test_a_new_step_begins_at_nothing() -> None:
    """What the one before took is its own."""
    under_way = StepUnderWay()
    under_way.look(DATA, 100 * S, 7)
    under_way.look(FORWARD, 150 * S, 8)
    assert under_way.so_far_ms(153 * S) == {"forward": 3000}


def test_short_and_unknown_steps_are_not_told() -> None:
    """A second is over before it is read; words that no probe wrote are none."""
    under_way = StepUnderWay()
    assert under_way.so_far_ms(99 * S) == {}
    under_way.look(FORWARD, 100 * S, 7)
    assert under_way.so_far_ms(101 * S) == {}
    assert under_way.so_far_ms(50 * S) == {}
    under_way.look(-1, 0, 7)
    assert under_way.so_far_ms(200 * S) == {}
    under_way.look(15, 1 << 63, 7)
    assert under_way.so_far_ms(200 * S) == {}


def advised(so_far: object) -> Advisor:
    """A job whose rank 1 has said this in its latest STATUS."""
    sequence = frames(Job(num_ranks=2))
    entry = {"rank": 1, "state": "live", "phase": "forward", "phase_since_ns": 10**9, "step": 7}
    status = {"mono_ns": 13 * 10**9, "ranks": [{**entry, "so_far_ms": so_far}]}
    return folded([*sequence, Frame(FrameKind.STATUS, "node0/1/1", 900, 13 * 10**9, status)])


def shown(so_far: object) -> str:
    """Rank 1's page."""
    view = advised(so_far).view()
    page = rank_lines(view, view.ranks[1], 100)
    return "\n".join("".join(span[0] for span in row.spans) for row in page)


def test_they_stand_on_the_ranks_page() -> None:
    """The longest first, in the words of the other screens."""
    assert "its step so far forward 12.0 s, data wait 3.1 s" in shown({"data_wait": 3100, "forward": 12_000})
    assert "its step so far" not in shown({})


def test_what_cannot_be_true_is_left_out() -> None:
    """From a stranger's agent."""
    assert "its step so far forward 2.5 s" in shown(
        {"forward": 2500, "lunch": 9000, "backward": -4, "eval": "x"}
    )
    assert "its step so far" not in shown([1, 2])


def test_times_below_one_look_are_chance() -> None:
    """They are not shown as if they had been measured."""
    assert text_of.so_far((("forward", 5.0), ("backward", 0.05))) == "forward 5.0 s"


def test_a_stretch_of_the_past_has_no_step_under_way() -> None:
    """As it has no present."""
    advisor = advised({"forward": 12_000})
    assert advisor.view().ranks[1].so_far == (("forward", 12.0),)
    assert {row.so_far for row in advisor.view_of_stretch((10, 50)).ranks} == {()}
