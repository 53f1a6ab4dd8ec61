"""Rules judged on the evidence: findings, each with its what-if, and the metrics that stayed unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, cast

from tuiadvisor.advisor.cluster.membership import GONE, Roster
from tuiadvisor.advisor.judge.communication import NO_EXCHANGE, Exchange, exchange_values
from tuiadvisor.advisor.judge.evidence import (
    Subject,
    job_values,
    memory_values,
    straggler_subjects,
    wandering_gain,
)
from tuiadvisor.advisor.judge.pause_facts import pause_subjects
from tuiadvisor.advisor.judge.pipeline_stages import explains_shift, pipeline_values, stage_subjects
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.views.run_view import Action, Finding, Severity
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.user import load_rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.advisor.cluster.crowding import Crowd
    from tuiadvisor.advisor.cluster.memory import Filling
    from tuiadvisor.advisor.judge.pipelines import Pipelines
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import DeviceView
    from tuiadvisor_rules.loader import Rule

_PID: Final = re.compile(r"\bPID\b")
_RANK: Final = re.compile(r"\bRANK\b")
_ON_HOST: Final = "  # on HOST"
_ASKS_GPU: Final = re.compile(r"\b(nvidia-smi|nsys|ncu|dcgmi|all_reduce_perf)\b")
SEVERITY_ORDER: Final = {"critical": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Judged:
    """A finding with what the verdict needs of it."""

    finding: Finding
    rule: Rule
    gain: Gain | None
    headline: str


@cache
def catalog() -> tuple[Rule, ...]:
    """The shipped rules with the user's own, read once. TuiadvisorError if one of them is wrong."""
    try:
        return load_rules()
    except RuleError as error:
        raise TuiadvisorError(str(error)) from error


def with_process(
    finding: Finding,
    pids: Mapping[int, tuple[int | None, str]],
    num_hosts: int,
    *,
    has_gpu: bool | None = None,
) -> Finding:
    """The finding with PID and RANK in its commands replaced by those of its first rank, where they are known.

    pids: rank -> (process id, host). On a job of several hosts a command says where to type it. has_gpu False: tools
    that ask a GPU are left out.
    """
    rank = next(iter(finding.ranks), next(iter(sorted(pids)), None))
    pid, host = pids.get(rank, (None, "")) if rank is not None else (None, "")
    where = f"  # rank {rank} on {host}" if num_hosts > 1 and host else ""

    def fill(text: str) -> str:
        filled = text if pid is None else _PID.sub(str(pid), text)
        filled = filled if rank is None else _RANK.sub(str(rank), filled)
        if _ON_HOST in filled:
            return filled.replace(_ON_HOST, where)
        return filled + where if _PID.search(text) and pid is not None else filled

    def applies(text: str) -> bool:
        return has_gpu is not False or _ASKS_GPU.search(text) is None

    return replace(
        finding,
        actions=tuple(
            replace(entry, command=fill(entry.command)) if entry.command else entry
            for entry in finding.actions
            if applies(entry.command or "")
        ),
        measure_next=tuple(fill(text) for text in finding.measure_next if applies(text)),
    )


def with_processes(judged: list[Judged], roster: Roster) -> tuple[Finding, ...]:
    """The findings, with the process ids of their ranks in the commands they recommend."""
    # A process that has ended may have left its number to another one.
    pids = {
        fact.rank: (None if fact.state in GONE else fact.pid, fact.host) for fact in roster.ranks.values()
    }
    hosts = len({host for _, host in pids.values()})
    devices = {fact.texts.get("device") for fact in roster.ranks.values()} - {None}
    has_gpu = any(str(name).startswith("cuda") for name in devices) if devices else None
    return tuple(with_process(entry.finding, pids, hosts, has_gpu=has_gpu) for entry in judged)


def find(
    diagnosis: Diagnosis,
    num_missing_ranks: int,
    rules: tuple[Rule, ...],
    cores_per_rank: float | None = None,
    *,
    device: DeviceView | None = None,
    pipelines: Pipelines | None = None,
    crowd: Crowd | None = None,
    filling: Filling | None = None,
    exchange: Exchange = NO_EXCHANGE,
) -> tuple[list[Judged], dict[str, object]]:
    """Findings, most severe and most costly first, and the job's metrics they rest on."""
    job = job_values(diagnosis, num_missing_ranks, cores_per_rank, device, crowd)
    job |= memory_values(filling) | pipeline_values(pipelines) | exchange_values(exchange, job)
    if explains_shift(pipelines, job["level_shift_since"]):
        job["level_shift_unexplained"] = 0
    subjects: dict[Literal["job", "straggler", "pause", "stage"], list[Subject]] = {
        "job": [_job_subject(diagnosis, job)],
        "straggler": straggler_subjects(diagnosis, job),
        "pause": pause_subjects(diagnosis, job),
        "stage": stage_subjects(diagnosis, pipelines, job),
    }
    judged = [
        result
        for rule in rules
        if not rule.final and rule.scope != "standstill"
        for subject in subjects[cast("Literal['job', 'straggler', 'pause', 'stage']", rule.scope)]
        if (result := _judge(rule, subject, diagnosis, pipelines)) is not None
    ]
    job["num_findings_above_info"] = sum(entry.finding.severity != "info" for entry in judged)
    last = Subject("job", job, (), (), None, None, {})
    judged.extend(
        result for rule in rules if rule.final and (result := _judge(rule, last, diagnosis)) is not None
    )
    judged.sort(
        key=lambda entry: (
            SEVERITY_ORDER[entry.finding.severity],
            -(entry.finding.loss_s_per_step or 0.0),
            entry.rule.id,
            entry.finding.ranks,
        )
    )
    return judged, job


