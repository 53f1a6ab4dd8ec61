"""What is known of the cluster beside the steps: made once for a view, frozen, and given to every cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.lateness.off_core import MIN_THROTTLED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.lateness.late_phase import Priority
    from tuiadvisor.metrics.pipeline.pipeline_balance import PipelineEvents
    from tuiadvisor.metrics.pipeline.pipeline_limits import PipelineLimits
    from tuiadvisor.metrics.series.memory_growth import Creep
    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches
    from tuiadvisor.metrics.window.level_shift import LevelShift
    from tuiadvisor.views.communication import ExchangeView
    from tuiadvisor.views.device_work import DeviceWork
    from tuiadvisor.views.devices import RankDevice
    from tuiadvisor.views.efficiency import Efficiency, Stack
    from tuiadvisor.views.placement import RankPlacement
    from tuiadvisor.views.run_view import DeviceView

MINUTE_S: Final = 60.0  # seconds
HALF: Final = 0.5  # of the growth of a host's memory: who has most of it fills it
CROWDED_READY: Final = 2.0  # threads a core: each gets half of one
PACKED_READY: Final = 5.0  # a rank of a pair that shares its core with nobody else reaches 3 to 4
CROWDED_WAIT: Final = 0.1  # of its time a typical rank waits for a core
DOMINANT_WAIT: Final = 0.2  # of its time; as crowded_host's own threshold: what the step is bound by


@dataclass(frozen=True, slots=True)
class Crowd:
    """Over the window; None where it was not observed."""

    ready_per_core: (
        float | None
    )  # threads that run or wait for a core, median of the samples, of the typical host
    core_wait_share: float | None  # of its time the typical rank's training thread was ready and had no core
    throttled_share: float | None = (
        None  # of the periods of the CPU limit, where it is felt least; None without any
    )
    limit_cores: float | None = None  # the smallest of them
    run_share: float | None = None  # of its time the typical rank's training thread had a core

    @property
    def awake_share(self) -> float | None:
        """Share of its time that the typical rank's training thread ran or was ready to; the rest of it it slept."""
        if self.run_share is None or self.core_wait_share is None:
            return None
        return self.run_share + self.core_wait_share

    @property
    def is_crowded(self) -> bool:
        """Whether it was seen that ranks have to wait for cores."""
        return (self.ready_per_core or 0.0) >= CROWDED_READY or (self.core_wait_share or 0.0) >= CROWDED_WAIT

    @property
    def is_bound_by_cores(self) -> bool:
        """Whether waiting for a core is what the typical rank's step is bound by, where it computes on the host."""
        return (self.core_wait_share or 0.0) >= DOMINANT_WAIT

    @property
    def limited_share(self) -> float:
        """Share of its time for which a limit can have held the typical rank back: of a period at most the whole."""
        return min(self.core_wait_share or 0.0, self.throttled_share or 0.0)

    @property
    def is_limited(self) -> bool:
        """Whether it is a CPU limit that the ranks mostly wait for rather than for other work to leave a core."""
        wait_share = self.core_wait_share or 0.0
        is_felt = wait_share >= CROWDED_WAIT and (self.throttled_share or 0.0) >= MIN_THROTTLED
        return is_felt and self.limited_share >= MIN_COVER * wait_share

    @property
    def is_packed(self) -> bool:
        """Whether so many others want the cores that a slow exchange or a small lateness is more likely theirs."""
        return (self.ready_per_core or 0.0) >= PACKED_READY

    @property
    def words(self) -> str:
        """What follows from that for a loss of all ranks; empty where nothing does."""
        if not self.is_crowded:
            return ""
        if self.is_limited:
            held = f"{100 * self.limited_share:.0f} % of the time"
            limit = f"{self.limit_cores or 0.0:.3g} cores"
            return f"; but a CPU limit of {limit} holds the ranks back {held}, so this may be its doing"
        seen = []
        if self.ready_per_core is not None and self.ready_per_core >= CROWDED_READY:
            seen.append(f"{self.ready_per_core:.1f} runnable threads per core")
        if self.core_wait_share is not None:
            seen.append(f"ranks wait for a core {self.core_wait_share:.0%} of the time".replace("%", " %"))
        return f"; but the host is oversubscribed ({', '.join(seen)}), so this may be CPU contention"


