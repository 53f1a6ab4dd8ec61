"""The agents that frames come from: what each has said of itself, and who is not heard any more.

In: nothing.  Out: Agent, filled by the roster; of all of them who is silent and how long they were heard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SILENT_AFTER_NS: Final = 5_000_000_000


@dataclass(slots=True)
class Agent:
    """One source of frames."""

    source: str
    host: str
    number: int = 0  # no other source of this fold has it
    next_seq: int | None = None
    first_ns: int = 0
    last_ns: int = 0
    wall_shift_ns: int | None = None  # add to its clock to read the wall clock, as its host's showed at first
    set_by_ns: int = 0  # how far that wall clock was set, or its own stood still, before this agent came
    met_ns: int = 0  # the latest frame of anybody, on that common clock, when it was last heard
    bye: str | None = None
    silent: str | None = None  # what the hub says while it is not heard
    owned: set[int] = field(default_factory=set)  # ranks it speaks for

    @property
    def newest_ns(self) -> int:
        """Its latest frame on a common clock: the wall where known, else the host's own."""
        return self.last_ns + (self.wall_shift_ns or 0)


def silent(agents: Iterable[Agent]) -> dict[str, float | None]:
    """Sources not heard although others are, with the seconds where they can be known."""
    result: dict[str, float | None] = {}
    every = list(agents)
    newest_of_host, newest_by_wall = dict[str, int](), 0
    for agent in every:
        its = agent.newest_ns
        newest_of_host[agent.host] = max(its, newest_of_host.get(agent.host, its))
        if agent.wall_shift_ns is not None:
            newest_by_wall = max(newest_by_wall, its)
    for agent in every:
        if agent.bye is not None:
            continue
        if agent.silent is not None:
            result[agent.source] = None
            continue
        by_host = newest_of_host[agent.host]
        latest = by_host if agent.wall_shift_ns is None else max(by_host, newest_by_wall)
        # A machine that was suspended stays behind by its clock, and is heard all the same.
        behind = min(latest - agent.newest_ns, latest - agent.met_ns)
        if behind > SILENT_AFTER_NS:
            result[agent.source] = behind / 1e9
    return result


def event_time_s(agents: Iterable[Agent]) -> float | None:
    """Seconds between the first and the latest frame of any agent."""
    seen = [agent for agent in agents if agent.last_ns]
    if not seen:
        return None
    if all(a.wall_shift_ns is not None for a in seen):
        first = min(a.first_ns + (a.wall_shift_ns or 0) for a in seen)
        return max((max(a.newest_ns for a in seen) - first) / 1e9, 0.0)
    return max((a.last_ns - a.first_ns) / 1e9 for a in seen)
