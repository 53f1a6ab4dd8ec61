"""`tuiadvisor replay`: the live screens on a recording."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuiadvisor.cli.bookmarks import bookmarks
from tuiadvisor.cli.desk import Desk, show_screens
from tuiadvisor.cli.feed import ReplayFeed
from tuiadvisor.cli.recorded import whole_view
from tuiadvisor.cli.size_options import add_sizes, sizes_of
from tuiadvisor.cli.work_options import add_work, work_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.environment import shows_screens
from tuiadvisor.tui.once import plain_summary


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("file", metavar="FILE", help="a recording")
    parser.add_argument("--speed", type=_speed, default=1.0, metavar="4", help="recorded seconds a second")
    parser.add_argument("--at", type=int, metavar="STEP", help="begin at this step, paused")
    parser.add_argument("--once", action="store_true", help="no screens: print the summary as text")
    add_work(parser)
    add_sizes(parser)


def run(options: argparse.Namespace) -> int:
    """Show the recording until the user leaves."""
    work = work_of(options)
    sizing = sizes_of(options)
    if options.once or not shows_screens():
        whole = whole_view(options.file, work)
        _check_step(options, whole.last_step)
        print(plain_summary(whole))
        return 0
    source = ReplaySource(options.file, options.speed)
    feed = ReplayFeed(source, bookmarks=bookmarks(options.file), given=work)
    try:
        _check_step(options, feed.last_step)
    except TuiadvisorError:
        feed.stop()
        raise
    if options.at is not None:
        feed.command("pause")  # who asks for a step wants to look at it
        feed.command("seek_step", options.at)
    feed.start()
    try:
        show_screens(Desk(feed, Path(options.file).parent, options.file, sizing=sizing))
    finally:
        feed.stop()
    if feed.failure is not None:
        raise feed.failure
    return 0


def _check_step(options: argparse.Namespace, last_step: int | None) -> None:
    if options.at is not None and (last_step is None or not 0 <= options.at <= last_step):
        held = "no step" if last_step is None else f"steps 0 to {last_step}"
        raise TuiadvisorError(f"{options.file}: --at {options.at}: the recording holds {held}")


def _speed(text: str) -> float:
    try:
        speed = float(text.rstrip("xX"))
    except ValueError:
        speed = 0.0
    if not 0.01 <= speed <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed; write 0.01 to 1000, e.g. 4")
    return speed
