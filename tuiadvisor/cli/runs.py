"""`tuiadvisor runs`: the recordings of a folder; open, search, compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.advisor.runlist import summarized
from tuiadvisor.cli.desk import Desk, show_screens
from tuiadvisor.cli.folder import recordings
from tuiadvisor.cli.recorded import whole_view
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.tui import format as text_of
from tuiadvisor.tui.environment import shows_screens
from tuiadvisor.tui.runs import plain_runs

if TYPE_CHECKING:
    import argparse

    from tuiadvisor.advisor.runlist import RunEntry


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where they are; default: here")
    parser.add_argument("--once", action="store_true", help="no screens: print the list as text")


def run(options: argparse.Namespace) -> int:
    """Show the list until the user leaves."""
    folder = Path(options.folder)
    if not folder.is_dir():
        raise TuiadvisorError(f"{folder}: no such folder; tuiadvisor runs DIR lists the recordings of DIR")
    if options.once or not shows_screens():
        entries = [read(entry) for entry in recordings(folder)]
        print(plain_runs(tuple(entries), f"{text_of.count(len(entries), 'recording')} in {folder}"), end="")
        return 0
    desk = Desk(None, folder)
    desk.command("list_runs")
    show_screens(desk, first_page="runs")
    return 0


def read(entry: RunEntry) -> RunEntry:
    """The entry with what its recording says; a damaged one says so in its row."""
    try:
        return summarized(entry, whole_view(entry.path))
    except TuiadvisorError as error:
        return replace(entry, state="broken", problem=str(error).removeprefix(f"{entry.path}: "))
