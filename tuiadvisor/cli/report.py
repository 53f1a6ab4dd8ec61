"""`tuiadvisor report`: one file with verdict, charts, findings and evidence, to send or to keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.compare.comparing import compare
from tuiadvisor.app.measured_recording import measured
from tuiadvisor.app.reporting import session_of, sizes_of, write_report
from tuiadvisor.app.stated import against_stated
from tuiadvisor.cli.foreign import as_recordings
from tuiadvisor.cli.options.work import add_work, check_of_one, work_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.kinetoreport import kineto_document
from tuiadvisor.importers.tracework import roofline_of
from tuiadvisor.report.page import Dossier
from tuiadvisor.text.printed import say

if TYPE_CHECKING:
    import argparse

MAX_RUNS: Final = 16
SUFFIXES: Final = (".html", ".md")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="recordings, or other tools' steps; of two, the second is compared with the first",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="report.html or report.md")

    parser.add_argument(
        "--traces", metavar="DIR",
        help="traces of the last RUN, recorded with shapes (tuiadvisor capture RANK --flops): its roofline",
    )  # fmt: skip
    add_work(parser)


def run(options: argparse.Namespace) -> int:
    """Read, write, say where."""
    check_output(options.output)
    if len(options.runs) > MAX_RUNS:
        raise TuiadvisorError(f"{len(options.runs)} recordings; a report takes at most {MAX_RUNS}")
    work = work_of(options)
    if len(options.runs) > 1:
        check_of_one(options)
    with as_recordings(options.runs) as read:
        found = [measured(path, work, read[path]) for path in options.runs]
    comparison = compare(found[0], found[1]) if len(found) == 2 else None
    dossiers = [Dossier(one.path, against_stated(one.view), session_of(one.path, work)) for one in found]
    if options.traces is not None:
        efficiency = kineto_document(Path(options.traces), work.measured)["efficiency"]
        dossiers[-1] = replace(dossiers[-1], roofline=roofline_of(efficiency))
    write_report(options.output, dossiers, comparison, sizes_of(found))
    say(f"written to {options.output}")
    return 0


def check_output(path: str) -> None:
    """TuiadvisorError unless the name says which kind of report is wanted."""
    if Path(path).suffix not in SUFFIXES:
        raise TuiadvisorError(f"{path}: a report is written as .html or .md")
