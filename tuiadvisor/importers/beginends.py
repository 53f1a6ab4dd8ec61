"""Events of a Chrome trace that are written as a begin and an end each, as complete events.

In: events of phase B and E, in any order.  Out: events of phase X. Those of one thread lie within each other: an end
belongs to the last begin before it that has none. Times decide the order; the file does where they are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    Event = dict[str, Any]
    # When, and the begin's event or None of an end; what the end adds to the begin's arguments.
    Half = tuple[int, Event | None, dict[str, Any]]

MAX_HELD: Final = 1_000_000  # begins and ends: they are held until all are there
MAX_THREADS: Final = 10_000
NS: Final = 1000  # of a microsecond


@dataclass(slots=True)
class BeginEnds:
    """Filled event by event. num_lost: without a usable time, without their other half, or too many."""

    num_lost: int = 0
    _held: dict[tuple[object, object], list[Half]] = field(default_factory=dict)
    _num_held: int = 0

    def take(self, event: Event, time_ns: int | None) -> None:
        """A begin or an end, at this time."""
        key = _thread(event)
        is_full = self._num_held >= MAX_HELD or (key not in self._held and len(self._held) >= MAX_THREADS)
        if time_ns is None or is_full:
            self.num_lost += 1
            return
        self._num_held += 1
        half = (time_ns, event, {}) if event.get("ph") == "B" else (time_ns, None, _arguments(event))
        self._held.setdefault(key, []).append(half)

    def complete(self) -> list[Event]:
        """All that have both halves, by their begin; times are microseconds as text, exact to a nanosecond."""
        found: list[tuple[int, Event]] = []
        for halves in self._held.values():
            halves.sort(key=lambda half: half[0])
            found += self._paired(halves)
        self._held, self._num_held = {}, 0
        found.sort(key=lambda timed: timed[0])
        return [event for _, event in found]

    def _paired(self, halves: list[Half]) -> list[tuple[int, Event]]:
        begun: list[tuple[int, Event]] = []
        found = []
        for time_ns, event, arguments in halves:
            if event is not None:
                begun.append((time_ns, event))
            elif not begun:
                self.num_lost += 1
            else:
                begin_ns, first = begun.pop()
                times = {"ph": "X", "ts": _microseconds(begin_ns), "dur": _microseconds(time_ns - begin_ns)}
                found.append((begin_ns, {**first, **times, "args": {**_arguments(first), **arguments}}))
        self.num_lost += len(begun)
        return found


def _thread(event: Event) -> tuple[object, object]:
    process, thread = event.get("pid"), event.get("tid")
    return (
        process if isinstance(process, int | str) else None,
        thread if isinstance(thread, int | str) else None,
    )


def _arguments(event: Event) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _microseconds(time_ns: int) -> str:
    whole, part = divmod(abs(time_ns), NS)
    return f"{'-' if time_ns < 0 else ''}{whole}.{part:03}"
