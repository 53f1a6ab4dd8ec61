"""Pauses as rules judge them and as the document lists them: who, when, how long, in which phase, why.

In: Diagnosis.  Out: one Subject a kind of pause, and of irregular ones one for the ranks that make them; PauseView.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.judge.evidence import PHASE_WORDS, Subject, rank_words
from tuiadvisor.metrics.series.what_if import gain
from tuiadvisor.views.run_view import PauseView
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.pauses.pause import Pause

MAX_LISTED: Final = 4  # steps named in a sentence
IN_THE_EXCHANGE: Final = "within the exchange of gradients"
CAUSE_WORDS: Final = {
    "": "the cause is unknown",
    "garbage collection": "Python collected garbage",
    "compilation": "code was compiled",
    "stopped": "its process was stopped, by a signal or a debugger",
}


def pause_subjects(diagnosis: Diagnosis, job: dict[str, object]) -> list[Subject]:
    """One subject a kind of pause; of irregular ones, one for the ranks that make them."""
    return [_subject(diagnosis, job, pause) for pause in diagnosis.steadiness.pauses]


def _subject(diagnosis: Diagnosis, job: dict[str, object], pause: Pause) -> Subject:
    table, cycle = diagnosis.table, diagnosis.barrier.cycle_K
    known = np.isfinite(cycle)
    known[: pause.first_column] = False
    what_if = gain(cycle[known], pause.loss_K[known])
    ranks = tuple(table.ranks[row] for row in pause.rows)
    starter = rank_words(ranks) if ranks else "all ranks"
    longest = sorted((event.length_s for event in pause.events), reverse=True)
    values: dict[str, object] = {
        **job,
        "kind": "garbage collection" if pause.is_collecting else pause.kind,
        "gc_share": pause.gc_share,
        "num_pauses": len(pause.steps),
        "period_steps": pause.period_steps,
        "period_words": _period_words(pause),
        "length_s": pause.length_s,
        "longest_s": longest[0] if longest else None,
        "second_s": longest[1] if len(longest) > 1 else None,
        "loss_s": pause.loss_s_per_step,
        "loss_share": what_if.loss_s / what_if.step_s,
        "starter": starter,
        "ranks": starter,
        "times_words": _times_words(pause),
        "since": pause.steps[0],
        "phase": pause.phase,
        "phase_words": _phase_words(pause),
        "cause_words": _cause_words(pause),
        "is_checkpoint": int(pause.kind == "checkpoint"),
        "is_eval": int(pause.kind == "eval"),
        "is_periodic": int(pause.kind == "periodic"),
        "is_over": int(pause.is_over),
        "is_irregular": int(pause.kind == "irregular"),
    }
    hosts = tuple(sorted({table.hosts[row] for row in pause.rows}))
    details: dict[str, float | int | str | None] = {}
    if pause.events:
        details["steps"] = ", ".join(str(step) for step in pause.steps)
        details["lengths_s"] = ", ".join(f"{event.length_s:.3f}" for event in pause.events)
        details["cause"] = cause_of(pause) or "unknown"
    return Subject("pause", values, ranks, hosts, pause.phase, what_if, details)


def cause_of(pause: Pause) -> str:
    """The cause that all pauses of the group share; empty where that is not known."""
    if pause.is_collecting:
        return "garbage collection"
    causes = {event.cause for event in pause.events}
    return causes.pop() if len(causes) == 1 else ""


def _cause_words(pause: Pause) -> str:
    cause = cause_of(pause)
    if not cause and not pause.rows and pause.phase == "comm_exposed":
        return "who held up the others there was not seen"
    return CAUSE_WORDS.get(cause, cause)


def _period_words(pause: Pause) -> str:
    if pause.period_steps is not None:
        return f"every {pause.period_steps:.0f} steps"
    return f"at step {pause.steps[0]}"


def _times_words(pause: Pause) -> str:
    if not pause.events:
        return f"{len(pause.steps)} times, for {seconds(pause.length_s)} on average"
    if len(pause.steps) == 1:
        return f"once, for {seconds(pause.length_s)} at step {pause.steps[0]}"
    shown = [str(step) for step in pause.steps[:MAX_LISTED]]
    left = len(pause.steps) - len(shown)
    steps = f"{', '.join(shown)} and {left} more" if left else f"{', '.join(shown[:-1])} and {shown[-1]}"
    mean, longest = (
        seconds(value) for value in (pause.length_s, max(event.length_s for event in pause.events))
    )
    at_most = f" (at most {longest})" if longest != mean else ""
    return f"{len(pause.steps)} times, for {mean} on average{at_most}, at steps {steps}"


def _phase_words(pause: Pause) -> str:
    if pause.phase == "comm_exposed":
        return IN_THE_EXCHANGE
    if pause.phase == "other":
        return "between the phases of its step" if pause.rows else "between the phases of a step"
    if pause.phase is None:
        return "in more than one phase"
    return PHASE_WORDS.get(pause.phase, f"in {pause.phase}")


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
            lengths_s=tuple(event.length_s for event in pause.events),
            period_steps=pause.period_steps,
            length_s=pause.length_s,
            loss_s=float(pause.loss_K.sum()),
            share=float(pause.loss_K.sum()) / elapsed_s if elapsed_s > 0 else None,
            phase=pause.phase,
            cause=cause_of(pause) or (pause.kind if pause.kind in {"checkpoint", "eval"} else None),
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
