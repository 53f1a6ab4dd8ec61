"""The recordings of a folder, newest first, as rows that nobody has read yet."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.unpacking import SUFFIXES
from tuiadvisor.views.run_list import RunEntry

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX: Final = ".tuirec"
MAX_RUNS: Final = 2000


def recordings(folder: Path) -> list[RunEntry]:
    """The recordings of a folder and of the folders in it, newest first. TuiadvisorError if it cannot be read."""
    found: list[tuple[float, RunEntry]] = []
    try:
        paths = [path for end in ("", *SUFFIXES) for path in folder.glob(f"*{SUFFIX}{end}")]
        paths += [path for end in ("", *SUFFIXES) for path in folder.glob(f"*/*{SUFFIX}{end}")]
    except OSError as error:
        raise TuiadvisorError(f"{folder}: cannot be read: {error.strerror}") from error
    this_year = datetime.now().astimezone().year
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        changed = datetime.fromtimestamp(stat.st_mtime).astimezone()
        when = changed.strftime("%m-%d %H:%M" if changed.year == this_year else "%Y-%m-%d")
        name = str(path.relative_to(folder)).removesuffix(SUFFIX)
        found.append((stat.st_mtime, RunEntry(str(path), name, when, stat.st_size)))
    found.sort(key=lambda pair: (-pair[0], pair[1].name))
    return [entry for _, entry in found[:MAX_RUNS]]
