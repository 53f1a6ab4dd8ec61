"""What of the gradient exchange could be hidden, and what that would buy: the view.

In: exchanges bucket by bucket and the Diagnosis of the same steps.  Out: ExchangeView, or the reason why there is none.
The inequality of the Ultra-Scale Playbook (HuggingFace, 2025: parameters / (2 tokens) x (DP-1)/DP x FLOP/s / bandwidth
up to 1) compares the time to exchange all gradients with that of the backward that may hide it. Here both times are
measured, so it needs no data sheet; its terms are told beside it where the batches tell their tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.communication.bucket_timeline import CAPS_MIB, WORTH, Bucket, BucketLine, bucket_line
from tuiadvisor.metrics.series.what_if import gain
from tuiadvisor.metrics.steps.step_table import COMM
from tuiadvisor.views.communication import BucketBar, ExchangeView, Segment, SizeChoice
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.advisor.detail.bucket_store import BucketStore
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.communication.bucket_timeline import Exchanges
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.views.efficiency import Stack

CORES_FOR_BOTH: Final = 2  # a rank's: one for compute and one for the threads that exchange
MAX_BARS: Final = 64  # on a screen
FLOP_PER_TOKEN_IN_BACKWARD: Final = 4  # times parameters: two products a layer, of 2 each
NO_DETAIL: Final = "no steady step was seen in detail"
NO_BUCKET: Final = "the steps seen in detail show no bucket of DistributedDataParallel on every rank"
NO_WRAPPER: Final = "no wrapper (DDP, FSDP, DeepSpeed) was seen on the model, so it has no buckets to resize"


@dataclass(frozen=True, slots=True)
class Exchange:
    """view None: why says the reason; empty where nobody exchanges gradients."""

    view: ExchangeView | None
    why: str


NO_EXCHANGE: Final = Exchange(None, "")


def find_exchange(
    held: BucketStore, store: StepStore, roster: Roster, diagnosis: Diagnosis | None, stack: Stack | None
) -> Exchange:
    """What was seen of the exchange in the steps of this diagnosis; stack is None where no probe saw the model."""
    if diagnosis is None or diagnosis.table.num_ranks < 2:
        return NO_EXCHANGE
    devices = {fact.texts.get("device", "") for fact in roster.ranks.values()} - {""}
    if devices - {"cpu"}:
        return Exchange(
            None, "on a device the moments at which gradients are ready on the host say nothing of it"
        )
    if diagnosis.transfer is None:
        return NO_EXCHANGE  # why it is unknown is said there
    found = held.held(store, diagnosis.table.ranks, diagnosis.steady_steps)
    if found is None:
        return Exchange(None, _why_no_bucket(diagnosis, stack))
    line = bucket_line(found.exchanges)
    if line is None:
        num = found.exchanges.steps_K.size
        return Exchange(None, f"only {num} steady {'step was' if num == 1 else 'steps were'} seen in detail")
    cores = roster.cores_per_rank() if devices else None
    left = _left_beside(diagnosis, cores, roster.crowd(diagnosis).core_wait_share or 0.0)
    return Exchange(_view(line, found.exchanges, found.num_elements, diagnosis, left), "")


def _why_no_bucket(diagnosis: Diagnosis, stack: Stack | None) -> str:
    if stack is not None and stack.is_own_exchange:
        return NO_WRAPPER
    return NO_BUCKET if diagnosis.steady.flagged_RK(StepFlag.DETAIL).any() else NO_DETAIL


def _left_beside(diagnosis: Diagnosis, cores_per_rank: float | None, core_wait_share: float) -> float | None:
    """Of a core, what a rank's compute leaves to the threads that exchange; None: not known. 1 slows down nobody."""
    if cores_per_rank is None or cores_per_rank >= CORES_FOR_BOTH:
        return None if cores_per_rank is None else 1.0
    steady = diagnosis.steady
    # A thread that waits for a core wants one, too: on a crowded host its CPU time alone would look like idling.
    wanted_RK = steady.cpu_s_RK + core_wait_share * steady.step_s_RK
    busy_RK = np.maximum(steady.step_s_RK - np.nan_to_num(steady.phase_s_PRK[COMM]), 1e-9)
    known = np.isfinite(wanted_RK)
    if not known.any():
        return None
    wanted = float(np.median(wanted_RK[known] / busy_RK[known]))
    return min(max(cores_per_rank - wanted, 0.0), 1.0)


