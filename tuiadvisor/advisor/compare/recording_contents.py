"""What a recording holds: who, when, how much, what is damaged and what was lost. No judgement.

In: a recording's frames and its RecordingSummary.  Out: Contents; None where the recording does not say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.advisor.cluster.payload_fields import integer, objects, text
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind
from tuiadvisor.views.contents import Contents, HostContents, KindContents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.advisor.cluster.payload_fields import Payload
    from tuiadvisor.stream.frames import Frame
    from tuiadvisor.stream.recording import RecordingSummary

MAX_HOSTS = 1 << 16


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
    created_ns, num_rank_steps = advisor.roster.header.created_wall_ns, rows[FrameKind.STEPS]
    step_bytes = kinds["steps"].num_bytes if "steps" in kinds else 0
    return Contents(
        path=path,
        run=view.run,
        created_wall_s=created_ns / 1e9 if created_ns else None,
        recorded_by=advisor.roster.header.names.get("tuiadvisor"),
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
        given=advisor.roster.header.given,
        probe=view.probe,
        damage=damage,
        opened=opened,
        losses=view.losses,
        ended=view.ended,
    )
