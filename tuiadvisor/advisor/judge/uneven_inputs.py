"""Pauses of ranks that have run out of batches while others go on, as under Join.

In: Diagnosis, StepStore.  Out: the same with the ranks that go on in each kind of periodic pause.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.diagnosis import Diagnosis


def with_busy_ranks(diagnosis: Diagnosis, store: StepStore) -> Diagnosis:
    """What stops some ranks alone is no pause of the training: the others make steps in it that are not compared."""
    pauses = tuple(
        replace(pause, busy_ranks=store.busy_within(pause.steps)) if pause.kind == "periodic" else pause
        for pause in diagnosis.steadiness.pauses
    )
    return replace(diagnosis, steadiness=replace(diagnosis.steadiness, pauses=pauses))
