"""`tuiadvisor watch`: find the ranks, inject, show; `q` takes the probes out and leaves the training alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tuiadvisor.advisor.findings import catalog
from tuiadvisor.agent.discovery import find_ranks, has_torch
from tuiadvisor.cli.desk import Desk, show_screens
from tuiadvisor.cli.duration import seconds
from tuiadvisor.cli.feed import LiveFeed
from tuiadvisor.cli.footprint import load_screens_meanwhile
from tuiadvisor.cli.size_options import add_sizes, sizes_of
from tuiadvisor.cli.target import add_probe_options, add_remote_target, add_target, add_visit, open_target
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.tui import format as text_of
from tuiadvisor.tui.environment import shows_screens
from tuiadvisor.tui.once import plain_summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tuiadvisor.advisor.view import RunView
    from tuiadvisor.cli.session import Session, Visit
    from tuiadvisor.cli.sizing import Sizing


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)
    add_remote_target(parser)
    add_probe_options(parser)
    add_visit(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="keep the recording in this file")
    add_sizes(parser)
    parser.add_argument("--once", action="store_true", help="no screens: print one summary as text and leave")
    parser.add_argument(
        "--for", dest="duration", type=seconds, default=30.0, metavar="30s",
        help="with --once: how long to wait for a verdict (default 30s)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Watch until the user leaves."""
    catalog()  # a wrong rule file is said before anything is put into a training
    if options.once and options.pid:
        refuse_without_torch(options.pid)
    sizing = sizes_of(options)
    if not options.once and shows_screens():
        load_screens_meanwhile()
    with open_target(options) as session:
        feed = LiveFeed(session.source(), session.agent_error, session.wish)
        feed.start()
        try:
            if options.once or not shows_screens():
                return watch_once(session, feed, options.duration)
            show(feed, recording=options.output or "", sizing=sizing)
        finally:
            feed.stop()
    say_goodbye(feed.latest().view, options.output)
    for answer in feed.answers:
        print(answer)
    return 0


def show(feed: LiveFeed, intro: str | None = None, recording: str = "", sizing: Sizing | None = None) -> None:
    """The screens, until the user leaves; a failure of the feed's thread comes out as itself."""
    show_screens(Desk(feed, ".", live_path=recording, sizing=sizing), intro=intro)
    if feed.failure is not None:
        raise feed.failure


def watch_once(session: Session | Visit, feed: LiveFeed, patience_s: float, settle_s: float = 2.0) -> int:
    """Without a terminal: wait for a verdict that has stood for settle_s, print it as text."""
    wait_for_verdict(session, feed, patience_s, settle_s)
    view = feed.latest().view
    if feed.failure is not None:
        raise feed.failure
    if view is None or not view.ranks:
        raise FailureError(session.why_silent())
    if view.last_step is None and not view.findings and not view.ended:
        raise TuiadvisorError(
            f"no training step in {patience_s:.0f} s from {text_of.count(len(view.ranks), 'process', 'processes')}: "
            "it hangs or is stopped (tuiadvisor stacks tells where), its step is longer (--for 5m waits longer), "
            "or it is no PyTorch training"
        )
    print(plain_summary(view))
    return 0


def refuse_without_torch(pids: Sequence[int]) -> None:
    """TuiadvisorError for a process that cannot be training: nothing is put into it then."""
    for found in find_ranks(pids):
        if found.rank is None and not has_torch(found.pid):
            raise TuiadvisorError(
                f"--pid {found.pid}: {found.label} has not loaded torch, so it is no PyTorch training (yet); "
                "name a rank's process, or leave --pid out to find the trainings here"
            )


def wait_for_verdict(
    session: Session | Visit, feed: LiveFeed, patience_s: float, settle_s: float = 2.0
) -> None:
    """Until there is a verdict that has stood for settle_s, the agent has ended, or patience has."""
    deadline = time.monotonic() + patience_s
    since: float | None = None
    while time.monotonic() < deadline and feed.failure is None:
        view = feed.latest().view
        decided = view is not None and view.verdict.decision is not None
        since = (since or time.monotonic()) if decided else None
        if (since is not None and time.monotonic() - since >= settle_s) or session.agent_ended():
            break
        time.sleep(0.1)
    time.sleep(0.6)  # the last frames are still on their way


def say_goodbye(view: RunView | None, output: str | None) -> None:
    """What is left on the terminal: the verdict, and where the recording lies."""
    if view is not None and view.verdict.sentence:
        print(view.verdict.sentence)
    if output:
        print(f"recorded in {output}; look again with: tuiadvisor replay {output}")
