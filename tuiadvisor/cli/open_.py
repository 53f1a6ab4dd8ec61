"""`tuiadvisor open`, and a bare path: says what a file or folder is, and shows it the way that fits."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.folder_list import FolderList, folder_list, further_down, list_document, list_lines
from tuiadvisor.cli.foreign import only_within, within
from tuiadvisor.cli.recognizing import RECORDING, SIZES, WORDS, NotRecognisedError, Sniffed, sniff
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.importers.imported import NoStepsError
from tuiadvisor.importers.kinds import KINDS
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.printed import say_on_stderr
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    from tuiadvisor.app.opening import OpeningDesk

# Whose screens can be shown: of what has steps, and of a hang.
WITH_STEPS: Final = frozenset(name for name, kind in KINDS.items() if kind.run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "path", metavar="PATH", help="a recording, a trace, a table, or a folder or archive of any"
    )
    parser.add_argument(
        "trace", nargs="?", metavar="TRACE",
        help="beside a recording: the profiler's traces of the same job, whose detail is added to it",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="one JSON document: the diagnosis, or the import's"
    )
    parser.add_argument("--once", action="store_true", help="no screens: print the summary as text")


def run(options: argparse.Namespace) -> int:
    """Recognise it, say so, and hand it to the command that reads it."""
    path = Path(options.path)
    unpacked = within(options.path)
    if not unpacked.exists():
        raise TuiadvisorError(f"{path}: no such file or folder")
    if options.trace is not None:
        return _beside(path, Path(options.trace), options)
    if unpacked.is_dir():
        held = folder_list(unpacked)
        if held.is_several or (unpacked != path and len(held.entries) > 1):
            return _listed(path, held, options)
    path = only_within(options.path)
    if path == unpacked and path.is_dir():
        path = further_down(path, held)
    try:
        found = sniff(path)
    except (
        NotRecognisedError
    ) as error:  # of an archive its name is said, not that of the folder it is in for now
        raise NotRecognisedError(str(error).replace(str(path), options.path)) from None
    if not (options.json or options.once) and shows_screens() and found.kind in WITH_STEPS:
        return shown(found, options.path)
    if path != Path(options.path) and not Path(options.path).is_dir() and found.kind != SIZES:
        # An archive: the command reads it itself, and the folder that it is in for now has no name to say.
        words = command(replace(found, path=Path(options.path)), options, is_folder=False)
    else:
        words = command(found, options, is_folder=path.is_dir())
    said = f"{one_line(options.path)}: {_taken_for(found, path)}; as: tuiadvisor {' '.join(words[:-1])}"
    say_on_stderr(f"{said} {shell_word(words[-1])}")
    commands = importlib.import_module("tuiadvisor.cli.commands")
    code: int = commands.run(words)
    return code


def _beside(recording: Path, trace: Path, options: argparse.Namespace) -> int:
    """A recording with a trace of the same job."""
    if not trace.exists():
        raise TuiadvisorError(f"{trace}: no such file or folder")
    kinds = [sniff(path).kind for path in (recording, trace)]
    if kinds != [RECORDING, "kineto"]:
        raise TuiadvisorError(
            f"{one_line(str(recording))} is {WORDS[kinds[0]]}, {one_line(str(trace))} {WORDS[kinds[1]]}: what goes "
            "together is a recording, then PyTorch Profiler traces of the same job"
        )
    module = importlib.import_module("tuiadvisor.cli.trace_beside")
    imports = importlib.import_module("tuiadvisor.cli.import_")
    code: int = module.open_beside(recording, trace, options, imports.Told())
    return code


def _listed(path: Path, held: FolderList, options: argparse.Namespace) -> int:
    """What a folder or an archive of several things holds; in an archive each is ARCHIVE/NAME."""
    archive = importlib.import_module("tuiadvisor.importers.archive")
    named = [replace(one, path=Path(archive.by_their_names(str(one.path)))) for one in held.entries]
    held = replace(held, entries=tuple(named))
    if options.json:
        print_document(list_document(path, held))
    else:
        print("\n".join(list_lines(path, held)))
    return 0


def shown(found: Sniffed, named: str, options: argparse.Namespace | None = None) -> int:
    """The screens of a trace, through a recording that goes with them; its summary where it has no steps.

    named: as the user did. options: of replay, where that was asked.
    """
    imports = importlib.import_module("tuiadvisor.cli.import_")
    replay = importlib.import_module("tuiadvisor.cli.replay")
    kind = imports.KINDS[found.kind]
    print(f"{one_line(named)}: {WORDS[found.kind]}; reading it", file=sys.stderr)
    name = found.path.resolve().name.replace(os.sep, "_") or "trace"
    with tempfile.TemporaryDirectory(prefix="tuiadvisor-") as folder:
        replayed = argparse.ArgumentParser()
        replay.add_options(replayed)
        words = replayed.parse_args([str(Path(folder, f"{name}.tuirec"))])
        words = argparse.Namespace(**{**vars(options or words), "file": words.file})

        def prepare(opening: OpeningDesk) -> None:
            picture = importlib.import_module("tuiadvisor.cli.first_picture").FirstPicture(opening)
            _, run = imports.read_run(kind, found.path, picture)
            imports.write_imported(words.file, run)
            importlib.import_module("tuiadvisor.app.stand_ins").stand_in(words.file, named)

        try:
            replay.show(words, None, prepare, ("reading", one_line(named)))
        except NoStepsError as error:
            say_on_stderr(f"{one_line(str(error))}; its summary:")
            code: int = imports.say_document(kind, found.path, error.document)
            return code
    return 0


def command(found: Sniffed, options: argparse.Namespace, *, is_folder: bool) -> list[str]:
    """The command line that shows it; the path is its last word."""
    path = str(found.path)
    path = f"./{path}" if path.startswith("-") else path
    once = ["--once"] if options.once else []
    if found.kind == SIZES:
        return ["scale", *(["--json"] if options.json else []), "--table", path]
    if found.kind != RECORDING:
        return ["import", found.kind, *(_as_json(found.kind) if options.json else []), path]
    if is_folder:
        if options.json:
            raise TuiadvisorError(f"{path} is a folder of recordings: --json takes one of them")
        return ["runs", *once, path]
    return ["diagnose", "--json", path] if options.json else ["replay", *once, path]


def _as_json(kind: str) -> list[str]:
    """The import's document, with the verdict where it may have steps, or none for a reason."""
    imports = importlib.import_module("tuiadvisor.cli.import_")
    has_verdict = kind in imports.KINDS and imports.KINDS[kind].what
    return ["--json", *(["--verdict"] if has_verdict else [])]


def _taken_for(found: Sniffed, path: Path) -> str:
    if path.is_dir() and found.kind == RECORDING:
        return "a folder of recordings"
    return WORDS[found.kind]
