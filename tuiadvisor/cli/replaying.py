"""A recording behind the screens, or its summary as text: the part of `replay` and `runs` that reads."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.app.bookmarks import bookmarks
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.job_reader import jobs_now
from tuiadvisor.app.progress import to_stderr
from tuiadvisor.app.recordings import recordings
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.stand_ins import beside
from tuiadvisor.app.stated import against_stated
from tuiadvisor.app.whole_recording import end_view, view_at, whole_view
from tuiadvisor.cli.options.work import work_of
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.text import format as text_of
from tuiadvisor.tui.contract.desk import NO_DESK, ListJobs, ListRuns
from tuiadvisor.tui.contract.feed import End, SeekStep
from tuiadvisor.tui.pages.home import plain_home
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.tui.pages.runs import plain_runs
from tuiadvisor.views.run_list import summarized

if TYPE_CHECKING:
    import argparse
    from contextlib import ExitStack

    from tuiadvisor.app.sizing import Sizing
    from tuiadvisor.views.run_list import RunEntry


NUM_READ: Final = 8


def begin(options: argparse.Namespace, sizing: Sizing | None, stack: ExitStack) -> tuple[Desk, ReplayFeed]:
    """Feed, started, and desk of `replay`; the stack ends the feed. TuiadvisorError if the file is bad."""
    source = ReplaySource(options.file, options.speed or 1.0)
    work = work_of(options)
    feed = ReplayFeed(source, bookmarks=bookmarks(options.file), given=work)
    stack.callback(feed.stop)
    _check_step(options, feed.last_step)
    if options.at is not None:
        feed.command(SeekStep(options.at))
    elif options.speed is None:
        feed.command(End())  # the verdict is what one opens a recording for
    feed.start()
    return Desk(feed, beside(options.file).parent, options.file, sizing=sizing, given=work), feed


def begin_list(folder: Path) -> Desk:
    """The desk of `runs`: no run, a list that is being read."""
    desk = Desk(None, folder)
    desk.command(ListRuns())
    return desk


def begin_home(folder: Path, said: str = "", choosing: str = "") -> Desk:
    """The desk of the home screen: no run, two lists that are being made; said: what to say first."""
    desk = Desk(None, folder, can_attach=True, said=said, choosing=choosing)
    desk.command(ListJobs())
    desk.command(ListRuns())
    return desk


def print_home(folder: Path) -> None:
    """What runs here and what was recorded, as text."""
    desk = replace(NO_DESK, **jobs_now())
    found = recordings(folder)
    # A verdict costs reading a whole recording: the newest have theirs, `runs` shows the others'.
    entries = [read(entry) for entry in found[:NUM_READ]]
    more = f", the newest {NUM_READ} shown: tuiadvisor runs lists all" if len(found) > NUM_READ else ""
    print(
        plain_home(desk, tuple(entries), f"{text_of.count(len(found), 'recording')} in {folder}{more}"),
        end="",
    )


def print_once(options: argparse.Namespace) -> None:
    """The summary at a recording's end, or at the step that was asked for."""
    whole = whole_view(options.file, work_of(options), partial(to_stderr, options.file))
    _check_step(options, whole.last_step)
    shown = whole if options.at is None else view_at(options.file, options.at, work_of(options))
    print(plain_summary(against_stated(shown)))


def print_list(folder: Path) -> None:
    """The recordings of a folder as text."""
    entries = [read(entry) for entry in recordings(folder)]
    print(plain_runs(tuple(entries), f"{text_of.count(len(entries), 'recording')} in {folder}"), end="")


def print_fleet(folder: Path) -> None:
    """The newest recording of each job as text; a job is a folder in this one."""
    newest: dict[str, RunEntry] = {}
    for entry in recordings(folder):  # newest first
        newest.setdefault(str(Path(entry.path).parent), entry)
    entries = tuple(read(entry) for entry in newest.values())
    title = f"{text_of.count(len(entries), 'job')} in {folder}, the newest recording of each"
    print(plain_runs(entries, title), end="")


def read(entry: RunEntry) -> RunEntry:
    """The entry with what its recording says; a damaged one says so in its row."""
    try:
        return summarized(entry, against_stated(end_view(entry.path)))
    except TuiadvisorError as error:
        return replace(entry, state="broken", problem=str(error).removeprefix(f"{entry.path}: "))


def _check_step(options: argparse.Namespace, last_step: int | None) -> None:
    if options.at is not None and (last_step is None or not 0 <= options.at <= last_step):
        held = "no step" if last_step is None else f"steps 0 to {last_step}"
        raise TuiadvisorError(f"{options.file}: --at {options.at}: the recording holds {held}")
