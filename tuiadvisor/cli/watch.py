"""`tuiadvisor watch`: find the ranks, inject, show; `q` takes the probes out and leaves the training alone."""

from __future__ import annotations

import argparse
import importlib
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.app.awaiting_ranks import await_ranks
from tuiadvisor.app.screens import show_opened
from tuiadvisor.cli.home import choice
from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.options.outlets import add_outlets
from tuiadvisor.cli.options.sizes import add_sizes, sizes_of
from tuiadvisor.cli.options.training import add_probe_options, add_remote_target, add_target, add_visit
from tuiadvisor.errors import SeveralTrainingsError
from tuiadvisor.text.printed import say_on_stderr
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    from tuiadvisor.app.desk import Desk
    from tuiadvisor.app.live_feed import LiveFeed
    from tuiadvisor.app.live_session import Session, Visit
    from tuiadvisor.app.opening import OpeningDesk


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)
    add_remote_target(parser)
    add_probe_options(parser)
    add_visit(parser)
    add_outlets(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the recording in this file")
    add_sizes(parser)
    parser.add_argument("--once", action="store_true", help="no screens: print one summary as text and leave")
    parser.add_argument(
        "--for", dest="duration", type=seconds, default=30.0, metavar="30s",
        help="with --once: how long to wait for a verdict (default 30s)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Watch until the user leaves."""
    if options.once or not shows_screens():
        with ExitStack() as stack:
            code: int = _watching().print_once(options, stack)
            return code
    try:
        watch(options)
    except SeveralTrainingsError:
        if options.pid or is_elsewhere(options):
            raise
        if chosen := choice(Path(), "", _choosing(options.output)):
            watch(argparse.Namespace(**{**vars(_for_next(options, chosen)), "output": options.output}))
    return 0


def _choosing(output: str | None) -> str:
    kept = f"; it is recorded in {output}" if output else ""
    return f"Several trainings run here: choose the one to watch, with enter{kept}."


def watch(options: argparse.Namespace, *, leads_home: bool = False) -> bool:
    """The screens until the user leaves: whether by q. leads_home: the caller shows home then.

    Of a run that has ended they lead on to the next one, as often as the user wants.
    """
    goes_back, chosen = _watch_one(options, leads_home=leads_home)
    while chosen:
        goes_back, chosen = _watch_one(_for_next(options, chosen), leads_home=leads_home)
    return goes_back


def _for_next(options: argparse.Namespace, chosen: tuple[str, ...]) -> argparse.Namespace:
    """The options of the next run: those that were given stay, but for what is watched and where it is kept."""
    build_parser = importlib.import_module("tuiadvisor.cli.commands").build_parser
    named = build_parser("watch").parse_args(["watch", *chosen])
    if is_elsewhere(options) or is_elsewhere(named):
        return named  # type: ignore[no-any-return]
    return argparse.Namespace(**{**vars(options), "pid": named.pid, "output": named.output})


def _watch_one(options: argparse.Namespace, *, leads_home: bool) -> tuple[bool, tuple[str, ...]]:
    """One run's screens: whether they were left by q, and what to watch next, if that was chosen there."""
    with ExitStack() as stack:
        # Where there is nothing to watch, or not yet, no screen flashes by.
        if not is_elsewhere(options) and options.pid:
            await_ranks(options.pid, "watch")
        elif not is_elsewhere(options):
            find_ranks()
        sizing = sizes_of(options)
        shown: list[tuple[Session | Visit, LiveFeed, Desk]] = []

        def make(_opening: OpeningDesk) -> Desk:
            session, feed = _watching().begin(options, stack, goes_on=True)
            desk: Desk = _watching().Desk(
                feed, ".", live_path=options.output or "", sizing=sizing, leads_home=leads_home, goes_on=True
            )
            shown.append((session, feed, desk))
            return desk

        goes_back = show_opened(make, "live", "finding ranks")
        is_ours = shown and sys.stderr.isatty() and not (options.url or options.key)
        if is_ours:
            # A few seconds at worst. Probes that another recorder uses stay in them.
            print("letting go of the ranks ...", end=" ", file=sys.stderr, flush=True)
    if is_ours:
        say_on_stderr("done")
    for session, feed, _ in shown:
        _watching().take_leave(feed, options.output, is_dropped=session.is_dropped)
    return goes_back, shown[0][2].chosen if shown else ()


def is_elsewhere(options: argparse.Namespace) -> bool:
    """Whether the training is not, or need not be, one of this machine's own."""
    return any((options.url, options.key, options.hosts, options.slurm, options.ray, options.invite))


def _watching() -> Any:
    """What costs a fifth of a second to load: numpy, ZeroMQ, the rules. Not before the first frame."""
    return importlib.import_module("tuiadvisor.cli.watching")
