"""What has happened in a run, collected from its pictures as they come: a finding that opens or closes, a stall, a
checkpoint, a restart, a capture.

In: RunViews in the order of time.  Out: Events, by step. A finding is over once it has been gone for GONE_S of the
run's own time, so what flickers is no news; after a jump in a recording nothing is said to be over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.views.event import (
    CAPTURE,
    CHANGE,
    ONSET,
    PAUSE_KINDS,
    RESOLVED,
    RESTART,
    STALLED,
    Event,
)
from tuiadvisor.views.stall import HANG

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import Finding, RunView

GONE_S: Final = 10.0  # as the notices of findings (outlets/notices.py)
MAX_EVENTS: Final = 4000  # the oldest go first
NEW_LEVEL: Final = "new level"  # what the fold calls the step at which the job changed

Key = tuple[object, ...]


class EventLog:
    """Mutable: show it each picture."""

    def __init__(self) -> None:
        self._events: dict[Key, Event] = {}
        self._open: dict[Key, tuple[Finding, float]] = {}  # when it was seen last, seconds of the run
        self._stalled_at: tuple[int | None, float] | None = (
            None  # step, and for how long it lasted as seen last
        )
        self._told: tuple[Event, ...] | None = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """All that is held, oldest first."""
        if self._told is None:
            # One that was also collected elsewhere is the same event.
            self._told = tuple(sorted(dict.fromkeys(self._events.values()), key=_place))
        return self._told

    def take(self, view: RunView) -> None:
        """Note what this picture shows."""
        if view.ended:
            self.jump()  # what is open at the end was not resolved by it
        now_s = view.event_time_s or 0.0
        self._findings(view, now_s)
        self._stall(view)
        self._facts(view)
        while len(self._events) > MAX_EVENTS:
            del self._events[min(self._events, key=lambda key: _place(self._events[key]))]

    def join(self, other: EventLog) -> None:
        """Take over what another one has collected of the same run."""
        for event in other.events:
            self._note((event.kind, event.step, event.ranks, event.words), event)

    def jump(self) -> None:
        """The next picture is of another place: what is missing there did not end between."""
        self._open.clear()
        self._stalled_at = None

    def _note(self, key: Key, event: Event) -> None:
        former = self._events.get(key)
        if former is not None and event.wall_s is None:
            event = replace(event, wall_s=former.wall_s)
        if former != event:
            self._events[key] = event
            self._told = None

    def _findings(self, view: RunView, now_s: float) -> None:
        present = {
            (found.id, found.ranks): found
            for found in view.findings
            if found.severity != "info" and found.since_step is not None and found.id != HANG
        }
        for key, found in present.items():
            self._open[key] = (found, now_s)
            event = Event(ONSET, found.since_step, found.ranks, found.title, by_then=not found.onset_seen)
            self._note((ONSET, *key, found.since_step), _timed(event, view))
        for each, (found, last_s) in list(self._open.items()):
            if each not in present and now_s - last_s >= GONE_S:
                del self._open[each]
                event = Event(RESOLVED, view.last_step, found.ranks, found.title, by_then=True)
                self._note((RESOLVED, *each, view.last_step), _timed(event, view))

    def _stall(self, view: RunView) -> None:
        if view.stall is not None:
            step = view.last_step
            if self._stalled_at is None:
                self._stalled_at = (step, 0.0)
            step = self._stalled_at[0]
            self._stalled_at = (step, view.stall.for_s)
            self._note(
                (STALLED, step), _timed(Event(STALLED, step, view.stall.missing, view.stall.words), view)
            )
        elif self._stalled_at is not None:
            step, for_s = self._stalled_at
            self._stalled_at = None
            words = f"moves again after {text_of.timer(for_s)} or a little more"
            resolved = _timed(Event(RESOLVED, step, (), words), view)
            if resolved.wall_s is not None:  # of the step before it
                resolved = replace(resolved, wall_s=resolved.wall_s + for_s)
            self._note((RESOLVED, STALLED, step), resolved)
            stalled = self._events.get((STALLED, step))
            if stalled is not None:  # its step may not have been held when it began
                self._note((STALLED, step), _timed(stalled, view))

    def _facts(self, view: RunView) -> None:
        for pause in view.pauses:
            kind = PAUSE_KINDS.get(pause.kind, "pause")
            for place, step in enumerate(pause.steps):
                length_s = pause.lengths_s[place] if place < len(pause.lengths_s) else pause.length_s
                words = text_of.seconds(length_s) + ("" if pause.lengths_s else " on average")
                self._note((kind, step, pause.ranks), _timed(Event(kind, step, pause.ranks, words), view))
        for window in view.captured:
            words = f"the profiler saw {text_of.steps(window.first_step, window.last_step)}"
            key = (CAPTURE, window.first_step, window.ranks)
            self._note(key, _timed(Event(CAPTURE, window.first_step, window.ranks, words), view))
        for step, name in view.trend.marks:
            if name == NEW_LEVEL:
                words = view.window.change or "the job changed: figures are of the steps since"
                self._note((CHANGE, step), _timed(Event(CHANGE, step, (), words), view))
        for restart in view.restarts:
            anew = f"{text_of.count(len(restart.ranks), 'rank')} started anew"
            words = f"{restart.how_ended}; {anew}" if restart.how_ended else anew
            event = Event(RESTART, restart.after_step, restart.ranks, words, restart.began_wall_s)
            self._note((RESTART, restart.number), event)


def _timed(event: Event, view: RunView) -> Event:
    return replace(event, wall_s=view.step_times.at(event.step)) if view.step_times is not None else event


def _place(event: Event) -> tuple[int, float, str, str]:
    return (-1 if event.step is None else event.step, event.wall_s or 0.0, event.kind, event.words)
