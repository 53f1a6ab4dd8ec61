"""All ranks wait for their next batch; whether that wait grows from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.causes import loader_stages, reader_words
from tuiadvisor.causes.cause import Cause, Loss, rank_words, share_of
from tuiadvisor.causes.slow_stretches import words_within
from tuiadvisor.causes.whole_job import everybody
from tuiadvisor.metrics.steps.arrays import mean_or_none
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Measured, Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.job_losses import CommonLoss
    from tuiadvisor.metrics.lateness.readers import Doing, Readers
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.metrics.steps.loader_stage import Stage
    from tuiadvisor.views.run_view import Finding, RunView


TURNS: Final = ", not all at once: whoever waits keeps the others waiting at the next exchange"
OF_THREADS: Final = (
    ", by their threads' clocks: one device at a time is idle then, and keeps the others waiting"
)
BEYOND: Final = 0.05  # of a step, as rule input_bound's moderate: so much more is worth a word
ROUNDING: Final = 0.1  # of a worker: 4.1 workers' worth of work is left to four


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """The data wait of the quarter of ranks that waits least."""
    data = diagnosis.input
    workers = facts.stack.number("workers") if facts.stack is not None else None
    seen, wait = loader_stages.measure(facts.loaders)
    can_help = wait is None or wait.stage not in loader_stages.NO_MORE_WORKERS
    readers = _readers(diagnosis.readers, workers, wait.stage if wait is not None else None)
    doing = readers.doing if readers is not None else None
    wanted = workers_wanted(workers, data.gain) if data and workers is not None and can_help else None
    lacking = _lacking(wanted, facts.cores_per_rank, doing)
    return {
        **seen,
        **reader_words.measure(readers),
        **_waiters(diagnosis, facts),
        "workers_wanted": wanted,
        "workers_words": _workers_words(workers, wanted, doing, lacking),
        "workers_lack_cores": None if wanted is None else int(lacking is not None),
        "data_wait_share": data.share if data else None,
        "data_wait_share_low": data.share_low if data else None,
        "data_wait_loss_s": data.gain.loss_s if data else None,
        "data_stretches_words": words_within(diagnosis.slow_stretches, "data_wait", data.gain)
        if data
        else "",
        "data_turns_words": _turns_words(data) if data else "",
        "data_wait_since": diagnosis.input_since,
    }


def _readers(found: Readers | None, workers: int | None, stage: Stage | None) -> Readers | None:
    """None where the ranks may wait for something else than what these do."""
    if found is None or (found.in_workers and stage in loader_stages.NO_MORE_WORKERS):
        return None
    if not found.in_workers:  # else somebody works for them whom nobody found
        return found if found.doing == "storage" or workers == 0 else None
    # Who sleeps may be idle: because batches lie ready, or as the worker of another loader, of evaluation.
    is_behind = stage == "workers" and workers is not None and found.most_workers <= workers
    return found if found.doing != "neither" or is_behind else None


def ranks_of(diagnosis: Diagnosis) -> tuple[int, ...] | None:
    """Those with a loader, where others of a job have none, as stages of a pipeline behind the first; None: all."""
    is_seen_R = np.isfinite(diagnosis.seconds_PR).any(axis=0)
    has_loader_R = np.isfinite(diagnosis.seconds_PR[PHASE_INDEX["data_wait"]])
    if not has_loader_R.any() or has_loader_R[is_seen_R].all():
        return None
    return tuple(diagnosis.table.ranks[row] for row in np.flatnonzero(has_loader_R).tolist())


def _waiters(diagnosis: Diagnosis, facts: Facts) -> Values:
    """Who it is that waits."""
    few = ranks_of(diagnosis)
    if few is None:
        return {
            "data_waiters": everybody(diagnosis.table.num_ranks, facts.num_missing),
            "data_waiters_are_few": 0,
        }
    which = "one" if len(few) == 1 else "ones"
    each = rank_words(few) if len(few) == 1 else f"each of {rank_words(few)}"
    return {"data_waiters": f"{each}, the only {which} seen with a loader,", "data_waiters_are_few": 1}


def _turns_words(data: CommonLoss) -> str:
    if data.of_threads:
        return OF_THREADS
    return TURNS if _is_in_turns(data.share, data.gain) else ""


def _is_in_turns(share: float, found: Gain) -> bool:
    """Whether a step loses more by these waits than a rank waits itself, so that the two figures want a word."""
    return found.loss_s > (share + BEYOND) * found.step_s


def workers_wanted(workers: int, found: Gain) -> int | None:
    """As many worker processes of a rank's loader as would keep up with a step that waits for no data.

    While ranks wait, all workers are at work: they need `workers` times a step for a step's batches (without workers
    the wait itself), and a step without the wait leaves so much less time. None where no number of them would do.
    """
    rest_s = found.step_s - found.loss_s
    if rest_s <= 0 or found.loss_s <= 0:
        return None
    work_s = workers * found.step_s if workers else found.loss_s
    return max(math.ceil(work_s / rest_s - ROUNDING), workers + 1)


def _workers_words(
    workers: int | None, wanted: int | None, doing: Doing | None, lacking: float | None
) -> str:
    """lacking: cores of a rank that are too few for as many."""
    if workers is None or wanted is None:
        return ""
    now = f"{workers} worker{'s' * (workers != 1)} a rank" if workers else "no worker processes"
    words = f"; with {now} now, {'one' if wanted == 1 else wanted} would keep up"
    if doing in {"storage", "neither"}:
        return f"{words}, if what they wait for answers so many at once"
    if lacking is not None:
        words += f" with a core each, but a rank has {lacking:.2g}"
    return words


def _lacking(wanted: int | None, cores: float | None, doing: Doing | None) -> float | None:
    """The cores of a rank, where they are too few for so many workers beside its thread; those that sleep need none."""
    if wanted is None or cores is None or doing in {"storage", "neither"}:
        return None
    return cores if wanted + 1 > cores else None


def at_best(subject: Measured) -> bool:
    """Whether the wait can surely not all be had back: as many workers as would keep up have no cores."""
    return subject.values.get("workers_lack_cores") == 1


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If no rank waited for data."""
    return diagnosis.input.gain if diagnosis.input is not None else None


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step, found or not."""
    return Loss("data_wait", diagnosis.input.gain.loss_s) if diagnosis.input is not None else None


def amount(finding: Finding, view: RunView) -> float | None:
    """The data wait of a run, whether or not it was worth a finding."""
    return None if finding.phase is None else view.step.seconds.get(finding.phase)


def layer_of(subject: Measured) -> str | None:
    """Storage where the readers wait for it; else the rule's."""
    return "storage" if subject.values.get("readers_wait_for_storage") else None


