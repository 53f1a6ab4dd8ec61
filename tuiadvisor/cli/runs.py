"""`tuiadvisor runs`: the recordings of a folder; open, search, compare."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuiadvisor.app.screens import show_opened
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    import argparse


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
        _replaying().print_list(folder)
    else:
        show_opened(lambda _: _replaying().begin_list(folder), "replay", "no run is open", first_page="runs")
    return 0


def _replaying() -> Any:
    """What costs a fifth of a second to load: numpy, the fold, the rules. Not before the first frame."""
    return importlib.import_module("tuiadvisor.cli.replaying")
