"""What `record` says at its end: ranks that gave steps are counted, those that did not are named with their reason."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import Fault, Job, final_view

from tuiadvisor.app.recorded_ranks import left_out, recorded_ranks, why_nobody
from tuiadvisor.cli import main
from tuiadvisor.views.run_view import RunView

JOB = Job(num_ranks=4, num_steps=60, faults=(Fault("forward", (1,), 0.006),))
WHY = "its owner switched remote debugging off"


def without_steps(view: RunView, ranks: dict[int, tuple[str, str]]) -> RunView:
    """The same where these ranks, with state and detail, never gave a step."""
    rows = [
        replace(row, last_step=None, state=ranks[row.rank][0], state_detail=ranks[row.rank][1])
        if row.rank in ranks
        else row
        for row in view.ranks
    ]
    return replace(view, ranks=tuple(rows))


def test_all_ranks_gave_steps() -> None:
    """One number, and nobody is left out."""
    view = final_view(JOB)
    assert ("4 ranks, up to step 59", []) == (recorded_ranks(view), left_out(view))


def test_refused_ranks_are_not_recorded() -> None:
    """`record` once said 60 ranks of which 44 had been refused."""
    view = without_steps(final_view(JOB), {1: ("refused", WHY), 2: ("refused", WHY)})
    assert "2 of 4 ranks, up to step 59" == recorded_ranks(view)
    assert [f"refused: 2 ranks, e.g. rank 1: {WHY}"] == left_out(view)


def test_a_rank_without_a_step_is_told_from_a_refused_one() -> None:
    """It is watched, and has nothing to show."""
    view = without_steps(final_view(JOB), {0: ("refused", f"{WHY}\nrank 3: all is well"), 3: ("live", "")})
    first, second = left_out(view)
    assert first.startswith("refused: rank 0: ")
    assert "\n" not in first
    assert "without a step: rank 3: live" == second


def test_before_the_first_step_all_ranks_are_awaited() -> None:
    """Nobody is counted out while nothing was seen."""
    view = replace(without_steps(final_view(JOB), dict.fromkeys(range(4), ("found", ""))), last_step=None)
    assert ("4 ranks, no steps yet", []) == (recorded_ranks(view), left_out(view))
    assert ("no ranks yet", []) == (recorded_ranks(None), left_out(None))


def test_a_rank_whose_steps_are_not_compared_is_recorded() -> None:
    """Said "recorded 1 of 2 ranks; without a step: rank 1" of one that had 138 of them in the file."""
    view = final_view(JOB)
    apart = [replace(row, last_step=None, step_s=None, why_apart="not compared") for row in view.ranks[3:]]
    view = replace(view, ranks=(*view.ranks[:3], *apart))
    assert ("4 ranks, up to step 59", []) == (recorded_ranks(view), left_out(view))


def test_a_job_that_ended_before_a_rank_was_seen_is_no_recording() -> None:
    """It was "recorded no ranks yet" with exit code 0, and "20 more steady steps" of a job that is no more."""
    assert why_nobody(None, ended_alone=True) is not None
    assert why_nobody(replace(final_view(JOB), ranks=()), ended_alone=True) is not None
    assert why_nobody(None, ended_alone=False) is None
    assert why_nobody(final_view(JOB), ended_alone=True) is None


def test_what_the_exit_code_answers_for_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts ask: does a killed rank fail the command?"""
    with pytest.raises(SystemExit):
        main(["record", "--help"])
    assert "The exit code is the recording's, not the training's" in " ".join(capsys.readouterr().out.split())
