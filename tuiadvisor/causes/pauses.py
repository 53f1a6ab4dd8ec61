"""Pauses: checkpoints, evaluation, periodic ones, and the irregular ones that one rank makes now and then."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.causes.cause import PHASE_WORDS, Cause, Details, Measured, rank_words
from tuiadvisor.metrics.pauses.background_saves import KIND as SAVING
from tuiadvisor.metrics.series.what_if import gain, of_events
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.pauses.pause import Pause

CHECKPOINT: Final = "checkpoint_pause"  # the rule: what a checkpoint costs is asked for elsewhere, too
MAX_LISTED: Final = 4  # steps named in a sentence
IN_THE_EXCHANGE: Final = "during gradient communication"
# An evaluation, a rollout, generation: nothing tells which.
KIND_WORDS: Final = {"eval": "forward without backward", SAVING: "checkpoint written in the background"}
CAUSE_WORDS: Final = {
    "": "the cause is unknown",
    "garbage collection": "Python collected garbage",
    "compilation": "code was compiled",
    "stopped": "its process was stopped, by a signal or a debugger",
}


def measure(diagnosis: Diagnosis, facts: Facts, job: Values) -> list[Measured]:
    """One subject a kind of pause; of irregular ones, one for the ranks that make them."""
    pauses = diagnosis.steadiness.pauses
    return [
        replace(_measured(diagnosis, facts, job, pause), name=name)
        for pause, name in zip(pauses, _names(pauses), strict=True)
    ]


def _names(pauses: Sequence[Pause]) -> list[str]:
    """A name each, by kind; of one kind and the same ranks the more frequent come first, whatever they cost now."""
    names = ["garbage collection" if pause.is_collecting else pause.kind for pause in pauses]
    alike = [(name, pause.rows) for name, pause in zip(names, pauses, strict=True)]
    for number, pause in enumerate(pauses):
        before = sum(
            alike[number] == alike[other] and (_distance(each), other) < (_distance(pause), number)
            for other, each in enumerate(pauses)
        )
        names[number] += f" {before + 1}" if before else ""
    return names


def _distance(pause: Pause) -> float:
    return math.inf if pause.period_steps is None else pause.period_steps


def _measured(diagnosis: Diagnosis, facts: Facts, job: Values, pause: Pause) -> Measured:
    table, cycle = diagnosis.table, diagnosis.barrier.cycle_K
    known = np.isfinite(cycle)
    known[: pause.first_column] = False
    loss_K = pause.loss_K
    if (
        pause.busy_ranks
    ):  # their work has to be done by somebody: spread over all it takes each of them a part
        loss_K = loss_K * table.num_ranks / (table.num_ranks + len(pause.busy_ranks))
    what_if = of_events(gain(cycle[known], loss_K[known]), len(pause.steps))
    ranks = tuple(table.ranks[row] for row in pause.rows)
    alone = table.num_ranks == 1
    starter = "the process" if alone else rank_words(ranks) if ranks else "all ranks"
    waiters = "the training" if alone else "all ranks"
    if alone and facts.num_not_compared:  # whether the others stand still, too, was not seen
        waiters = rank_words(table.ranks)
    longest = sorted((event.length_s for event in pause.events), reverse=True)
    values: Values = {
        **job,
        "kind": _kind_words(pause),
        "gc_share": pause.gc_share,
        "num_pauses": len(pause.steps),
        "period_steps": pause.period_steps,
        "has_period": int(pause.period_steps is not None),
        "period_words": _period_words(pause),
        "length_s": pause.length_s,
        "longest_s": longest[0] if longest else None,
        "second_s": longest[1] if len(longest) > 1 else None,
        "loss_s": what_if.loss_s if pause.busy_ranks else pause.loss_s_per_step,
        "loss_share": what_if.loss_s / what_if.step_s,
        "loss_share_low": what_if.loss_low_s / what_if.step_s,
        "starter": starter,
        "ranks": starter,
        "waiters": waiters,
        "waited_words": ", and all ranks waited" if ranks and not alone else "",
        "begun_words": f" begun by {starter}" if ranks and not alone else "",
        "times_words": _times_words(pause),
        "since": pause.steps[0],
        "phase": pause.phase,
        "phase_words": _phase_words(pause),
        "cause_words": _cause_words(pause),
        "is_checkpoint": int(pause.kind == "checkpoint"),
        "is_eval": int(pause.kind == "eval"),
        "is_alone": int(0 < len(ranks) < table.num_ranks),
        "is_longer": int(pause.is_longer),
        "is_saving": int(pause.kind == SAVING),
        "is_uneven": int(bool(pause.busy_ranks)),
        "waiting_words": rank_words(table.ranks),
        "busy_words": rank_words(pause.busy_ranks) if pause.busy_ranks else "",
        "is_periodic": int(pause.kind == "periodic"),
        # Who waits for a thread that collects, or has run out of batches, waits in whatever phase comes next.
        "is_data_wait": int(pause.phase == "data_wait" and not pause.is_collecting and not pause.busy_ranks),
        "is_in_exchange": int(pause.phase == "comm_exposed" and not ranks),
        "is_over": int(pause.is_over),
        "is_irregular": int(pause.kind == "irregular"),
    }
    hosts = tuple(sorted({table.hosts[row] for row in pause.rows}))
    details: Details = {}
    if pause.events:
        details["steps"] = ", ".join(str(step) for step in pause.steps)
        details["lengths_s"] = ", ".join(f"{event.length_s:.3f}" for event in pause.events)
        details["cause"] = cause_of(pause) or "unknown"
    return Measured("pause", values, ranks, hosts, pause.phase, what_if, details)


def _kind_words(pause: Pause) -> str:
    if pause.is_collecting:
        return "garbage collection"
    if pause.kind == "periodic" and pause.period_steps is None:
        return "once so far" if len(pause.steps) == 1 else "at no fixed distance"
    return KIND_WORDS.get(pause.kind, pause.kind)


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
    if len(pause.steps) > 1:
        return f"{len(pause.steps)} times since step {pause.steps[0]}"
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


PERIODIC_PAUSES: Final = Cause(
    rules=(CHECKPOINT, "background_save", "periodic_pause", "periodic_data_wait"),
    metrics="""
