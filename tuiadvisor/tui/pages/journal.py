"""What the tool itself did and met: attaching, ranks coming and going, losses, answers, in the order it was seen.

In: FeedStates and answers as they come.  Out: entries, and the page that lists them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, indent, line, rule, wrap
from tuiadvisor.text.wording import loss_notes
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.pages import rank_row

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.run_view import RunView

MAX_ENTRIES = 1000
MAX_RANKS_NAMED = 8
MARGIN = 1
# Words of a phase that change all the time say nothing new.
QUIET_PHASES = frozenset({"live", "paused", "past", "replay", "stretch"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log."""

    when: str  # "19:04:06", local time
    text: str
    role: str = "text"


class Journal:
    """Mutable: show it each state, it keeps what is new."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=MAX_ENTRIES)
        self._phase = ""
        self._message = ""
        self._notice = ""
        self._states: dict[int, str] = {}
        self._losses: tuple[str, ...] = ()
        self._findings: frozenset[str] = frozenset()
        self._ended = ""

    def add(self, when: str, text: str, role: str = "text") -> None:
        """Keep a line."""
        self.entries.append(Entry(when, text, role))

    def observe(self, when: str, state: FeedState) -> None:
        """Keep what is new in a state."""
        word = state.phase.partition(" ")[0]
        if word != self._phase.partition(" ")[0] and word not in QUIET_PHASES:
            role = "bad" if "lost" in state.phase or "failed" in state.phase else "text"
            self.add(when, state.phase, role)
        self._phase = state.phase
        if state.message and state.message != self._message:
            self.add(when, state.message, "dim")
        self._message = state.message
        if state.notice and state.notice != self._notice:
            self.add(when, state.notice)
        self._notice = state.notice
        is_present = (
            state.past is None and state.stretch is None
        )  # what is gone in another picture was not lost
        if state.view is not None and is_present:
            self._observe_view(when, state.view)

    def _observe_view(self, when: str, view: RunView) -> None:
        states = {rank.rank: rank.state for rank in view.ranks}
        if states != self._states:
            self._ranks(when, view)
            self._states = states
        lost = loss_notes(view.losses)
        for text in lost:
            if text not in self._losses:
                self.add(when, text, "warn")
        self._losses = lost
        findings = frozenset(found.title for found in view.findings if found.severity != "info")
        for title in sorted(findings - self._findings):
            self.add(when, f"finding: {title}")
        for title in sorted(self._findings - findings):
            self.add(when, f"no longer found: {title}", "dim")
        self._findings = findings
        if view.ended and view.ended != self._ended:
            self.add(when, view.ended, "accent")
        self._ended = view.ended

    def _ranks(self, when: str, view: RunView) -> None:
        changed: dict[tuple[str, str], list[int]] = {}
        for rank in view.ranks:
            if self._states.get(rank.rank) != rank.state:
                changed.setdefault((rank.state, rank.state_detail), []).append(rank.rank)
        for (state, detail), ranks in list(changed.items())[:MAX_RANKS_NAMED]:
            glyph, role = rank_row.STATES.get(state, (state, "warn"))
            name = text_of.ranks(tuple(ranks))
            self.add(when, f"{name} {glyph}" + (f": {detail}" if detail else ""), role)
        if len(changed) > MAX_RANKS_NAMED:
            self.add(when, f"and {len(changed) - MAX_RANKS_NAMED} more changes of ranks' states", "dim")


class LogPage(Page):
    """The log, newest last."""

    name = "log"
    title = "Log"
    about = "What the tool itself did and met since the screens were opened, newest last."
    commands: ClassVar = (opening("log", "L", "Log", "what the tool did: attaching, ranks, losses, answers"),)
    of_run = False
    keys = ("back", "page_up", "page_down", "copy", "help", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.top = 1 << 30  # at the end
        self._state: FeedState | None = None

    def take_state(self, when: str, state: FeedState) -> None:
        """Keep what a state tells of the tool itself."""
        if state is not self._state or not self.journal.entries:
            self.journal.observe(when, state)
        self._state = state

    def take_answer(self, when: str, text: str) -> None:
        """Keep what came of a command."""
        self.journal.add(when, text)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - a log is not of one state
        """Return the entries."""
        room = width - 2 * MARGIN
        rows: list[Line] = []
        for entry in self.journal.entries:
            for place, text in enumerate(wrap(entry.text, room - 10)):
                rows.append(line((entry.when if place == 0 else " " * 8, "dim"), "  ", (text, entry.role)))
        rows = rows or [BLANK, line(("nothing happened yet", "dim"))]
        head = rule(
            "log", room, f"{text_of.count(len(self.journal.entries), 'entry', 'entries')} since the start"
        )
        body = self.arranged([indent(row, MARGIN) for row in rows], width, height - 1)
        return [indent(head, MARGIN), *body]
