"""`tuiadvisor import KIND PATH`: other tools' recordings, read and judged."""

from __future__ import annotations

import argparse
import importlib
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.cli.foreign import source_within
from tuiadvisor.cli.importing import add_ceiling, add_import, print_import, show, show_ceiling
from tuiadvisor.cli.options.peaks import measured_peaks
from tuiadvisor.cli.options.serving import add_serving
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.importers.files import listed, opened
from tuiadvisor.importers.imported import NoStepsError, NotOneRunError
from tuiadvisor.importers.kinds import KINDS, Kind
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.printed import say_on_stderr, unbroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.importers.imported import ImportedRun, Progress, Reading
    from tuiadvisor.views.run_view import RunView

TOLD_EVERY_S: Final = 2.0
HEAD_BYTES: Final = 4096
OF_OURS: Final = (b"PAR1", b"# ", b"TUIREC")  # tables, what is said of their columns, recordings


def add_options(parser: argparse.ArgumentParser) -> None:
    """One parser a kind."""
    subparsers = parser.add_subparsers(dest="kind", metavar=" | ".join((*KINDS, "serving")), required=True)
    for name, kind in KINDS.items():
        if kind.what:
            parser = add_import(subparsers, name, kind.what, kind.help)
            if name == "kineto":
                _add_beside(parser)
        else:
            add_ceiling(subparsers, name, kind.help)
    add_serving(subparsers)


def _add_beside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beside", metavar="RUN",
        help="a recording of the same job: -o gets it with the detail of the traces at the steps that they are of, for "
        "screens K and Z, diagnose and report; its verdict stays its own",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Read, print, and keep it if that was asked for."""
    if options.kind == "serving":
        _refuse_ours(options.pages)
        code: int = importlib.import_module("tuiadvisor.cli.import_serving").run(options)
        return code
    named, options.path = options.path, str(source_within(options.path, options.kind))
    options.named = None if named == options.path else named
    _refuse_ours([options.path])
    kind = KINDS[options.kind]
    if getattr(options, "beside", None) is not None:
        return _put_beside(options, kind)
    if getattr(options, "verdict", False) and not options.json:
        raise TuiadvisorError("--verdict is a part of --json; without --json its sentence is said anyway")
    if options.output is not None:
        if not kind.run:
            raise TuiadvisorError(
                f"{options.path}: {kind.why_no_steps}, so no recording; {_shown_by(options)}"
            )
        return write(options, kind)
    if kind.run and not options.json:
        return _say(kind, options)
    if getattr(options, "verdict", False):
        return _print_judged(kind, options)
    module = importlib.import_module(f"tuiadvisor.importers.{kind.module}")
    read = show if kind.what else show_ceiling
    document = getattr(module, kind.document)
    if kind.is_long:
        document = partial(document, progress=Told())
    if options.kind == "kineto":
        document = partial(document, measured=measured_peaks())
    return read(options, document, summary_of(kind))


def _say(kind: Kind, options: argparse.Namespace) -> int:
    """For people: what diagnose says of its steps first, then what the import found."""
    path = Path(options.path)
    try:
        document, run = read_run(kind, path)
    except NoStepsError as error:
        return say_document(kind, path, error.document)
    except NotOneRunError:
        return say_document(kind, path, None)
    print_import(options, document, summary_of(kind), verdict_of(run))
    return 0


def _print_judged(kind: Kind, options: argparse.Namespace) -> int:
    """The document, with what diagnose says of its steps; null where there are none, and why."""
    path = Path(options.path)
    try:
        document, run = read_run(kind, path) if kind.run else (document_of(kind, path), None)
        why = kind.why_no_steps
    except NoStepsError as error:
        document, run = error.document or document_of(kind, path), None
        why = str(error).removeprefix(f"{path}: ")
    except NotOneRunError as error:
        document, run, why = document_of(kind, path), None, str(error).removeprefix(f"{path}: ")
    print_import(options, {**document, **judged(document, run, why)}, summary_of(kind))
    return 0


def judged(document: dict[str, Any], run: ImportedRun | None, why: str) -> dict[str, Any]:
    """verdict, findings and clock, as in diagnose's document. why: there is no run to judge."""
    if run is not None:
        whole = importlib.import_module("tuiadvisor.report.document").document(view_of(run))
        return {name: whole[name] for name in ("verdict", "findings", "clock")}
    unknown = [*document.get("unknown", []), {"metric": "verdict", "why": why}]
    return {"verdict": None, "findings": None, "clock": None, "unknown": unknown}


def document_of(kind: Kind, path: Path) -> dict[str, Any]:
    """What the import says, without a run of it."""
    module = importlib.import_module(f"tuiadvisor.importers.{kind.module}")
    document: dict[str, Any] = getattr(module, kind.document)(path)
    return document


def _refuse_ours(paths: list[str]) -> None:
    for path in map(Path, paths):
        if _may_be_ours(path):
            importlib.import_module("tuiadvisor.cli.recognizing").refuse_ours(path)


