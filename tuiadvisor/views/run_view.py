"""RunView: the frozen picture of a run that screens, JSON and reports show; nothing computes after it.

Every number is float seconds or a share 0..1 unless its name says otherwise; None means "not observed" and is
shown as "unknown", never as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from tuiadvisor.views.communication import ExchangeView
    from tuiadvisor.views.device_work import DeviceWork
    from tuiadvisor.views.devices import Link, RankDevice
    from tuiadvisor.views.efficiency import Arithmetic, Efficiency, Stack
    from tuiadvisor.views.event import Captured, LevelChange, StepTimes
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.pipeline import PipelineView
    from tuiadvisor.views.placement import RankPlacement
    from tuiadvisor.views.prospect import Prospect
    from tuiadvisor.views.rank_group import Grouping
    from tuiadvisor.views.restart import Restart
    from tuiadvisor.views.shares import Shares
    from tuiadvisor.views.stack_card import StackCard
    from tuiadvisor.views.stall import NoStep, Stall
    from tuiadvisor.views.step_map import StepMap

RUN_FINISHED: Final = "run finished"  # every rank ended in order
NEW_PACE: Final = "pace changed"  # in the marks of a trend: the step with which the judged ones begin
DecisionWord = Literal[
    "tune", "rescale", "stop", "keep", "hang"
]  # hang: a job that stands is none of the others
Severity = Literal["info", "warning", "critical"]
# What was seen to make a rank late, in its evidence as "seen_cause": nothing else of it needs to be asked.
SeenCause = Literal[
    "stopped", "no core", "CPU limit", "storage", "garbage collection", "launches", "clock", "more work"
]
# What a step's times rest on: the training thread's, or those of the devices that compute it.
Clock = Literal["host", "device"]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What runs, where, with what."""

    label: str  # short name of the job, e.g. "train.py"
    command: str
    world_size: int | None
    hosts: tuple[str, ...]
    torch: str | None
    python: str | None
    backend: str | None
    device: str | None  # "cpu", "cuda"
    parallel: dict[str, int]  # {"dp": 4, "pp": 1, "tp": 1}: only what was observed
    software: dict[str, str] = field(default_factory=dict)
    started_wall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """What a run was made of that no probe recorded."""

    kind: str  # of `tuiadvisor import`
    source: str  # name of the file or folder
    words: str  # what it is, and by which clock
    because: str  # what the import says of late ranks
    late_ranks: tuple[int, ...] | None  # whom it names; None where it could not compare
    device: DeviceWork | None = None  # what the devices did, where the source tells
    arithmetic: Arithmetic | None = None  # FLOPs of its operators, where they were recorded with shapes
    says: str = ""  # the one thing that the import would say first
    uncompared: tuple[int, ...] = ()  # ranks whose collectives end with no other rank's
    steps_tell: bool = False  # who is late, where the import's own comparison does not
    waits_share: float | None = None  # of the time ranks wait for those that come last; None: not compared
    cause_ranks: tuple[int, ...] = ()  # with whom the first cause lies that the source's own what-if names


@dataclass(frozen=True, slots=True)
class Traced(Imported):
    """What a profiler's traces add to steps that probes recorded: detail, and no verdict."""

    ranks: tuple[int, ...] = ()
    first_step: int | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The steps that every statistic of the view was computed from."""

    first_step: int | None
    last_step: int | None
    num_steps: int  # steady steps used
    excluded: dict[str, int]  # {"warmup": 20, "checkpoint": 3, "partial": 1}
    enough: bool  # enough steady steps for a verdict
    num_missing_steps: int  # "not enough yet: N more steps"
    why_undecided: str = ""  # why steps enough do not decide: what was not seen of them
    change: str = ""  # why steps before a change do not count: "since step 140 rank 2 works 6 ms more a step"

    missing_s: float | None = None  # what those steps take, by the ones that were seen
    why_no_step: str = (
        ""  # where none was seen, what was found of the ranks: no number of steps is waited for then
    )

    @property
    def why_not_enough(self) -> str:
        """What is missing for a verdict; empty where nothing is."""
        if self.enough:
            return ""
        known = self.why_undecided or self.no_step_words
        return known or f"{self.num_missing_steps} more steady steps are needed"

    @property
    def no_step_words(self) -> str:
        """'no step was seen. Each rank: it is stopped'; empty where the reason is not known."""
        return f"no step was seen. {self.why_no_step}" if self.why_no_step else ""


@dataclass(frozen=True, slots=True)
class StepSummary:
    """The job's step: one number each, over the window. Phases, median and p95 are those of steady steps."""

    median_s: float | None
    p95_s: float | None
    throughput_steps_s: float | None  # the pauses between the steady steps included, like the two below
    throughput_samples_s: float | None
    throughput_tokens_s: float | None
    shares: Shares  # mean over ranks; sums to 1 over the known ones
    seconds: Shares
    given: tuple[
        str, ...
    ] = ()  # "samples", "tokens": their rates rest on what the user said of a step's work
    mean_s: float | None = None  # of the steady steps: what the phases sum to
    mean_with_pauses_s: float | None = None  # time of the window by its steps: what the throughput rests on
    mean_low_s: float | None = None  # 95 % interval of the mean, neighbouring steps resembling each other
    mean_high_s: float | None = None
    of_rank: int | None = None  # whose alone all of it is, where only one rank's steps could be compared
    rates_of: str = (
        ""  # whose the throughput is, where it is not that of the mean step: "with pauses", "of all steps"
    )


