"""`tuiadvisor` without a command: what trains here and in Slurm, what was recorded; enter goes there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuiadvisor.app.screens import show_opened
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    import argparse

    from tuiadvisor.app.desk import Desk
    from tuiadvisor.app.opening import OpeningDesk


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "folder", nargs="?", default=".", metavar="DIR", help="where recordings are; default: here"
    )
    parser.add_argument("--once", action="store_true", help="no screens: print the list as text")


def run(options: argparse.Namespace) -> int:
    """Show what there is; a training that was chosen is watched as `watch` does."""
    folder = Path(options.folder)
    if not folder.is_dir():
        raise TuiadvisorError(f"{folder}: no such folder; tuiadvisor home DIR lists the recordings of DIR")
    if options.once or not shows_screens():
        _replaying().print_home(folder)
        return 0
    said = ""
    while chosen := choice(folder, said):
        commands, watch = map(importlib.import_module, ("tuiadvisor.cli.commands", "tuiadvisor.cli.watch"))
        options = commands.build_parser("watch").parse_args(["watch", *chosen])
        try:
            if not watch.watch(options, leads_home=True):
                break
        except (
            TuiadvisorError
        ) as error:  # it ended meanwhile, it may not be traced: the list is the place to say so
            said = str(error)
        else:
            said = ""
    return 0


def choice(folder: Path, said: str, choosing: str = "") -> tuple[str, ...]:
    """Options of `watch` for what was chosen at home; none when the user left.

    said: what came of the last one; choosing: what is to be chosen, which stands there until it was.
    """
    desks: list[Desk] = []

    def make(_opening: OpeningDesk) -> Desk:
        desks.append(_replaying().begin_home(folder, said, choosing))
        return desks[0]

    show_opened(make, "replay", "home", first_page="home")
    return desks[0].chosen if desks else ()


def _replaying() -> Any:
    """What costs a fifth of a second to load: numpy, the fold, the rules. Not before the first frame."""
    return importlib.import_module("tuiadvisor.cli.replaying")
