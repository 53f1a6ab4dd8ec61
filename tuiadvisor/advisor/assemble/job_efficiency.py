"""MFU of the job as it stands: what ranks and devices say, put together for `efficiency.assess`.

In: Roster, Diagnosis, StepSummary, what the user gave.  Out: (Stack or None, Efficiency).
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from tuiadvisor.efficiency.assess import Work, assess, copies_of_batch, rows_per_step, with_counted
from tuiadvisor.efficiency.gathering import stack_of
from tuiadvisor.views.efficiency import Efficiency, Stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.views.run_view import StepSummary

NO_STEP = "no steady step was seen yet"
NO_MODEL = "the imported source does not show the model: state --flops-per-step"


def job_efficiency(
    roster: Roster, diagnosis: Diagnosis | None, step: StepSummary, given: GivenWork, why_blind: str
) -> tuple[Stack | None, Efficiency]:
    """Of the steady steps; why_blind: why their times say nothing. What a trace counted is last."""
    stack, found = _by_the_model(roster, diagnosis, step, given, why_blind)
    of_trace = roster.header.imported or roster.header.traced
    if of_trace is None or of_trace.arithmetic is None:
        return stack, found
    ranks = None if diagnosis is None else diagnosis.table.num_ranks
    devices = None if diagnosis is None else _num_devices(roster, diagnosis.table.ranks)
    num = devices if devices is not None and ranks == roster.world_size() else roster.world_size() or ranks
    return stack, with_counted(found, of_trace.arithmetic, step.mean_s, num)


def with_work(
    step: StepSummary,
    stack: Stack | None,
    found: Efficiency,
    num_ranks: int | None,
    world_size: int | None = None,
) -> StepSummary:
    """The step with its samples and tokens a second counted once, and by one call's ids where no loader tells them.

    Ranks that see the same batch, as those of tensor parallelism, work on it together: their counts are not added up.
    num_ranks: whose steps were compared; fewer than the job has leave its sum unknown, as one that does not say does.
    """
    elapsed_s = step.mean_with_pauses_s
    if num_ranks and world_size and num_ranks < world_size:
        return replace(
            step,
            throughput_samples_s=step.throughput_samples_s if "samples" in step.given else None,
            throughput_tokens_s=step.throughput_tokens_s if "tokens" in step.given else None,
        )
    if stack is None or not elapsed_s or not num_ranks:
        return step
    copies = copies_of_batch(stack)
    samples, tokens = step.throughput_samples_s, step.throughput_tokens_s
    if samples is not None and "samples" not in step.given:
        samples /= copies
    if tokens is not None and "tokens" not in step.given:
        tokens /= copies
    rows = rows_per_step(stack, num_ranks)
    if samples is tokens is None and rows is not None and found.tokens_per_step is not None:
        samples, tokens = rows / elapsed_s, found.tokens_per_step / elapsed_s
    return replace(step, throughput_samples_s=samples, throughput_tokens_s=tokens)


def _by_the_model(
    roster: Roster, diagnosis: Diagnosis | None, step: StepSummary, given: GivenWork, why_blind: str
) -> tuple[Stack | None, Efficiency]:
    num_stages = max((fact.parallel.get("pp", 1) for fact in roster.ranks.values()), default=1)
    seen = stack_of({rank: fact.model for rank, fact in roster.ranks.items()})
    stack = _in_stages(seen, num_stages)
    if diagnosis is None or step.mean_s is None:
        return stack, Efficiency(why=NO_STEP)
    if why_blind:
        return stack, Efficiency(why=why_blind)
    elapsed_s = step.mean_with_pauses_s
    device = next((f.texts["device"] for f in roster.ranks.values() if f.texts.get("device")), None)
    work = Work(
        step_s=step.mean_s,
        num_ranks=diagnosis.table.num_ranks,
        world_size=roster.world_size(),
        tokens=_per_step(step.throughput_tokens_s, elapsed_s),
        samples=_per_step(step.throughput_samples_s, elapsed_s),
        device=device,
        num_stages=num_stages,
        clock_mhz=_clock_mhz(roster, diagnosis) if device not in {None, "cpu"} else None,
        num_devices=_num_devices(roster, diagnosis.table.ranks),
    )
    found = assess(stack or Stack(), work, given)
    if seen is None and roster.header.imported is not None and found.flops_per_step is None:
        found = replace(found, why=NO_MODEL)
    return stack, found


def _in_stages(stack: Stack | None, num_stages: int) -> Stack | None:
    """With how many ranks hold stages of one model: the first and the last have the same batch, inputs and targets."""
    if num_stages == 1:
        return stack
    known = stack or Stack()  # of several stages on a rank none is the model
    return replace(known, facts={**known.facts, "stages": num_stages})


def _per_step(rate: float | None, elapsed_s: float | None) -> float | None:
    return rate * elapsed_s if rate is not None and elapsed_s else None


def _num_devices(roster: Roster, ranks: Sequence[int]) -> int | None:
    """How many these ranks compute on; None unless the device of each is known."""
    places = set()
    for rank in ranks:
        fact = roster.ranks.get(rank)
        if fact is None:
            return None
        name = roster.device_clocks.device_of(fact.host, fact.pid, fact.texts.get("device_uuid"))
        if not name:
            return None
        places.add((fact.host, name))
    return len(places) or None


def _clock_mhz(roster: Roster, diagnosis: Diagnosis) -> float | None:
    facts = [roster.ranks.get(rank) for rank in diagnosis.table.ranks]
    places = [(fact.host, fact.pid, fact.texts.get("device_uuid")) for fact in facts if fact is not None]
    known = roster.device_clocks.clocks(places, float(diagnosis.steady_barrier.span_K.sum()))
    return median([one.mhz for one in known if one is not None] or [0.0]) or None
