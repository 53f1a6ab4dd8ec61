"""Comparison: the frozen picture of two runs side by side; nothing computes after it.

Seconds as floats, ratios of after to before, None where not observed. A time ratio above 1 is slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["improved", "regressed", "no change", "not decided", "not comparable"]
Basis = Literal["step", "samples", "samples_per_device"]
# hidden: no finding any more, and yet most of what it measured is still there; uncovered: the other way round.
# before, after, both: of two models nothing is resolved, only found in one or in both.
FindingState = Literal["resolved", "new", "remaining", "hidden", "uncovered", "before", "after", "both"]


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """What one step of a run is; counts of the whole job."""

    world_size: int | None
    samples_per_step: float | None  # global batch
    tokens_per_step: float | None
    gradient_bytes: int | None  # of one rank: the model's size as communication sees it
    num_collectives: int | None  # a step, on the gradient group
    micro_steps: int | None  # backward passes a step
    num_parameters: int | None = None  # of the whole model, as the probes counted them
    input_shape: str = ""  # 64x512: what the model was called with where it was looked at; "": not seen


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Who else used the machine; means over the recording."""

    busy: float  # share of all cores
    other_cores: float  # cores a host that were busy with other processes (loader workers included)
    num_cpus: float
    wait_for_core: float | None  # share of its time a rank's main thread was ready to run and had no core


@dataclass(frozen=True, slots=True)
class Change:
    """After / before of a time per unit of work, with its 95 % interval."""

    before: float | None
    after: float | None
    ratio: float | None
    low: float | None
    high: float | None
    significant: bool  # the whole interval lies beyond what two runs of the same code may differ by


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """One phase of the step; seconds a step, mean over ranks."""

    phase: str
    before_s: float | None
    after_s: float | None
    change_s: float | None
    low_s: float | None
    high_s: float | None
    significant: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """What a run gets done."""

    steps_s: float | None
    samples_s: float | None
    samples_s_per_device: float | None


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding above info, in one run or in both."""

    id: str
    title: str
    state: FindingState
    phase: str | None
    ranks_before: tuple[int, ...]
    ranks_after: tuple[int, ...]
    loss_before_s: float | None  # a step
    loss_after_s: float | None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What limited each run; None: nothing above info was found."""

    before: str | None
    after: str | None
    moved: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class RunSide:
    """One of the two runs."""

    path: str
    label: str
    hosts: tuple[str, ...]
    unit: WorkUnit
    num_steady_steps: int
    num_steps: int  # warm-up and partial steps left out
    step_s: float | None  # mean steady step
    p95_s: float | None
    every_step_s: float | None  # mean with checkpoints and other pauses
    rates: Rates
    load: MachineLoad | None
    # What `diagnose` and the screens judge: the steady steps since the job last changed, not all of them.
    judged_s: float | None = None  # mean of those
    judged_steps: tuple[int, int] | None = None  # first and last


@dataclass(frozen=True, slots=True)
class Difference:
    """Something of the environment that is not the same."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Gate:
    """--fail-if-slower: None when not asked; `exceeded` is None when it could not be decided."""

    limit: float
    exceeded: bool | None


@dataclass(frozen=True, slots=True)
class GoodputChange:
    """Useful share of the wall time, before and after."""

    before: float | None  # end to end
    after: float | None
    before_steady: float | None  # of the steady steps alone
    after_steady: float | None
    is_end_to_end: bool  # both saw the same stretch of a run; else the steady steps alone can be compared
    improved: bool | None  # None: no difference beyond noise, or not known
    sentence: str
    is_other_model: bool = False
    is_apart: bool = False  # the runs are not compared, as those of other models
    is_open: bool = False  # nothing was seen to change, but what steps or pauses make of it may be chance

    @property
    def shown(self) -> tuple[float | None, float | None]:
        """The two figures that the answer rests on."""
        pairs = (self.before, self.after), (self.before_steady, self.after_steady)
        return pairs[0] if self.is_end_to_end else pairs[1]

    @property
    def name(self) -> str:
        """What they are of."""
        return "goodput, end to end" if self.is_end_to_end else "goodput of steady steps"

    @property
    def answer(self) -> str:
        """In a word."""
        if None in self.shown:
            return "unknown"
        if self.is_apart:
            return "not comparable"
        if self.is_open:
            return "not decided"
        return {True: "improved", False: "worse", None: "no change"}[self.improved]


@dataclass(frozen=True, slots=True)
class DistributionSide:
    """How one run's steps are distributed; shares of all of them."""

    shares: tuple[float, ...]  # in bins of equal width
    beyond: float  # longer than the last bin's end
    longest_s: float
    quantiles_s: tuple[float, ...]  # 5, 25, 50, 75 and 95 %


@dataclass(frozen=True, slots=True)
class StepDistribution:
    """The lengths of both runs' steps, pauses included, on one scale."""

    first_s: float  # where the first bin begins
    last_s: float  # where the last one ends
    before: DistributionSide
    after: DistributionSide


@dataclass(frozen=True, slots=True)
class Spread:
    """Runs of the same code beside each other; a change within `margin` may be theirs."""

    files: tuple[str, ...]  # the first is the comparison's `before`
    step_s: tuple[float, ...]  # mean steady step of each
    deviation: float  # relative: the standard deviation of the logarithms
    margin: float  # share that two single runs of them may differ by, at 95 %
    differing: tuple[str, ...]  # what of the environment is not the same in all of them


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs and the verdict on the change between them."""

    schema: int
    verdict: Outcome
    sentence: str
    reasons: tuple[str, ...]  # why not comparable; else why in other terms than the step
    cautions: tuple[str, ...]
    basis: Basis | None
    before: RunSide
    after: RunSide
    change: Change  # the one the verdict rests on: time a unit of work
    steady: Change  # steady steps
    every_step: Change  # with checkpoints and other pauses
    throughput: Change  # time a sample of the whole job, when samples are known
    phases: tuple[PhaseChange, ...]
    bottleneck: Bottleneck
    findings: tuple[FindingChange, ...]
    environment: tuple[Difference, ...]
    noise_floor: float
    smallest_detectable: float | None  # a smaller change could not be told from noise here
    gate: Gate | None
    goodput: GoodputChange | None = None
    spread: Spread | None = None  # None: no repeats were given
    distribution: StepDistribution | None = None  # None: a run without steps
