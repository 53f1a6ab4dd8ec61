"""How much of a step passes in code that no hook sees: the work itself, or the loss; nothing tells which.

In: Diagnosis.  Out: seconds of the mean step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.steps.accounting import shares

if TYPE_CHECKING:
    from tuiadvisor.metrics.diagnosis import Diagnosis

# Of the step. As rule little_compute: what outlasts all that was seen may be anything, and is not kept unlooked at.
MAX_UNSEEN_SHARE: Final = 0.5


def mostly_unseen_s(diagnosis: Diagnosis, explained_s: float = 0.0) -> float:
    """Of the mean step, where that is most of it; 0 else. explained_s: what was found in it."""
    step_s = float(diagnosis.steady_barrier.cycle_K.mean())
    unseen_s = (unseen_share(diagnosis) or 0.0) * step_s
    return unseen_s if unseen_s - explained_s > MAX_UNSEEN_SHARE * step_s else 0.0


def unseen_share(diagnosis: Diagnosis) -> float | None:
    """Of the mean steady step; None where it is not known.

    Of the ranks' own steps: they may be longer than the job's, where ranks do not wait for one another.
    """
    return shares(diagnosis.job_seconds).get("other")