def _view(
    line: BucketLine,
    exchanges: Exchanges,
    num_parameters: int,
    diagnosis: Diagnosis,
    left: float | None,
) -> ExchangeView:
    # Never more than what is exposed in all steps.
    most_s = diagnosis.transfer.gain.loss_s if diagnosis.transfer is not None else 0.0
    cycle_K = diagnosis.steady_barrier.cycle_K[np.isin(diagnosis.steady_steps, exchanges.steps_K)]
    saved_K = line.best.saved_s_K if line.best is not None else np.zeros(line.num_steps)
    bought = gain(cycle_K, np.minimum(saved_K, cycle_K))
    saved_s = min(bought.loss_s, most_s) * (1.0 if left is None else left)
    num_ranks = diagnosis.table.num_ranks
    ratio = line.transfer_s / line.backward_s if line.transfer_s is not None and line.backward_s > 0 else None
    tokens_RK = diagnosis.steady.tokens_RK
    tokens = float(np.nanmean(tokens_RK)) if np.isfinite(tokens_RK).all() and tokens_RK.size else None
    backward_s = diagnosis.job_seconds["backward"]
    num_more = line.best.num_buckets - len(line.buckets) if line.best is not None else 0
    view = ExchangeView(
        num_steps=line.num_steps,
        num_bytes=int(exchanges.bytes_P.sum()),
        backward_s=line.backward_s,
        exposed_s=float(line.exposed_s_K.mean()),
        rate_bytes_s=line.rate_bytes_s,
        bus_bytes_s=line.rate_bytes_s * 2 * (num_ranks - 1) / num_ranks if line.rate_bytes_s else None,
        transfer_s=line.transfer_s,
        ratio=ratio,
        hideable_s=min(float(line.most_saved_s_K.mean()), most_s),
        lever=line.lever,
        best_cap_mib=line.best.cap_mib if line.best is not None else None,
        # Where compute and exchange share cores, what is hidden slows down what hides it.
        saved_s=saved_s,
        saved_low_s=min(max(bought.loss_low_s, 0.0), most_s) if left == 1.0 else 0.0,
        saved_high_s=min(bought.loss_high_s, most_s),
        start_cost_s=saved_s / num_more if num_more > 0 else None,
        core_left=left,
        num_parameters=num_parameters,
        tokens_per_rank=tokens,
        flop_s=FLOP_PER_TOKEN_IN_BACKWARD * num_parameters * tokens / backward_s
        if tokens and backward_s
        else None,
        buckets=tuple(
            BucketBar(one.num_bytes, one.ready_s, one.begin_s, one.end_s) for one in line.buckets[:MAX_BARS]
        ),
        sizes=_sizes(line, most_s),
        lanes=_lanes(line),
        words=(),
    )
    return replace(view, words=_words(view))


def _sizes(line: BucketLine, most_s: float) -> tuple[SizeChoice, ...]:
    """Other sizes of buckets. What one would save in some steps and cost in others is no promise."""
    exposed_s = float(line.exposed_s_K.mean())
    return tuple(
        SizeChoice(
            one.cap_mib,
            one.num_buckets,
            float(one.exposed_s_K.mean()),
            min(float(one.saved_s_K.mean()), most_s, max(exposed_s - float(one.exposed_s_K.mean()), 0.0)),
        )
        for one in line.others
    )


def _lanes(line: BucketLine) -> tuple[tuple[str, tuple[Segment, ...]], ...]:
    """The picture: backward, and one lane for each way to send the gradients."""
    if not line.buckets or len(line.buckets) > MAX_BARS:
        return ()
    whole_s = max(line.backward_s, line.buckets[-1].end_s)
    backward = (Segment("backward", line.backward_s), Segment("idle", whole_s - line.backward_s))
    lanes = [("backward", backward), ("buckets", _lane(line.buckets, whole_s))]
    if line.best is not None and len(line.best_buckets) <= MAX_BARS:
        lanes.append((f"{line.best.cap_mib} MiB each", _lane(line.best_buckets, whole_s)))
    return tuple(lanes)


def _lane(buckets: Sequence[Bucket], whole_s: float) -> tuple[Segment, ...]:
    parts, at_s = [], 0.0
    for number, bucket in enumerate(buckets, 1):
        parts.append(Segment("idle", max(bucket.begin_s - at_s, 0.0)))
        parts.append(Segment("bucket", bucket.end_s - bucket.begin_s, number))
        at_s = bucket.end_s
    return (*parts, Segment("idle", max(whole_s - at_s, 0.0)))


def _words(view: ExchangeView) -> tuple[str, ...]:
    """Its figures in sentences."""
    if view.lever == "nothing_exposed" or view.transfer_s is None or view.rate_bytes_s is None:
        return (
            f"In {view.num_steps} steps seen in detail the all-reduce ended with backward: nothing to hide.",
        )
    much = f", {100 * view.ratio:.2g} % of its length" if view.ratio is not None else ""
    if view.ratio is not None and view.ratio > 1:
        much = f", {view.ratio:.2g} times as long, so not all of it can be hidden"
    first = "The only bucket" if len(view.buckets) == 1 else f"The first of {len(view.buckets)} buckets"
    begin = f"{first} leaves {seconds(view.buckets[0].ready_s)} into {seconds(view.backward_s)} of backward"
    rate = f"{view.num_bytes / 1e6:.3g} MB takes {seconds(view.transfer_s)} at {view.rate_bytes_s / 1e9:.3g} GB/s"
    some = f"{seconds(view.hideable_s)} at most" if view.hideable_s else "nothing"
    # Their transfer beyond backward: exposed, but without waiting for the last rank, and not that of all steps.
    beyond = f"transfer outlasts backward by {seconds(view.exposed_s)} in the mean"
    most = f"{beyond}; order and size of buckets could hide {some}"
    return (
        f"{begin}; moving all {rate} in the median step{much}.",
        f"In {view.num_steps} steps seen in detail {most}.",
        _lever_words(view),
    )


def _lever_words(view: ExchangeView) -> str:
    if view.lever != "smaller_buckets" and view.hideable_s >= WORTH * view.exposed_s:
        return f"None of it by buckets of {min(CAPS_MIB)} MiB or more; what smaller ones cost to start was not seen."
    if view.lever == "fewer_bytes":
        return (
            "No size of buckets helps: moving them takes longer than backward runs once the first gradient is ready. "
            "Send less, or compute more per all-reduce."
        )
    if view.lever == "last_gradients":
        return (
            "No size of buckets helps: what is exposed are the last gradients, ready only when backward ends."
        )
    doubt = f"({seconds(view.saved_low_s)} to {seconds(view.saved_high_s)})"
    if view.core_left is None:
        doubt = "at best, if compute leaves cores to the all-reduce"
    elif view.core_left < 1:
        doubt += f", as compute leaves the all-reduce {view.core_left:.1f} of a core"
    start = ""
    if view.start_cost_s:
        start = f", if a bucket costs less than {seconds(view.start_cost_s)} to start"
    return f"bucket_cap_mb={view.best_cap_mib} would save {seconds(view.saved_s)} a step {doubt}{start}."
