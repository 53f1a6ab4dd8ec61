"""The state before a change, marked by the user: which recording the next run of the same job is held against.

A folder may hold recordings of several jobs: each has its own mark.
In: one small JSON file in the folder of the recordings.  Out: Before. What is damaged is said, never guessed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
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


def mark_before(folder: Path, recording: str, label: str, step: int, *, watches_next: bool = False) -> str:
    """Keep it beside the marks of other jobs; returns what was done, in one line. TuiadvisorError as `marks_before`.

    watches_next: the screens watch the job's next run at a key, and keep it.
    """
    path = Path(recording).resolve()
    home = folder.resolve()
    name = str(path.relative_to(home)) if path.is_relative_to(home) else str(path)
    kept = [_relative(each, folder) for each in marks_before(folder) if each.label != label]
    kept.append(Before(name, label, step))
    while len(text := _written(kept)) > MAX_BYTES and len(kept) > 1:
        del kept[0]
    file, beside = folder / FILE_NAME, folder / f"{FILE_NAME}.part"
    try:
        beside.write_text(text)
        beside.replace(file)
    except OSError as error:
        return f"not marked: {file} cannot be written ({error.strerror})"
    follows = "again: o watches it, 7 compares" if watches_next else "again with -o FILE: 7 compares"
    return f"{path.name} is the state before. Change one thing, start the job {follows}"


def marked_before(folder: Path, label: str) -> Before | None:
    """What is marked of this job in a folder, None where nothing is. TuiadvisorError if the file is damaged."""
    return next((each for each in marks_before(folder) if each.label == label), None)


def marks_before(folder: Path) -> list[Before]:
    """What is marked in a folder, at most one of a job, the newest last. TuiadvisorError if the file is damaged."""
    file = folder / FILE_NAME
    try:
        raw = file.read_bytes()
    except OSError:
        return []
    try:
        table = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise _damaged(file)
    rows = table.get("marks", [table])  # before there were several it was the one mark itself
    if not isinstance(rows, list):
        raise _damaged(file)
    return [_read(row, file) for row in rows]


def _read(table: object, file: Path) -> Before:
    fields = (("recording", str), ("label", str), ("step", int))
    if not isinstance(table, dict) or not all(isinstance(table.get(name), kind) for name, kind in fields):
        raise _damaged(file)
    recording, label, step = table["recording"], table["label"], table["step"]
    if not recording.isprintable() or not label.isprintable() or step < 0:
        raise _damaged(file)
    return Before(str(file.parent / recording), label, step)


def _relative(mark: Before, folder: Path) -> Before:
    """As it stood in the file."""
    path = Path(mark.recording)
    return replace(mark, recording=str(path.relative_to(folder))) if path.is_relative_to(folder) else mark


def _written(marks: list[Before]) -> str:
    return json.dumps({"marks": [asdict(each) for each in marks]}, indent=1) + "\n"


def _damaged(file: Path) -> TuiadvisorError:
    return TuiadvisorError(f"{file}: no mark of a run before a change; remove it")
