"""Pauses as the document and the time line list them: who, when, how long, in which phase, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.causes.cause import rank_words
from tuiadvisor.causes.pauses import cause_of
from tuiadvisor.phases import PAUSES
from tuiadvisor.views.run_view import PauseView

if TYPE_CHECKING:
    from tuiadvisor.metrics.diagnosis import Diagnosis


def pause_views(diagnosis: Diagnosis | None) -> tuple[PauseView, ...]:
    """Every kind of pause of the recent window, costliest first."""
    if diagnosis is None:
        return ()
    table = diagnosis.table
    elapsed_s = float(diagnosis.barrier.cycle_K[diagnosis.steadiness.elapsed_K].sum())
    views = [
        PauseView(
            kind=pause.kind,
            ranks=tuple(table.ranks[row] for row in pause.rows),
            steps=pause.steps,
            lengths_s=pause.lengths_s,
            period_steps=pause.period_steps,
            length_s=pause.length_s,
            loss_s=float(pause.loss_K.sum()),
            share=float(pause.loss_K.sum()) / elapsed_s if elapsed_s > 0 else None,
            phase=pause.phase,
            cause=cause_of(pause) or (pause.kind if pause.kind in PAUSES else None),
        )
        for pause in diagnosis.steadiness.pauses
    ]
    return tuple(sorted(views, key=lambda view: (-view.loss_s, view.kind, view.ranks)))


def pause_marks(diagnosis: Diagnosis) -> set[tuple[int, str]]:
    """Where irregular pauses lie on the job's axis."""
    return {
        (step, f"pause, {rank_words(tuple(diagnosis.table.ranks[row] for row in event.rows))}")
        if event.rows
        else (step, "pause")
        for pause in diagnosis.steadiness.pauses
        for step, event in zip(pause.steps, pause.events, strict=False)
    }
