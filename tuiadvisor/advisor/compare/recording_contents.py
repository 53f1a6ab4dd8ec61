"""What a recording holds: who, when, how much, what is damaged and what was lost. No judgement.

In: a recording's frames and its RecordingSummary.  Out: Contents; None where the recording does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuiadvisor.advisor.cluster.payload_fields import integer, objects, text
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.advisor.cluster.payload_fields import Payload
    from tuiadvisor.events import GivenWork
    from tuiadvisor.stream.frames import Frame
    from tuiadvisor.stream.recording import RecordingSummary
    from tuiadvisor.views.run_view import Losses, ProbeWork, RunInfo

MAX_HOSTS = 1 << 16


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


def contents(path: str, frames: Iterable[bytes], damage: RecordingSummary, opened: str = "") -> Contents:
    """Read the whole recording, in bounded memory."""
    advisor = Advisor()
    kinds: dict[str, KindContents] = {}
    hosts: dict[str, HostContents] = {}
    agents: dict[str, set[str]] = {}
    rows = {FrameKind.STEPS: 0, FrameKind.EVENTS: 0}
    for data, frame in advisor.fed(frames):
        kind = kinds.setdefault(frame.kind.name.lower(), KindContents())
        kind.num_frames += 1
        kind.num_bytes += len(data)
        if frame.kind in rows:
            rows[frame.kind] += integer(frame.payload, "rows") or 0
        elif frame.kind in {FrameKind.HELLO, FrameKind.HOST} and frame.source != HUB_SOURCE:
            name = text(frame.payload, "host") or frame.source.split("/", 1)[0]
            if name in hosts or len(hosts) < MAX_HOSTS:
                _host(hosts.setdefault(name, HostContents(name)), frame)
                agents.setdefault(name, set()).add(frame.source)
    if damage.num_indexes:
        kinds["index"] = KindContents(damage.num_indexes, damage.num_index_bytes)
    for name, sources in agents.items():
        hosts[name].num_agents = len(sources)
    return _assemble(path, advisor, hosts=hosts, kinds=kinds, rows=rows, damage=damage, opened=opened)


def _host(host: HostContents, frame: Frame) -> None:
    payload = frame.payload
    ranks = (integer(entry, "rank") for entry in objects(payload, "ranks"))
    host.ranks.update(rank for rank in ranks if rank is not None)
    host.num_cpus = integer(payload, "num_cpus") or host.num_cpus
    if frame.kind == FrameKind.HOST:
        host.num_samples += 1
        return
    host.memory_bytes = integer(payload, "memory_bytes") or host.memory_bytes
    host.platform = text(payload, "platform") or host.platform
    host.gpus = _gpu_names(payload) or host.gpus


def _gpu_names(payload: Payload) -> tuple[str, ...]:
    names = payload.get("gpus")
    if not isinstance(names, list):
        return ()
    return tuple(text({"name": name}, "name") or "unknown" for name in names)


def _assemble(
    path: str,
    advisor: Advisor,
    *,
    hosts: dict[str, HostContents],
    kinds: dict[str, KindContents],
    rows: dict[FrameKind, int],
    damage: RecordingSummary,
    opened: str,
) -> Contents:
    view = advisor.view()
    span = advisor.store.span()
    first = None if span is None else span[0] - advisor.store.axis_shift()
    if first is not None and view.trend.step_s:
        first = min(
            first, view.trend.first_step
        )  # what was before an elastic restart of all ranks is held, too
    states: dict[str, int] = {}
    for fact in advisor.roster.ranks.values():
        states[fact.state] = states.get(fact.state, 0) + 1
    created_ns, num_rank_steps = advisor.roster.created_wall_ns, rows[FrameKind.STEPS]
    step_bytes = kinds["steps"].num_bytes if "steps" in kinds else 0
    return Contents(
        path=path,
        run=view.run,
        created_wall_s=created_ns / 1e9 if created_ns else None,
        recorded_by=advisor.roster.run.get("tuiadvisor"),
        hosts=tuple(hosts[name] for name in sorted(hosts)),
        num_ranks=len(set(advisor.roster.ranks) | set(advisor.store.ranks())),
        states=dict(sorted(states.items())),
        # A rank that was watched before the one that counts may have seen steps before its step 0.
        first_step=None if first is None else max(first, 0),
        num_early_steps=max(-(first or 0), 0),
        last_step=view.last_step,
        num_rank_steps=num_rank_steps,
        num_events=rows[FrameKind.EVENTS],
        duration_s=view.event_time_s,
        kinds=kinds,
        num_bytes=damage.num_bytes,
        bytes_per_rank_step=damage.num_bytes / num_rank_steps if num_rank_steps else None,
        step_bytes_per_rank_step=step_bytes / num_rank_steps if num_rank_steps else None,
        given=advisor.roster.given,
        probe=view.probe,
        damage=damage,
        opened=opened,
        losses=view.losses,
        ended=view.ended,
    )