pause kind text "checkpoint", "periodic", "irregular" or what is known of it, as "garbage collection"
pause ranks text the same as starter
pause gc_share share of the pauses in which Python collects garbage
pause num_pauses count pauses in the window
pause period_steps steps between two pauses
pause has_period flag 1 if they keep a distance; 0 where one was seen, or they come now and then
pause period_words text "every 40 steps", "at step 60" of one alone, "4 times since step 60" at no fixed distance
pause times_words text how often, how long and when: "once, for 3 s at step 100"
pause longest_s s that the longest of irregular pauses adds
pause second_s s that the second longest of them adds; unknown where there is one
pause length_s s that one pause adds
pause loss_s s a step, spread over all steps of the window
pause loss_share share of the step
pause loss_share_low share of the step that is surely lost: lower end of the 90 % interval, by how many pauses were seen
pause starter text ranks that the others wait for, e.g. "rank 0", or "all ranks"; "the process" where there is one
pause begun_words text " begun by rank 0"; empty where all ranks pause together or there is one process
pause waiters text who is held up: "all ranks", "the training" of one process, or the one rank that was compared
pause waited_words text ", and all ranks waited"; empty where none makes the others wait
pause since steps job step of the first pause seen
pause phase text phase in which the pause passes on the rank that begins it
pause phase_words text the same in plain words
pause cause_words text what was seen of its cause, in plain words
pause is_checkpoint flag 1 if checkpoints are being written
pause is_saving flag 1 if checkpoints are being written beside the steps, in another thread or process
pause is_eval flag 1 if the model is being evaluated
pause is_alone flag 1 if some ranks begin it and the others wait
pause is_uneven flag 1 if others have more batches and go on making steps meanwhile (uneven inputs, as under Join)
pause waiting_words text the ranks that were compared, e.g. "ranks 0 and 1"
pause busy_words text ranks that go on making steps meanwhile; empty without any
pause is_periodic flag 1 if nothing marks what happens in it
pause is_data_wait flag 1 if it passes while the next batch is waited for
pause is_in_exchange flag 1 if it passes within the exchange, of whoever waits least there
pause is_longer flag 1 if all ranks make them, and this is by how much longer one rank's are
pause is_over flag 1 if periodic pauses have not come for more than two of their periods
pause is_irregular flag 1 if pauses of these ranks are irregular, or only one was seen
""",
    scope="pause",
    measure=measure,
    limits_by_finding=True,
)
# Judged on the same subjects; what happened now and then is no constraint of the steps.
IRREGULAR_PAUSES: Final = Cause(rules=("irregular_pause",), scope="pause", is_remark=True)
