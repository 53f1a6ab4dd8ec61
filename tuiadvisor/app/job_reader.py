"""The thread behind the home screen: what trains here, what runs in Slurm, and what is said of what is watched.

In: whether anybody looks.  Out: the rows, anew every few seconds while somebody does.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.app.jobs import jobs_here, slurm_jobs
from tuiadvisor.app.running_hubs import Watchings
from tuiadvisor.log import Logger
from tuiadvisor.views.job_list import Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.app.running_hubs import Followed
    from tuiadvisor.views.job_list import JobEntry

logger: Final = Logger(__name__)
PERIOD_S: Final = 2.0
UNREAD_S: Final = 0.05  # while what was recorded before is being read
QUEUE_PERIOD_S: Final = 30.0  # squeue asks the controller of the whole cluster
SLURM_LABEL: Final = "slurm job "  # of a hub of `watch --slurm`


class JobReader:
    """Looks for jobs while they are on the screen. `start` before use, `stop` at the end."""

    def __init__(self, change: Callable[..., None]) -> None:
        """change: take new values of DeskState's `jobs`, `jobs_note`, `slurm_note`, `is_looking`."""
        self._change = change
        self._wanted = False
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look_all, name="tuiadvisor-jobs", daemon=True)
        self._watchings = Watchings()
        self._followed: list[Followed] = []
        self._queue: tuple[tuple[JobEntry, ...], str] = ((), "")
        self._queue_due_s = 0.0
        self._asking: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._due.set()
        self._thread.join(5.0)

    def want(self, *, is_shown: bool) -> None:
        """They are on the screen now, or no longer."""
        self._wanted = is_shown
        self._due.set()

    def look(self) -> None:
        """Look at once, at Slurm's, too."""
        self._queue_due_s = 0.0
        self._due.set()

    def _look_all(self) -> None:
        while not self._stopped.is_set():
            self._due.wait(self._pause_s())
            self._due.clear()
            if self._stopped.is_set():
                break
            try:
                self._look()
            except Exception:
                logger.exception("the list of jobs broke")
                self._change(jobs_note="the list of jobs failed: the log tells why", is_looking=False)
        self._watchings.close()

    def _pause_s(self) -> float | None:
        if not self._wanted:
            return None
        return UNREAD_S if any(one.view is None for one in self._followed) else PERIOD_S

    def _look(self) -> None:
        if time.monotonic() >= self._queue_due_s and (self._asking is None or not self._asking.is_alive()):
            self._queue_due_s = time.monotonic() + QUEUE_PERIOD_S
            # A busy controller takes seconds to answer: the trainings here do not wait for it.
            self._asking = threading.Thread(target=self._ask_slurm, name="tuiadvisor-squeue", daemon=True)
            self._asking.start()
        here, note = jobs_here()
        # First what costs nothing: reading hours of a recording may take a while.
        self._followed = self._watchings.look(0.0)
        self._show(here, note)
        self._followed = self._watchings.look()
        self._show(here, note)

    def _show(self, here: tuple[JobEntry, ...], note: str) -> None:
        queued, slurm_note = self._queue
        jobs = joined((*here, *queued), self._followed, self._watchings.num_not_followed)
        self._change(jobs=jobs, jobs_note=note, slurm_note=slurm_note, is_looking=False)

    def _ask_slurm(self) -> None:
        self._queue = slurm_jobs()
        self._due.set()


def joined(jobs: Sequence[JobEntry], followed: Sequence[Followed], num_more: int = 0) -> tuple[JobEntry, ...]:
    """Each job with what the newest hub that watches it says. num_more: hubs that are not followed."""
    return tuple(_with(job, followed, num_more) for job in jobs)


def watches(one: Followed, job: JobEntry) -> bool:
    """Whether a hub's recording is of this job, by process ids of its live ranks or Slurm's number."""
    if job.slurm:
        return one.hub.label == SLURM_LABEL + job.slurm
    if one.view is None:
        return False
    return not {row.pid for row in one.view.ranks if row.pid is not None}.isdisjoint(job.rank_pids)


def _with(job: JobEntry, followed: Sequence[Followed], num_more: int) -> JobEntry:
    one = next((one for one in followed if watches(one, job)), None)
    if one is not None:
        return replace(job, watched=told(one))
    # Whose a recording is, is known when it was read.
    unread = [one.share for one in followed if one.view is None]
    if job.is_watched and unread:
        return replace(job, watched=Watched("", "", min(unread)))
    return replace(job, num_hubs_not_read=num_more) if job.is_watched and num_more else job


def told(one: Followed) -> Watched:
    """What a row shows of a recording that grows."""
    hub, view = one.hub, one.view
    recording = _shown(hub.recording) if hub.keeps else ""
    if view is None:
        return Watched(hub.viewer, recording, one.share)
    verdict = view.decided
    return Watched(
        hub.viewer,
        recording,
        last_step=view.last_step,
        step_s=view.step.mean_s,
        steps_s=None if view.without_step_s is not None else view.step.throughput_steps_s,
        decision=verdict.decision,
        sentence=verdict.sentence,
    )


def _shown(path: str) -> str:
    """As short as it is from here."""
    here = Path.cwd()
    return str(PurePath(path).relative_to(here)) if PurePath(path).is_relative_to(here) else path


def jobs_now() -> dict[str, Any]:
    """One look, for whoever wants no screens: what DeskState says of jobs."""
    here, note = jobs_here()
    queued, slurm_note = slurm_jobs()
    watchings = Watchings()
    try:
        followed = watchings.look(math.inf)
        jobs = joined((*here, *queued), followed, watchings.num_not_followed)
    finally:
        watchings.close()
    return {"jobs": jobs, "jobs_note": note, "slurm_note": slurm_note, "is_looking": False}
