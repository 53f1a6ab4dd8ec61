"""--table, of the commands that show a run: measured sizes for the screen of scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from tuiadvisor.app.sizing import Sizing


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """--table, of the commands that show a run."""
    parser.add_argument(
        "--table",
        metavar="CSV",
        help="measured sizes for the screen of scaling (6); default: the recordings in the same folder",
    )


def sizes_of(options: argparse.Namespace) -> Sizing | None:
    """What --table says. TuiadvisorError if the table is bad."""
    if not options.table:
        return None
    from tuiadvisor.app.sizing import Sizing  # noqa: PLC0415 - screens start without it

    return Sizing(options.table)