@dataclass(frozen=True, slots=True)
class Filling:
    """A memory that will be full."""

    host: str
    device: str  # "GPU 3", or empty for the host's own memory
    creep: Creep
    rank: int | None  # whose process grows, where it is one of the ranks'
    ranks_part: float | None = None  # of a host's growth, in the ranks' processes together; None: not seen

    @property
    def is_ours(self) -> bool:
        """Whether the training fills it: of a host's memory that grows it is not enough that it does."""
        return bool(self.device) or self.rank is not None or (self.ranks_part or 0.0) >= HALF

    @property
    def words(self) -> str:
        """Whose memory, how full, what grows, how fast, when."""
        where = f"{self.device} on {self.host}" if self.device else self.host
        pace = f"{100 * MINUTE_S * self.creep.per_s:.2g} % a minute"
        left = duration(self.creep.left_s)
        grows = "grows" if self.rank is None else f"the process of rank {self.rank} grows"
        if self.rank is None and not self.device and self.is_ours:
            grows = "the ranks' processes together grow"
        elsewhere = "" if self.is_ours else f" {self._elsewhere}"
        return (
            f"the memory of {where} is {100 * self.creep.share:.0f} % full and {grows} by {pace}{elsewhere}: "
            f"at that pace it is full in {left}"
        )

    @property
    def _elsewhere(self) -> str:
        if self.ranks_part is None:
            return "(of whom was not seen)"
        return "outside the ranks' own processes (other processes, loader workers or files in /dev/shm)"


def duration(seconds: float) -> str:
    """'40 s', '17 min', '5 h', '3 days'."""
    steps = ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h"))
    for limit, unit, name in steps:
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


@dataclass(frozen=True, slots=True)
class Pipelines:
    """What was found. limits: one a pipeline, the slowest first; empty where why_not says why."""

    limits: tuple[PipelineLimits, ...]
    events: PipelineEvents | None  # of the slowest pipeline
    clocks_known: bool
    num_pipelines: int
    schedule: str | None
    why_not: str
    own_clocks: bool = (
        False  # chunks were timed by each device's own clock: where they lie to each other is unknown
    )
    doubt: str = ""  # what forbids to keep it as it is where devices timed it, and what would tell; empty: nothing does

    @property
    def shown(self) -> PipelineLimits | None:
        """The pipeline that sets the pace."""
        return self.limits[0] if self.limits else None


@dataclass(frozen=True, slots=True)
class Facts:
    """None: not observed, or not there."""

    num_missing: int = 0  # ranks of the job that were never heard of
    num_not_compared: int = 0  # ranks that were, but whose steps have no place beside the others'
    met_late: bool = (
        False  # it may have trained before it was watched: the first steps seen are not known to be its first
    )
    cores_per_rank: float | None = None  # that it may use for each that shares them, where they are fewest
    cores_of_hosts: Mapping[str, int] = field(default_factory=dict)
    crowd: Crowd | None = None
    on_device: bool = False  # the ranks compute on devices, and the host may run ahead of them
    filling: Filling | None = None  # the memory that is full first
    device: DeviceView | None = None  # of the typical rank
    launched_share: float | None = None  # of the step of the device that the others wait for: see late_phase
    pipelines: Pipelines | None = None
    exchange: ExchangeView | None = None  # bucket by bucket
    squares: dict[int, Floats] = field(
        default_factory=dict
    )  # by rank, of packed batches: sum of squared lengths
    loaders: dict[int, LoaderBatches] = field(default_factory=dict)  # by rank, of steps seen in detail
    stack: Stack | None = None
    efficiency: Efficiency | None = None
    rank_devices: tuple[RankDevice, ...] = ()  # by rank
    device_work: DeviceWork | None = None  # of a trace, imported or beside the run
    placements: tuple[RankPlacement, ...] = ()  # by rank
    run_shift: LevelShift | None = (
        None  # of the whole run up to the window's end, where the window does not show it
    )
    priorities: dict[int, Priority] = field(default_factory=dict)  # by rank, who yields more than the others
