"""`tuiadvisor diagnose`: the verdict on a recording, as text for people or one JSON document for scripts."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.advisor.fold import diagnose
from tuiadvisor.advisor.judge.job import job_view
from tuiadvisor.app.attach_state import why_stepless, why_unwatched
from tuiadvisor.app.whole_recording import frames_of, whole_view
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.foreign import WithoutStepsError, as_recordings
from tuiadvisor.cli.options.intent import add_intent_options, intent_of
from tuiadvisor.cli.options.step_range import step_range
from tuiadvisor.cli.options.work import add_work, work_of
from tuiadvisor.errors import FailureError, TuiadvisorError, one_line
from tuiadvisor.report.document import document, job_document
from tuiadvisor.session.against_intent import with_intent
from tuiadvisor.session.economy import economy, economy_lines
from tuiadvisor.text.printed import say, say_on_stderr
from tuiadvisor.tui.pages.job import plain_job
from tuiadvisor.tui.pages.once import plain_summary

if TYPE_CHECKING:
    import argparse

    from tuiadvisor.views.run_view import RunView


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a recording, or what `tuiadvisor open` reads; several of one job: its goodput across restarts",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only these steps, both included")
    add_work(parser)
    add_intent_options(parser)


def run(options: argparse.Namespace) -> int:
    """Diagnose and print; of another tool's file without steps, what its import says."""
    try:
        with as_recordings(options.files) as read:
            return _run_job(options, read) if len(options.files) > 1 else _run_one(options, read)
    except WithoutStepsError as error:
        if options.json or len(options.files) > 1:
            raise
        return _say_import(options.files[0], error)


def _say_import(name: str, error: WithoutStepsError) -> int:
    """The same as `tuiadvisor open`."""
    say_on_stderr(f"{one_line(name)}: {one_line(error.why)}; what it says:")
    code: int = importlib.import_module("tuiadvisor.cli.commands").run(
        ["open", "--once", f"./{name}" if name.startswith("-") else name]
    )
    return code


def _view(path: str, read: dict[str, str], options: argparse.Namespace) -> RunView:
    name = one_line(path)

    def note_it(note: str) -> None:
        say_on_stderr(f"tuiadvisor diagnose: {name}: {note}")

    if options.steps is None:
        return whole_view(read[path], work_of(options), note_it)
    return diagnose(frames_of(read[path], note_it), options.steps, work_of(options))


def _run_job(options: argparse.Namespace, read: dict[str, str]) -> int:
    """Several recordings of one job."""
    if options.steps:
        raise TuiadvisorError("--steps: each recording counts its own; give it with one recording alone")
    if len({Path(path).resolve() for path in options.files}) < len(options.files):
        raise TuiadvisorError("a recording is given twice; give each of the job's recordings once")
    intent = intent_of(options)
    found = job_view([(path, with_intent(_view(path, read, options), intent)) for path in options.files])
    if options.json:
        print_document(job_document(found))
    else:
        print(plain_job(found), end="")
    return 0


def _run_one(options: argparse.Namespace, read: dict[str, str]) -> int:
    intent = intent_of(options)
    name = one_line(options.files[0])
    view = _view(options.files[0], read, options)
    view = with_intent(view, intent)
    economics = economy(view, intent)
    if options.json:
        whole = {**document(view), "economics": economics}
        print_document(whole)
    else:
        print(plain_summary(view))
        if stated := economy_lines(economics, intent):
            say("\n".join(stated))
    why = None if options.steps else why_unwatched(view) or why_stepless(view) or _why_empty(view)
    if why is not None:
        raise FailureError(f"{name}: {why}")
    return 0


def _why_empty(view: RunView) -> str | None:
    """A recording cut before its first rank; None where it holds anything that was judged."""
    if view.ranks or view.findings or view.last_step is not None:
        return None
    return "no rank and no step in it"
