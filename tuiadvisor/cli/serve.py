"""`tuiadvisor serve -- COMMAND`: the screens as a web page, for those who prefer a browser.

Listens on this machine only; the page's address holds a key, so that others on a login node cannot open it. Each page
that is opened is a process of its own, and ends with the page.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import socket
from typing import TYPE_CHECKING, Final

from tuiadvisor import log
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.ownpython import own_environment, python_command

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST: Final = "127.0.0.1"
# Commands that show screens; those with False do so with --tui alone.
SHOWING: Final = {
    "watch": True,
    "replay": True,
    "runs": True,
    "advise": False,
    "compare": False,
    "scale": False,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--port",
        type=_port,
        default=8000,
        metavar="N",
        help="of this machine; default 8000, 0: any that is free",
    )
    parser.add_argument(
        "screens", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="replay FILE, watch, runs, …"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    arguments = options.screens[1:] if options.screens[:1] == ["--"] else options.screens
    check(arguments)
    if importlib.util.find_spec("textual_serve") is None:
        raise TuiadvisorError("the web page needs textual-serve: pip install 'tuiadvisor[web]'")
    from tuiadvisor.app.web_page import Page  # noqa: PLC0415 - an extra

    # exec: the shell that textual-serve starts would stand between the page's end and ours.
    command = f"exec {shlex.join(python_command('tuiadvisor.cli', *arguments))}"
    environment = own_environment() | log.for_command()
    os.environ.clear()  # what textual-serve gives to its pages
    os.environ.update(environment)
    with _listen(options.port) as listening:
        Page(command, f"tuiadvisor {' '.join(arguments)}", listening).serve()
    return 0


def check(arguments: Sequence[str]) -> None:
    """TuiadvisorError for what shows no screens, before anybody opens a page on it."""
    from tuiadvisor.cli.commands import build_parser  # noqa: PLC0415 - it imports this module

    name = arguments[0] if arguments else ""
    if name not in SHOWING:
        asked = f"{name!r} shows no screens" if name else "nothing to show"
        raise TuiadvisorError(f"{asked}; write one of {', '.join(SHOWING)}, e.g. serve -- replay FILE")
    asked_options = build_parser(name).parse_args(list(arguments))
    if not (SHOWING[name] or asked_options.tui) or getattr(asked_options, "once", False):
        hint = "leave --once out" if SHOWING[name] else "add --tui"
        raise TuiadvisorError(f"{name} would print text here: {hint}")


def _listen(port: int) -> socket.socket:
    """A socket that listens already: whoever reads the address may open it at once."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise FailureError(f"--port {port}: {error.strerror}; try another one") from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 <= int(text[:6]) <= 65535):
        raise argparse.ArgumentTypeError(f"{text[:12]!r} is not a port; write 1024 to 65535, or 0 for any")
    return int(text)
