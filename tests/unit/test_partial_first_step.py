"""The step that a rank was attached in was not seen from its beginning: how long it took is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import Job, Simulated, folded, frames, simulate

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.views.run_view import RunView

LONG = Job(
    num_ranks=2, forward_s=1.0, backward_s=1.8, noise=0.0, spike_chance=0.0, host_clock_s={0: 10.0},
)  # fmt: skip
BEGIN = STEP_NAMES.index("begin_ns")


def caught(job: Job) -> RunView:
    """The probe came into each rank behind the end of a step: its first record is 1.8 s longer than a step."""
    run = simulate(job)
    rows = {
        rank: [(*first[:BEGIN], first[BEGIN] - 1_800_000_000, *first[BEGIN + 1 :]), *others]
        for rank, (first, *others) in run.rows.items()
    }
    return folded(frames(job, 1, Simulated(rows, run.cycle_s))).view()


def test_of_a_step_caught_in_the_middle_no_length_is_shown() -> None:
    """It was 4.82 s of a training whose steps take 3.01 s."""
    view = caught(replace(LONG, num_steps=1))
    assert not any(view.trend.step_s)
    assert (view.window.missing_s, view.step.mean_s) == (None, None)
    assert "about" not in view.verdict.sentence


@pytest.mark.parametrize("attach", [(0, 0), (0, 2), (1, 0)])
def test_the_trend_is_of_whole_steps(attach: tuple[int, int]) -> None:
    """Whichever rank was attached first; a step that nobody saw whole keeps its place."""
    view = caught(replace(LONG, num_steps=12, attach=attach))
    assert view.trend.step_s[0] is None
    shown = [step_s for step_s in view.trend.step_s if step_s is not None]
    assert len(shown) == 11
    assert max(shown) < 1.1 * min(shown)
