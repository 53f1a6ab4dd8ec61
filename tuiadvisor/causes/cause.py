"""What a cause is, what it is measured on, and what it measures.

In: the Diagnosis of a window and Facts of the cluster, both frozen.  Out: named metrics of the job, and one Measured
for each subject (the job, a group of ranks, a kind of pause, a group of stages) that rules are judged on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tuiadvisor.phases import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_phase import Priority, StorageWait
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import Finding, RunView
    from tuiadvisor_rules.loader import Rule

Values = dict[str, object]  # metric -> number, text or None where it was not observed
Details = dict[str, float | int | str | None]
Scope = Literal[
    "job", "straggler", "pause", "stage", "held", "placement", "standstill", "serving"
]  # of tuiadvisor_rules.metric_names


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rule is judged on: one subject of one cause."""

    scope: Scope
    values: Values
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    phase: str | None = None
    gain: Gain | None = None  # the only source of what a cure would bring
    details: Details = field(default_factory=dict)  # evidence beyond the named metrics
    name: str = ""  # what tells it from others of its scope and its ranks, however they come and go
    at_best: bool = False  # what others could do once it is cured was not seen: its gain is an upper bound
    cure: str = ""  # what its gain is of, where that is not all that it takes: "with its work spread evenly"
    above: str = ""  # what the upper end of its gain is of, where that is another cure
    # What hides behind it: it limits the step next; or, where it does so already, the gain is of both cures together.
    hides: HiddenLimit | None = None


@dataclass(frozen=True, slots=True)
class HiddenLimit:
    """Something else that the step waits for beside a cause, or would wait for without it."""

    phase: str
    words: str  # "the threads' wait for data"
    least_s: float  # a step takes for it, whatever becomes of the cause
    own: (
        Gain | None
    )  # the cause's own part of a gain that is of both cures; None: the limit is not counted in it


@dataclass(frozen=True, slots=True)
class Loss:
    """Seconds a step that the cause takes of every rank, under the name that goodput and next constraint use."""

    name: str
    loss_s: float
    before_s: float = 0.0  # seconds in all that the steps before the window lost so


def nothing(_diagnosis: Diagnosis, _facts: Facts) -> Values:
    """No metric of the job."""
    return {}


def no_gain(_diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """Nobody can say what its cure would bring."""
    return None


def no_loss(_diagnosis: Diagnosis) -> Loss | None:
    """Nothing that each step loses."""
    return None


def no_groups(_diagnosis: Diagnosis, _facts: Facts, _job: Values) -> list[Measured]:
    """It is of the job alone."""
    return []


def all_seen(_finding: Finding, _rule: Rule) -> str:
    """Nothing of it is open."""
    return ""


def no_amount(_finding: Finding, _view: RunView) -> float | None:
    """No single number stands for it."""
    return None


@dataclass(frozen=True, slots=True)
class Cause:
    """Everything that is known of a cause outside its rules' files. What is left out does not apply to it.

    rules: ids of the rules it is judged by; none where it only supplies metrics.
    metrics: one line a metric, `scope name unit meaning`; the table of the rules package is made of them.
    """

    rules: tuple[str, ...]
    metrics: str = ""
    scope: Scope = "job"
    measure_job: Callable[[Diagnosis, Facts], Values] = nothing
    measure: Callable[[Diagnosis, Facts, Values], list[Measured]] = no_groups
    gain: Callable[[Diagnosis, Facts], Gain | None] = no_gain  # of scope job; others have one a Measured
    phase_metric: str = ""  # of the job: the phase that a finding names
    layer_of: Callable[[Measured], str | None] | None = None  # layer of what would cure it; None: the rule's
    ranks_of: Callable[[Diagnosis], tuple[int, ...] | None] | None = None  # of scope job; None: of all
    loss: Callable[[Diagnosis], Loss | None] = no_loss
    counts_once_found: bool = False  # its loss is one of goodput only where a rule has found it
    lost_share: str = ""  # in its findings' evidence: share of all that a step does which is lost to it
    limits_by_finding: bool = False  # what it takes is known from its findings, one by one
    blames_nobody: bool = False  # chance or the machine: said beside a verdict to keep the run as it is
    # Of a finding that is a remark: what of it was not seen, so that the run is not told to stay as it is.
    leaves_open: Callable[[Finding, Rule], str] = all_seen
    is_remark: bool = False  # said beside such a verdict too: it happened, and limits no step
    # Ids of rules that tell of the same seconds where they name the same phase: only the more severe of the two is
    # kept, of equally severe ones theirs.
    told_by: tuple[str, ...] = ()
    in_stage_waits: bool = False  # its loss is a part of what ranks of pipelines wait for each other
    names_ranks: bool = False  # a comparison says whose it is
    needs_device: bool = True  # where ranks compute on devices, a host's clock alone says nothing of it
    at_best: bool = False  # of its gain no more than a part is had unless a fault takes it all
    is_at_best: Callable[[Measured], bool] | None = None  # the same, where it hangs on the subject
    amount: Callable[[Finding, RunView], float | None] = (
        no_amount  # seconds a step in a run that did not find it
    )


MAX_NAMED: Final = 6  # in one sentence


def rank_words(ranks: tuple[int, ...]) -> str:
    """Words for ascending ranks: rank 2; ranks 1 and 3; ranks 1, 3, 5 and 9 more; ranks 192 to 255."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > MAX_NAMED and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    if len(names) > MAX_NAMED:
        return f"ranks {', '.join(names[:5])} and {len(names) - 5} more"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


PHASE_WORDS: Final = {
    **{phase.name: phase.where for phase in TABLE},
    "host": "outside the phases of its step (code of its own as logging or a sleep, garbage collection, its host)",
    "device": "in all compute phases alike, so on its device",
    "unknown": "for a reason the phases do not show",
}


def priority_words(priority: Priority | None) -> str:
    """', at nice 19 (the others at 0)'; empty for a rank that yields no more than the others."""
    return "" if priority is None else f", at nice {priority.nice} (the others at {priority.others})"


# Of looks at those who read for a rank, behind the phase in which it is late.
STORAGE_WORDS: Final = {
    True: "its loader's workers wait for storage in {share} of the looks at them, its peers' in {others}",
    False: "its training thread waits for storage in {share} of the looks at it, its peers' in {others}",
}


def storage_words(storage: StorageWait | None) -> str:
    """': its loader's workers wait for storage in 83 % of the looks at them, its peers' in 2 %'; empty without."""
    if storage is None:
        return ""
    share, others = f"{100 * storage.share:.0f} %", f"{100 * storage.others:.0f} %"
    return f": {STORAGE_WORDS[storage.in_workers].format(share=share, others=others)}"


def share_of(value: float | None, step_s: float | None) -> float | None:
    """Of the step; None where either is not known."""
    return value / step_s if value is not None and step_s else None
