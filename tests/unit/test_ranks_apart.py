"""A rank whose steps could not be compared: every view says so, and why, in place of figures that nobody has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snapshot import views
from synthetic_run import Job, folded, hello, simulate
from unit.test_tui_pages import screen

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.report.document import document
from tuiadvisor.report.facts import rank_rows
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.views.run_view import RunView

JOB = Job(num_ranks=3, num_steps=60)
APART = "not compared with the others: its collectives"
PASSES = "its steps hold 4 backward passes, the others' 1"


def one_apart(passes: tuple[int, ...] = (1, 1, 1)) -> RunView:
    """Rank 2 is five steps off by its sequence numbers. passes: backward passes a step, of each rank."""
    seq = STEP_NAMES.index("group_seq")
    rows = simulate(JOB).rows
    rows[2] = [(*row[:seq], row[seq] + 15, *row[seq + 1 :]) for row in rows[2]]
    begun = hello(JOB, "node0")
    for entry, number in zip(begun.payload["ranks"], passes, strict=True):  # type: ignore[call-overload]
        entry["model"] = {"micro_steps": number}
    steps = [
        Frame(FrameKind.STEPS, begun.source, number, 1, pack_columns(batch, STEP_NAMES))
        for number, batch in enumerate(rows.values(), 1)
    ]
    return folded([begun, *steps]).view()


@pytest.mark.parametrize("state", ["live", "detached", "exited"])
def test_every_view_says_why_a_rank_has_no_figures(state: str) -> None:
    """Its row was bare "unknown" on the screens, and "probe taken out" in what was recorded."""
    view = one_apart()
    rows = [
        replace(row, state=state, state_detail="probe taken out" * (state == "detached"))
        for row in view.ranks
    ]
    view = replace(view, ranks=tuple(rows))
    for keys in ((), ("2",)):
        shown = next(
            row for row in screen(views.live(view), 120, 40, keys) if row.split()[:2] == ["2", "node0"]
        )
        assert "not compared with the others: its" in shown
        assert "unknown" not in shown
    assert APART in plain_summary(view)
    assert APART in rank_rows(view.ranks)[2][2]
    assert document(view)["per_rank"][2]["not_compared"].startswith(APART)
    assert not document(view)["per_rank"][1]["not_compared"]


def test_that_its_steps_hold_more_passes_is_said_with_it() -> None:
    """It stood under efficiency alone, as a name in which ranks differ."""
    assert PASSES in one_apart((1, 1, 4)).ranks[2].why_apart
    assert PASSES not in one_apart().ranks[2].why_apart


def test_how_it_was_ended_comes_before_that_it_was_not_compared() -> None:
    """A kill is why there are no more steps."""
    row = replace(one_apart().ranks[2], state="killed", state_detail="killed by SIGKILL")
    assert row.why_no_figures.startswith(f"killed by SIGKILL; {APART}")
