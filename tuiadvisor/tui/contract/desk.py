"""What lies beside the run that is shown: the list of recordings, a comparison, a guided session, curves, a log.

The command line implements Desk around its background threads; tests implement it with a fixed state. Every part is
None or empty until it was asked for, and says in its note what is going on or why there is nothing.
In: nothing.  Out: DeskState, Desk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tuiadvisor.preferences import Preferences

if TYPE_CHECKING:
    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.session.guided import Guided
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.run_list import RunEntry

# Every name a screen may pass to Desk.command, with the type of its value.
DESK_VALUES: dict[str, type | tuple[type, ...]] = {
    "list_runs": type(None),  # look into the folder again
    "want_runs": tuple,  # the paths whose rows are on the screen: read these first
    "open_run": str,  # a recording's path
    "go_live": type(None),  # from a recording back to the live run
    "compare": tuple,  # (path before, path after)
    "report": type(None),  # of what is shown, as HTML beside its recording or here
    "bookmark": tuple,  # (step, note) in the recording that is shown
    "advise": type(None),  # the guided session on the run that is shown
    "answer": tuple,  # (question id, text); an empty text takes the answer back
    "save_preferences": Preferences,
    "scale": type(None),  # how the run scales: look anew at it and at the recordings beside it
    "state_size": tuple,  # (entry, text); an empty text takes it back
    "nudge_size": tuple,  # (entry, 1 or -1): a little more or less of it
}


@dataclass(frozen=True, slots=True)
class DeskState:
    """One moment."""

    folder: str = ""
    runs: tuple[RunEntry, ...] = ()
    runs_note: str = ""
    has_live: bool = False  # a live session is behind, whatever is shown
    open_path: str = ""  # the recording that is shown; "" for a live run
    comparison: Comparison | None = None
    comparison_note: str = ""
    session: Guided | None = None
    session_note: str = ""
    scaling: Picture | None = None
    scaling_note: str = ""
    answer: str = ""  # to the last command, in one line
    num_answers: int = 0  # an answer that counts up is a new one
    version: int = 0


NO_DESK = DeskState()


class Desk(Protocol):
    """The source of what lies beside the run."""

    def desk(self) -> DeskState:
        """Return the newest state; cheap and safe to call from any thread."""
        ...

    def command(self, name: str, value: object = None) -> None:
        """Take one of DESK_VALUES; returns at once, the answer is a later state."""
        ...
