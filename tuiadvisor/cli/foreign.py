"""Other tools' files where a recording is asked for: read by the import that fits, as a recording that is not kept.

In: what was named.  Out: for each the recording to read, itself where it is one. What has no steps is refused in one
line that says what shows it.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.printed import say_on_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tuiadvisor.cli.recognizing import Sniffed

BEGINS: Final = b"TUIREC"
_kept: list[tempfile.TemporaryDirectory[str]] = []  # which take what is in them away as the program ends


class WithoutStepsError(TuiadvisorError):
    """A source that is sound and has no steps."""

    def __init__(self, name: str, found: Sniffed, why: str) -> None:
        super().__init__(f"{name}: {why}; tuiadvisor open {shell_word(name)} shows what it says")
        self.found = found
        self.why = why


def foreign(name: str) -> Sniffed | None:
    """What was named, where that is another tool's; None: a recording, or nothing that anybody knows.

    TuiadvisorError: a folder of recordings, or of nothing that can be read.
    """
    return located(name)[1]


def located(name: str) -> tuple[str, Sniffed | None]:
    """(what to read, within an archive the one thing that it holds; as of `foreign`)."""
    path = Path(name)
    if path.is_file() and _begins_like_ours(path):
        return name, None  # most are: what tells all kinds apart is not loaded for them
    path = within(name)
    if not (path.is_dir() or path.is_file()):
        return name, None
    recognizing = importlib.import_module("tuiadvisor.cli.recognizing")
    if path.is_dir():
        path = _only(name, path)
    try:
        found: Sniffed = recognizing.sniff(path)
    except recognizing.NotRecognisedError as error:
        said = str(error).replace(str(path), name)
        if path.is_file():
            said = said.replace(": not recognised;", ": not a recording of tuiadvisor, nor recognised;")
        raise TuiadvisorError(said) from None
    if found.kind != recognizing.RECORDING:
        return str(found.path), found
    if path.is_dir():
        lists = "runs" if path == Path(name) else "open"
        raise TuiadvisorError(
            f"{name}: a folder of recordings: name one; tuiadvisor {lists} {shell_word(name)} lists them"
        )
    return str(path), None


def within(name: str) -> Path:
    """The folder of what an archive holds, or what was named where it is none."""
    archive = importlib.import_module("tuiadvisor.importers.archive")
    found: Path = archive.inside(Path(name))
    return found


def only_within(name: str) -> Path:
    """What opens the one thing that an archive holds, or what was named where it is none."""
    path = within(name)
    return path if path == Path(name) or path.is_file() else _only(name, path)


def source_within(name: str, kind: str) -> Path:
    """What an import of this kind reads of an archive, or what was named where it is none."""
    path = within(name)
    if path == Path(name) or path.is_file():
        return path
    held = importlib.import_module("tuiadvisor.cli.folder_list").folder_list(path)
    of_kind = [entry.path for entry in held.entries if entry.kind == kind]
    if len(held.entries) > 1 and len(of_kind) == 1:
        found_at: Path = of_kind[0]
        return found_at
    path = _only(name, path)
    recognizing = importlib.import_module("tuiadvisor.cli.recognizing")
    try:
        found: Sniffed = recognizing.sniff(path)
    except recognizing.NotRecognisedError as error:
        raise TuiadvisorError(str(error).replace(str(path), name)) from None
    return found.path if found.kind == kind else path


def _only(name: str, folder: Path) -> Path:
    """What opens the one thing that a folder, or an archive, holds."""
    lists = importlib.import_module("tuiadvisor.cli.folder_list")
    held = lists.folder_list(folder)
    if held.is_several:
        raise TuiadvisorError(
            f"{name} holds {len(held.entries)} things to open: name one; tuiadvisor open {shell_word(name)} lists them"
        )
    is_archive = folder != Path(name)
    if is_archive and held.only is not None and held.only.is_file():
        alone: Path = held.only
        return alone
    found: Path = lists.further_down(folder, held)
    return found


def _begins_like_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return BEGINS.startswith(file.read(len(BEGINS)))  # one that was cut, too
    except OSError:
        return True  # whoever reads recordings says why it cannot be


@contextmanager
def as_recordings(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """The recording to read for each name. WithoutStepsError for a source that has none."""
    with tempfile.TemporaryDirectory(prefix="tuiadvisor-") as folder:
        read = {}
        for number, name in enumerate(dict.fromkeys(names)):
            path, found = located(name)
            if found is not None:
                path = _recorded(name, found, Path(folder, str(number)))
                say_on_stderr(f"{one_line(name)}: {_words(found)}; read as a recording")
            read[name] = path
        yield read


def kept_recording(name: str) -> str:
    """The same of one name, for as long as the program runs."""
    path, found = located(name)
    if found is None:
        return path
    folder = tempfile.TemporaryDirectory(prefix="tuiadvisor-")
    _kept.append(folder)
    return _recorded(name, found, Path(folder.name, "0"))


def _recorded(name: str, found: Sniffed, folder: Path) -> str:
    """Its path. WithoutStepsError."""
    folder.mkdir()
    path = str(folder / f"{found.path.resolve().name.replace(os.sep, '_') or 'trace'}.tuirec")
    imports = importlib.import_module("tuiadvisor.cli.import_")
    kind = imports.KINDS.get(found.kind)
    if kind is None or not kind.run:
        why = "it holds no steps of a training" if kind is None else kind.why_no_steps
        raise WithoutStepsError(name, found, f"{_words(found)}: {why}")
    try:
        _, run = imports.read_run(kind, found.path)
    except imports.NoStepsError as error:
        raise WithoutStepsError(name, found, str(error).removeprefix(f"{found.path}: ")) from None
    imports.write_imported(path, run)
    importlib.import_module("tuiadvisor.app.stand_ins").stand_in(path, name)
    return path


def _words(found: Sniffed) -> str:
    words: str = importlib.import_module("tuiadvisor.cli.recognizing").WORDS[found.kind]
    return words
