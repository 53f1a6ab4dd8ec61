"""`tuiadvisor diagnose`: the verdict on a recording, as text for people or one JSON document for scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tuiadvisor.advisor.fold import diagnose
from tuiadvisor.app.attach_state import why_stepless, why_unwatched
from tuiadvisor.app.whole_recording import frames_of
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.options.intent import add_intent_options, intent_of
from tuiadvisor.cli.options.step_range import step_range
from tuiadvisor.cli.options.work import add_work, work_of
from tuiadvisor.errors import FailureError, one_line
from tuiadvisor.report.document import document
from tuiadvisor.session.against_intent import with_intent
from tuiadvisor.session.economy import economy, economy_lines
from tuiadvisor.tui.pages.once import plain_summary

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("file", metavar="FILE", help="a recording")
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only these steps, both included")
    add_work(parser)
    add_intent_options(parser)


def run(options: argparse.Namespace) -> int:
    """Diagnose and print."""
    intent = intent_of(options)
    name = one_line(options.file)
    frames = frames_of(
        options.file, lambda note: print(f"tuiadvisor diagnose: {name}: {note}", file=sys.stderr, flush=True)
    )
    view = diagnose(frames, options.steps, work_of(options))
    economics = economy(view, intent)
    view = with_intent(view, intent)
    if options.json:
        whole = {**document(view), "economics": economics}
        print_document(whole)
    else:
        print("\n".join([plain_summary(view), *economy_lines(economics, intent)]))
    why = None if options.steps else why_unwatched(view) or why_stepless(view)
    if why is not None:
        raise FailureError(f"{name}: {why}")
    return 0
