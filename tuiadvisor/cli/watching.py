"""A live session behind the screens or without them: what `watch`, `run` and `demo` have in common."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.leaving import END_GRACE_S
from tuiadvisor.advisor.judge.findings import catalog
from tuiadvisor.agent import procfs
from tuiadvisor.agent.discovery import find_ranks, has_torch, just_ended
from tuiadvisor.app.attach_state import HoldUp, why_stepless, why_unwatched
from tuiadvisor.app.awaiting_ranks import await_ranks
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.feed import READ_S
from tuiadvisor.app.live_feed import ASIDE, HUB_LOST, RECORDING_ENDED, LiveFeed
from tuiadvisor.app.live_session import Session
from tuiadvisor.app.nothing_recorded import nothing_left
from tuiadvisor.app.progress import ProgressLine
from tuiadvisor.app.screens import show_screens
from tuiadvisor.cli.options.outlets import follow, outlets_of
from tuiadvisor.cli.options.peaks import measured_here
from tuiadvisor.cli.options.target import open_target
from tuiadvisor.errors import FailureError, TuiadvisorError, one_line
from tuiadvisor.events import EXITING
from tuiadvisor.shellword import shell_word
from tuiadvisor.text import format as text_of
from tuiadvisor.text.printed import say, unbroken
from tuiadvisor.tui.contract.feed import End
from tuiadvisor.tui.pages.once import plain_summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from tuiadvisor.app.live_session import Visit
    from tuiadvisor.app.sizing import Sizing
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.run_view import RunView

ROOM: Final = (
    1.25  # of what the missing steps take by those that were seen: some will be longer, or no steady ones
)
WHY_IT_ENDS: Final = {HUB_LOST: "the hub was lost", RECORDING_ENDED: "the recording was ended"}
SHORT_S: Final = 30.0  # chosen: epochs' ends, checkpoints and other jobs come and go within minutes
RUN_SHOWN_S: Final = 5.0  # chosen: a view of the largest jobs takes seconds
FINAL_SETTLE_S: Final = (
    6.0  # chosen: until the attach and the steps just after it weigh little in what is not seen
)


def begin(
    options: argparse.Namespace, stack: ExitStack, *, goes_on: bool = False
) -> tuple[Session | Visit, LiveFeed]:
    """Session and feed of `watch`, started; the stack ends both. TuiadvisorError before anything is started.

    goes_on: as of LiveFeed.
    """
    catalog()  # a wrong rule file is said before anything is put into a training
    outlets = stack.enter_context(outlets_of(options))
    session = open_target(options)
    if isinstance(session, Session):
        stack.callback(session.drop_if_nothing)  # once it has ended
    stack.enter_context(session)
    feed = LiveFeed(
        session.source(),
        session.agent_error,
        session.request,
        measured_here(),
        options.output or "",
        goes_on=goes_on,
    )
    stack.callback(feed.stop)
    feed.start()
    follow(outlets, feed)
    return session, feed


def print_once(options: argparse.Namespace, stack: ExitStack) -> int:
    """`watch` where nobody looks at screens."""
    if options.pid:
        await_ranks(options.pid, "watch", options.duration)
    if options.once and options.pid:
        refuse_without_torch(options.pid)
    session, feed = begin(options, stack)
    return watch_once(session, feed, options.duration)


def show(feed: LiveFeed, intro: str | None = None, recording: str = "", sizing: Sizing | None = None) -> None:
    """The screens, until the user leaves; a failure of the feed's thread comes out as itself."""
    show_screens(Desk(feed, ".", live_path=recording, sizing=sizing), intro=intro)
    _back_to_run(feed)
    if feed.failure is not None:
        raise feed.failure


def _back_to_run(feed: LiveFeed) -> None:
    """What is left on the terminal is of the run, not of the stretch or the moment that was looked at last."""
    feed.command(End())
    deadline = time.monotonic() + RUN_SHOWN_S
    while feed.latest().phase in ASIDE and feed.failure is None and time.monotonic() < deadline:
        time.sleep(READ_S)


def see_end(feed: LiveFeed, agent_ended: Callable[[], bool]) -> None:
    """Of ranks that were on their way out when the screens were left: how they end is the verdict."""
    deadline = time.monotonic() + END_GRACE_S
    if not exiting_ranks(feed.latest().view):
        return
    say("ranks are exiting: waiting to see how they end, ^C leaves at once")
    while exiting_ranks(feed.latest().view) and not agent_ended() and time.monotonic() < deadline:
        time.sleep(READ_S)


def exiting_ranks(view: RunView | None) -> list[int]:
    """Those whose probe has left because the process exits, and which have not ended yet."""
    rows = () if view is None else view.ranks
    return [row.rank for row in rows if row.state == "detached" and row.state_detail == EXITING]


