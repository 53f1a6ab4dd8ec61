"""`tuiadvisor fleet`: one folder of many jobs: hubs for them, their recordings in one list, how long those are kept."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.app.fleet import (
    INVITATION,
    NAME,
    VIEWER,
    Limits,
    check_job,
    hold,
    open_jobs,
    own_folder,
    viewer_file,
)
from tuiadvisor.app.screens import show_opened
from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.options.outlets import add_outlets, words_of
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    import argparse

MAX_VIEWERS: Final = 64
UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("folder", metavar="DIR", help="a folder of a folder a job; made with --job")
    parser.add_argument(
        "--job", action="append", default=[], metavar="NAME",
        help="keep a hub for this job until ^C: its agents come with DIR/NAME/invitation, its viewers with "
        "DIR/NAME/viewer; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--viewer", action="append", default=[], metavar="JOB:NAME",
        help="with --job: a key of NAME's own for this job, DIR/JOB/viewer-NAME, which opens no other job; may be "
        "given several times",
    )  # fmt: skip
    parser.add_argument(
        "--hub-address",
        default="",
        metavar="ADDRESS",
        help="with --job: an address of this machine that the others reach",
    )
    parser.add_argument(
        "--keep",
        type=seconds,
        metavar="30d",
        help="with --job: remove recordings that were last written longer ago than this",
    )
    parser.add_argument(
        "--keep-bytes", type=num_bytes, metavar="50G",
        help="with --job: remove the oldest recordings once those of all jobs together exceed this many bytes",
    )  # fmt: skip
    add_outlets(parser, is_fleet=True)
    parser.add_argument("--once", action="store_true", help="no screens: print the list as text")


def num_bytes(text: str) -> int:
    """Bytes of 50G; an argparse type, so a bad one is a usage error."""
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.upper(), re.ASCII)
    if found is None or not int(found[1]):
        raise ArgumentTypeError(f"{text!r} is not a number of bytes; write 500M or 50G")
    return int(found[1]) * UNITS[found[2]]


def run(options: argparse.Namespace) -> int:
    """Keep the hubs, or show the list."""
    folder = Path(options.folder)
    if options.job:
        return _hold(options, folder)
    if options.keep is not None or options.keep_bytes is not None or options.hub_address or options.viewer:
        raise TuiadvisorError(
            "--keep, --keep-bytes, --viewer and --hub-address go with --job: name the jobs to keep hubs for"
        )
    if any(
        (
            options.metrics,
            options.metrics_token,
            options.otlp,
            options.on_finding,
            options.webhook,
            options.label,
        )
    ):
        raise TuiadvisorError(
            "what tells other tools (--metrics, --on-finding, ...) goes with --job: name the jobs to keep hubs for"
        )
    if not folder.is_dir():
        raise TuiadvisorError(f"{folder}: no such folder; tuiadvisor fleet DIR --job NAME makes it")
    if options.once or not shows_screens():
        _replaying().print_fleet(folder)
        for job, key in open_jobs(folder):
            print(f"live: {job}: tuiadvisor watch --key {shell_word(str(key))}")
    else:
        show_opened(lambda _: _replaying().begin_list(folder), "replay", "no run is open", first_page="runs")
    return 0


def _hold(options: argparse.Namespace, folder: Path) -> int:
    jobs = _with_viewers(options.job, options.viewer)
    words = words_of(options, list(jobs))
    own_folder(folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends it as ^C does
    for job, names in jobs.items():
        where = one_line(shell_word(str(folder / job)))
        own = "".join(f", {name} with {where}/{viewer_file(name)}" for name in names)
        print(f"{job}: agents come with {where}/{INVITATION}, viewers with {where}/{VIEWER}{own}", flush=True)
        if page := next(
            (word.partition("=")[2] for word in words[job] if word.startswith("--metrics=")), None
        ):
            print(f"{job}: metrics: http://{page}/metrics", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        hold(folder, jobs, options.hub_address, Limits(options.keep, options.keep_bytes), _say, words=words)
    return 0


def _with_viewers(jobs: list[str], given: list[str]) -> dict[str, tuple[str, ...]]:
    """Job -> who has a key of their own for it. TuiadvisorError for a name that is none, or of no job here."""
    found: dict[str, list[str]] = {check_job(job): [] for job in jobs}
    for text in given:
        job, mark, name = text.partition(":")
        if not mark or job not in found:
            raise TuiadvisorError(f"--viewer {one_line(text)}: write JOB:NAME with a JOB that --job names")
        if NAME.fullmatch(name) is None:
            raise TuiadvisorError(
                f"--viewer {one_line(text)}: no name; write letters, digits, - _ and . (at most 64)"
            )
        found[job].append(name)
    if any(len(names) > MAX_VIEWERS for names in found.values()):
        raise TuiadvisorError(f"--viewer: a job has keys for {MAX_VIEWERS} viewers at most")
    return {job: tuple(dict.fromkeys(names)) for job, names in found.items()}


def _say(line: str) -> None:
    print(line, flush=True)


def _replaying() -> Any:
    """What costs a fifth of a second to load: numpy, the fold, the rules. Not before the first frame."""
    return importlib.import_module("tuiadvisor.cli.replaying")
