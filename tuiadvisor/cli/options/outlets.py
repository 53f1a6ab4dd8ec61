"""The options that tell other tools of a session: Prometheus, a command, a webhook."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.text.printed import say_on_stderr

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from tuiadvisor.app.live_feed import LiveFeed
    from tuiadvisor.outlets.outlets import Wishes

DEFAULT: Final = "127.0.0.1:9409"
MAX_TOKEN: Final = 4096
FLEET_JOB: Final = "fleet_job"  # the label of a job of a fleet
LABEL: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}")


def add_outlets(parser: argparse.ArgumentParser, *, is_fleet: bool = False) -> None:
    """--metrics, --metrics-file, --otlp, --on-finding, --webhook, --label; is_fleet: of several sessions."""
    group = parser.add_argument_group("telling other tools")
    group.add_argument(
        "--metrics", nargs="?", const=DEFAULT, type=_address, metavar="ADDR:PORT",
        help=f"serve Prometheus metrics (default {DEFAULT}; "
        + ("each further job at the next port)" if is_fleet else "port 0: any free one)"),
    )  # fmt: skip
    group.add_argument(
        "--metrics-token", metavar="FILE",
        help="readers must send what is in this file as a bearer token; needed where other machines reach the address",
    )  # fmt: skip
    if not is_fleet:
        group.add_argument(
            "--metrics-file",
            metavar="FILE",
            help="write them to this file, for node_exporter's textfile collector",
        )
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
        "--webhook-format", choices=("json", "slack"), default="json", help="slack: a text in Slack's format"
    )
    group.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE",
        help="a label of your own on each figure and notice: tells two trainings of one script apart; may be given "
        "several times",
    )  # fmt: skip


@contextlib.contextmanager
def outlets_of(options: argparse.Namespace) -> Iterator[Any]:
    """The Outlets that were asked for, listening; None where there are none. What failed is said at the end."""
    _refuse_empty(options)
    asked = (options.metrics, options.metrics_file, options.otlp, options.on_finding, options.webhook)
    if not any(asked):
        _refuse_alone(options)
        yield None
        return
    module = importlib.import_module("tuiadvisor.outlets.outlets")
    with module.Outlets(_wishes(options, options.metrics_file)) as outlets:
        if outlets.url:
            say_on_stderr(f"metrics: {outlets.url}")
        yield outlets
    for line in outlets.said:
        say_on_stderr(line)


def words_of(options: argparse.Namespace, jobs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The same options for the session of each job of a fleet. TuiadvisorError for what cannot work in any."""
    _refuse_empty(options)
    module = importlib.import_module("tuiadvisor.outlets.outlets")
    wishes = _wishes(options, None)
    module.check(wishes)
    if wishes.address and not 0 < wishes.address[1] <= 65536 - len(jobs):
        raise TuiadvisorError(
            f"--metrics: {len(jobs)} jobs need as many ports from the one named on; name a lower one"
        )
    if FLEET_JOB in dict(wishes.labels):
        raise TuiadvisorError(f"--label {FLEET_JOB}: that label exists already; choose another name")
    same = ["--otlp"] if wishes.otlp else []
    same += [f"--on-finding={options.on_finding}"] if options.on_finding is not None else []
    same += [f"--webhook={options.webhook}"] if options.webhook is not None else []
    same += [f"--webhook-format={options.webhook_format}"] if options.webhook is not None else []
    same += [f"--label={text}" for text in options.label]
    if not wishes:
        return dict.fromkeys(jobs, ())
    found = {}
    for number, job in enumerate(jobs):
        own = [f"--label={FLEET_JOB}={job}"]
        if wishes.address:
            host, port = wishes.address
            own += [f"--metrics={f'[{host}]' if ':' in host else host}:{port + number}"]
            own += [f"--metrics-token={options.metrics_token}"] if options.metrics_token else []
        found[job] = (*same, *own)
    return found


def follow(outlets: Any, feed: LiveFeed) -> None:
    """Tell of the feed's views, but not of an earlier moment that somebody looks at."""
    if outlets is None:
        return

    def latest() -> Any:
        state = feed.latest()
        return None if state.past is not None or state.stretch is not None or feed.frozen else state.view

    outlets.follow(latest)


def _refuse_empty(options: argparse.Namespace) -> None:
    """TuiadvisorError for an option with nothing in it: a variable of a script that is not set, and nobody is told."""
    for name in ("metrics_token", "metrics_file", "on_finding", "webhook"):
        if getattr(options, name, None) == "":
            raise TuiadvisorError(f"--{name.replace('_', '-')}: nothing is named; leave it out or name one")


def _refuse_alone(options: argparse.Namespace) -> None:
    """TuiadvisorError for what is of no use by itself."""
    if options.metrics_token or options.label:
        name = "--metrics-token" if options.metrics_token else "--label"
        raise TuiadvisorError(f"{name}: nobody is told anything; add --metrics")


def _wishes(options: argparse.Namespace, file: str | None) -> Wishes:
    module = importlib.import_module("tuiadvisor.outlets.outlets")
    found: Wishes = module.Wishes(
        address=options.metrics,
        token=_token(options.metrics_token) if options.metrics_token else "",
        labels=_labels(options.label),
        file=Path(file) if file else None,
        otlp=options.otlp,
        command=options.on_finding,
        webhook=_webhook(options.webhook),
        webhook_format=options.webhook_format,
    )
    if not found:
        _refuse_alone(options)
    return found


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
                f"--label {one_line(text)}: write NAME=VALUE, with a NAME of letters, digits and _"
            )
        if name in metrics.TAKEN or name in found:
            raise TuiadvisorError(f"--label {name}: that label exists already; choose another name")
        found[name] = metrics.label(value)
    if len(found) > metrics.MAX_LABELS:
        raise TuiadvisorError(f"--label: {metrics.MAX_LABELS} at most")
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