@dataclass(frozen=True, slots=True)
class ProbeWork:
    """What the probes did, over the window."""

    cost: float | None  # share of the step time, measured by the probes themselves
    budget: float | None  # share that they may take; unknown where ranks differ
    detail: float | None  # share of the ranks' steps in which calls were recorded one by one
    num_detail_steps: int  # steps of which at least one rank recorded them
    is_over: bool  # it costs more than it may: the always-on tier alone does, or bursts: the first, those asked for
    always_on: float | None = None  # as cost, of the steps without detail
    core: str = (
        ""  # what their hooks run on: "native", "python", "native on 3 of 4 ranks"; empty where none has said
    )
    is_hidden: bool = False  # the devices are a step or more behind the threads: they wait for none of it


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A step on the device's own clock, by CUDA events: medians over the steps that were measured."""

    step_s: float  # from the first to the last border of a step
    seconds: Shares  # `other`: between forward, backward and optimizer
    behind_share: float | None  # how far it is behind the training thread at most, share of step_s
    keeps_pace: (
        bool | None
    )  # True: never behind, so it waits for launches; None: the evidence does not decide
    num_steps: int
    # Seconds that it is behind at the end of each compute phase, at least and at most.
    behind_s: dict[str, tuple[float, float]] = field(default_factory=dict)
    # Share of its wait for the exchange for which the thread had launched all before; None: it waits in no step.
    wait_launched: float | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Communication, and how much of it compute hides. Seconds a step, mean over ranks.

    Two bases: comm_total_s, overlap, hidden_s and the *_sampled_s are of the steps in which all communication was timed
    (total = hidden + exposed there); comm_exposed_s, transfer_s and skew_s are of all steps of the window (exposed =
    transfer + skew, where all three are known).
    """

    comm_total_s: float | None
    comm_exposed_s: float | None
    overlap: float | None
    transfer_s: float | None  # exposed communication that remains when all arrive together
    skew_s: float | None  # exposed communication that is waiting for the last arriver
    sampled_share: float | None  # share of steps in which all communication was timed
    hidden_s: float | None = None  # of comm_total_s, behind compute
    num_sampled_steps: int | None = None
    # Of the sampled steps, so that it may be set against comm_total_s; the others are of all steps.
    exposed_sampled_s: float | None = None
    skew_sampled_s: float | None = None


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One collective operation of one size, from the calls that were seen one by one."""

    op: str  # events.EventKind name, lower case
    group: int  # number of the process group, of this rank's own counting
    num_bytes: int | None
    per_step: float  # calls of a rank in a step that was watched
    num_seen: int  # the latest calls that this row rests on
    num_ranks: int  # ranks that were seen in one call
    time_s: (
        float | None
    )  # from the call to the end of the wait for it, mean over ranks; None: launched for devices
    hidden_s: float | None  # from the call to the beginning of the wait
    skew_s: float | None  # from the first arriver to the last one
    transfer_s: float | None  # from the last arrival to the first rank that is through
    bytes_s: float | None  # num_bytes / transfer_s
    last_rank: int | None
    last_share: float | None  # of the calls in which that rank came last
    last_step: int


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that the others wait for."""

    rank: int
    score: float | None  # reference / own work between barriers; 1 = as fast as its peers
    cause: str  # a phase name, or "host"
    loss_s_per_step: float
    since_step: int | None  # the first step compared where its beginning was not seen
    persistent: bool
    onset_seen: bool = True


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank in the table and the heat map."""

    rank: int
    host: str
    local_rank: int | None
    pid: int | None
    state: str  # events.RankState name, lower case; "unknown" of one that is heard no more
    state_detail: str  # e.g. "killed by SIGKILL after step 341", or why it was refused
    now: str  # phase it is in, with how long, e.g. "comm_exposed 3.1 s"; "" when unknown
    last_step: int | None
    step_s: float | None
    shares: Shares
    seconds: Shares
    compute: float | None  # share of the step: forward + backward + optimizer
    idle: float | None  # share of the step: waiting for data or for peers
    overlap: float | None
    comm_exposed_s: float | None
    wait_s: float | None  # per step, waited for later arrivers
    caused_wait_s: float | None  # per step, waiting this rank caused to the others together
    last_arrivals: float | None  # share of the steps in which it arrived last
    is_culprit: bool
    lateness_levels: bytes  # one byte a recent step: 0 in time .. 7 very late, 255 unknown; oldest first
    device: DeviceView | None = None
    so_far: tuple[tuple[str, float], ...] = ()  # seconds by phase of a long step under way, longest first
    phase_levels: bytes = (
        b""  # one byte a phase of PHASES: how much longer than its peers, scaled like lateness
    )
    is_outlier: bool = False  # stands out from the other ranks, by lateness or state; a culprit always does
    held: str = ""  # of a live rank while the job is stalled: waits | stopped | missing
    behind_s: float | None = (
        None  # its work between barriers beyond the typical rank's, mean a step; < 0: ahead
    )
    caused_each_s: float | None = None  # `caused_wait_s`, mean over the others: never more than the step
    ended_at: int = 0  # grows in the order in which ranks were seen to end; 0 while it has not
    why_apart: str = ""  # it makes steps, which could not be compared with the others'

    @property
    def is_apart(self) -> bool:
        """Whether it makes steps of which there are no figures."""
        return bool(self.why_apart)

    @property
    def why_no_figures(self) -> str:
        """What stands in place of its figures: why it was not compared, what became of it; empty where neither is told.

        How it was ended or refused comes first; that its probe has left, or that it is over, its state says alone.
        """
        said = (self.state_detail, self.why_apart)
        return "; ".join(filter(None, said if self.state in {"killed", "refused"} else reversed(said)))


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do about a finding."""

    text: str
    command: str | None
    risk: str  # low | medium | high
    effort: str
    upkeep: str = ""  # what it goes on asking for; "" where none is known
    ties: str = ""  # what it binds the program to
    last_resort: bool = False  # where no other action fits: it takes nothing off the step


FindingKey = tuple[str, str, tuple[int, ...]]  # rule, subject, ranks


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that fired, with the evidence that made it fire."""

    id: str
    title: str
    pattern: str
    lens: str
    layer: str
    severity: Severity
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    phase: str | None
    since_step: int | None
    evidence: dict[str, float | int | str | None]
    loss_s_per_step: float | None
    message: str  # one sentence with the numbers in it
    measure_next: tuple[str, ...]
    actions: tuple[Action, ...]
    subject: str = ""  # what tells it from another finding of its rule and its ranks: "evaluation"

    @property
    def key(self) -> FindingKey:
        """What tells it from every other finding of one moment."""
        return self.id, self.subject, self.ranks

    def is_of(self, other: Finding) -> bool:
        """Whether both are one trouble, be it of more or fewer ranks."""
        is_apart = bool(self.ranks and other.ranks) and set(self.ranks).isdisjoint(other.ranks)
        return (self.id, self.subject) == (other.id, other.subject) and not is_apart

    @property
    def onset_seen(self) -> bool:
        """False where since_step is only the first step that was compared: it began there or earlier."""
        return self.evidence.get("onset_seen") != 0

    @property
    def onset_step(self) -> int | None:
        """The step at which it was seen to begin."""
        return self.since_step if self.onset_seen else None


