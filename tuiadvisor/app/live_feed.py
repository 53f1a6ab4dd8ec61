"""The feed of a live session: phases of attaching, subcommands in ranks, looking back while the run goes on.

In: a session's frames, commands of the screens.  Out: FeedStates.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, assert_never

from tuiadvisor.agent.hello import host_name
from tuiadvisor.app.feed import AddMark, Feed
from tuiadvisor.app.look_back import Lookback
from tuiadvisor.app.stack_look import StackLook, why_no_stacks
from tuiadvisor.app.started_again import StartedAgain
from tuiadvisor.app.subcommand import Subcommand, capture_subcommand, stacks_subcommand
from tuiadvisor.causes import hang
from tuiadvisor.events import NOTHING_GIVEN, GivenWork
from tuiadvisor.stream.probe_request import ProbeRequest
from tuiadvisor.tui.contract.feed import (
    Capture,
    ChooseSteps,
    Detail,
    End,
    NextFinding,
    Pause,
    PreviousFinding,
    Quit,
    Resume,
    SeekStep,
    Speed,
    Stacks,
    Step,
    Stride,
    Zoom,
)
from tuiadvisor.views.unheard import unheard

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.app.look_back import LooksBack
    from tuiadvisor.app.stretch import Steps
    from tuiadvisor.stream.source import Source
    from tuiadvisor.tui.contract.feed import FeedCommand, PastState
    from tuiadvisor.views.run_view import RunView

BURST_MS: Final = 3000
HUB_LOST: Final = "hub lost"
AGENT_LOST: Final = "agent lost"
RECORDING_ENDED: Final = "recording ended"  # by whoever made it: nothing was lost, the run may go on
ASIDE: Final = ("past", "stretch", "paused")  # phases in which the picture is not the run's newest
ANSWER_S: Final = 60.0  # chosen: what came of a command was read by then; L and the terminal keep it
READ_AFTER_S: Final = 4.0  # an announcement stays so much longer than what it announces


class LiveFeed(Feed):
    """A session's frames as they come."""

    def __init__(
        self,
        source: Source,
        agent_error: Callable[[], str | None],
        request: Callable[[ProbeRequest], None] | None = None,
        given: GivenWork = NOTHING_GIVEN,
        kept: str = "",
        *,
        goes_on: bool = False,
    ) -> None:
        """request: tells the agents what is wanted; None: they are another's. given: as of Feed. kept: recording.

        goes_on: as of StartedAgain.
        """
        super().__init__(source, given)
        self._agent_error = agent_error
        self._request = request
        self._subcommand: Subcommand | None = None
        self._answered_until_s = float("inf")  # its answer is shown
        self._answer = ""
        self._stale_answer = ("", 0.0)  # an announcement, and when it is no longer true
        self._lookback = Lookback()
        self._is_stretch_drawn = False
        self._last_heard: tuple[RunView, RunView] | None = None  # of a lost hub: as it came, as it is shown
        self._stack_look: StackLook | None = None
        self._told_card: tuple[str, tuple[int, str]] | None = None  # the answer that announces it
        self._started_again = StartedAgain(kept=kept, goes_on=goes_on)
        self.say_aside: Callable[..., str] = _nothing  # what else there is to say while nothing was asked for
        self.answers: list[str] = []  # of subcommands, for the terminal when the screens are gone

    def stop(self) -> None:
        """Stop reading, and what runs beside the screens."""
        super().stop()
        if self._subcommand is not None:
            self._subcommand.stop()

    def _shown(self) -> RunView | None:
        """With nothing heard any more no rank is said to be live."""
        if self.view is None or not self._phase()[0].startswith((HUB_LOST, AGENT_LOST, RECORDING_ENDED)):
            return self.view
        if self._last_heard is None or self._last_heard[0] is not self.view:
            self._last_heard = (self.view, unheard(self.view))
        return self._last_heard[1]

    def _publish(self, message: str) -> None:
        is_over = self.view is not None and self.view.ended and self.source.status.ended
        super()._publish("" if is_over else message)  # that the hub has stopped, too, is no news then

    def _phase(self) -> tuple[str, tuple[int, int] | None]:
        status = self.source.status
        is_over = self.view is not None and bool(self.view.ended)  # nobody has more to say of it
        if not is_over and (status.ended or (self.view is not None and not status.connected)):
            return (RECORDING_ENDED if status.ended else HUB_LOST), None
        error = self._agent_error()
        if error is not None:
            return f"{AGENT_LOST}: {error}", None
        if self._lookback.step is not None:
            return "past", None
        if self.stretch is not None:
            return "stretch", None
        if self.frozen:
            return "paused", None
        return attach_phase(self.view)

    def _stands(self) -> bool:
        if self.stretch is not None:
            return self._is_stretch_drawn
        return self._lookback.is_drawn if self._lookback.step is not None else self.frozen

    def _is_as_it_comes(self) -> bool:
        return self._lookback.step is None and self.stretch is None

    def _picture(self) -> RunView:
        if self.stretch is not None:
            self._is_stretch_drawn = True
            return self.advisor.view_of_stretch(self.stretch)
        return self._lookback.picture(self.advisor)

    def _past_state(self) -> PastState | None:
        return self._lookback.state(self.advisor)

    def _notice(self) -> str:
        subcommand = self._subcommand
        self._note_stacks()
        if subcommand is None:
            answer, end_s = self._stale_answer
            if self._answer == answer and time.monotonic() > end_s:
                self._answer = ""  # what it announced is over
            said = self._answer or self._started_again.sentence(self.view, host_name())
            return said or self.say_aside(has_ended=self.view is not None and bool(self.view.ended))
        if subcommand.look():
            self.answers.append(subcommand.sentence)
            self._answered_until_s = time.monotonic() + ANSWER_S
        if not subcommand.is_running and time.monotonic() > self._answered_until_s:
            self._give_way()
        return subcommand.sentence if self._subcommand is not None else ""

    def _next_run(self) -> tuple[str, ...]:
        return self._started_again.options

    def _obey(self, command: FeedCommand | AddMark) -> None:  # noqa: C901 - one row a command
        match command:
            case Pause():
                self.frozen = True
            case Capture(rank):
                self._capture(rank)
            case Detail(ranks):
                self._detail(ranks)
            case Zoom(by):
                self._choose(self._zoomed(by), by)
            case ChooseSteps(first, last):
                self._choose(self._chosen(first, last), 1)
            case Step(by) if self.stretch is not None:
                self._choose(self._moved(by), by)
            case Stacks(rank, subject):
                self._look_at_stacks(rank, subject)
            case Resume() | End():
                self.frozen = False
                self.stretch = None
                self._lookback.leave()
            case SeekStep() | Step() | Stride() | NextFinding() | PreviousFinding():
                self._look_back(command)
            case Speed() | AddMark() | Quit():
                pass  # of a replay; and a session ends when the screens have
            case _:
                assert_never(command)

    def _choose(self, steps: Steps | None, by: int) -> None:
        """Show a stretch of the steps that are held; a live run goes on behind it."""
        former, self.stretch, self._is_stretch_drawn = self.stretch, steps, False
        self._lookback.leave()
        self.frozen = False
        held = self.advisor.held_steps()
        self._answer = ""
        if steps is None:
            if former is None and by > 0:
                self._answer = "too few steps are held for a stretch of them"
        elif by < 0 and former == steps and held is not None and steps[0] <= held[0]:
            self._answer = (
                f"steps before {held[0]:,} are no longer held here: 8 opens the recording (-o FILE), "
                "in which + and [ reach all of them"
            )
        if self._answer:
            self._give_way()

    def _look_back(self, command: LooksBack) -> None:
        self.stretch = None
        self._answer = self._lookback.go(command, self.advisor, self.view, is_frozen=self.frozen)
        self._give_way()

    def _give_way(self) -> None:
        """The answer of a command that has ended, to what is said of what was asked for after it."""
        if self._subcommand is not None and not self._subcommand.is_running:
            self._subcommand = None

    def _detail(self, ranks: tuple[int, ...]) -> None:
        self._give_way()
        if self._request is None:
            self._answer = "these ranks are watched by another session: whoever began it can ask for detail"
            return
        self._request(ProbeRequest(burst_ms=BURST_MS, ranks=frozenset(ranks) or None))
        whom = f"rank {ranks[0]}" if ranks else "all ranks"
        self._answer = f"{whom}: every call of the next {BURST_MS // 1000} s is seen one by one"
        self._stale_answer = (self._answer, time.monotonic() + BURST_MS / 1000 + READ_AFTER_S)

    def _look_at_stacks(self, rank: int, subject: str) -> None:
        if self._stack_look is not None:
            return  # its answer is on its way, however often one presses
        self._give_way()
        if self._request is None:
            self._answer = "these ranks are watched by another session: whoever began it can ask for stacks"
        elif self.view is not None and (why := why_no_stacks(self.view, rank)):
            self._answer = why
        elif self.view is not None and self._subcommand is None:
            self._stack_look = look = StackLook(self.view, rank, subject)
            self._request(ProbeRequest(stacks=look.request))
            self._answer = look.doing

    def _notice_card(self) -> tuple[int, str] | None:
        told = self._told_card
        return told[1] if told is not None and self._subcommand is None and self._answer == told[0] else None

    def _note_stacks(self) -> None:
        """What has come of the stacks that were asked for."""
        look, looks = self._stack_look, self.advisor.roster.stack_looks.newest_first()
        if look is not None and (said := look.answer(looks)):
            self._stack_look, self._answer = None, said
            asked = (look.request.ranks[0], look.request.subject)
            self._told_card = None if look.missing(looks) else (said, asked)
            self._stale_answer = (said, time.monotonic() + READ_AFTER_S)

    def _capture(self, rank: int) -> None:
        if self._subcommand is not None and self._subcommand.is_running:
            return
        self._subcommand, self._answer = None, ""
        rows = self.view.ranks if self.view else ()
        # A rank that has made no step yet would be waited for, and nothing said: where it is can be told at once.
        hangs = self.view is not None and (
            self.view.last_step is None or any(finding.id == hang.RULE for finding in self.view.findings)
        )
        row = next((row for row in rows if row.rank == rank), None)
        if row is None or row.pid is None:
            self._answer = f"rank {rank}: its process is not known"
        elif row.host != host_name():
            command = "stacks" if hangs else "capture"
            self._answer = (
                f"rank {rank} runs on {row.host or 'an unknown host'}: there, run tuiadvisor {command} {rank}"
            )
        elif hangs:
            # Without steps there is nothing to profile. All ranks are asked: who is missing shows beside the others.
            beside = [one.pid for one in rows if one.host == row.host and one.pid is not None]
            self._subcommand = stacks_subcommand(rank, beside)
        else:
            self._subcommand = capture_subcommand(rank, row.pid)


def _nothing(*, has_ended: bool) -> str:  # noqa: ARG001 - as whoever has something to say is asked
    return ""


def attach_phase(view: RunView | None) -> tuple[str, tuple[int, int] | None]:
    """Where a live session stands: finding ranks, attaching n/m, live, ended."""
    if view is None or not view.ranks:
        return "finding ranks", None
    if view.ended:
        return "ended", None
    states = [row.state for row in view.ranks]
    num_pending = sum(state in ("found", "waiting_to_attach") for state in states)
    if num_pending:
        done = len(states) - num_pending
        return f"attaching {done}/{len(states)}", (done, len(states))
    return "live", None
