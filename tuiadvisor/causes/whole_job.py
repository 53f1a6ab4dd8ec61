"""What every rule may ask of the job itself: its size, its step, how much of it is compute, waiting at the barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause, share_of
from tuiadvisor.metrics.steps.accounting import shares
from tuiadvisor.metrics.steps.arrays import mean_or_none
from tuiadvisor.phases import computing

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """Metrics that no single cause owns."""
    table = diagnosis.table
    step_s = mean_or_none(diagnosis.steady_barrier.cycle_K)
    phase_share = shares(diagnosis.job_seconds)
    waits_s = diagnosis.waits_s
    return {
        "num_ranks": table.num_ranks,
        "num_ranks_missing": facts.num_missing,
        "everybody": everybody(table.num_ranks, facts.num_missing),
        "on_everybody": " on all ranks" if table.num_ranks > 1 else "",
        "all_at_once": ", on all ranks at once" if table.num_ranks > 1 else "",
        "cores_per_rank": facts.cores_per_rank,
        "num_hosts": len(set(table.hosts)),
        "steady_steps": diagnosis.steady.num_steps,
        "step_s": step_s,
        "barrier_wait_s": waits_s,
        "barrier_wait_share": share_of(waits_s, step_s),
        "comm_exposed_share": phase_share["comm_exposed"],
        "compute_share": computing(phase_share),
        "unseen_share": phase_share["other"],
    }


def everybody(num_ranks: int, num_missing: int) -> str:
    """Who all have in common what is told."""
    if num_ranks > 1:
        return "every rank"
    return "the recorded rank" if num_missing else "the process"


WHOLE_JOB: Final = Cause(
    rules=(),
    metrics="""
job num_ranks count ranks of the job that were seen
job num_ranks_missing count ranks of the job that were not seen
job everybody text who all have in common what is told: "every rank", "the process" of a job of one
job on_everybody text " on all ranks"; empty where there is one
job all_at_once text ", on all ranks at once"; empty where there is one
job cores_per_rank ratio processor cores that a rank may use for each of those that share them, where they are fewest
job num_hosts count hosts of the ranks that were seen
job steady_steps steps steady steps in the window
job step_s s mean step of the window
job barrier_wait_s s a step that even the last recorded rank waits at the barrier, whoever it waits for
job barrier_wait_share share of the step, the same
job comm_exposed_share share of the step in exposed communication, waiting for late ranks included
job compute_share share of the step in forward, backward and optimizer
job unseen_share share of the step in code that no hook sees
job num_findings_above_info count findings of the other rules above info
""",
    measure_job=measure_job,
)
