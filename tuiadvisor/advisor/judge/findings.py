"""Rules judged on the evidence: findings, each with its what-if, and the metrics that stayed unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from tuiadvisor.advisor.cluster.membership import GONE, Roster
from tuiadvisor.causes.above_info import is_worth_acting
from tuiadvisor.causes.cause import Measured
from tuiadvisor.causes.registry import cause_of, measure_all, measure_job
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.views.run_view import Action, Finding, Severity
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.user import load_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tuiadvisor.causes.cause import HiddenLimit
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import Verdict
    from tuiadvisor_rules.loader import Rule

    _Pids = Mapping[int, tuple[int | None, str]]

_PID: Final = re.compile(r"\bPID\b")
_RANK: Final = re.compile(r"\bRANK\b")
_ON_HOST: Final = "  # on HOST"
# What only asks or changes processes of a job that runs.
_ASKS_THE_JOB: Final = re.compile(r"\btuiadvisor (stacks|watch|capture)\b|\bkill -CONT\b")
_LOOKS_AT_IT: Final = re.compile(r"\b(PID|py-spy|pidstat|mpstat|iostat)\b")
# Of no minimal installation: which package has them, as the distributions all call it.
_PACKAGES: Final = ((re.compile(r"\b(pidstat|mpstat|iostat)\b"), "sysstat"),)
_ASKS_GPU: Final = re.compile(r"\b(nvidia-smi|nsys|ncu|dcgmi|all_reduce_perf)\b")
SEVERITY_ORDER: Final = {"critical": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Judged:
    """A finding with what the verdict needs of it."""

    finding: Finding
    rule: Rule
    gain: Gain | None
    headline: str
    at_best: bool = False  # its gain is an upper bound
    hides: HiddenLimit | None = None  # as Measured has it
    cure: str = ""  # as Measured has them
    above: str = ""

    @property
    def needs_device(self) -> bool:
        """Whether it says nothing where ranks compute on devices and only the host's clock was read."""
        cause = cause_of(self.rule.id)
        return cause is None or cause.needs_device


@cache
def catalog() -> tuple[Rule, ...]:
    """The shipped rules with the user's own, read once. TuiadvisorError if one of them is wrong."""
    try:
        return load_rules()
    except RuleError as error:
        raise TuiadvisorError(str(error)) from error


def with_process(
    finding: Finding,
    pids: _Pids,
    num_hosts: int,
    *,
    has_gpu: bool | None = None,
    is_over: bool = False,
) -> Finding:
    """The finding with PID and RANK in its commands replaced by those of its first rank, where they are known.

    pids: rank -> (process id, host). On a job of several hosts a command says where to type it. has_gpu False: tools
    that ask a GPU are left out. is_over: so is what only a running job answers, with what it is asked for.
    """
    rank, pid, host = _first(finding, pids)
    where = f"  # rank {rank} on {host}" if num_hosts > 1 and host else ""

    def fill(text: str) -> str:
        filled = _filled(text, rank, pid)
        if _ON_HOST in filled:
            filled = filled.replace(_ON_HOST, where)
        elif _PID.search(text) and pid is not None:
            filled += where
        return _with_package(filled)

    def applies(text: str) -> bool:
        if is_over and _ASKS_THE_JOB.search(text):
            return False
        return has_gpu is not False or _ASKS_GPU.search(text) is None

    def answers(text: str) -> bool:
        return not is_over or _LOOKS_AT_IT.search(text) is None

    return replace(
        finding,
        actions=tuple(
            replace(entry, command=fill(entry.command) if answers(entry.command) else None)
            if entry.command
            else entry
            for entry in finding.actions
            if applies(entry.command or "")
        ),
        measure_next=tuple(fill(text) for text in finding.measure_next if applies(text) and answers(text)),
    )


def _first(finding: Finding, pids: _Pids) -> tuple[int | None, int | None, str]:
    """(rank, process id, host) that commands of a finding are for: its first rank, or the first there is."""
    rank = next(iter(finding.ranks), next(iter(sorted(pids)), None))
    return (None, None, "") if rank is None else (rank, *pids.get(rank, (None, "")))


