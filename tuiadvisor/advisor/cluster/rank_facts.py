"""What is said about one rank's process, by its agent.

In: a rank's entries in HELLO and STATUS payloads.  Out: RankFacts, as far as these can be believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.payload_fields import counts, integer, text
from tuiadvisor.efficiency.gathering import believed
from tuiadvisor.events import EXITING, THREAD_STATES, RankState
from tuiadvisor.phases import PHASES
from tuiadvisor.views.deaths import ASKED_TO_END

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.payload_fields import Payload

MAX_STARTS: Final = 64
_LOST: Final = ("lost_steps", "lost_events")
_AFTER_STEP: Final = re.compile(r"(\bafter step )(\d[\d,]{0,18})")
_PHASES: Final = frozenset(PHASES)
MAX_SO_FAR_MS: Final = 10**9  # eleven days
_STATES: Final = frozenset(state.name.lower() for state in RankState)
_TEXTS: Final = (
    "python",
    "torch",
    "backend",
    "device",
    "command",
    "label",
    "cuda",
    "nccl",
    "git_commit",
    "container",
    "device_uuid",
    "schedule",
    "core",
)


@dataclass(slots=True)
class RankFacts:
    """What is said about a rank's process."""

    rank: int
    source: str
    host: str
    local_rank: int | None = None
    world_size: int | None = None
    pid: int | None = None
    state: str = "found"
    detail: str = ""  # as its agent says it: steps by the process's own count
    step_shift: int = 0  # what to add to that count to have the job's
    ended_at: int = 0  # the number of the STATUS frame that first said so; 0 while it has not ended
    no_step: str = ""  # why it makes no steps, or none that can be told; what was said last while it was live
    phase: str | None = None
    phase_for_s: float | None = None
    so_far_s: dict[str, float] = field(default_factory=dict)  # of a long step under way, by phase
    step: int | None = None
    # Of all processes that were this rank, and all probes in them: each counts from 0.
    lost_steps: int = 0
    lost_events: int = 0
    last_counts: dict[str, int] = field(default_factory=dict)  # of the one that is heard now
    budget_ppm: int | None = None  # of the step time, for the probe
    hooks_disabled: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    no_device_times: str = ""  # why its device is not timed
    no_device_waits: str = ""  # why its device does not tell what it waits for others
    parallel: dict[str, int] = field(default_factory=dict)
    pipeline: dict[str, int] = field(default_factory=dict)
    start_wall_ns: int | None = None
    model: dict[str, int | str] = field(default_factory=dict)  # and torch's settings
    # Of all processes that were this rank, in the order they were heard of.
    starts_wall_ns: tuple[int, ...] = ()
    # By start: the number under which that process knows itself.
    own_pids: dict[int, int] = field(default_factory=dict)
    # By start: steps of the training, by its own count, before the probe's first.
    steps_before: dict[int, int] = field(default_factory=dict)
    still_phase: str | None = (
        None  # where it was when last heard alive; a probe taken out leaves this as it was
    )
    still_s: float | None = None
    still_since_ns: int | None = None  # on its host's clock
    still_thread: str | None = None  # of events.THREAD_STATES
    still_step: int | None = None

    def greet(self, entry: Payload) -> None:
        """Take its entry in a HELLO."""
        for name in ("local_rank", "world_size", "pid", "start_wall_ns", "budget_ppm"):
            value = integer(entry, name)
            if value is not None:
                setattr(self, name, value)
        if self.start_wall_ns is not None and self.start_wall_ns not in self.starts_wall_ns:
            self.starts_wall_ns = (*self.starts_wall_ns[-MAX_STARTS + 1 :], self.start_wall_ns)
        if self.start_wall_ns is not None:
            own = integer(entry, "own_pid")
            if own is not None and len(self.own_pids) < MAX_STARTS:
                self.own_pids.setdefault(self.start_wall_ns, own)
        for name in _TEXTS:
            words = text(entry, name)
            if words:
                self.texts[name] = words
        hooks = entry.get("hooks")
        if isinstance(hooks, dict):
            self.no_device_times, self.no_device_waits = (
                "" if said == "ok" else said
                for said in (text(hooks, name) or "" for name in ("device_times", "device_barrier"))
            )
        self.parallel = counts(entry, "parallel") or self.parallel
        self.pipeline = counts(entry, "pipeline") or self.pipeline
        self.model = believed(entry.get("model")) or self.model
        before = self.model.get("steps_before") if entry.get("model") else None
        if (
            type(before) is int
            and self.start_wall_ns is not None
            and (self.start_wall_ns in self.steps_before or len(self.steps_before) < MAX_STARTS)
        ):
            self.steps_before[self.start_wall_ns] = before
        self._take_state(entry)

    def known_pids(self) -> frozenset[int]:
        """Of all processes that were this rank, each as it sees itself; empty where one of them did not tell."""
        is_told = len(self.starts_wall_ns) < MAX_STARTS and all(
            start in self.own_pids for start in self.starts_wall_ns
        )
        return frozenset(self.own_pids.values()) if is_told else frozenset()

    @property
    def told(self) -> str:
        """The detail with the job's step numbers, as all other sentences have them."""
        return _AFTER_STEP.sub(self._in_job, self.detail) if self.step_shift else self.detail

    def _in_job(self, own: re.Match[str]) -> str:
        return f"{own[1]}{max(int(own[2].replace(',', '')) + self.step_shift, 0):,}"

    @property
    def is_leaving(self) -> bool:
        """Whether it goes or went because somebody asked, or goes and nobody knows why yet."""
        if self.state == "killed":
            return any(name in self.detail for name in ASKED_TO_END)
        return self.state == "detached" and self.detail == EXITING

    def update(
        self, entry: Payload, now_ns: int | None, *, is_ending: bool = False, is_overdue: bool = False
    ) -> None:
        """Take its entry in a STATUS of that moment on its host's clock.

        is_ending: the job's end has begun, and where the rank stood then is kept. is_overdue: long ago.
        """
        self._take_state(entry)
        phase, since_ns = entry.get("phase"), integer(entry, "phase_since_ns")
        self.phase = phase if isinstance(phase, str) and phase in _PHASES else None
        self.phase_for_s = None
        self.so_far_s = _so_far(entry)
        if now_ns is not None and since_ns is not None and 0 < since_ns <= now_ns:
            self.phase_for_s = (now_ns - since_ns) / 1e9
        if "step" in entry and (step := integer(entry, "step")) is not None:
            self.step = step
        if self.state == "live":
            self.no_step = text(entry, "no_step") or ""
            is_longer = (self.phase_for_s or 0.0) > (self.still_s or 0.0)
            if self._has_moved() or not is_ending or (is_overdue and is_longer):
                self._stand(entry.get("thread"), since_ns)
        elif self._has_moved():
            self.still_phase = self.still_s = self.still_step = self.still_thread = None
            self.still_since_ns = None
        if (disabled := integer(entry, "hooks_disabled")) is not None:
            self.hooks_disabled = disabled
        for name in _LOST:
            if (value := integer(entry, name)) is not None:
                before = self.last_counts.get(name, 0)
                setattr(self, name, getattr(self, name) + (value - before if value >= before else value))
                self.last_counts[name] = value

    def _has_moved(self) -> bool:
        """Since its place was noted. A step whose optimizer was done is closed by the end of its process."""
        return self.still_step is None or self.step not in {self.still_step, self.still_step + 1}

    def _stand(self, thread: object, since_ns: int | None) -> None:
        self.still_phase, self.still_s, self.still_step = self.phase, self.phase_for_s, self.step
        self.still_since_ns = since_ns
        self.still_thread = thread if isinstance(thread, str) and thread in THREAD_STATES else None

    def _take_state(self, entry: Payload) -> None:
        state = entry.get("state")
        if isinstance(state, str) and state in _STATES:
            self.state = state
            self.detail = (text(entry, "detail") or "") if "detail" in entry else ""


def _so_far(entry: Payload) -> dict[str, float]:
    """Seconds by phase, as far as they can be true."""
    told = entry.get("so_far_ms")
    return {
        name: value / 1000
        for name, value in (told.items() if isinstance(told, dict) else ())
        if name in _PHASES and type(value) is int and 0 <= value < MAX_SO_FAR_MS
    }
