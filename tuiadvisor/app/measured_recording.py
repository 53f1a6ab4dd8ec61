"""A recording as reports and sessions take it: measured to its end, with what was over by then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.advisor.compare.comparing import measure
from tuiadvisor.app.looks import Looks, piece_bytes
from tuiadvisor.app.progress import read_along, to_stderr
from tuiadvisor.app.whole_recording import with_note
from tuiadvisor.events import NOTHING_GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.advisor.compare.measured import Measured
    from tuiadvisor.advisor.fold import Advisor
    from tuiadvisor.events import GivenWork


def measured(path: str, given: GivenWork = NOTHING_GIVEN, read: str = "") -> Measured:
    """Read it, with progress on stderr where that takes long. TuiadvisorError if it is no recording.

    read: the file to read where `path`, by which it is called, is another tool's.
    """
    looks = Looks()
    file = read or path
    folding: list[Advisor] = []
    noted: list[str] = []

    def say(name: str, note: str) -> None:
        to_stderr(name, note)
        noted.append(note)

    def frames() -> Iterator[bytes]:
        """At the ends of pieces one looks, as every other reading of a whole recording does."""
        size = Path(file).stat().st_size if Path(file).is_file() else 0
        done = 0.0
        for share, frame in read_along(file, piece_bytes(size), say=say):
            if share != done:
                looks.look(folding[0], done)
            done = share
            yield frame
        looks.look(folding[0], done)

    found = measure(path, frames(), given, folding.append)
    return replace(found, view=with_note(looks.last(found.view), "; ".join(noted)))
