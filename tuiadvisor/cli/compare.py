"""`tuiadvisor compare`: two recordings, one verdict; with --fail-if-slower a performance check for CI.

Exit code 0; with --fail-if-slower also 1 when the slowdown surely exceeds the limit, and 2 when the recordings do
not allow a verdict: a check that could not be made has not passed.

A performance check in CI, against a baseline kept from the main branch:

    - run: tuiadvisor run -o after.tuirec --no-ui -- torchrun --nproc-per-node 4 train.py --steps 500
    - run: tuiadvisor compare baseline.tuirec after.tuirec --fail-if-slower 5%
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.compare.comparing import NOISE_FLOOR, ComparisonOptions, compare, measure
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.progress import read_frames
from tuiadvisor.app.screens import show_screens
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.foreign import as_recordings
from tuiadvisor.cli.options.recording import add_recording
from tuiadvisor.report.comparison import comparison_document
from tuiadvisor.tui.contract.desk import Compare, ListRuns
from tuiadvisor.tui.pages.comparison import plain_comparison

if TYPE_CHECKING:
    from tuiadvisor.advisor.compare.measured import Measured

CODES: Final = {None: 2, True: 1, False: 0}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_recording(parser, "before", "BEFORE")
    parser.add_argument("after", metavar="AFTER", help="a recording of the changed training")
    parser.add_argument("--tui", action="store_true", help="as a screen, with the list of recordings beside")
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument(
        "--fail-if-slower",
        type=_share,
        metavar="5%",
        help="exit with 1 if AFTER is surely slower by more than this, with 2 if that cannot be told",
    )
    parser.add_argument(
        "--noise",
        type=_share,
        default=NOISE_FLOOR,
        metavar="2%",
        help="what two runs of the same code may differ by; smaller changes are never a verdict",
    )
    parser.add_argument(
        "--repeat",
        action="append",
        default=[],
        metavar="RUN",
        help="another recording of BEFORE's code, twice or more: a change must exceed what these differ by",
    )
    parser.add_argument(
        "--same-work",
        action="store_true",
        help="you vouch that a step does the same work in both, where that was not observed",
    )
    parser.add_argument(
        "--ignore-load",
        action="store_true",
        help="give a verdict although the machine was busier with other processes in one of the two",
    )


def run(options: argparse.Namespace) -> int:
    """Compare, print, and tell CI."""
    with as_recordings([options.before, options.after, *options.repeat]) as read:
        before = measure(options.before, read_frames(read[options.before]))
        after = measure(options.after, read_frames(read[options.after]))
        repeats = tuple(measure(path, read_frames(read[path])) for path in options.repeat)
        return _compared(options, before, after, repeats, read)


def _compared(
    options: argparse.Namespace,
    before: Measured,
    after: Measured,
    repeats: tuple[Measured, ...],
    read: dict[str, str],
) -> int:
    """read: the recording of each name, as long as it is there."""
    asked = ComparisonOptions(
        options.noise, options.fail_if_slower, options.same_work, options.ignore_load, repeats
    )
    comparison = compare(before, after, asked)
    if options.tui:
        desk = Desk(None, Path(options.after).parent)
        desk.command(ListRuns())
        desk.command(Compare(read[options.before], read[options.after]))
        show_screens(desk, first_page="compare")
    elif options.json:
        document = comparison_document(comparison)
        print_document(document)
    else:
        print(plain_comparison(comparison), end="")
    return CODES[comparison.gate.exceeded] if comparison.gate else 0


def _share(text: str) -> float:
    """5% or 0.05; a bare 5 might mean either, so it is refused."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 5% or 0.05")
    return value