@dataclass(frozen=True, slots=True)
class PastFinding:
    """A finding that stood for a while and does not any more."""

    finding: Finding  # as it was when it was gravest
    first_step: int | None  # where it began the first time, or was seen first; None: at no step
    last_step: int | None  # at which it was seen last
    num_times: int  # that it came and was gone again


@dataclass(frozen=True, slots=True)
class Speedup:
    """Step time now divided by step time without the finding."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Saving:
    """Share of the device-hours that another size saves, 0 to 1, at least and at most."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one decision; `decision` is None while there is not enough evidence."""

    decision: DecisionWord | None
    # e.g. "Tune: rank 2 reads data 14 ms late each step; without it steps would take 21 ms (1.69x)."
    sentence: str
    finding: str | None
    pattern: str | None
    speedup: Speedup | None
    next_constraint: str | None
    because: str
    verify: str
    at_best: bool = False  # the speed-up is an upper bound: what is lost can be made less, seldom nothing
    is_final: bool = False  # not decided, and more steps like these would decide nothing either
    # Not decided, and what was found before may stand: too few steps, lateness not explained yet, no device's clock.
    may_hide: bool = False
    saving: Saving | None = None  # of fewer devices
    would_change: str = ""  # of what was decided against the intent: what would lead elsewhere
    num_missing_steps: int = 0  # not decided until so many more steady steps were seen