def watch_once(session: Session | Visit, feed: LiveFeed, patience_s: float, settle_s: float = 2.0) -> int:
    """Without a terminal: wait for a verdict that has stood for settle_s, print it as text."""
    wait_for_verdict(session, feed, patience_s, settle_s)
    view = feed.latest().view
    if feed.failure is not None:
        raise feed.failure
    unwatched = session.agent_error() or why_unwatched(view)
    if unwatched is not None:
        raise FailureError(unwatched)
    if view is None or not view.ranks:
        raise FailureError(session.why_silent())
    stepless = why_stepless(view)
    if stepless is not None:
        raise FailureError(f"{stepless} (in {patience_s:.0f} s; --for 5m waits longer)")
    print(plain_summary(view))
    missing_s = view.window.missing_s
    if view.verdict.decision is None and view.window.num_missing_steps and missing_s is not None:
        say(f"longer would tell: --for {_for_words(patience_s + ROOM * missing_s)}")
    elif view.verdict.decision is not None and (short := _of_how_little(view)):
        say(short)
    return 0


def _of_how_little(view: RunView) -> str:
    """Of a short look what it rests on, else empty: what comes and goes may have been seen only coming, or going."""
    num_steps, mean_s = view.window.num_steps, view.step.mean_s
    if mean_s is None or num_steps * mean_s >= SHORT_S:
        return ""
    seen = f"{text_of.count(num_steps, 'step')}, {text_of.seconds(num_steps * mean_s)} of the run"
    return f"judged on {seen}: what comes and goes takes a longer look (tuiadvisor record -o FILE --for 2m)"


def _for_words(duration_s: float) -> str:
    """As --for takes it, rounded up to half a minute."""
    halves = math.ceil(duration_s / 30)
    return f"{halves // 2}m" if halves % 2 == 0 else f"{30 * halves}s"


def refuse_without_torch(pids: Sequence[int]) -> None:
    """TuiadvisorError for a process that cannot be training: nothing is put into it then."""
    for found in find_ranks(pids):
        if found.rank is None and not has_torch(found.pid):
            if procfs.is_at_its_end(found.pid):
                raise just_ended(found.pid)
            raise TuiadvisorError(
                f"--pid {found.pid}: {found.label} has not loaded torch, so it is no PyTorch training (yet); "
                "name a rank's process, or leave --pid out to find the trainings here"
            )


def wait_for_verdict(
    session: Session | Visit, feed: LiveFeed, patience_s: float, settle_s: float = 2.0
) -> None:
    """Until there is a verdict that has stood for settle_s, all are refused, the agent has ended, or patience has.

    That nothing will be decided, however long it is watched, has to stand for FINAL_SETTLE_S.

    Patience is for the run: what was recorded before we came is read first, however long that takes.
    """
    _read_history(session, feed, patience_s)
    deadline = time.monotonic() + patience_s
    since = final_since = None
    hold_up = HoldUp("watch")
    while time.monotonic() < deadline and feed.failure is None and feed.history_share is not None:
        view = feed.latest().view
        decided = view is not None and view.verdict.decision is not None
        is_final = view is not None and view.verdict.is_final
        now = time.monotonic()
        since = (since or now) if decided else None
        final_since = (final_since or now) if is_final else None
        stands = since is not None and now - since >= settle_s
        if (
            stands
            or (final_since is not None and now - final_since >= FINAL_SETTLE_S)
            or session.agent_ended()
        ):
            break
        hold_up.say(view)
        if hold_up.is_final(view):
            break
        time.sleep(0.1)
    time.sleep(0.6)  # the last frames are still on their way


def _read_history(session: Session | Visit, feed: LiveFeed, patience_s: float) -> None:
    """Until the view holds what was recorded before, or the hub has not answered for patience_s, or no longer does."""
    deadline = time.monotonic() + patience_s
    line = ProgressLine("reading what was recorded before")
    while feed.failure is None:
        if feed.is_in_history:
            line.show(feed.history_share or 0.0)
        elif feed.history_share is not None or session.agent_ended() or time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    line.end()


def take_leave(feed: LiveFeed, output: str | None, *, is_dropped: bool = False) -> None:
    """What is left on the terminal when the screens are gone; a failure of the feed's thread comes out as itself."""
    if feed.failure is not None:
        raise feed.failure
    say_goodbye(feed.latest(), output, is_dropped=is_dropped)
    for answer in feed.answers:
        say(answer)


def say_goodbye(
    state: FeedState | None, output: str | None, *, with_verdict: bool = True, is_dropped: bool = False
) -> None:
    """What is left on the terminal: the verdict, where the recording lies, and where it ends if its hub was lost.

    is_dropped: as of the session.
    """
    view = None if state is None else state.view
    is_of_run = state is not None and state.phase not in ASIDE
    if with_verdict and is_of_run and view is not None and view.decided.sentence:
        say(view.decided.sentence)
    if output and is_dropped:
        say(nothing_left(output))
    elif output:
        ends = ""
        why = WHY_IT_ENDS.get("" if state is None else state.phase)
        if why is not None and not (view is not None and view.ended):
            at = "" if view is None or view.last_step is None else f" at step {view.last_step:,}"
            ends = f" (it ends{at}, where {why}; the training goes on unrecorded)"
        command = unbroken(f"tuiadvisor replay {shell_word(output)}")
        say(f"recorded in {one_line(output)}{ends}; look again with: {command}")
