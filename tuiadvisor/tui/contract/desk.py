"""What lies beside the run that is shown: the list of recordings, a comparison, a guided session, curves, a log.

The command line implements Desk around its background threads; tests implement it with a fixed state. Every part is
None or empty until it was asked for, and says in its note what is going on or why there is nothing.
In: nothing.  Out: DeskState, DeskCommand, Desk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tuiadvisor.preferences import Preferences
    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.session.guided import Guided
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.job import JobView
    from tuiadvisor.views.job_list import JobEntry
    from tuiadvisor.views.run_list import RunEntry
    from tuiadvisor.views.timeline import Timeline

# --- what the screens may ask of it


@dataclass(frozen=True, slots=True)
class ListRuns:
    """Look into the folder again."""


@dataclass(frozen=True, slots=True)
class WantRuns:
    """Read the rows of these recordings first: they are on the screen."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Replay a recording."""

    path: str


@dataclass(frozen=True, slots=True)
class GoLive:
    """From a recording back to the live run."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare two recordings."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class LookAtJob:
    """The job of the run that is shown, over all its recordings in the folder."""


@dataclass(frozen=True, slots=True)
class MarkBefore:
    """What is shown is the state before a change: the job's next run is compared with it by itself."""


@dataclass(frozen=True, slots=True)
class Report:
    """Write what is shown as HTML, beside its recording or here."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Keep a note to a step of the recording that is shown."""

    step: int
    note: str


@dataclass(frozen=True, slots=True)
class Advise:
    """The guided session on the run that is shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a question of it; an empty text takes the answer back."""

    question: str
    text: str


@dataclass(frozen=True, slots=True)
class SavePreferences:
    """Keep what is preferred."""

    preferences: Preferences


@dataclass(frozen=True, slots=True)
class Scale:
    """How the run scales: look anew at it and at the recordings beside it."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """State something about sizes; an empty text takes it back."""

    entry: str
    text: str


@dataclass(frozen=True, slots=True)
class NudgeSize:
    """A little more or less of it."""

    entry: str
    by: int  # +1 or -1


@dataclass(frozen=True, slots=True)
class LookAt:
    """A stretch of the timeline of the recording that is shown; end_s None: all of it."""

    begin_s: float
    end_s: float | None
    num_cells: int


@dataclass(frozen=True, slots=True)
class ListJobs:
    """Look for trainings of this machine and for the user's jobs in Slurm."""


@dataclass(frozen=True, slots=True)
class WantJobs:
    """Their list is on the screen, or no longer: while it is, it is kept up to date."""

    is_shown: bool


@dataclass(frozen=True, slots=True)
class Attach:
    """Watch a training: the screens end, and `watch` begins with these options."""

    target: tuple[str, ...]


DeskCommand = (
    ListRuns
    | ListJobs
    | WantJobs
    | Attach
    | WantRuns
    | OpenRun
    | GoLive
    | Compare
    | LookAtJob
    | MarkBefore
    | Report
    | Bookmark
    | Advise
    | Answer
    | SavePreferences
    | Scale
    | StateSize
    | NudgeSize
    | LookAt
)


@dataclass(frozen=True, slots=True)
class MarkedBefore:
    """The run that B marked as the state before a change."""

    name: str  # of its recording, from the folder of recordings on
    label: str  # of the job: another one is not compared with it
    step: int  # the newest when it was marked
    steps_after: int  # steady steps of the run after the change, before the two are compared
    is_live: bool = False  # it is the live run itself


@dataclass(frozen=True, slots=True)
class DeskState:
    """One moment."""

    folder: str = ""
    machine: str = ""  # its name
    runs: tuple[RunEntry, ...] = ()
    runs_note: str = ""
    jobs: tuple[JobEntry, ...] = ()  # those of this machine first
    jobs_note: str = ""
    slurm_note: str = ""
    is_looking: bool = True  # for jobs; nobody has answered yet
    leads_home: bool = False  # leaving these screens shows home again
    can_attach: bool = (
        False  # home is where these screens begin: who shows them goes on to watch what is chosen
    )
    choosing: str = ""  # what is to be chosen at home before these screens go on
    goes_on: bool = False  # the same of a live run's screens, once that run has ended
    has_live: bool = False  # a live session is behind, whatever is shown
    open_path: str = ""  # the recording that is shown; "" for a live run
    comparison: Comparison | None = None
    comparison_note: str = ""
    job: JobView | None = None
    job_note: str = ""
    compared_step: int | None = (
        None  # the live run's newest as it was read for the comparison; None: it is not in it
    )
    before: tuple[MarkedBefore, ...] = ()  # at most one of a job, the newest last
    comparison_worth: str = ""  # what the change saved, in hours and money
    session: Guided | None = None
    session_note: str = ""
    scaling: Picture | None = None
    scaling_note: str = ""
    timeline: Timeline | None = None
    timeline_note: str = ""
    answer: str = ""  # to the last command, in one line
    num_answers: int = 0  # an answer that counts up is a new one
    version: int = 0


NO_DESK = DeskState()


class Desk(Protocol):
    """The source of what lies beside the run."""

    def desk(self) -> DeskState:
        """Return the newest state; cheap and safe to call from any thread."""
        ...

    def command(self, command: DeskCommand) -> None:
        """Take a command; returns at once, the answer is a later state."""
        ...