def _may_be_ours(path: Path) -> bool:
    """By the first bytes alone: what tells all kinds apart takes a tenth of a short import to load."""
    try:
        for file in listed(path, ("",)):
            with opened(file) as held:
                head = held.read(HEAD_BYTES)
            if not (head.startswith(OF_OURS) or b'"tuiadvisor export' in head):
                return False
    except TuiadvisorError:
        return True
    return True


def _shown_by(options: argparse.Namespace) -> str:
    """The command that shows what the source holds."""
    return f"what it holds: tuiadvisor import {options.kind} {shell_word(options.named or options.path)}"


def write(options: argparse.Namespace, kind: Kind) -> int:
    """Write the run as a recording, beside what the import prints."""
    importlib.import_module("tuiadvisor.exporters.rewrite").refuse_existing(options.output)
    try:
        document, run = read_run(kind, Path(options.path))
    except NoStepsError as error:
        raise TuiadvisorError(f"{error}; {_shown_by(options)}") from None
    write_imported(options.output, run)
    if options.verdict:
        document = {**document, **judged(document, run, "")}
    print_import(options, document, summary_of(kind), "" if options.json else verdict_of(run))
    path = Path(options.output)
    say_on_stderr(f"{path}: {size_of(run)}; {unbroken(f'tuiadvisor replay {shell_word(str(path))}')}")
    return 0


def size_of(run: ImportedRun) -> str:
    """2 ranks, 48 steps."""
    num_steps = len({row[0] for rank in run.ranks for row in rank.steps})
    ranks = f"{len(run.ranks)} rank{'s' * (len(run.ranks) > 1)}"
    return (
        f"{ranks}, {num_steps} step{'s' * (num_steps != 1)}" if num_steps else f"{ranks} of a hang, no steps"
    )


def verdict_of(run: ImportedRun) -> str:
    """The first sentences of diagnose on a recording of the run."""
    sentence: str = view_of(run).decided.sentence
    return sentence


def view_of(run: ImportedRun) -> RunView:
    """What a recording of the run shows at its end."""
    frames = importlib.import_module("tuiadvisor.cli.import_recording").imported_frames(run)
    advisor = importlib.import_module("tuiadvisor.advisor.fold").Advisor()
    advisor.feed_many(frames)
    view: RunView = importlib.import_module("tuiadvisor.app.stated").against_stated(advisor.view())
    return view


def write_imported(path: str, run: ImportedRun) -> None:
    """The run as a recording; what writes it is loaded here, for most imports only print."""
    importlib.import_module("tuiadvisor.cli.import_recording").write_imported(path, run)


def _put_beside(options: argparse.Namespace, kind: Kind) -> int:
    """Write the recording with what the traces add, beside what the import prints."""
    if options.output is None:
        raise TuiadvisorError(
            "--beside RUN needs -o FILE: the recording that is written; RUN itself stays as it is"
        )
    module = importlib.import_module("tuiadvisor.cli.trace_beside")
    document, added = module.write_beside(Path(options.beside), Path(options.path), options.output, Told())
    print_import(options, document, summary_of(kind))
    say_on_stderr(module.sentence(added, options.output))
    return 0


def say_document(kind: Kind, path: Path, document: dict[str, Any] | None) -> int:
    """Print what the import says of a source without steps: what was read already, or read again."""
    found = document_of(kind, path) if document is None else document
    print_import(argparse.Namespace(json=False), found, summary_of(kind))
    return 0


def summary_of(kind: Kind) -> Callable[[dict[str, Any]], str]:
    """The function that tells people what is in the document."""
    if kind.module == "kinetoreport":
        with_roof: Callable[[dict[str, Any]], str] = importlib.import_module(
            "tuiadvisor.cli.roof"
        ).summary_with_roof
        return with_roof
    found: Callable[[dict[str, Any]], str] = getattr(
        importlib.import_module(f"tuiadvisor.importers.{kind.module}"), kind.summary
    )
    return found


def read_run(kind: Kind, path: Path, progress: Progress | None = None) -> tuple[dict[str, Any], ImportedRun]:
    """What the import says, and the run; progress: who is told how far it is; None: standard error."""
    module, function = kind.run.split(".")
    read = getattr(importlib.import_module(f"tuiadvisor.importers.{module}"), function)
    more = {"measured": measured_peaks()} if kind.module == "kinetoreport" else {}
    found: tuple[dict[str, Any], ImportedRun] = read(path, progress=progress or Told(), **more)
    return found


class Told:
    """Says on standard error what is read and how far it is, where reading takes long enough to wonder."""

    def __init__(self) -> None:
        self._begin = self._last = time.monotonic()

    def __call__(self, reading: Reading) -> None:
        """Before each file and within it."""
        now = time.monotonic()
        if now - self._last >= TOLD_EVERY_S:
            self._last = now
            share = "" if reading.share is None else f", {reading.share:.0%}"
            say_on_stderr(
                f"reading {one_line(reading.name)}, {reading.number} of {reading.total}{share}, "
                f"{now - self._begin:.0f} s"
            )
