"""Gradient communication that nothing hides: what remains of a step once the last rank has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.causes.cause import Cause, Loss, rank_words
from tuiadvisor.causes.slow_stretches import words_within
from tuiadvisor.metrics.communication.bucket_timeline import WORTH
from tuiadvisor.metrics.lateness.job_losses import hideable_s
from tuiadvisor.metrics.steps.arrays import column_max, mean_or_none
from tuiadvisor.metrics.steps.step_table import COMM
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_phase import Cause as LateCause
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.communication import ExchangeView
    from tuiadvisor.views.run_view import Finding, RunView

MIN_CUT: Final = 0.9  # of the exposed time: where nearly all of it could be hidden, no limit is worth a word
# What keeps a rank from its core for milliseconds wherever it is; that all wait for one is the host's (crowd_words).
HOLDS_BACK: Final = {
    "stopped": "stopped again and again",
    "limit": "held back by a CPU limit",
    "core": "without a core much longer than the others",
}
SPREAD_PERCENTILE: Final = 90.0  # chosen: who is late in one of ten steps is late now and then
MIN_CORE_WAIT: Final = (
    0.2  # of the step, beyond the others: chosen, so much that its threads lack one in the exchange too
)
MIN_HELD_SHARE: Final = (
    0.05  # of the step that such ranks cost before the exchange: what makes them worth a warning
)
OF_BUCKETS: Final = (
    "bucket_hideable_s",
    "bucket_saved_s",
    "bucket_saved_low_s",
    "bucket_saved_high_s",
    "bucket_cap_wanted",
    "first_bucket_s",
    "exchange_backward_s",
    "exchange_ratio",
    "exchange_steps",
    "buckets_help",
)


def overlap_seconds(diagnosis: Diagnosis) -> tuple[float | None, float | None, float | None]:
    """(total communication, its exposed part, share of steps seen in detail), seconds a step; both of those steps."""
    steady = diagnosis.steady
    total = steady.comm_total_s_RK
    known = np.isfinite(total)
    if not known.any():
        return None, None, 0.0 if steady.num_steps else None
    # What is exposed is a part of what was timed: measured in two ways, it may seem a little more.
    exposed = np.where(known, np.fmin(steady.phase_s_PRK[COMM], total), np.nan)
    detail = float(known.any(axis=0).mean())
    return mean_or_none(total), mean_or_none(exposed), detail


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """What is exposed, what of it compute or other buckets could hide."""
    transfer = diagnosis.transfer
    total, exposed, _ = overlap_seconds(diagnosis)
    values = {
        "transfer_share": transfer.share if transfer else None,
        "transfer_share_low": transfer.share_low if transfer else None,
        "transfer_s": transfer.gain.loss_s if transfer else None,
        "transfer_since": diagnosis.transfer_since,
        "transfer_stretches_words": (
            words_within(diagnosis.slow_stretches, "comm_exposed", transfer.gain) if transfer else ""
        ),
        "overlap": 1 - min(exposed / total, 1.0) if total and exposed is not None else None,
        **_hidden_by_compute(diagnosis),
        **_held_back(diagnosis),
        **_spread(diagnosis, facts),
        "wait_launched_share": facts.device.wait_launched if facts.device is not None else None,
    }
    if facts.exchange is None:
        return values | dict.fromkeys(OF_BUCKETS)
    return values | _hidden_by_buckets(facts.exchange, transfer.gain.loss_s if transfer else None)


def wait_spread(diagnosis: Diagnosis) -> float | None:
    """By how much of the step the ranks' waits in the exchange differ, in nine of ten steps at most.

    Ranks that wait equally long have come together: what they wait is not for one of them. None where they meet more
    than once a step, or not in each: then waits add up to equal sums, of which each was for another rank.
    """
    barrier = diagnosis.steady_barrier
    meets_once = barrier.evidence == "wait" and barrier.meets_K is None and barrier.turns_K is None
    if not meets_once or diagnosis.table.meets_within or not barrier.cycle_K.size:
        return None
    spread_K = column_max(barrier.wait_RK)
    known_K = np.isfinite(spread_K)
    if not known_K.all():
        return None
    return float(np.percentile(spread_K, SPREAD_PERCENTILE)) / float(barrier.cycle_K.mean())


def _spread(diagnosis: Diagnosis, facts: Facts) -> Values:
    """By how much the waits of devices differ; beside a host's load it tells what that can have done."""
    share = wait_spread(diagnosis) if facts.on_device else None
    words = ""
    if share is not None and facts.crowd is not None and facts.crowd.is_crowded:
        spread_s = share * float(diagnosis.steady_barrier.cycle_K.mean())
        words = (
            f"; devices' waits there differ by at most {seconds(spread_s)} between ranks in nine of ten steps"
        )
    return {"wait_spread_share": share, "spread_words": words}


def _hidden_by_compute(diagnosis: Diagnosis) -> Values:
    transfer, mean_s = diagnosis.transfer, diagnosis.job_seconds
    forward_s, backward_s = mean_s["forward"], mean_s["backward"]
    if transfer is None or not transfer.gain.loss_s or forward_s is None or backward_s is None:
        return {"hideable_s": None, "hide_words": ""}
    total, exposed, _ = overlap_seconds(diagnosis)
    hidden = max(total - exposed, 0.0) if total is not None and exposed is not None else None
    most = hideable_s(transfer.gain.loss_s, forward_s + backward_s, hidden)
    words = f"; at most {seconds(most)} of it could be hidden behind forward and backward"
    return {"hideable_s": most, "hide_words": words if most < MIN_CUT * transfer.gain.loss_s else ""}


