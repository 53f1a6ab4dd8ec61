"""The one decision a run's findings lead to, in one honest sentence.

In: judged findings and metrics.  Out: Verdict. The first finding decides: the surest, and of those the costliest, as
every list shows them. Without enough steady steps nothing is decided, and without a finding above info the run is kept
as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from tuiadvisor.advisor.view import Decision, Speedup, Verdict
from tuiadvisor.metrics.barrier import has_stages
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.advisor.findings import Judged
    from tuiadvisor.advisor.view import Shares
    from tuiadvisor.metrics.diagnosis import Diagnosis

MIN_NEXT_SHARE: Final = 0.05  # of the step that remains: below this compute itself is the next constraint
COMPUTE: Final = ("forward", "backward", "optimizer", "other")


def verdict(
    judged: list[Judged], diagnosis: Diagnosis, job_seconds: Shares, num_not_compared: int = 0
) -> Verdict:
    """What to do about this run. num_not_compared: ranks whose arrival nobody saw."""
    if not diagnosis.enough:
        return not_yet(diagnosis.num_missing_steps, bool(diagnosis.table.num_steps))
    above = [entry for entry in judged if entry.finding.severity != "info"]
    if not above:
        return _keep(judged, diagnosis, job_seconds, num_not_compared)
    chosen = above[0]
    following = next_constraint(chosen, judged, diagnosis, job_seconds)
    return Verdict(
        decision=cast("Decision", chosen.rule.decision),
        sentence=_sentence(chosen, diagnosis),
        finding=chosen.finding.id,
        pattern=chosen.finding.pattern,
        speedup=_speedup(chosen),
        next_constraint=following,
        because=chosen.finding.message,
        verify=chosen.rule.verify,
    )


def not_yet(num_missing_steps: int, any_steps: bool) -> Verdict:
    """No verdict before there is evidence for one."""
    sentence = f"Not enough yet: {num_missing_steps} more steady steps."
    because = "too few steady steps were seen" if any_steps else "no step was seen"
    return Verdict(None, sentence, None, None, None, None, because, "")


def _keep(judged: list[Judged], diagnosis: Diagnosis, job_seconds: Shares, num_not_compared: int) -> Verdict:
    step = diagnosis.steady_barrier.cycle_K
    mean_s = float(step.mean())
    sentence = f"Keep: nothing found is worth acting on; a step takes {seconds(mean_s)}."
    if _is_order_unknown(diagnosis):
        sentence = f"Keep: a step takes {seconds(mean_s)}; whether a rank is late could not be observed."
    elif num_not_compared:
        sentence = (
            f"Keep: nothing found in what was seen; a step takes {seconds(mean_s)}. "
            f"{_ranks(num_not_compared)} not compared and may be late."
        )
    healthy = next((entry for entry in judged if entry.rule.final), None)
    return Verdict(
        decision="keep",
        sentence=sentence,
        finding=healthy.finding.id if healthy else None,
        pattern=healthy.finding.pattern if healthy else None,
        speedup=None,
        next_constraint=next_constraint(None, judged, diagnosis, job_seconds),
        because=healthy.finding.message if healthy else sentence,
        verify=healthy.rule.verify if healthy else "",
    )


def stands_still(hang: Judged) -> Verdict:
    """While nothing moves, no step can be made faster."""
    return Verdict(
        decision=cast("Decision", hang.rule.decision),
        sentence=f"Stalled: {hang.headline}.",
        finding=hang.finding.id,
        pattern=hang.finding.pattern,
        speedup=None,
        next_constraint=None,
        because=hang.finding.message,
        verify=hang.rule.verify,
    )


def _ranks(num_ranks: int) -> str:
    return "1 rank was" if num_ranks == 1 else f"{num_ranks} ranks were"


def _sentence(chosen: Judged, diagnosis: Diagnosis) -> str:
    gain = chosen.gain
    first = f"{chosen.rule.decision.capitalize()}: {chosen.headline}"
    if gain is None:
        return f"{first}."
    now, then = seconds(gain.step_s), seconds(gain.step_s - gain.loss_s)
    if _is_order_unknown(diagnosis):
        return f"{first}; without that a step would take at best {then} instead of {now}."
    return f"{first}; without that a step would take {then} instead of {now} ({gain.speedup:.2f}x)."


def _is_order_unknown(diagnosis: Diagnosis) -> bool:
    """Among stages of a pipeline nobody asks for the order of arrival: there the stages' times tell who is slow."""
    barrier, table = diagnosis.steady_barrier, diagnosis.table
    return barrier.evidence == "none" and table.num_ranks > 1 and not has_stages(table)


def _speedup(chosen: Judged) -> Speedup | None:
    gain = chosen.gain
    return None if gain is None else Speedup(gain.speedup, gain.speedup_low, gain.speedup_high)


def next_constraint(
    chosen: Judged | None, judged: list[Judged], diagnosis: Diagnosis, job_seconds: Shares
) -> str | None:
    """What limits the step once the chosen finding is gone: the largest other loss, else the longest compute."""
    cycle = diagnosis.steady_barrier.cycle_K
    if not cycle.size:
        return None
    remaining = float(cycle.mean()) - (chosen.gain.loss_s if chosen and chosen.gain else 0.0)
    losses: dict[str, float] = {}
    if diagnosis.input is not None and (chosen is None or chosen.rule.id != "input_bound"):
        losses["data_wait"] = diagnosis.input.gain.loss_s
    if diagnosis.transfer is not None and (chosen is None or chosen.rule.id != "communication_bound"):
        losses["comm_exposed"] = diagnosis.transfer.gain.loss_s
    for entry in judged:
        same = chosen is not None and entry.finding is chosen.finding
        if (
            (entry.rule.scope == "job" and entry.rule.id != "pipeline_bubble")
            or same
            or entry.finding.loss_s_per_step is None
        ):
            continue
        name = entry.finding.phase or entry.finding.id
        losses[name] = losses.get(name, 0.0) + entry.finding.loss_s_per_step
    largest = max(losses, key=lambda name: (losses[name], name), default=None)
    if largest is not None and remaining > 0 and losses[largest] >= MIN_NEXT_SHARE * remaining:
        return largest
    compute = {name: job_seconds.get(name) or 0.0 for name in COMPUTE}
    longest = max(compute, key=lambda name: compute[name])
    return longest if compute[longest] > 0 else None
