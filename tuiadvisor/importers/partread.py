"""The steps of a folder of traces that were read so far: a first picture of files that take long.

In: what the reader holds of each file, now and then.  Out: Reading, told to who asked for progress, with the steps as
a run whose kind is PART. A step's mark tells its length, whatever follows it in the file; what happened within it
stands anywhere, so nothing of it is told before the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.events import STEP_COLUMNS, UNKNOWN, StepFlag
from tuiadvisor.importers.imported import PART, ImportedRank, ImportedRun, Reading
from tuiadvisor.importers.stepmarks import numbered
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tuiadvisor.importers.imported import Progress, Row

    Steps = Sequence[tuple[str, int, int]]

BECAUSE: Final = "who arrives last is told once all traces are read to their end"


@dataclass(frozen=True, slots=True)
class FilePart:
    """steps: name, begin and duration of each mark that was read; position: bytes of the file that were read."""

    rank: int | None
    world_size: int | None
    steps: Steps
    num_events: int
    position: int


@dataclass(slots=True)
class PartRead:
    """All files of a folder, in the order in which they are read."""

    folder: Path
    paths: list[Path]
    progress: Progress
    _parts: dict[str, FilePart] = field(default_factory=dict)  # the last word on each file
    _bytes_before: int = 0
    _num_bytes: int = 0
    _num_begun: int = 0
    _size: int = 0  # of the file that is read

    def __post_init__(self) -> None:
        self._num_bytes = sum(_size(path) for path in self.paths)

    def begin(self, path: Path) -> Callable[[FilePart], None]:
        """Tell that this file is next; the function takes what was read of it."""
        self._bytes_before += self._size
        self._size = _size(path)
        self._num_begun += 1
        self._tell(path.name, 0)

        def take(part: FilePart) -> None:
            self._parts[str(path)] = part
            self._tell(path.name, part.position)

        return take

    def _tell(self, name: str, position: int) -> None:
        share = (self._bytes_before + position) / self._num_bytes if self._num_bytes else None
        num_events = sum(part.num_events for part in self._parts.values())
        self.progress(Reading(name, self._num_begun, len(self.paths), share, num_events, self._run))

    def _run(self) -> ImportedRun | None:
        """Ranks whose marks were read; of files of one rank, or of none where there are several, nothing is told."""
        parts = list(self._parts.values())
        counts = Counter(part.rank for part in parts)
        alone = len(self.paths) == 1
        known = [part for part in parts if alone or (part.rank is not None and counts[part.rank] == 1)]
        steps = [(part.rank or 0, numbered(sorted(part.steps, key=lambda step: step[1]))) for part in known]
        ranks = tuple(
            ImportedRank(rank, tuple(_row(*step) for step in marked), (), None, 0 if alone else None)
            for rank, marked in sorted(steps)
            if marked
        )
        if not ranks:
            return None
        return ImportedRun(
            kind=PART,
            source=self.folder.name or str(self.folder),
            words="the part of the traces that was read so far",
            ranks=ranks,
            world_size=max((part.world_size for part in parts if part.world_size), default=None),
            late_ranks=None,
            because=BECAUSE,
            says="",
        )


def _row(number: int, begin: int, end: int) -> Row:
    """Of its length alone."""
    fields = {"step": number, "begin_ns": begin, "end_ns": end, "group_seq": number + 1}
    fields |= {
        "other_ns": end - begin,
        "observed": 1 << PHASES.index("other"),
        "flags": int(StepFlag.NO_SYNC),
    }
    return tuple(fields.get(name, UNKNOWN) for name in STEP_COLUMNS)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # whoever reads it is told