@dataclass(frozen=True, slots=True)
class Losses:
    """What was not seen. Screens show it whenever a field is not zero."""

    events_dropped: int = 0
    frames_lost: int = 0
    frames_bad: int = 0
    hooks_disabled: int = 0
    ranks_missing: tuple[int, ...] = ()  # the first of them
    notes: tuple[str, ...] = ()  # plain sentences: "agent on node3 silent for 12 s"
    ranks_missing_more: int = 0  # beyond those that are named


@dataclass(frozen=True, slots=True)
class Unknown:
    """A metric that could not be observed, and why."""

    metric: str
    why: str


@dataclass(frozen=True, slots=True)
class Trend:
    """Recent history of the job for sparklines; one value a bucket, oldest first."""

    first_step: int
    steps_per_bucket: int
    step_s: tuple[float | None, ...]
    throughput_steps_s: tuple[float | None, ...]
    marks: tuple[tuple[int, str], ...]  # (step, "onset rank 2") in step order


@dataclass(frozen=True, slots=True)
class HostRow:
    """Latest host sample of one node."""

    host: str
    cpu: float | None  # share of all cores busy
    memory: float | None
    load_1m: float | None
    num_cpus: int | None
    disk_read_bytes_s: float | None
    net_bytes_s: float | None
    gpus: tuple[str, ...] = ()  # one short line a device
    no_gpus: str = ""  # why none is shown, and what to do, where NVML is there and shows none
    # Over the recording, not the latest sample:
    cpu_mean: float | None = None
    iowait_mean: float | None = None
    device_busy_mean: float | None = None
    device_memory_most: float | None = None  # highest share of a device's memory in use
    cpu_model: str | None = None
    network_cards: tuple[str, ...] = ()  # each with what it may carry
    storage: tuple[str, ...] = ()  # each disk
    disk_busy_mean: float | None = None  # over the recording, of the busiest disk of each second
    disk_reads_s_mean: float | None = None  # operations
    disk_writes_s_mean: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The step re-simulated (What-if analysis, OSDI'25): 1 = nothing to gain there."""

    S: float  # everything at its ideal
    S_t: dict[str, float]  # only this phase as measured
    S_w: dict[int, float]  # only this rank as measured
    M_W: float | None  # share of the slowdown gone with the slowest 3 % of ranks
    M_S: float | None  # share gone with the last pipeline stage; None without stages


@dataclass(frozen=True, slots=True)
class PauseView:
    """Pauses of one kind: checkpoints, evaluations, or what some ranks do at a fixed distance or now and then."""

    kind: str  # checkpoint | eval | periodic | irregular
    ranks: tuple[int, ...]  # the others wait for them; empty: all pause together, or who was not seen
    steps: tuple[int, ...]
    lengths_s: tuple[float, ...]  # of each
    period_steps: float | None
    length_s: float  # mean time that one adds to the job; of kind periodic the median
    loss_s: float  # of all of them
    share: float | None  # of the time of the window, pauses included
    phase: str | None  # where the time passes on those ranks
    cause: str | None  # None: nothing observed tells


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One phase of a step in the order in which it happens."""

    phase: str  # events.PHASES
    seconds: float | None  # mean over ranks
    share: float | None
    slowest_rank: int | None  # of several ranks, where they differ
    slowest_s: float | None
    is_slowest: bool  # the longest link of the chain


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything a screen shows of a run at one moment."""

    schema: int
    run: RunInfo
    window: Window
    step: StepSummary
    overlap: Overlap
    slowdown: float | None  # S of the straggler analysis
    stragglers: tuple[Straggler, ...]
    ranks: tuple[RankRow, ...]
    heat_first_step: int | None  # step of the first byte of lateness_levels
    findings: tuple[Finding, ...]
    verdict: Verdict
    goodput: float | None
    goodput_losses: dict[str, float]
    trend: Trend
    hosts: tuple[HostRow, ...]
    unknown: tuple[Unknown, ...]
    losses: Losses
    probe_cost: float | None  # share of the step the probes take themselves
    num_frames: int
    event_time_s: float | None  # latest event time seen, seconds since the run's first event
    last_step: int | None
    ended: str  # "" while it runs; else "run finished", "all ranks lost", ...
    what_if: WhatIf | None = None
    device: DeviceView | None = None  # mean over ranks
    pipeline: PipelineView | None = None  # None: no rank holds a stage
    chain: tuple[ChainLink, ...] = ()
    collectives: tuple[CollectiveRow, ...] = ()
    probe: ProbeWork | None = None
    groupings: tuple[Grouping, ...] = ()
    pauses: tuple[PauseView, ...] = ()
    exchange: ExchangeView | None = None  # bucket by bucket; None: not seen so, `unknown` says why
    rank_devices: tuple[RankDevice, ...] = ()  # by rank
    links: tuple[Link, ...] = ()
    placements: tuple[RankPlacement, ...] = ()  # by rank
    efficiency: Efficiency | None = None  # MFU and what it rests on
    stack: Stack | None = None  # None: no probe says what is trained
    clock: Clock = "host"  # of the steps, phases and ranks above
    wall: Goodput | None = (
        None  # from the start of the process on; None: no step yet, or an earlier moment is shown
    )
    against_intent: Verdict | None = None  # rescale or stop, by what the user stated; None: nothing follows
    imported: Imported | None = None  # None: recorded by probes
    traced: Traced | None = None  # None: no trace was put beside the recording
    alloc_retries: int | None = None  # allocations on devices that had to be tried again; None: no device
    stall: Stall | None = None  # no rank makes progress now
    no_step: NoStep | None = None  # none ends now, and that is not seen to be a stall
    heat_steps: tuple[int, ...] = ()  # of each byte of the levels, where they are not consecutive; else empty
    step_maps: tuple[StepMap, ...] = ()  # what the heat map can show beside lateness
    step_times: StepTimes | None = None  # of the steps that are held; None: no wall clock is known
    captured: tuple[Captured, ...] = ()  # by the profiler
    in_detail: tuple[Captured, ...] = ()  # call by call because somebody asked for it
    changes: tuple[LevelChange, ...] = ()  # of level, in the steps that are held
    restarts: tuple[Restart, ...] = ()  # processes that took the ranks of others, oldest first
    prospects: tuple[Prospect, ...] = ()  # what a step would take with one thing changed
    cards: tuple[StackCard, ...] = ()  # stacks that were sampled on request, the newest first
    past: tuple[PastFinding, ...] = ()  # over by then; of a recording that was looked at from its beginning

    @property
    def without_step_s(self) -> float | None:
        """For how long no step has ended, where that is longer than usual."""
        now = self.stall or self.no_step
        return None if now is None else now.for_s

    @property
    def present_step(self) -> int | None:
        """In a stall the step that the ranks are in: the last ones before it may not have been told yet."""
        within = None if self.stall is None else self.stall.step
        return self.last_step if within is None else within

    @property
    def is_without_steps(self) -> bool:
        """Whether it is over, and not one step was seen: no time of a step, and no clock, is known."""
        return bool(self.ended) and self.last_step is None

    @property
    def device_work(self) -> DeviceWork | None:
        """What the devices did, of the trace that the run is or that lies beside it."""
        told = self.imported or self.traced
        return None if told is None else told.device

    @property
    def decided(self) -> Verdict:
        """The verdict to show: against what was stated, else that of the steps alone."""
        return self.verdict if self.against_intent is None else self.against_intent

    @property
    def is_goodput_of_steps(self) -> bool:
        """Whether the one figure of goodput is of the steady steps alone: of the wall time it is not known."""
        return self.wall is None or self.wall.end_to_end is None

    @property
    def useful_share(self) -> float | None:
        """The one figure of goodput: end to end where it is known, else of the window."""
        return self.goodput if self.wall is None or self.wall.end_to_end is None else self.wall.end_to_end
