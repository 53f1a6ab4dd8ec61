"""While the ranks of this host stand still, their flight recorders, asked a few times a stall.

In: links with what STATUS says of each, twice a second.  Out: entries for a STATUS frame, each once.
Who stands is asked where all of them do, for as long as a hang takes to be told: whoever moves is no part of one. Asked
again each time that the stall has become several times as long: a rank may go from collective to collective where no
phase shows it, and an interpreter that was held may answer later.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.agent.flight_recorder import ask_recorder
from tuiadvisor.events import RankState
from tuiadvisor.log import Logger
from tuiadvisor.phases import PAUSES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

    from tuiadvisor.agent.discovery import RankProcess
    from tuiadvisor.agent.rank_link import RankLink

NS: Final = 10**9
STILL_NS: Final = 5 * NS  # as for the finding of a hang
LONGER_THAN_USUAL: Final = 3  # times the longest step, as there
# In a checkpoint or an evaluation, before the first steps, where all are in other code; and of steps of any length. But
# a thread that meets a device's collective waits where it next needs the device, and that is other code: `.item()`.
PATIENCE_NS: Final = 60 * NS
# Between two times of asking, on the mean: of stalls close together each is asked about, but not one after the other
# for ever.
APART_NS: Final = 30 * NS
AT_ONCE: Final = 3  # times that it may be asked before that is waited for
ACCIDENTS: Final = 2  # long steps that teach no patience, as for the finding ...
STEPS_PER_ACCIDENT: Final = 10  # ... of all steps
TIMES_AS_LONG: Final = 6  # when a stall is asked about again: at 5 s, 35 s, 3.5 min, 21 min
NO_BUDGET: Final = "the probes' budget is 0: nothing is asked of it"
logger: Final = Logger(__name__)
Entry = dict[str, Any]
Status = dict[str, object]


@dataclass(slots=True)
class _Steps:
    """Of one process, how long they take, to half a second."""

    first: int
    step: int
    since_ns: int = 0
    longest_ns: list[int] = field(default_factory=list)  # the longest first

    def go_to(self, step: int, now_ns: int, asked_ns: int) -> None:
        """It was seen in this step; one in which it was asked is no measure."""
        if step == self.step:
            return
        if self.since_ns and asked_ns < self.since_ns:
            longest_ns = sorted([*self.longest_ns, now_ns - self.since_ns], reverse=True)
            self.longest_ns = longest_ns[: ACCIDENTS + 1]
        self.step, self.since_ns = step, now_ns

    @property
    def used_to_ns(self) -> int:
        """Of what it does again and again, as for the finding."""
        num_left = min(ACCIDENTS, (self.step - self.first) // STEPS_PER_ACCIDENT, len(self.longest_ns) - 1)
        return self.longest_ns[max(num_left, 0)] if self.longest_ns else 0


class StallDumps:
    """Mutable: whom it has asked since when they stand, and what has come of it. Never waits."""

    def __init__(self, ask: Callable[[RankProcess], Entry] = ask_recorder) -> None:
        self._ask = ask
        self._jobs: dict[int, tuple[Future[Entry], Entry]] = {}  # by pid
        self._asked: dict[int, tuple[int, int]] = {}  # pid -> (since when it stood, when it was asked)
        self._asked_ns: deque[int] = deque((0,), AT_ONCE)  # when somebody was asked
        self._steps: dict[int, _Steps] = {}  # by pid

    def look(self, standing: Sequence[tuple[RankLink, Status]], now_ns: int, executor: Executor) -> None:
        """Ask all of them, if all stand and have not been asked for long."""
        live = [(link, status) for link, status in standing if link.state == RankState.LIVE]
        self._count_steps(live, now_ns)
        since_ns = [self._since_ns(link, status) for link, status in live]
        if not live or None in since_ns or now_ns - max(filter(None, since_ns)) < self._patience_ns(live):
            return
        news = [
            (link, status, since)
            for (link, status), since in zip(live, since_ns, strict=True)
            if since is not None and link.rank is not None and self._is_due(link.process.pid, since, now_ns)
        ]
        is_often = len(self._asked_ns) == AT_ONCE and now_ns - self._asked_ns[0] < AT_ONCE * APART_NS
        if not news or is_often or self._jobs:
            return
        self._asked_ns.append(now_ns)
        logger.info("no rank here has moved for a while: asks %d for their flight recorders", len(news))
        for link, _, since in news:
            pid = link.process.pid
            self._asked[pid] = (since, now_ns)
            about = {
                "rank": link.rank,
                "pid": pid,
                "still_since_ns": since,
                "asked_ns": time.monotonic_ns(),
                "wall_ns": time.time_ns(),
            }
            job = executor.submit(_nothing if link.budget_ppm == 0 else self._ask, link.process)
            self._jobs[pid] = (job, about)

    def take(self) -> list[Entry]:
        """What has been answered since the last time."""
        done = [pid for pid, (job, _) in self._jobs.items() if job.done()]
        return [{**about, **_result(job)} for job, about in (self._jobs.pop(pid) for pid in done)]

    def _count_steps(self, live: Sequence[tuple[RankLink, Status]], now_ns: int) -> None:
        """How long each rank's steps take."""
        before, self._steps = self._steps, {}
        for link, status in live:
            pid, step = link.process.pid, status.get("step")
            if not isinstance(step, int):
                continue
            steps = self._steps[pid] = before.get(pid, _Steps(step, step))
            steps.go_to(step, now_ns, self._asked_ns[-1])
        pids = {link.process.pid for link, _ in live}
        self._asked = {pid: asked for pid, asked in self._asked.items() if pid in pids}

    def _is_due(self, pid: int, since_ns: int, now_ns: int) -> bool:
        since, asked_ns = self._asked.get(pid, (0, 0))
        return since != since_ns or now_ns - since_ns >= TIMES_AS_LONG * (asked_ns - since_ns)

    def _patience_ns(self, live: Sequence[tuple[RankLink, Status]]) -> int:
        phases = {str(status.get("phase")) for _, status in live}
        longest_ns = [steps.used_to_ns for steps in self._steps.values() if steps.since_ns]
        waits_anywhere = all(_on_devices(link) for link, _ in live)
        if not any(status.get("phase") for _, status in live):
            return STILL_NS  # whatever it is that they did before anybody came, they all do nothing now
        if not longest_ns or phases & set(PAUSES) or (phases == {"other"} and not waits_anywhere):
            return PATIENCE_NS
        return min(max(STILL_NS, LONGER_THAN_USUAL * max(longest_ns)), PATIENCE_NS)

    @staticmethod
    def _since_ns(link: RankLink, status: Status) -> int | None:
        """Since when it stands; of one that has shown no phase since the attach, since when it does nothing."""
        since = status.get("phase_since_ns") if status.get("phase") else link.stepless.idle_since_ns
        return since if isinstance(since, int) and since else None


def _on_devices(link: RankLink) -> bool:
    """Whether it is one of several ranks that train on devices."""
    return link.info.device not in {None, "", "cpu"} and (link.world_size or 1) > 1


def _nothing(_process: RankProcess) -> Entry:
    return {"why": NO_BUDGET}


def _result(job: Future[Entry]) -> Entry:
    if job.cancelled():
        return {"why": "the agent ended meanwhile"}
    error = job.exception()
    return job.result() if error is None else {"why": str(error)[:120] or type(error).__name__}
