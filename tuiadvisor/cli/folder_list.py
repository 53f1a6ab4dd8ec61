"""What a folder of several things holds, one row each: recordings, traces of a job, logs, with what opens it.

In: a folder; it and the folders in it are looked through, so many files at most.  Out: entries, as text or JSON.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.cli.recognizing import (
    EXPORT,
    ONE_FILE,
    RECORDING,
    SIZES,
    STEP_LOG,
    WORDS,
    are_of_one_job,
    holds_ranks,
    kind_of,
)
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.importers.files import is_regular, plain_name
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.format import num_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FOLDERS: Final = 256
MAX_FILES: Final = 2_000  # looked into, all together
SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One thing that can be opened: a file, or the files of one kind of a folder."""

    kind: str
    path: Path
    num_files: int
    num_bytes: int
    is_alone: bool = True  # in its folder, so that opening this shows it

    @property
    def command(self) -> tuple[str, ...]:
        """Words after tuiadvisor that show it; none of what only other tools read."""
        if self.kind == EXPORT:
            return ()
        is_opened = self.is_alone or self.kind == SIZES
        return ("open", str(self.path)) if is_opened else ("import", self.kind, str(self.path))


@dataclass(frozen=True, slots=True)
class FolderList:
    """Everything, and whether the search ended before all files were looked into."""

    folder: Path
    entries: tuple[FolderEntry, ...]
    is_cut: bool

    @property
    def only(self) -> Path | None:
        """What opens the one thing that it holds."""
        return self.entries[0].path if len(self.entries) == 1 else None

    @property
    def is_several(self) -> bool:
        """More than one thing to open; recordings alone have a list of their own, which one folder's are in."""
        is_list_of_runs = all(entry.kind == RECORDING for entry in self.entries) and any(
            entry.path.parent == self.folder for entry in self.entries
        )
        return len(self.entries) > 1 and not is_list_of_runs


def folder_list(folder: Path) -> FolderList:
    """What lies in it and in the folders in it. TuiadvisorError where it cannot be read."""
    entries: list[FolderEntry] = []
    left = MAX_FILES
    folders = [] if not _files(folder) and holds_ranks(folder) else _folders(folder)
    # What holds nothing but folders is only a name for these.
    folders = [below for one in folders for below in ([one] if _files(one) else [one, *_folders(one)])]
    for where in [folder, *folders[:MAX_FOLDERS]]:
        by_kind: dict[str, list[os.DirEntry[str]]] = {}
        for file in _files(where):
            if left <= 0:
                return FolderList(folder, tuple(entries), is_cut=True)
            left -= 1
            try:
                kind = kind_of(Path(file.path))
            except TuiadvisorError:
                continue  # none of ours, or damaged: whoever names it is told
            if kind is not None:
                by_kind.setdefault(kind, []).append(file)
        is_alone = len(by_kind) == 1 and where != folder
        for kind, files in sorted(by_kind.items()):
            entries += _entries(kind, files, where, is_alone=is_alone)
    return FolderList(folder, tuple(entries), is_cut=False)


def further_down(folder: Path, held: FolderList) -> Path:
    """The folder in it that holds all there is, as a profiler's one of a step; itself otherwise."""
    only = held.only
    if only is None or folder in (only, only.parent if only.is_file() else None):
        return folder
    return only


def _entries(
    kind: str, files: list[os.DirEntry[str]], where: Path, *, is_alone: bool
) -> Iterator[FolderEntry]:
    if kind == STEP_LOG:  # one file a rank are torchtitan's alone; others are a run each
        runs = [file for file in files if not plain_name(file.name).endswith(".jsonl")]
        files = [file for file in files if file not in runs]
        for file in runs:
            yield FolderEntry(kind, Path(file.path), 1, _size(file))
    alone = kind == RECORDING or kind in ONE_FILE or len(files) == 1
    if alone or not are_of_one_job(kind, [Path(file.path) for file in files]):
        for file in files:
            yield FolderEntry(kind, Path(file.path), 1, _size(file))
    elif files:
        yield FolderEntry(kind, where, len(files), sum(_size(file) for file in files), is_alone)


def _size(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _files(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((one for one in entries if is_regular(one)), key=lambda one: one.name)
    except OSError:
        return []  # the folder that was named is read once more, and told, by whoever opens it


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [
                one.path
                for one in entries
                if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")
            ]
    except OSError as error:
        raise TuiadvisorError(f"cannot open {folder}: {error.strerror}") from None
    return [Path(path) for path in sorted(found)[:MAX_FOLDERS]]


def list_document(folder: Path, found: FolderList) -> dict[str, Any]:
    """As JSON."""
    return {
        "schema": 1,
        "source": {"kind": "folder", "path": str(folder)},
        "items": [
            {
                "kind": entry.kind,
                "what": WORDS[entry.kind],
                "path": str(entry.path),
                "command": list(entry.command),
                "files": entry.num_files,
                "bytes": entry.num_bytes,
            }
            for entry in found.entries
        ],
        "complete": not found.is_cut,
    }


def list_lines(folder: Path, found: FolderList) -> list[str]:
    """For people: what opens each."""
    lines = [f"{one_line(str(folder))} holds {len(found.entries)} things to open:"]
    width = max((len(WORDS[entry.kind]) for entry in found.entries[:SHOWN]), default=0)
    for entry in found.entries[:SHOWN]:
        files = f"{entry.num_files} files" if entry.num_files > 1 else ""
        size = num_bytes(entry.num_bytes)
        lines.append(f"  {WORDS[entry.kind]:<{width}} {files:>11} {size:>13}  {_command(entry)}")
    if len(found.entries) > SHOWN:
        lines.append(f"  and {len(found.entries) - SHOWN} more")
    if found.is_cut:
        lines.append(f"  only the first {MAX_FILES:,} files were looked into")
    return lines


def _command(entry: FolderEntry) -> str:
    if not entry.command:
        return f"{shell_word(str(entry.path))}: open the recording that it was made of"
    *words, path = entry.command
    return " ".join(["tuiadvisor", *words, shell_word(path)])
