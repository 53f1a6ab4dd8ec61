"""What the screen of scaling works on: reads the table or the recordings once, takes what is stated, makes pictures.

In: a folder, live views, texts as typed.  Out: Picture. Recordings are read one a call, so that the caller may do other
things between two.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.compare.comparing import measure
from tuiadvisor.app import preferences_file
from tuiadvisor.app.recordings import recordings
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.table import printable, read_table
from tuiadvisor.session.entries import Stated, nudged, stated_in, with_text
from tuiadvisor.session.intent import FILE_NAME, read_intent
from tuiadvisor.session.machine import read_machine
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.sizing import Known, picture_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.views.run_view import RunView

MAX_OTHERS: Final = 16
MAX_BYTES: Final = 200_000_000  # of one recording: half a minute of reading


class Sizing:
    """One run, or one table, among its sizes."""

    def __init__(
        self,
        table: str = "",
        stated: Stated | None = None,
        *,
        chosen: tuple[str, ...] = (),
    ) -> None:
        """table: a CSV instead of recordings; chosen: these recordings instead of those that lie beside the run.

        stated: None reads the project's file. TuiadvisorError if that or the table is bad.
        """
        self.stated = stated or stated_in(read_intent(FILE_NAME), preferences_file.current().efficiency_floor)
        self.known = Known(table=read_table(table) if table else None)
        self.chosen = chosen
        self._machine = read_machine()
        self._read: dict[tuple[str, float, int], Recorded | str] = {}  # or why it is left out
        self._waiting: list[str] = []
        self._current = ""

    @property
    def current(self) -> str:
        """The recording that is shown; "" for a live run, a table or recordings that were chosen."""
        return self._current

    def take(self, runs: Sequence[Recorded]) -> None:
        """The first of these among the others, which have been read."""
        self._begin(current="", waiting=[], live=runs[0], notes=())
        self.known = replace(self.known, others=tuple(runs[1:]))

    def look(self, folder: Path, current: str, view: RunView | None) -> None:
        """What is shown now: a recording, else a live view, else nothing; folder: where recordings beside it lie."""
        if self.known.table is not None:
            return
        if self.chosen:
            self._begin(current="", waiting=list(self.chosen), live=None, notes=())
            return
        found = [entry.path for entry in recordings(folder) if entry.path != current]
        small = [path for path in found if _num_bytes(path) <= MAX_BYTES]
        notes = []
        if len(small) > MAX_OTHERS:
            notes.append(f"only the newest {MAX_OTHERS} of {len(small)} recordings of {folder} are read")
        if len(small) < len(found):
            notes.append(
                f"{len(found) - len(small)} recordings above {MAX_BYTES // 10**6} MB are not read here: "
                "tuiadvisor scale RUN… --tui reads them"
            )
        live = Recorded(view.run.label or "this run", view) if view is not None and not current else None
        self._begin(current, [*([current] if current else []), *small[:MAX_OTHERS]], live, tuple(notes))

    def _begin(self, current: str, waiting: list[str], live: Recorded | None, notes: tuple[str, ...]) -> None:
        self._current, self._waiting = current, waiting
        self.known = Known(current=live, all_count=bool(self.chosen), notes=notes)
        for path in list(self._waiting):
            key = _key(path)
            if key in self._read:
                self._accept(path, self._read[key])

    def num_waiting(self) -> int:
        """How many recordings are still to be read."""
        return len(self._waiting)

    def next_waiting(self) -> str | None:
        """The recording to read next."""
        return self._waiting[0] if self._waiting else None

    def read(self, path: str, frames: Iterable[bytes]) -> None:
        """Read one recording; one that cannot be read is left out and said to be."""
        key = _key(path)  # before: one that is being written grows meanwhile
        found: Recorded | str
        try:
            measured = measure(path, frames)
            unit = measured.unit
            found = Recorded(Path(path).stem, measured.view, unit.gradient_bytes, unit.num_collectives)
        except TuiadvisorError as error:
            found = f"left out: {printable(str(error), 160)}"
        self._read[key] = found
        self._accept(path, found)

    def _accept(self, path: str, found: Recorded | str) -> None:
        self._waiting = [each for each in self._waiting if each != path]
        if isinstance(found, str):
            self.known = replace(self.known, notes=(*self.known.notes, found))
        elif path == self._current:
            self.known = replace(self.known, current=found)
        else:
            self.known = replace(self.known, others=(*self.known.others, found))

    def prefer(self, efficiency_floor: float) -> bool:
        """Judge by this floor from now on; returns whether that changes anything."""
        former = self.stated
        self.stated = replace(former, aim=replace(former.aim, efficiency_floor=efficiency_floor))
        return self.stated != former

    def state(self, name: str, typed: str) -> None:
        """Take what was typed. TuiadvisorError if it cannot be."""
        self.stated = with_text(self.stated, self.known.quantity, name, typed)

    def nudge(self, name: str, by: int) -> None:
        """A little more or less of it."""
        self.stated = nudged(self.stated, self.known.quantity, name, by, self._sizes())

    def picture(self) -> Picture:
        """As it is now."""
        return picture_of(self.known, self.stated, self._machine)

    def _sizes(self) -> tuple[int, ...]:
        if self.known.table is not None:
            return tuple(row.devices for row in self.known.table.rows if row.value is not None)
        runs = [run for run in (self.known.current, *self.known.others) if run is not None]
        return tuple(run.view.run.world_size for run in runs if run.view.run.world_size)


def _num_bytes(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _key(path: str) -> tuple[str, float, int]:
    try:
        stat = Path(path).stat()
    except OSError:
        return path, 0.0, 0
    return path, stat.st_mtime, stat.st_size
