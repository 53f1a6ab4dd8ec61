"""What a recording holds, as `info` shows it; nothing computes after it. None where the recording does not say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.events import GivenWork
    from tuiadvisor.stream.recording import RecordingSummary
    from tuiadvisor.views.run_view import Losses, ProbeWork, RunInfo


@dataclass(slots=True)
class HostContents:
    """One machine of the run."""

    host: str
    ranks: set[int] = field(default_factory=set)
    num_cpus: int | None = None
    memory_bytes: int | None = None
    platform: str | None = None
    gpus: tuple[str, ...] = ()
    num_samples: int = 0  # of CPU, disk, network and devices
    num_agents: int = 0  # more than one: the agent was started again


@dataclass(slots=True)
class KindContents:
    """Frames of one kind."""

    num_frames: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything `info` shows."""

    path: str
    run: RunInfo
    created_wall_s: float | None
    recorded_by: str | None  # version of tuiadvisor
    hosts: tuple[HostContents, ...]
    num_ranks: int
    states: dict[str, int]  # state -> ranks in it at the end
    first_step: int | None
    last_step: int | None
    num_early_steps: int  # before step 0, seen on some ranks only
    num_rank_steps: int
    num_events: int  # collectives and marks, one by one
    duration_s: float | None
    kinds: dict[str, KindContents]
    num_bytes: int
    bytes_per_rank_step: float | None  # the whole file's
    step_bytes_per_rank_step: float | None  # of STEPS frames alone
    given: GivenWork  # the work of a step, as the user said at the recording
    probe: ProbeWork | None  # over the window of the verdict; None before there is a steady step
    damage: RecordingSummary
    opened: str  # how a replay finds its way: by the index or by reading all
    losses: Losses
    ended: str
