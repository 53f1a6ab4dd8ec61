"""All causes, in the order in which they are measured, and what follows from them for a rule or a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Measured
from tuiadvisor.causes.checkpoint_in_step import CHECKPOINT_IN_STEP
from tuiadvisor.causes.communication_bound import COMMUNICATION_BOUND
from tuiadvisor.causes.copy_in_step import COPY_IN_STEP
from tuiadvisor.causes.crowded_host import CPU_LIMIT, CROWDED_HOST
from tuiadvisor.causes.device_use import DEVICE_USE
from tuiadvisor.causes.framework import FRAMEWORK
from tuiadvisor.causes.hang import HANG
from tuiadvisor.causes.heavy_stage import HEAVY_STAGE
from tuiadvisor.causes.held_rank import HELD_RANK
from tuiadvisor.causes.host_bound import HOST_BOUND
from tuiadvisor.causes.input_bound import INPUT_BOUND, LOADER_DECAYS
from tuiadvisor.causes.memory_creep import MEMORY_CREEP
from tuiadvisor.causes.pageable_copies import PAGEABLE_COPIES
from tuiadvisor.causes.pauses import IRREGULAR_PAUSES, PERIODIC_PAUSES
from tuiadvisor.causes.pipeline_bubble import PIPELINE_BUBBLE
from tuiadvisor.causes.placement import PLACEMENT
from tuiadvisor.causes.rotating_lateness import ROTATING_LATENESS
from tuiadvisor.causes.serving import SERVING
from tuiadvisor.causes.slow_stretches import SLOW_STRETCHES
from tuiadvisor.causes.slower_since import SLOWER_SINCE
from tuiadvisor.causes.stack import STACK
from tuiadvisor.causes.straggler import SLOW_HOST, STRAGGLER
from tuiadvisor.causes.taking_turns import TAKING_TURNS
from tuiadvisor.causes.unaligned_collection import UNALIGNED_COLLECTION
from tuiadvisor.causes.uneven_lengths import UNEVEN_LENGTHS
from tuiadvisor.causes.warmup import WARMUP
from tuiadvisor.causes.whole_job import WHOLE_JOB

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Cause, Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor_rules.loader import Rule

CAUSES: Final = (
    WHOLE_JOB,
    FRAMEWORK,
    CROWDED_HOST,
    CPU_LIMIT,
    MEMORY_CREEP,
    HOST_BOUND,
    STRAGGLER,
    SLOW_HOST,
    HELD_RANK,
    ROTATING_LATENESS,
    INPUT_BOUND,
    LOADER_DECAYS,
    CHECKPOINT_IN_STEP,
    COPY_IN_STEP,
    COMMUNICATION_BOUND,
    TAKING_TURNS,
    UNEVEN_LENGTHS,
    UNALIGNED_COLLECTION,
    WARMUP,
    SLOWER_SINCE,
    SLOW_STRETCHES,
    PIPELINE_BUBBLE,
    HEAVY_STAGE,
    PERIODIC_PAUSES,
    IRREGULAR_PAUSES,
    STACK,
    PLACEMENT,
    PAGEABLE_COPIES,
    DEVICE_USE,
    HANG,
    SERVING,
)
_BY_RULE: Final = {rule: cause for cause in CAUSES for rule in cause.rules}


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """Every metric of the job but the number of findings, which comes last."""
    values: Values = {}
    for cause in CAUSES:
        values |= cause.measure_job(diagnosis, facts)
    return values


def measure_all(diagnosis: Diagnosis, facts: Facts, job: Values) -> list[Measured]:
    """The job itself and every group: what rules of each scope are judged on."""
    hosts = tuple(sorted(set(diagnosis.table.hosts)))
    found = [Measured("job", job, diagnosis.table.ranks, hosts)]
    for cause in CAUSES:
        found += cause.measure(diagnosis, facts, job)
    return found


def cause_of(rule_id: str) -> Cause | None:
    """The cause that a rule judges; None for one of the user's own."""
    return _BY_RULE.get(rule_id)


def limits_by_finding(rule: Rule) -> bool:
    """Whether a finding's own seconds tell what it takes of each step: so they do of groups, but not of the job."""
    cause = cause_of(rule.id)
    return rule.scope != "job" if cause is None else cause.limits_by_finding


def is_found(cause: Cause, rules: list[Rule]) -> bool:
    """Whether any of the rules that found something judges this cause, the user's own on its groups included."""
    return any(rule.id in cause.rules or rule.scope == cause.scope != "job" for rule in rules)
