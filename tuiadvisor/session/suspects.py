"""What may be behind the findings of a run: causes with a weight each, moved by answers and by what was measured.

In: findings, answers.  Out: weights that sum to 1, heaviest first. The weight is no probability that was observed: it
is the loss of the findings that a cause would explain, doubled by each answer for it and halved by each against it.
What is taken from causes so and given to none of the others is something else's, which no finding names. Where those
who read for all ranks, or for a late one, were looked at, what they were met doing divides the loss among its causes.
Where stacks named the line at which a late rank alone spends its time, that share of the loss is the line's, whatever
is answered; the other causes have what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.evidence import EXPOSED_PART
from tuiadvisor.session.measured import STACKS, reader_does, readers_do
from tuiadvisor.views.measured import line_of
from tuiadvisor.views.pipeline import STAGE_FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.views.run_view import Finding, SeenCause
    from tuiadvisor.views.stack_card import StackCard

FACTOR: Final = 2.0  # of one answer: odds as even as an opinion deserves; no measurement is outweighed by one
ELSE: Final = "something else"
LEAST_MET: Final = (
    0.05  # of a loss, chosen: what none of some dozens of looks met may still be that much of it
)
LEAST_LOSS_S: Final = 1e-6  # of a finding whose loss is not known, so that its causes are listed, last

DATA: Final = frozenset(
    {"data_wait", "input_bound", "loader_decays", "loader_without_workers", "periodic_data_wait"}
)
LATE: Final = frozenset({"straggler", "slow_host", "wandering_lateness", "taking_turns"})
LENGTHS: Final = frozenset({"straggler", "uneven_lengths", "wandering_lateness", "taking_turns"})
COMM: Final = frozenset({"communication_bound", "exchange_outweighs_compute"})
COMPUTE: Final = frozenset({"low_mfu", "full_precision", "tf32_off", "odd_sizes"})
LAUNCH: Final = frozenset({"host_bound", "little_compute"})
CROWD: Final = frozenset({"crowded_host", "cpu_limit"})

# What was seen to make a rank late leaves nothing else to ask about it: its words here, or those of the cause in TABLE.
SEEN: Final[dict[SeenCause, str]] = {
    "stopped": "whoever stops its process",
    "no core": "a host busy with other work",
    "CPU limit": "the CPU limit of its container",
    "storage": "slow storage or mount",
    "garbage collection": "Python's garbage collection",
    "launches": "a thread that launches its device's work late",
    "clock": "a slower device",
    "more work": "uneven batches",
}

# Of a trace, why its devices do not compute: what its parts are called, and the finding that such a part would be.
PARTS: Final = {
    "waits for data": "data_wait",
    "launches too late": "host_bound",
    "between launch and start": "host_bound",
    EXPOSED_PART: "communication_bound",
}
LEAST_PART: Final = 0.05  # of a device's time: as of the step, below it compute itself is what limits

# What sampled stacks of the rank in question say, as `StackCard.kind`: in its loader, and there not for want of work.
IN_LOADER: Final = ("loader", "dataset", "collate")
# Nothing that makes this rank late: while it was looked at it waited for others.
NOT_LATE: Final = ("collective",)

# Answers that speak for (+) and against (-) a cause, as "question answer".
Marks = tuple[str, ...]


def _stacks(sign: str, *kinds: str) -> Marks:
    return tuple(f"{sign}{STACKS} {kind}" for kind in kinds)


@dataclass(frozen=True, slots=True)
class Suspect:
    """One possible cause."""

    id: str
    words: str
    of: frozenset[str]  # rules and phases of the findings that it would explain
    speaks: Marks
    on_device: bool = False  # only where ranks compute on devices
    not_of: frozenset[str] = frozenset()  # phases that it does not explain
    only_if: str = ""  # "question answer" without which nobody would think of it
    doing: tuple[str, ...] = ()  # what those who read for all ranks are met doing where it is the cause
    cures: tuple[str, ...] = ()  # the same where it is no more than what helps
    only_seen: bool = False  # only where whoever reads was looked at


TABLE: Final = (
    Suspect(
        *("slow_storage", "slow storage or mount", DATA),
        (
            *("+storage_at_ceiling yes", "-storage_at_ceiling no", "+host_cpus_full no"),
            *_stacks("+", "loader", "dataset"),
            *_stacks("-", "collate", "idle workers", "own code", *NOT_LATE),
        ),
        doing=("storage",),
    ),
    Suspect(
        *("network_or_lock", "a network or lock that samples wait for", DATA),
        (
            *("+host_cpus_full no", "-host_cpus_full yes"),
            *_stacks("+", "loader", "dataset"),
            *_stacks("-", "collate", "idle workers", "own code", *NOT_LATE),
        ),
        doing=("neither",),
        only_seen=True,
    ),
    Suspect(
        *("few_workers", "too few loader workers", DATA),
        (
            *("+host_cpus_full no", "-host_cpus_full yes", "+storage_at_ceiling no", "-storage_at_ceiling yes"),
            *_stacks("+", *IN_LOADER),
            *_stacks("-", "idle workers", "own code", *NOT_LATE),
        ),
        doing=("computing",),
        cures=("neither",),
    ),
    Suspect(
        *("costly_samples", "samples that cost much processor time", DATA),
        (
            *("+host_cpus_full yes", "-host_cpus_full no"),
            *_stacks("+", *IN_LOADER),
            *_stacks("-", "idle workers", "own code", *NOT_LATE),
        ),
        doing=("computing",),
    ),
    Suspect(
        *("uneven_batches", "uneven batches", LENGTHS),
        ("+lengths_vary yes", "-lengths_vary no", *_stacks("-", *NOT_LATE)),
    ),
    Suspect(
        *("uneven_parts", "a larger part of data, model or duties", LATE),
        ("+shards_equal no", "-shards_equal yes", *_stacks("+", "own code"), *_stacks("-", *NOT_LATE)),
    ),
    Suspect(
        *("busy_host", "a host busy with other work", LATE | CROWD),
        (
            *("+host_shared yes", "-host_shared no", "+host_cpus_full yes"),
            *_stacks("-", "own code", *IN_LOADER, *NOT_LATE),
        ),
    ),
    Suspect(
        *("slow_device", "a slower device", LATE),
        ("+devices_alike no", "-devices_alike yes", *_stacks("-", "own code", *IN_LOADER, *NOT_LATE)),
        on_device=True,
        not_of=frozenset({"data_wait"}),
    ),
    Suspect(
        *("over_by_then", "lateness that was over while its stacks were looked at", LATE | DATA),
        _stacks("+", *NOT_LATE),
        only_if=f"{STACKS} collective",
    ),
    Suspect(
        *("much_to_send", "more to send than the links carry", COMM),
        ("+network_ceiling as long", "-network_ceiling much shorter"),
    ),
    Suspect(
        *("badly_hidden", "communication that compute does not hide", COMM),
        ("+network_ceiling much shorter", "-network_ceiling as long"),
    ),
    Suspect(
        *("far_apart", "nodes under different switches", COMM),
        ("+placement no", "-placement yes"),
    ),
    Suspect(
        *("small_batch", "too little work a step for its fixed costs", COMM | LAUNCH),
        ("+batch_flat rose", "-batch_flat flat", "+memory_nearly_full no", "-memory_nearly_full yes"),
    ),
    Suspect(
        *("memory_bound", "kernels limited by memory", COMPUTE),
        ("+memory_bound_kernels memory", "-memory_bound_kernels compute", "-memory_bound_kernels tiny"),
    ),
    Suspect(
        *("tiny_kernels", "very many tiny kernels", COMPUTE | LAUNCH),
        ("+memory_bound_kernels tiny", "-memory_bound_kernels compute", "-memory_bound_kernels memory"),
    ),
    Suspect(
        *("heavy_end", "a last stage with loss and projection", STAGE_FINDINGS),
        ("+stages_equal yes", "-stages_equal no"),
    ),
)  # fmt: skip


def weights(run: Facts, answers: Mapping[str, str | float]) -> dict[str, float]:
    """Words of each cause with its share of all weight, heaviest first."""
    found: dict[str, float] = {}
    heard = [(each, sum(_sign(mark, answers) for mark in each.speaks)) for each in _causes(run, answers)]
    # Where every cause was spoken against they would all stand as before: not one of the answers would show.
    is_else = max((score for _, score in heard), default=0) < 0
    for each, score in heard:
        weight = each.loss_s * FACTOR**score
        taken = each.loss_s - weight if is_else else 0.0
        line, share = each.line[0], min(each.line[1], 1 - LEAST_MET)
        for words, part in (
            (each.words, weight * (1 - share)),
            (ELSE, taken * (1 - share)),
            (line, (weight + taken) * share),
        ):
            if part:
                found[words] = found.get(words, 0.0) + part
    total = sum(found.values())
    order = sorted(found.items(), key=lambda pair: (-pair[1], pair[0] == ELSE))
    return {words: weight / total for words, weight in order}


@dataclass(frozen=True, slots=True)
class _Cause:
    """One that may be behind what was found."""

    words: str
    loss_s: float
    speaks: Marks = ()
    line: tuple[str, float] = ("", 0.0)  # of code that stacks named, and the share of the loss spent there


def _causes(run: Facts, answers: Mapping[str, str | float]) -> Iterator[_Cause]:
    explained: set[str] = set()
    parts, doing = _device_parts(run), readers_do(run)
    for suspect in TABLE:
        if suspect.on_device and not run.has_gpu:
            continue
        if suspect.only_if and not _sign(f"+{suspect.only_if}", answers):
            continue
        findings = [one for one in run.findings if _explains(suspect, one, run.look)]
        does = [doing if one.id in DATA else reader_does(one) for one in findings]
        if suspect.only_seen and not any(each.get(which) for each in does for which in suspect.doing):
            continue
        lost = [
            *(
                (_loss(one) * _part(suspect, each), line_of(one))
                for one, each in zip(findings, does, strict=True)
            ),
            *((parts[name], ("", 0.0)) for name in suspect.of & parts.keys()),
        ]
        if lost:
            explained |= {one.id for one in findings} | (suspect.of & parts.keys())
            loss_s, line = max(lost, key=itemgetter(0))
            yield _Cause(suspect.words, loss_s, suspect.speaks, line)
    for finding in run.findings:
        if finding.id not in explained:
            yield _Cause(_seen(finding) or finding.title, _loss(finding), line=line_of(finding))
    for name, lost_s in parts.items():
        if name not in explained:
            yield _Cause(name, lost_s)


def _part(suspect: Suspect, doing: Mapping[str, float]) -> float:
    """Of the loss, by what whoever reads was met doing: for all ranks, or for the one that is late."""
    if not doing or not suspect.doing:
        return 1.0
    causes = sum(doing[which] for which in suspect.doing)
    return max(causes + sum(doing[which] for which in suspect.cures) / FACTOR, LEAST_MET)


def _device_parts(run: Facts) -> dict[str, float]:
    """Seconds of a step that devices did not compute, by the finding that it would be, or in the trace's words."""
    found: dict[str, float] = {}
    for words, share in run.device_parts:
        name = next((name for said, name in PARTS.items() if said in words), words)
        found[name] = found.get(name, 0.0) + share
    return {
        name: share * (run.step_s or 0.0)
        for name, share in found.items()
        if share >= LEAST_PART and run.step_s
    }


def _seen(finding: Finding) -> str | None:
    seen = finding.evidence.get("seen_cause")
    return next((words for name, words in SEEN.items() if name == seen), None)


def _explains(suspect: Suspect, finding: Finding, look: StackCard | None) -> bool:
    """A rank that was seen in its loader loads there, whatever phase its time was booked under."""
    if (seen := _seen(finding)) is not None:
        return suspect.words == seen
    loads = look is not None and look.kind in IN_LOADER and look.rank in finding.ranks
    of = {finding.id, finding.phase, "data_wait" if loads else None}
    return bool(suspect.of & of) and finding.phase not in suspect.not_of


def _loss(finding: Finding) -> float:
    return max(finding.loss_s_per_step or 0.0, LEAST_LOSS_S)


def _sign(mark: str, answers: Mapping[str, str | float]) -> int:
    question, _, answer = mark[1:].partition(" ")
    if str(answers.get(question)) != answer:
        return 0
    return 1 if mark[0] == "+" else -1