def _held_back(diagnosis: Diagnosis) -> Values:
    """Ranks that something outside stops do so inside the exchange too, which is then long on all."""
    step_s = mean_or_none(diagnosis.steady_barrier.cycle_K)
    held = [entry for entry in diagnosis.stragglers if _is_held(entry.cause, step_s or 0.0)]
    loss_s = sum(float(entry.late.loss_K.mean()) for entry in held)
    if held and step_s and loss_s >= MIN_HELD_SHARE * step_s:
        ranks, reason = tuple(sorted(entry.rank for entry in held)), held[0].cause.off_core or ""
    elif diagnosis.lacking_ranks:  # the window may be too short to say what it costs
        ranks, reason = diagnosis.lacking_ranks, "core"
    else:
        return {"exchange_held_back": 0, "held_words": ""}
    how = f"{'is' if len(ranks) == 1 else 'are'} {HOLDS_BACK[reason]}"
    words = f"; {rank_words(ranks)} {how}, also inside the exchange, which is then long on all"
    return {"exchange_held_back": 1, "held_words": words}


def _is_held(cause: LateCause, step_s: float) -> bool:
    """Whether something outside keeps it from its core so long that it does in the exchange as well."""
    if cause.off_core != "core":
        return cause.off_core in HOLDS_BACK
    return (cause.core_wait_s or 0.0) >= MIN_CORE_WAIT * step_s > 0


def _hidden_by_buckets(view: ExchangeView, transfer_s: float | None) -> Values:
    hidden = view.hideable_s >= WORTH * view.exposed_s
    much = seconds(view.hideable_s) if hidden else "next to nothing" if view.hideable_s else "nothing"
    words = f"; order and size of buckets could hide {much} of it"
    if view.best_cap_mib is not None and view.saved_s >= WORTH * view.exposed_s:
        words += f", bucket_cap_mb={view.best_cap_mib} about {seconds(view.saved_s)}"
    return {
        "bucket_hideable_s": view.hideable_s,
        "bucket_saved_s": view.saved_s,
        "bucket_saved_low_s": view.saved_low_s,
        "bucket_saved_high_s": view.saved_high_s,
        "bucket_cap_wanted": view.best_cap_mib,
        "first_bucket_s": view.buckets[0].ready_s if view.buckets else None,
        "exchange_backward_s": view.backward_s,
        "exchange_ratio": view.ratio,
        "exchange_steps": view.num_steps,
        "buckets_help": int(view.lever not in {"fewer_bytes", "last_gradients"}),
        "hide_words": words if transfer_s else "",
    }


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """If all of it were hidden."""
    return diagnosis.transfer.gain if diagnosis.transfer is not None else None


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step, found or not."""
    return Loss("comm_exposed", diagnosis.transfer.gain.loss_s) if diagnosis.transfer is not None else None


def amount(_finding: Finding, view: RunView) -> float | None:
    """What a run transfers after the last arrival, whether or not it was worth a finding."""
    return view.overlap.transfer_s


COMMUNICATION_BOUND: Final = Cause(
    rules=("communication_bound",),
    metrics="""
job transfer_share share of the step in exposed communication after the last rank arrived
job transfer_share_low share lower end of the interval of transfer_share
job transfer_s s a step, exposed communication after the last rank arrived
job transfer_since steps job step since which the transfer has its level
job transfer_stretches_words text ", most of it for about 20 steps every 100 steps"; empty where it does not come and go
job overlap share of communication that compute hides
job hideable_s s a step of the exposed communication that forward and backward could hide at most
job hide_words text what that means for the communication; empty where all of it could be hidden, or it is not known
job exchange_held_back flag 1 if a rank is stopped, held back by a CPU limit or without a core, inside the exchange too
job held_words text which ranks these are; empty where there are none
job wait_spread_share share of the step, devices' waits in the exchange differ by that at most in nine of ten steps
job spread_words text the same in words, on a crowded host alone; empty where it is not known
job wait_launched_share share of a device's wait in the exchange before which its thread had launched all; the worst
job bucket_hideable_s s a step of the exposed communication that order and size of DDP's buckets could hide at most
job bucket_saved_s s a step that the wanted size of buckets would save, of the exposed communication
job bucket_saved_low_s s lower end of its interval; 0 where compute and communication share cores
job bucket_saved_high_s s upper end of its interval
job bucket_cap_wanted count bucket_cap_mb that nearly saves most; unknown where no size is worth it
job first_bucket_s s from the begin of backward until the first bucket is complete on all ranks
job exchange_backward_s s of backward until the last gradient, on the rank that comes last
job exchange_ratio ratio time to move all gradients against that backward; up to 1 it could be hidden wholly
job buckets_help flag 1 if other sizes of buckets would hide more of it, by the model of screen 4
job exchange_steps steps steps in which the gradient communication was seen bucket by bucket
""",
    measure_job=measure_job,
    gain=gain,
    loss=loss,
    at_best=True,  # gradients have to be exchanged: only a slow link's part can vanish
    amount=amount,
)
