"""The state before a change, marked by the user: which recording the next run of the same job is held against.

In: one small JSON file in the folder of the recordings.  Out: Before. What is damaged is said, never guessed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tuiadvisor.errors import TuiadvisorError

FILE_NAME: Final = ".tuiadvisor-before.json"
MAX_BYTES: Final = 1 << 14
STEPS_AFTER: Final = 100  # steady steps of the run after the change, before the two are compared


@dataclass(frozen=True, slots=True)
class Before:
    """The run before the change."""

    recording: str  # path, relative to the folder where it lies within
    label: str  # of the job: another one is not compared with it
    step: int  # the newest when it was marked


def mark_before(folder: Path, recording: str, label: str, step: int) -> str:
    """Keep it; returns what was done, in one line."""
    path = Path(recording).resolve()
    home = folder.resolve()
    name = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
    file, beside = folder / FILE_NAME, folder / f"{FILE_NAME}.part"
    try:
        beside.write_text(json.dumps(asdict(Before(name, label, step)), indent=1) + "\n")
        beside.replace(file)
    except OSError as error:
        return f"not marked: {file} cannot be written ({error.strerror})"
    return (
        f"{path.name} is the state before: change one thing, start again with -o FILE; "
        f"after {STEPS_AFTER} steps 7 compares the two"
    )


def marked_before(folder: Path) -> Before | None:
    """What is marked in a folder, None where nothing is. TuiadvisorError if the file is damaged."""
    file = folder / FILE_NAME
    try:
        raw = file.read_bytes()
    except OSError:
        return None
    try:
        table = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        table = None
    fields = (("recording", str), ("label", str), ("step", int))
    if not isinstance(table, dict) or not all(isinstance(table.get(name), kind) for name, kind in fields):
        raise TuiadvisorError(f"{file}: no mark of a run before a change; remove it")
    recording, label, step = table["recording"], table["label"], table["step"]
    if not recording.isprintable() or not label.isprintable() or step < 0:
        raise TuiadvisorError(f"{file}: no mark of a run before a change; remove it")
    return Before(str(folder / recording), label, step)