INPUT_BOUND: Final = Cause(
    rules=("input_bound",),
    metrics="""
job data_wait_share share of the step that even the quarter of ranks that waits least waits for its next batch
job data_wait_share_low share lower end of the interval of data_wait_share
job data_wait_loss_s s a step, gone if no rank waited for data
job data_turns_words text that ranks wait in turns: a step loses more than one waits, or threads tell it; else empty
job data_stretches_words text ", most of it for about 20 steps every 100 steps"; empty where it does not come and go
job data_waiters text who waits for data: "every rank", or those with a loader where others have none
job data_waiters_are_few flag 1 if only some of the ranks were seen with a loader
job workers_wanted count worker processes a rank with which its loader would keep up
job workers_lack_cores flag 1 if a rank has too few cores for as many
job workers_words text the same in words, empty where it is not known
job data_wait_since steps job step since which the data wait has its level
"""
    + loader_stages.METRICS.lstrip()
    + reader_words.METRICS.lstrip(),
    layer_of=layer_of,
    ranks_of=ranks_of,
    is_at_best=at_best,
    measure_job=measure_job,
    gain=gain,
    loss=loss,
    amount=amount,
)


def measure_drift(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """A wait that grows little by little."""
    drift, grown = diagnosis.input_drift, diagnosis.input_drift_gain
    step_s = mean_or_none(diagnosis.steady_barrier.cycle_K)
    return {
        "data_wait_first_s": drift.first_s if drift else None,
        "data_wait_last_s": drift.last_s if drift else None,
        "data_wait_growth_share": share_of(drift.growth_s, step_s) if drift else None,
        "data_wait_growth_loss_s": grown.loss_s if grown else None,
    }


def drift_gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If the wait had stayed as it was at first: of the steps seen, not of those to come, which lose more."""
    return diagnosis.input_drift_gain


LOADER_DECAYS: Final = Cause(
    rules=("loader_decays",),
    metrics="""
job data_wait_first_s s a step of data wait in the first eighth of the steady steps, where it grows steadily
job data_wait_last_s s the same in the last eighth
job data_wait_growth_loss_s s a step, gone if the wait had not grown
job data_wait_growth_share share of the step by which the data wait has grown between them
""",
    measure_job=measure_drift,
    gain=drift_gain,
)