def find_standstill(subject: Subject, rules: tuple[Rule, ...]) -> list[Judged]:
    """The finding on a job that stands still: the only one that needs no steady steps."""
    results = [_judge(rule, subject, None) for rule in rules if rule.scope == "standstill"]
    return [result for result in results if result is not None]


def _job_subject(diagnosis: Diagnosis, job: dict[str, object]) -> Subject:
    hosts = tuple(sorted(set(diagnosis.table.hosts)))
    return Subject("job", job, diagnosis.table.ranks, hosts, None, None, {})


def _judge(
    rule: Rule, subject: Subject, diagnosis: Diagnosis | None, pipelines: Pipelines | None = None
) -> Judged | None:
    outcome = judge(rule, subject.values)
    if not outcome.fires:
        return None
    gain = subject.gain
    if rule.id == "input_bound" and diagnosis is not None and diagnosis.input is not None:
        gain = diagnosis.input.gain
    elif rule.id == "communication_bound" and diagnosis is not None and diagnosis.transfer is not None:
        gain = diagnosis.transfer.gain
    elif rule.id == "uneven_lengths" and diagnosis is not None and diagnosis.lengths is not None:
        gain = diagnosis.lengths.gain
    elif rule.id == "wandering_lateness" and diagnosis is not None and diagnosis.wandering is not None:
        gain = wandering_gain(diagnosis)
    elif rule.id == "taking_turns" and diagnosis is not None:
        gain = diagnosis.turn_taking
    elif rule.id == "pipeline_bubble" and pipelines is not None and pipelines.shown is not None:
        gain = pipelines.shown.fill_gain
    evidence: dict[str, float | int | str | None] = {
        name: _plain(subject.values.get(name)) for name in rule.evidence
    }
    evidence.update(subject.details)
    if gain is not None:
        evidence.update(speedup=gain.speedup, speedup_low=gain.speedup_low, speedup_high=gain.speedup_high)
    job_wide = rule.scope == "job"
    loss = _plain(subject.values.get(rule.loss)) if rule.loss else None
    since = _plain(subject.values.get(rule.since)) if rule.since else None
    finding = Finding(
        id=rule.id,
        title=_title(rule, subject),
        pattern=rule.pattern,
        lens=rule.lens,
        layer=_layer(rule, subject),
        severity=cast("Severity", outcome.level),
        ranks=() if job_wide and rule.loss is None else subject.ranks,
        hosts=() if job_wide and rule.loss is None else subject.hosts,
        phase=rule.phase or subject.phase or _phase_of_job(rule, subject),
        since_step=int(since) if isinstance(since, int | float) else None,
        evidence=evidence,
        loss_s_per_step=float(loss) if isinstance(loss, int | float) else None,
        message=outcome.message,
        measure_next=rule.measure_next,
        actions=tuple(Action(entry.text, entry.command, entry.risk, entry.effort) for entry in rule.actions),
    )
    return Judged(finding, rule, gain, outcome.headline)


_PHASE_METRICS: Final = {"slower_since": "level_shift_phase", "wandering_lateness": "wandering_phase"}


def _phase_of_job(rule: Rule, subject: Subject) -> str | None:
    value = subject.values.get(_PHASE_METRICS.get(rule.id, ""))
    return value if isinstance(value, str) else None


def _title(rule: Rule, subject: Subject) -> str:
    ranks = subject.values.get("ranks")
    return rule.title.replace("{ranks}", ranks) if isinstance(ranks, str) else rule.title


def _layer(rule: Rule, subject: Subject) -> str:
    """A straggler's layer follows its cause: what fixes a late loader is not what fixes a hot device."""
    if rule.id != "straggler":
        return rule.layer
    by_phase = {
        "data_wait": "storage",
        "forward": "application",
        "backward": "application",
        "optimizer": "application",
        "host": "cpu-os",
        "device": "gpu-compute",
        "checkpoint": "storage",
    }
    return by_phase.get(subject.phase or "", rule.layer)


def _plain(value: object) -> float | int | str | None:
    return value if isinstance(value, float | int | str) else None
