"""`tuiadvisor replay`: the live screens on a recording."""

from __future__ import annotations

import argparse
import importlib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuiadvisor.app.screens import show_opened
from tuiadvisor.cli.foreign import as_recordings, located
from tuiadvisor.cli.options.recording import add_recording
from tuiadvisor.cli.options.sizes import add_sizes, sizes_of
from tuiadvisor.cli.options.work import add_work
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.app.desk import Desk
    from tuiadvisor.app.opening import OpeningDesk
    from tuiadvisor.app.sizing import Sizing
    from tuiadvisor.cli.recognizing import Sniffed


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_recording(parser, metavar="FILE")
    parser.add_argument(
        "--speed",
        type=_speed,
        metavar="4",
        help="play it from its start, at this many recorded seconds a second; default: open it at its end",
    )
    parser.add_argument("--at", type=int, metavar="STEP", help="begin at this step, paused")
    parser.add_argument("--once", action="store_true", help="no screens: print the summary as text")
    add_work(parser)
    add_sizes(parser)


def run(options: argparse.Namespace) -> int:
    """Show the recording until the user leaves."""
    sizing = sizes_of(options)
    path, found = located(options.file)
    if found is not None:
        return _run_foreign(options, found)
    options.file = path
    if options.once or not shows_screens():
        _replaying().print_once(options)
        return 0
    if not Path(options.file).is_file():
        raise TuiadvisorError(f"{options.file}: no such recording; tuiadvisor runs lists those of a folder")
    show(options, sizing, lambda _: None, (f"opening {Path(options.file).name}", options.file))
    return 0


def _run_foreign(options: argparse.Namespace, found: Sniffed) -> int:
    """Another tool's file: as `open` shows it."""
    if not options.once and shows_screens():
        opens = importlib.import_module("tuiadvisor.cli.open_")
        if found.kind in opens.WITH_STEPS:
            code: int = opens.shown(found, options.file, options)
            return code
    with as_recordings([options.file]) as read:
        _replaying().print_once(argparse.Namespace(**{**vars(options), "file": read[options.file]}))
    return 0


def show(
    options: argparse.Namespace,
    sizing: Sizing | None,
    prepare: Callable[[OpeningDesk], None],
    first: tuple[str, str],
) -> None:
    """The screens at once; prepare: makes the recording meanwhile; first: phase and message until it tells others."""
    feeds = []
    with ExitStack() as stack:

        def make(opening: OpeningDesk) -> Desk:
            prepare(opening)
            desk: Desk
            desk, feed = _replaying().begin(options, sizing, stack)
            feeds.append(feed)
            return desk

        show_opened(make, "replay", *first)
    for feed in feeds:
        if feed.failure is not None:
            raise feed.failure


def _replaying() -> Any:
    """What costs a fifth of a second to load: numpy, the fold, the rules. Not before the first frame."""
    return importlib.import_module("tuiadvisor.cli.replaying")


def _speed(text: str) -> float:
    try:
        speed = float(text.rstrip("xX"))
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; write 0.01 to 1000, e.g. 4")
    return speed
