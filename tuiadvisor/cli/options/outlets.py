"""The options that tell other tools of a session: Prometheus, a command, a webhook."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tuiadvisor.app.live_feed import LiveFeed

DEFAULT: Final = "127.0.0.1:9409"
MAX_TOKEN: Final = 4096
LABEL: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}")


def add_outlets(parser: argparse.ArgumentParser) -> None:
    """--metrics, --metrics-file, --otlp, --on-finding, --webhook."""
    group = parser.add_argument_group("telling other tools")
    group.add_argument(
        "--metrics", nargs="?", const=DEFAULT, type=_address, metavar="ADDR:PORT",
        help=f"serve Prometheus metrics (default {DEFAULT}; port 0: any free one)",
    )  # fmt: skip
    group.add_argument(
        "--metrics-token", metavar="FILE",
        help="readers must send what is in this file as a bearer token; needed where other machines reach the address",
    )  # fmt: skip
    group.add_argument(
        "--metrics-file",
        metavar="FILE",
        help="write them to this file, for node_exporter's textfile collector",
    )
    group.add_argument(
        "--metrics-label", action="append", default=[], metavar="NAME=VALUE",
        help="a label of your own on each figure of --metrics, --metrics-file and --otlp: tells two trainings of one "
        "script apart; may be given several times",
    )  # fmt: skip
    group.add_argument(
        "--otlp", action="store_true",
        help="send them by OTLP over HTTP to where OTEL_EXPORTER_OTLP_ENDPOINT says (default http://localhost:4318)",
    )  # fmt: skip
    group.add_argument(
        "--on-finding", metavar="COMMAND",
        help="run this once when a finding opens, changes severity or closes; JSON on its standard input",
    )  # fmt: skip
    group.add_argument(
        "--webhook",
        metavar="URL",
        help="POST the same JSON there; @FILE reads the URL from a file: all users of a machine see arguments",
    )
    group.add_argument(
        "--webhook-format", choices=("json", "slack"), default="json", help="slack: a text as Slack takes it"
    )


@contextlib.contextmanager
def outlets_of(options: argparse.Namespace) -> Iterator[Any]:
    """The Outlets that were asked for, listening; None where there are none. What failed is said at the end."""
    asked = (options.metrics, options.metrics_file, options.otlp, options.on_finding, options.webhook)
    if not any(asked):
        if options.metrics_token or options.metrics_label:
            name = "--metrics-token" if options.metrics_token else "--metrics-label"
            raise TuiadvisorError(f"{name}: nothing is served; add --metrics")
        yield None
        return
    module = importlib.import_module("tuiadvisor.outlets.outlets")
    wishes = module.Wishes(
        address=options.metrics,
        token=_token(options.metrics_token) if options.metrics_token else "",
        labels=_labels(options.metrics_label),
        file=Path(options.metrics_file) if options.metrics_file else None,
        otlp=options.otlp,
        command=options.on_finding,
        webhook=_webhook(options.webhook),
        webhook_format=options.webhook_format,
    )
    with module.Outlets(wishes) as outlets:
        if outlets.url:
            print(f"metrics: {outlets.url}", file=sys.stderr)
        yield outlets
    for line in outlets.said:
        print(line, file=sys.stderr)


def follow(outlets: Any, feed: LiveFeed) -> None:
    """Tell of the feed's views, but not of an earlier moment that somebody looks at."""
    if outlets is None:
        return

    def latest() -> Any:
        state = feed.latest()
        return None if state.past is not None or state.stretch is not None or feed.frozen else state.view

    outlets.follow(latest)


def _address(text: str) -> tuple[str, int]:
    """ADDR:PORT, [ADDR]:PORT, :PORT or PORT; an argparse type."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit()) or int(port) > 65535 or any(char.isspace() for char in host):
        raise ArgumentTypeError(f"{text!r} is not an address; write {DEFAULT}")
    return host or "127.0.0.1", int(port)


def _labels(given: list[str]) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE of each. TuiadvisorError for a name that is none, that samples have already, or that comes twice."""
    metrics = importlib.import_module("tuiadvisor.outlets.metrics")
    found: dict[str, str] = {}
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not value or LABEL.fullmatch(name) is None:
            raise TuiadvisorError(
                f"--metrics-label {one_line(text)}: write NAME=VALUE, with a NAME of letters, digits and _"
            )
        if name in metrics.TAKEN or name in found:
            raise TuiadvisorError(f"--metrics-label {name}: there is such a label already; name it otherwise")
        found[name] = metrics.label(value)
    if len(found) > metrics.MAX_LABELS:
        raise TuiadvisorError(f"--metrics-label: {metrics.MAX_LABELS} at most")
    return tuple(found.items())


def _webhook(argument: str | None) -> str | None:
    if argument is None or not argument.startswith("@"):
        return argument
    try:
        with Path(argument[1:]).open("rb") as file:
            return file.read(MAX_TOKEN).decode("utf-8", "replace").strip()
    except OSError as error:
        raise TuiadvisorError(f"--webhook {argument}: {error.strerror}; write the URL to that file") from None


def _token(name: str) -> str:
    """The first line of the file; nobody else may read it."""
    try:
        path = Path(name)
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            words = file.read(MAX_TOKEN).decode("ascii", "replace").split()
    except OSError as error:
        raise TuiadvisorError(
            f"--metrics-token {name}: {error.strerror}; write a long random word to it"
        ) from None
    if mode & 0o077:
        raise TuiadvisorError(
            f"--metrics-token {name}: others may read it; keep the token in a file of yours alone (mode 600)"
        )
    if len(words) != 1 or len(words[0]) < 16 or not words[0].isprintable():
        raise TuiadvisorError(f"--metrics-token {name}: holds no single word of 16 characters or more")
    return words[0]
