"""What may be behind the findings of a run: causes with a weight each, moved by answers and by what was measured.

In: findings, answers.  Out: weights that sum to 1, heaviest first. The weight is no probability that was observed: it
is the loss of the findings that a cause would explain, doubled by each answer for it and halved by each against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.views.pipeline import STAGE_FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.views.run_view import Finding, SeenCause

FACTOR: Final = 2.0  # of one answer: odds as even as an opinion deserves; no measurement is outweighed by one
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
    "garbage collection": "Python's garbage collection",
    "launches": "a thread that launches its device's work late",
    "clock": "a slower device",
    "more work": "uneven batches",
}

# Answers that speak for (+) and against (-) a cause, as "question answer".
Marks = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """One possible cause."""

    id: str
    words: str
    of: frozenset[str]  # rules and phases of the findings that it would explain
    speaks: Marks
    on_device: bool = False  # only where ranks compute on devices
    not_of: frozenset[str] = frozenset()  # phases that it does not explain


TABLE: Final = (
    Suspect(
        *("slow_storage", "slow storage or mount", DATA),
        ("+storage_at_ceiling yes", "-storage_at_ceiling no", "+host_cpus_full no"),
    ),
    Suspect(
        *("few_workers", "too few loader workers", DATA),
        ("+host_cpus_full no", "-host_cpus_full yes", "+storage_at_ceiling no", "-storage_at_ceiling yes"),
    ),
    Suspect(
        *("costly_samples", "samples that cost much processor time", DATA),
        ("+host_cpus_full yes", "-host_cpus_full no"),
    ),
    Suspect(
        *("uneven_batches", "uneven batches", LENGTHS),
        ("+lengths_vary yes", "-lengths_vary no"),
    ),
    Suspect(
        *("uneven_parts", "a larger part of data, model or duties", LATE),
        ("+shards_equal no", "-shards_equal yes"),
    ),
    Suspect(
        *("busy_host", "a host busy with other work", LATE | CROWD),
        ("+host_shared yes", "-host_shared no", "+host_cpus_full yes"),
    ),
    Suspect(
        *("slow_device", "a slower device", LATE),
        ("+devices_alike no", "-devices_alike yes"),
        on_device=True,
        not_of=frozenset({"data_wait"}),
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
        *("small_batch", "too little work between two exchanges", COMM | LAUNCH),
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
    for words, loss_s, speaks in _causes(run):
        score = sum(_sign(mark, answers) for mark in speaks)
        found[words] = found.get(words, 0.0) + loss_s * FACTOR**score
    total = sum(found.values())
    order = sorted(found.items(), key=lambda pair: -pair[1])
    return {words: weight / total for words, weight in order}


def _causes(run: Facts) -> Iterator[tuple[str, float, Marks]]:
    explained: set[str] = set()
    for suspect in TABLE:
        if suspect.on_device and not run.has_gpu:
            continue
        findings = [one for one in run.findings if _explains(suspect, one)]
        if findings:
            explained |= {one.id for one in findings}
            yield suspect.words, max(map(_loss, findings)), suspect.speaks
    for finding in run.findings:
        if finding.id not in explained:
            yield _seen(finding) or finding.title, _loss(finding), ()


def _seen(finding: Finding) -> str | None:
    seen = finding.evidence.get("seen_cause")
    return next((words for name, words in SEEN.items() if name == seen), None)


def _explains(suspect: Suspect, finding: Finding) -> bool:
    if (seen := _seen(finding)) is not None:
        return suspect.words == seen
    return bool(suspect.of & {finding.id, finding.phase}) and finding.phase not in suspect.not_of


def _loss(finding: Finding) -> float:
    return max(finding.loss_s_per_step or 0.0, LEAST_LOSS_S)


def _sign(mark: str, answers: Mapping[str, str | float]) -> int:
    question, _, answer = mark[1:].partition(" ")
    if str(answers.get(question)) != answer:
        return 0
    return 1 if mark[0] == "+" else -1
