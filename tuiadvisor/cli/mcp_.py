"""`tuiadvisor mcp`: an assistant asks about recordings and trainings, by the Model Context Protocol on stdio."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--root", action="append", metavar="DIR",
        help="recordings and tables below this folder may be read, and nothing else; may be given again; default: here",
    )  # fmt: skip
    parser.add_argument(
        "--allow-attach", action="store_true",
        help="offer a tool that attaches to a running training for a while; all others only read",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Answer until standard input ends."""
    if importlib.util.find_spec("mcp") is None:
        raise TuiadvisorError("the Model Context Protocol needs its SDK: pip install 'tuiadvisor[mcp]'")
    from tuiadvisor.mcpserver.paths import Roots  # noqa: PLC0415
    from tuiadvisor.mcpserver.questions import Questions  # noqa: PLC0415
    from tuiadvisor.mcpserver.server import server_of  # noqa: PLC0415 - an extra

    server_of(Questions(Roots(options.root or ["."])), allows_attach=options.allow_attach).run("stdio")
    return 0