def _with_package(text: str) -> str:
    """The command with the package of its program, behind what it is followed by."""
    for program, package in _PACKAGES:
        if program.search(text):
            return f"{text}{',' if '  # ' in text else '  #'} package {package}"
    return text


def _filled(text: str, rank: int | None, pid: int | None) -> str:
    filled = text if pid is None else _PID.sub(str(pid), text)
    return filled if rank is None else _RANK.sub(str(rank), filled)


def _pids_of(roster: Roster) -> _Pids:
    # A process that has ended may have left its number to another one.
    return {
        fact.rank: (None if fact.state in GONE else fact.pid, fact.host) for fact in roster.ranks.values()
    }


def to_verify(verdict: Verdict, findings: Iterable[Finding], roster: Roster, *, is_over: bool) -> Verdict:
    """The verdict, with the process of its finding in how to verify it; of a job that is over another one's will be."""
    found = next((one for one in findings if one.id == verdict.finding), None)
    if found is None or is_over:
        return verdict
    rank, pid, _ = _first(found, _pids_of(roster))
    return replace(verdict, verify=_filled(verdict.verify, rank, pid))


def with_processes(judged: list[Judged], roster: Roster, *, is_over: bool) -> tuple[Finding, ...]:
    """The findings, with the process ids of their ranks in the commands they recommend. is_over: as `with_process`."""
    pids = _pids_of(roster)
    hosts = len({host for _, host in pids.values()})
    devices = {fact.texts.get("device") for fact in roster.ranks.values()} - {None}
    has_gpu = any(str(name).startswith("cuda") for name in devices) if devices else None
    return tuple(
        with_process(entry.finding, pids, hosts, has_gpu=has_gpu, is_over=is_over) for entry in judged
    )


def find(
    diagnosis: Diagnosis, facts: Facts, rules: tuple[Rule, ...]
) -> tuple[list[Judged], dict[str, object]]:
    """Findings, most severe and most costly first, and the job's metrics they rest on."""
    job = measure_job(diagnosis, facts)
    subjects = measure_all(diagnosis, facts, job)
    judged = [
        result
        for rule in rules
        if not rule.final
        for subject in subjects
        if subject.scope == rule.scope and (result := _judge(rule, subject, (diagnosis, facts)))
    ]
    judged = [entry for entry in judged if not _is_told(entry, judged)]
    job["num_findings_above_info"] = sum(entry.finding.severity != "info" for entry in judged)
    last = Measured("job", job)
    judged.extend(result for rule in rules if rule.final and (result := _judge(rule, last)) is not None)
    held_s = max((_held_s(entry) for entry in judged), default=0.0)
    judged.sort(
        key=lambda entry: (
            _gravity(entry),
            entry.rule.scope == "pause" and (entry.finding.loss_s_per_step or 0.0) < held_s,
            -(entry.finding.loss_s_per_step or 0.0),
            entry.rule.id,
            entry.finding.ranks,
        )
    )
    return judged, job


def _is_told(entry: Judged, judged: list[Judged]) -> bool:
    """Whether another finding tells of the same seconds, in the same phase, and is the one to keep."""
    return any(
        other.finding.phase == entry.finding.phase
        and _holds_most(other.gain, entry.gain)
        and (
            (_may_be_told_by(entry, other) and _gravity(other) <= _gravity(entry))
            or (_may_be_told_by(other, entry) and _gravity(other) < _gravity(entry))
        )
        for other in judged
    )


def _may_be_told_by(entry: Judged, other: Judged) -> bool:
    cause = cause_of(entry.rule.id)
    return cause is not None and other.rule.id in cause.told_by


def _gravity(entry: Judged) -> int:
    return SEVERITY_ORDER[entry.finding.severity]


