"""Right after a change of pace too few steps tell that nothing is wrong: those before it do not count."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS

ONSET = 120
MORE = Job(
    seed=3,
    faults=(Fault("backward", (1,), 10 * MS, until=ONSET), Fault("backward", (1,), 16 * MS, onset=ONSET)),
)
LESS_OFTEN = Job(
    num_ranks=2,
    faults=(Fault("backward", (1,), 12 * MS, chance=0.5), Fault("data", (0,), 12 * MS, onset=ONSET)),
)


@pytest.mark.slow
@pytest.mark.parametrize("job", [MORE, LESS_OFTEN], ids=["later than before", "another one too"])
def test_a_late_rank_is_not_well_for_the_first_steps_of_another_pace(job: Job) -> None:
    """TUNE before and after, and KEEP in between, of 8 to 17 steps."""
    advisor = folded(frames(job))
    views = [advisor.view_at(step) for step in range(ONSET - 1, ONSET + 20)]
    assert "keep" not in {view.verdict.decision for view in views}
    waiting = [view for view in views if view.verdict.decision is None]
    assert waiting, "nothing here is short of steps"
    for view in waiting:
        assert MIN_STEADY_STEPS - view.window.num_steps == view.window.num_missing_steps
        assert not view.window.enough
        assert f"{view.window.num_missing_steps} more steady steps" in view.verdict.sentence
        assert f"The pace changed at step {view.window.first_step}" in view.verdict.sentence
        assert "healthy" not in {finding.id for finding in view.findings}
        assert view.goodput is None


def test_enough_steps_of_the_new_pace_are_kept_again() -> None:
    """A healthy job that becomes faster for good is well after as many steps as at its beginning."""
    advisor = folded(frames(Job(faults=(Fault("forward", None, 4 * MS, until=ONSET),))))
    view = advisor.view_at(ONSET + 40)
    assert ("keep", 0, True) == (view.verdict.decision, view.window.num_missing_steps, view.window.enough)
    assert view.window.num_steps < 60
