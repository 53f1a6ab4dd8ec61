"""Recordings that stand in for what the user named: a trace is read as one, which goes with the program.

In: where such a recording is, and what was named.  Out: how it is called, and where what is kept about it belongs:
answers, marks and reports lie beside what the user named, never beside what goes.
"""

from __future__ import annotations

import os
from pathlib import Path

_named: dict[str, str] = {}


def stand_in(recording: str, named: str) -> None:
    """The recording at this path stands in for what was named."""
    _named[recording] = named


def name_of(recording: str) -> str:
    """What the user calls it."""
    return _named.get(recording, recording)


def beside(recording: str) -> Path:
    """A path in whose folder files about it are kept, under its name; the current folder where none can be written."""
    if recording not in _named:
        return Path(recording)
    named = Path(_named[recording]).resolve()
    folder = next(
        above for above in named.parents if above.is_dir()
    )  # of a file in an archive, the archive's
    return (folder if os.access(folder, os.W_OK) else Path.cwd()) / (named.name or "trace")