def _held_s(entry: Judged) -> float:
    """What makes all that a step does longer, as waiting for cores, takes of it; 0 of others, and of remarks.

    It has no seconds of its own. What a step itself loses stands before it, for some of that is told to be beyond it;
    a pause beside the steps is no part of it, and comes first where it costs more alone.
    """
    cause = cause_of(entry.rule.id)
    is_of_all = cause is not None and bool(cause.lost_share) and entry.finding.severity != "info"
    return entry.gain.loss_s if is_of_all and entry.gain is not None else 0.0


def _holds_most(one: Gain | None, other: Gain | None) -> bool:
    return one is not None and other is not None and one.loss_s >= other.loss_s / 2


def find_standstill(subject: Measured, rules: tuple[Rule, ...]) -> list[Judged]:
    """The finding on a job that stands still: the only one that needs no steady steps."""
    results = [_judge(rule, subject) for rule in rules if rule.scope == "standstill"]
    return [result for result in results if result is not None]


def _judge(rule: Rule, subject: Measured, of_job: tuple[Diagnosis, Facts] | None = None) -> Judged | None:
    """of_job: what the gain of a cause that concerns the whole job follows from; a group brings its own."""
    outcome = judge(rule, subject.values)
    if not outcome.fires:
        return None
    cause = cause_of(rule.id)
    gain = cause.gain(*of_job) if cause is not None and of_job is not None else None
    gain = gain if gain is not None else subject.gain
    evidence: dict[str, float | int | str | None] = {
        name: _plain(subject.values.get(name)) for name in rule.evidence
    }
    evidence.update(subject.details)
    if gain is not None:
        evidence.update(speedup=gain.speedup, speedup_low=gain.speedup_low, speedup_high=gain.speedup_high)
    job_wide = rule.scope == "job"
    found = cause.ranks_of(of_job[0]) if cause is not None and cause.ranks_of is not None and of_job else None
    ranks = subject.ranks if found is None else found
    loss = _plain(subject.values.get(rule.loss)) if rule.loss else None
    since = _plain(subject.values.get(rule.since)) if rule.since else None
    finding = Finding(
        id=rule.id,
        title=outcome.title,
        pattern=rule.pattern,
        lens=rule.lens,
        layer=_layer(rule, subject),
        severity=_severity(rule.id, outcome.level, gain),
        ranks=() if job_wide and rule.loss is None else ranks,
        hosts=() if job_wide and rule.loss is None else subject.hosts,
        phase=rule.phase or subject.phase or _phase_of_job(rule, subject),
        since_step=int(since) if isinstance(since, int | float) else None,
        evidence=evidence,
        loss_s_per_step=float(loss) if isinstance(loss, int | float) else None,
        message=outcome.message,
        measure_next=outcome.rule.measure_next,
        actions=tuple(
            Action(
                entry.text,
                entry.command,
                entry.risk,
                entry.effort,
                entry.upkeep,
                entry.ties,
                last_resort=entry.last_resort,
            )
            for entry in outcome.rule.actions
        ),
        subject=subject.name,
    )
    at_best = subject.at_best or (cause is not None and cause.at_best)
    if cause is not None and cause.is_at_best is not None:
        at_best |= cause.is_at_best(subject)
    return Judged(
        finding,
        outcome.rule,
        gain,
        outcome.headline,
        at_best=at_best,
        hides=subject.hides,
        cure=subject.cure,
        above=subject.above,
    )


def _severity(rule_id: str, level: str, gain: Gain | None) -> Severity:
    """That of the rule, but a remark where nothing is surely gained."""
    return cast("Severity", level) if is_worth_acting(rule_id, gain) else "info"


def _phase_of_job(rule: Rule, subject: Measured) -> str | None:
    cause = cause_of(rule.id)
    value = subject.values.get(cause.phase_metric) if cause is not None else None
    return value if isinstance(value, str) else None


def _layer(rule: Rule, subject: Measured) -> str:
    """That of the cause where its subject decides, else the rule's."""
    cause = cause_of(rule.id)
    found = cause.layer_of(subject) if cause is not None and cause.layer_of else None
    return found or rule.layer


def _plain(value: object) -> float | int | str | None:
    return value if isinstance(value, float | int | str) else None
