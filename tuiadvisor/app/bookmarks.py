"""Steps of a recording that the user marked, with a note each: a small JSON file beside it.

In: NAME.bookmarks.json.  Out: (step, label). A damaged file is one clear line, never a wrong mark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.stand_ins import beside
from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 1 << 20
MAX_MARKS: Final = 1000
MAX_NOTE: Final = 400
LARGEST_STEP: Final = 1 << 50


def bookmark_file(recording: str) -> Path:
    """Where the marks of a recording are."""
    return beside(recording).with_suffix(".bookmarks.json")


def bookmarks(recording: str) -> tuple[tuple[int, str], ...]:
    """(step, "note: …") of each; none where there is no file. TuiadvisorError if the file is damaged."""
    return tuple(
        (step, f"note: {note}" if note else "bookmark") for step, note in _read(bookmark_file(recording))
    )


def save_bookmark(recording: str, step: int, note: str) -> str:
    """Add one; returns what was done, in one line."""
    file = bookmark_file(recording)
    marks = [*_read(file), (step, note[:MAX_NOTE])]
    if len(marks) > MAX_MARKS:
        raise TuiadvisorError(f"{file}: holds {MAX_MARKS} bookmarks, which are enough; remove some")
    part = file.with_name(file.name + ".part")
    try:
        part.write_text(json.dumps([{"step": step, "note": note} for step, note in sorted(marks)], indent=1))
        part.replace(file)
    except OSError as error:
        return f"step {step:,} is marked until you leave: {file.name} cannot be written ({error.strerror})"
    return f"step {step:,} is marked, in {file.name}"


def _read(file: Path) -> list[tuple[int, str]]:
    try:
        raw = file.read_bytes()
    except OSError:
        return []
    try:
        entries = json.loads(raw) if len(raw) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list) or len(entries) > MAX_MARKS:
        raise TuiadvisorError(f"{file}: no bookmarks of a recording; move it away")
    return [_mark(entry, file) for entry in entries]


def _mark(entry: object, file: Path) -> tuple[int, str]:
    table = entry if isinstance(entry, dict) else {}
    step, note = table.get("step"), table.get("note")
    if not isinstance(step, int) or isinstance(step, bool) or not isinstance(note, str):
        raise TuiadvisorError(f"{file}: an entry is damaged; move the file away")
    if not 0 <= step < LARGEST_STEP or len(note) > MAX_NOTE or not note.isprintable():
        raise TuiadvisorError(f"{file}: an entry is damaged; move the file away")
    return step, note
