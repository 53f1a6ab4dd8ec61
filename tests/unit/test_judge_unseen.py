"""What passes unseen is of the step that it is told beside, whoever's steps are longer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuiadvisor.advisor.judge.unseen import mostly_unseen_s, unseen_share
from tuiadvisor.advisor.judge.verdict import _unseen
from tuiadvisor.phases import PHASES


def unequal(step_s: float, **seconds: float) -> Any:
    """Means over ranks that do not wait for one another: longer than the job's own step."""
    return SimpleNamespace(
        steady_barrier=SimpleNamespace(cycle_K=np.full(4, step_s), evidence="none"),
        job_seconds=dict.fromkeys(PHASES) | seconds,
        table=SimpleNamespace(num_ranks=1),
    )


def test_no_more_of_the_step_is_unseen_than_it_has() -> None:
    """It was told that 112 ms of the mean step's 106 ms were."""
    diagnosis = unequal(0.106, other=0.112, forward=0.013, comm_exposed=0.003)
    assert unseen_share(diagnosis) == pytest.approx(0.112 / 0.128)
    assert mostly_unseen_s(diagnosis) == pytest.approx(0.106 * 0.112 / 0.128)
    told = _unseen(diagnosis, diagnosis.job_seconds, None)
    assert told.startswith("92.8 ms of the mean step's 106 ms pass in code that no hook sees")


def test_without_a_step_nothing_is_told() -> None:
    """Unknown, and no share of nothing."""
    assert unseen_share(unequal(0.1)) is None
    assert mostly_unseen_s(unequal(0.1)) == 0
