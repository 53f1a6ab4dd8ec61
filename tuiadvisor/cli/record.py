"""`tuiadvisor record`: attach and write the recording, without screens."""

from __future__ import annotations

import signal
import sys
import time
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.unwatched import NO_STEP
from tuiadvisor.app.attach_state import HoldUp, why_stepless, why_unwatched
from tuiadvisor.app.awaiting_ranks import await_ranks
from tuiadvisor.app.background import run_in_background
from tuiadvisor.app.live_feed import LiveFeed, attach_phase
from tuiadvisor.app.nothing_recorded import nothing_left
from tuiadvisor.app.recorded_ranks import left_out, recorded_ranks, why_nobody
from tuiadvisor.app.stated import against_stated
from tuiadvisor.app.survey import surveyed
from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.options.outlets import add_outlets, follow, outlets_of
from tuiadvisor.cli.options.peaks import measured_here
from tuiadvisor.cli.options.target import open_session
from tuiadvisor.cli.options.training import add_probe_options, add_remote_target, add_target
from tuiadvisor.errors import FailureError, one_line
from tuiadvisor.shellword import shell_word
from tuiadvisor.text.printed import redraw, say
from tuiadvisor.text.wording import past_facts
from tuiadvisor.views.run_view import RUN_FINISHED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tuiadvisor.app.live_session import Session
    from tuiadvisor.views.run_view import RunView


ATTACH_PATIENCE_S: Final = (
    20.0  # a rank that waits to be attached to does not keep a recording going for ever
)


NOBODY_YET: Final = "no rank was attached to yet"


EXIT_CODES: Final = (
    "The exit code is the recording's, not the training's: 0 when steps were recorded, also of a training that failed "
    "meanwhile, whose killed ranks the last lines name with their signals, and when some ranks were refused, which "
    "they name too; 1 when no step was recorded, with the reason that was found, or the recording broke off; 2 for a "
    "mistake in what was asked."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = EXIT_CODES
    add_target(parser)
    add_remote_target(parser)
    add_probe_options(parser)
    add_outlets(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the recording to write")
    parser.add_argument(
        "--for",
        dest="duration",
        type=seconds,
        metavar="60s",
        help="stop this long after the ranks are attached to; default: at ^C",
    )
    parser.add_argument(
        "--steps", type=_count, metavar="N", help="stop after N steps of the job, or --for if that is sooner"
    )
    parser.add_argument(
        "--daemon", action="store_true", help="go on in the background, also after this terminal is gone"
    )


def run(options: argparse.Namespace) -> int:
    """Record until the time is over, the ranks have ended or the user stops it."""
    if options.pid:
        await_ranks(
            options.pid, "record"
        )  # before --daemon leaves: a launcher that ends is an error of this command
    if not options.daemon:
        return _record(options, lambda _: None)
    pid, url = run_in_background(lambda announce: _record(options, announce), f"{options.output}.log")
    output = one_line(options.output)
    say(f"recording in {output} as process {pid}; its output is in {output}.log")
    print(f"watch it: tuiadvisor watch {shell_word(url)}")
    print(f"end it:   kill {pid}")
    return 0


def _record(options: argparse.Namespace, announce: Callable[[str], None]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends it as ^C does
    with outlets_of(options) as outlets, open_session(options) as session:
        announce(session.viewer_url)
        feed = LiveFeed(session.source(), session.agent_error, session.request, measured_here())
        feed.start()
        follow(outlets, feed)
        ended_alone = False
        try:
            is_told = outlets is not None or options.steps is not None
            ended_alone = _follow(session, feed, options.duration, options.steps, is_told=is_told)
        except KeyboardInterrupt:
            pass
        finally:
            feed.stop()
        error = session.agent_error()
    if feed.failure is not None:
        session.drop_if_nothing()
        raise feed.failure
    # From the file, not from the feed, which was ended with frames still on their way: `diagnose` will say the same.
    view = surveyed(options.output).view
    session.drop_if_nothing()
    why = error or why_unwatched(view) or why_stepless(view) or why_nobody(view, ended_alone=ended_alone)
    if why is None and session.is_dropped:
        why = NOBODY_YET
    if why is not None:
        raise FailureError(f"{why}; {_what_is_left(options.output, view, is_dropped=session.is_dropped)}")
    say(f"recorded {recorded_ranks(view)} in {one_line(options.output)}")
    for line in left_out(view):
        say(line)
    if ended_alone and view is not None and view.ended and view.ended != RUN_FINISHED:
        say(f"the recording ended before it was asked to: {view.ended}")
    if view is not None and (said := against_stated(view).decided.sentence):
        say(said)
    for past in view.past if view is not None else ():
        say(f"over by now: {past.finding.title} ({past_facts(past)})")
    return 0


def _what_is_left(output: str, view: RunView | None, *, is_dropped: bool) -> str:
    if is_dropped:
        return nothing_left(output)
    if view is None or view.last_step is None:
        return f"{output} holds no step"
    return f"what was recorded before is in {output}"


def _count(text: str) -> int:
    """A number of steps; an argparse type, so a bad one is a usage error."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 10**12:
        raise ArgumentTypeError(f"{text!r} is not a number of steps; write 500")
    return int(text)


def _follow(
    session: Session, feed: LiveFeed, duration_s: float | None, num_steps: int | None, *, is_told: bool
) -> bool:
    """Until what was asked for is there; True if the agents ended before that.

    is_told: something waits for the feed's pictures.
    """
    begin = time.monotonic()
    is_counting = False
    shown = ""
    hold_up = HoldUp("record")
    while not session.agent_ended() and session.hub.poll() is None and feed.failure is None:
        view = feed.latest().view
        hold_up.say(view)
        if hold_up.is_final(view):
            break
        if not is_counting and (_is_attached(view) or time.monotonic() - begin >= ATTACH_PATIENCE_S):
            is_counting, begin = True, time.monotonic()  # what was asked for is so long a time of the ranks
            if not is_told:
                feed.nobody_watches()
        elapsed = time.monotonic() - begin
        if duration_s is not None and is_counting and elapsed >= duration_s:
            break
        if num_steps is not None and view is not None and (view.last_step or 0) + 1 >= num_steps:
            break
        line = f"recording {elapsed:.0f} s: {feed.latest().phase}, {recorded_ranks(view)}"
        if sys.stderr.isatty() and line != shown:
            redraw(line)
            shown = line
        time.sleep(0.2)
    if shown:
        redraw("")
    if session.hub.poll() is not None:
        raise FailureError(session.why_hub_ended())
    return session.agent_ended()


def _is_attached(view: RunView | None) -> bool:
    """Whether no rank is still being attached to; a training of one process has no number before its first step."""
    if view is None:
        return False
    is_unnumbered = any(NO_STEP in note for note in view.losses.notes)
    return is_unnumbered or (bool(view.ranks) and attach_phase(view)[1] is None)
