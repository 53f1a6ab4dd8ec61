"""What has happened in a run, collected from its pictures as they come: a finding that opens or closes, a stall, a
checkpoint, a restart, a capture.

In: RunViews in the order of time.  Out: Events, by step, and the findings that are over. A finding has begun once it
has stood for SETTLE_S of the run's own time and is over once it has been gone for GONE_S, so what flickers is no news;
after a jump in a recording, and by a picture in which a finding may stand unseen, nothing is said to be over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.events import EXITING
from tuiadvisor.text import format as text_of
from tuiadvisor.views.deaths import GONE, deaths_of
from tuiadvisor.views.event import (
    BOOKMARK,
    CAPTURE,
    CHANGE,
    DETAIL,
    DIED,
    GONE_S,
    NO_STEP,
    ONE_CHANGE_S,
    ONSET,
    PAUSE_KINDS,
    RESOLVED,
    RESTART,
    SAME_STEPS,
    SETTLE_S,
    STALLED,
    Event,
)
from tuiadvisor.views.pipeline import STAGE_FINDINGS
from tuiadvisor.views.run_view import NEW_PACE, PastFinding
from tuiadvisor.views.stall import HANG, NoStep, Stall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.views.event import LevelChange
    from tuiadvisor.views.run_view import Finding, FindingKey, RunView

MAX_EVENTS: Final = 4000  # the oldest go first
MAX_PAST: Final = 256  # findings that are over: those that ended first go first
STEPS_WITHOUT: Final = 16  # at the end: as many as between two looks at a recording, at least

PACE_WORDS: Final = "the pace changed: figures are of the steps since"
WHO_DIED: Final = "gone"  # of whom a stall says that they hold it up: then their death came before it
WHAT_LASTS: Final = {CAPTURE: "the profiler saw {}", DETAIL: "every call of {} was seen one by one"}

Key = tuple[object, ...]
SEVERITIES: Final = ("info", "warning", "critical")


@dataclass(slots=True)
class _Standing:
    """A finding that was there in the last pictures."""

    finding: Finding  # as it was when it was gravest
    number: int  # how often it had come before
    first_s: float  # seconds of the run
    last_s: float  # seen last
    first_step: int | None  # where it began, as well as that is known
    is_onset_seen: bool
    last_step: int | None
    is_dated: bool  # False: it was there in the first picture after a jump, since nobody knows when
    has_settled: bool = False
    seen_step: int | None = None  # newest step of the first picture that had it

    def see(self, found: Finding, now_s: float, step: int | None) -> None:
        """It is there in one more picture."""
        if SEVERITIES.index(found.severity) >= SEVERITIES.index(self.finding.severity):
            self.finding = found
        self.last_s, self.last_step = now_s, step
        onset = found.onset_step
        # A window that begins anew for a while dates it to its own beginning, which it stood before.
        is_later = self.has_settled and self.seen_step is not None and (onset or 0) > self.seen_step
        if onset is not None and not self.is_onset_seen and not is_later:
            self.first_step, self.is_onset_seen = onset, True

    def ended(self, former: PastFinding | None) -> PastFinding:
        """What to keep of it; former: of the times before."""
        first = self.first_step if former is None else former.first_step
        finding = self.finding
        if former is not None and SEVERITIES.index(former.finding.severity) > SEVERITIES.index(
            finding.severity
        ):
            finding = former.finding
        return PastFinding(finding, first, self.last_step, self.number + 1)


class EventLog:
    """Mutable: show it each picture."""

    def __init__(self) -> None:
        self._events: dict[Key, Event] = {}
        self._standing: dict[FindingKey, _Standing] = {}
        self._past: dict[FindingKey, PastFinding] = {}
        self._stalled_at: tuple[int | None, float] | None = (
            None  # last step before it, and for how long it lasted as seen last
        )
        self._told: tuple[Event, ...] | None = ()
        self._has_jumped = False  # and no picture came since

    @property
    def events(self) -> tuple[Event, ...]:
        """All that is held, oldest first."""
        if self._told is None:
            self._told = _without_repeats(sorted(_different(self._events.values()), key=_place))
        return self._told

    def take(self, view: RunView) -> None:
        """Note what this picture shows."""
        now_s = view.event_time_s or 0.0
        for key, marked in list(self._events.items()):
            if (
                marked.kind == BOOKMARK and marked.wall_s is None
            ):  # read from a file: its step's time is in a picture
                self._note(key, _timed(marked, view))
        self._findings(view, now_s)
        if view.ended and view.without_step_s is None:
            self._stalled_at = None  # what holds the job up at the end was not resolved by it
        self._stall(view)
        self._facts(view)
        while len(self._events) > MAX_EVENTS:
            del self._events[min(self._events, key=lambda key: _place(self._events[key]))]

    def past(self, view: RunView) -> tuple[PastFinding, ...]:
        """Findings that are over and do not go on in this picture, the gravest first."""
        # What is missing for a moment is there.
        held = [each.finding for each in self._standing.values() if each.has_settled]
        here = replace(view, findings=(*view.findings, *held))
        over = [each for each in self._past.values() if not _goes_on(each.finding, here)]
        # Looks at processes tell of the last quarter of a minute: of ranks that steps have dated they say no more.
        dated = {
            each.finding.ranks for each in over if each.finding.ranks and each.finding.since_step is not None
        }
        return tuple(
            sorted(
                [
                    each
                    for each in over
                    if each.finding.since_step is not None or each.finding.ranks not in dated
                ],
                key=lambda each: (
                    -SEVERITIES.index(each.finding.severity),
                    each.first_step or 0,
                    each.finding.id,
                ),
            )
        )

    def dated(self, view: RunView) -> RunView:
        """The picture with each finding since where it was known to stand already.

        Steps that leave the window take the beginning with them: "since step 5 or earlier" does not become 591.
        """
        begun = {id(found): self._since(found) for found in view.findings}
        # Of a rank there may be other findings, as of all ranks: the lateness is the one since the same step.
        late_since = {(rank, found.since_step): found for found in view.findings for rank in found.ranks}
        stragglers = tuple(
            replace(late, since_step=dated[0], onset_seen=dated[1])
            if (found := late_since.get((late.rank, late.since_step))) is not None
            and (dated := begun[id(found)]) is not None
            else late
            for late in view.stragglers
        )
        findings = tuple(
            found
            if (dated := begun[id(found)]) is None
            else replace(found, since_step=dated[0], evidence=found.evidence | {"onset_seen": int(dated[1])})
            for found in view.findings
        )
        return replace(view, findings=findings, stragglers=stragglers)

    def _since(self, found: Finding) -> tuple[int, bool] | None:
        """Since when it is known to stand, and whether its beginning was seen; None where the picture knows it best."""
        standing = self._standing.get(found.key)
        if standing is None or standing.first_step is None or found.since_step is None or found.onset_seen:
            return None
        if standing.first_step >= found.since_step:
            return None
        return standing.first_step, standing.is_onset_seen

    def end(self, view: RunView) -> None:
        """Nothing comes after this picture: what it does not have although steps went on is over."""
        self.take(view)
        for key, standing in list(self._standing.items()):
            num_steps = (view.last_step or 0) - (standing.last_step or 0)
            if num_steps >= STEPS_WITHOUT and _is_gone(standing.finding, view):
                self._over(key, standing, view)

    def bookmark(self, step: int, label: str) -> None:
        """Note a step that the user marked. label: what it is called in the replay's line."""
        self._note((BOOKMARK, step, label), Event(BOOKMARK, step, (), label.removeprefix(BOOKMARK)))

    def join(self, other: EventLog) -> None:
        """Take over what another one has collected of the same run."""
        for event in other.events:
            if event.last_step is not None:
                self._note_stretch(event)
                continue
            self._note((event.kind, event.step, event.ranks, event.words), event)

    def jump(self) -> None:
        """The next picture is of another place: what is missing there did not end between."""
        self._standing.clear()
        self._stalled_at = None
        self._has_jumped = True

    def _note(self, key: Key, event: Event) -> None:
        former = self._events.get(key)
        if former is not None and event.wall_s is None:
            event = replace(event, wall_s=former.wall_s)
        if former != event:
            self._events[key] = event
            self._told = None

    def _note_stretch(self, event: Event) -> None:
        """What lasts for steps grows at its end, and at its beginning steps are no longer held: it is one event."""
        met = [
            key for key, former in self._events.items() if former.kind == event.kind and _meet(former, event)
        ]
        for key in met:
            event = _joined(self._events[key], event)
        event = replace(event, words=WHAT_LASTS[event.kind].format(_steps(event)))
        if [event] == [self._events[key] for key in met]:
            return
        for key in met:
            del self._events[key]
        self._note((event.kind, event.step), event)

    def _findings(self, view: RunView, now_s: float) -> None:
        present = {
            found.key: found for found in view.findings if found.severity != "info" and found.id != HANG
        }
        for key, found in present.items():
            standing = self._standing.get(key) or self._begun(key, found, view, now_s)
            standing.see(found, now_s, view.last_step)
            # A run that has ended shows its last picture once.
            standing.has_settled |= now_s - standing.first_s >= SETTLE_S or bool(view.ended)
            if standing.has_settled and standing.is_dated:
                is_seen = standing.is_onset_seen
                event = Event(ONSET, standing.first_step, found.ranks, found.title, by_then=not is_seen)
                self._note((ONSET, *key, standing.number), _timed(event, view))
        self._has_jumped = False
        for key, standing in list(self._standing.items()):
            if key in present:
                continue
            if not standing.has_settled:
                del self._standing[key]  # twice for a moment is not once for a while
            # What is missing once a run has ended was not resolved by that.
            elif not view.ended and now_s - standing.last_s >= GONE_S and _is_gone(standing.finding, view):
                self._over(key, standing, view)

    def _over(self, key: FindingKey, standing: _Standing, view: RunView) -> None:
        del self._standing[key]
        found = standing.finding
        self._past[key] = standing.ended(self._past.pop(key, None))
        while len(self._past) > MAX_PAST:
            del self._past[next(iter(self._past))]
        event = Event(RESOLVED, view.last_step, found.ranks, found.title, by_then=True)
        self._note((RESOLVED, *key, view.last_step), _timed(event, view))

    def _begun(self, key: FindingKey, found: Finding, view: RunView, now_s: float) -> _Standing:
        former = self._past.get(key)
        number = former.num_times if former is not None else 0
        is_dated = found.since_step is not None or not self._has_jumped
        first = view.last_step if found.since_step is None else found.since_step
        if former is not None and first is not None and not found.onset_seen and former.last_step is not None:
            # Late in steps in which it was late before: it had not gone.
            first = former.first_step if first <= former.last_step else first
        step, is_seen = view.last_step, found.onset_step is not None
        standing = _Standing(found, number, now_s, now_s, first, is_seen, step, is_dated, seen_step=step)
        self._standing[key] = standing
        return standing

    def _stall(self, view: RunView) -> None:
        now = view.stall or view.no_step
        if now is not None and not (isinstance(now, NoStep) and now.is_at_work):
            last = self._begun_at(now, view) if self._stalled_at is None else self._stalled_at[0]
            self._stalled_at = (last, now.for_s or 0.0)
            kind, missing = (STALLED, now.missing) if isinstance(now, Stall) else (NO_STEP, ())
            # As header and banner: the step that the ranks are in, which may not have been told yet.
            step = now.step if isinstance(now, Stall) and now.step is not None else last
            self._note((STALLED, last), _timed(Event(kind, step, missing, now.words), view, last))
        elif self._stalled_at is not None and not _is_ending(view, self._stalled_at[0]):
            last, for_s = self._stalled_at
            self._stalled_at = None
            words = f"moves again after {text_of.timer(for_s)} or a little more"
            stalled = self._events.get((STALLED, last))
            step = last if stalled is None else stalled.step
            resolved = _timed(Event(RESOLVED, step, (), words), view, last)
            if resolved.wall_s is not None:  # of the step before it
                resolved = replace(resolved, wall_s=resolved.wall_s + for_s)
            self._note((RESOLVED, STALLED, last), resolved)
            if stalled is not None:  # its step may not have been held when it began
                self._note((STALLED, last), _timed(stalled, view, last))

    def _in_stall(self, died: Event, view: RunView, former: Event | None) -> Event:
        """Whoever dies in a stall dies in its step, after it: the last steps before it may not have been told.

        former: as it was noted, with the time that had passed then.
        """
        stall = view.stall
        if stall is None or stall.held == WHO_DIED or self._stalled_at is None:
            return died
        stalled = self._events.get((STALLED, self._stalled_at[0]))
        if stalled is None or stalled.step is None:
            return died
        if former is not None and former.step == stalled.step:
            return replace(died, step=former.step, wall_s=former.wall_s)
        wall_s = None if stalled.wall_s is None else stalled.wall_s + self._stalled_at[1]
        return replace(died, step=stalled.step, wall_s=wall_s)

    def _begun_at(self, now: Stall | NoStep, view: RunView) -> int | None:
        """The last step before it; a stall in the step of a former one is that one, which was not over.

        While processes of a job that hangs are ended one after another it does not look hung for a moment.
        """
        step = now.step if isinstance(now, Stall) else None
        former = next(
            (key for key, event in self._events.items() if key[0] == STALLED and event.step == step), None
        )
        if step is None or former is None:
            return view.last_step
        if self._events.pop((RESOLVED, *former), None) is not None:
            self._told = None
        return former[1] if isinstance(former[1], int) else view.last_step

    def _forget_former_dates(self, changes: tuple[LevelChange, ...]) -> None:
        """Drop changes that the view has at another step now: their step is known better as more steps come."""
        steps = {change.step for change in changes}
        for change in changes:
            if (CHANGE, change.step) in self._events:
                continue
            former = [
                key
                for key, event in self._events.items()
                if event.kind == CHANGE
                and event.ranks == change.ranks
                and event.step not in steps
                and abs((event.step or 0) - change.step) <= SAME_STEPS
            ]
            for key in former:
                del self._events[key]

    def _pauses(self, view: RunView) -> None:
        for pause in view.pauses:
            kind = PAUSE_KINDS.get(pause.kind, "pause")
            for place, step in enumerate(pause.steps):
                words = text_of.seconds(pause.lengths_s[place])
                # One that was not explained at first is no second event once it is.
                if kind != "pause" and self._events.pop(("pause", step, pause.ranks), None) is not None:
                    self._told = None
                self._note((kind, step, pause.ranks), _timed(Event(kind, step, pause.ranks, words), view))

    def _facts(self, view: RunView) -> None:
        self._pauses(view)
        for kind, windows in ((CAPTURE, view.captured), (DETAIL, view.in_detail)):
            for window in windows:
                event = Event(kind, window.first_step, window.ranks, "", last_step=window.last_step)
                self._note_stretch(_timed(event, view))
        self._forget_former_dates(view.changes)
        for change in view.changes:
            event = Event(CHANGE, change.step, change.ranks, change.words)
            self._note((CHANGE, change.step), _timed(event, view))
        told = {change.step for change in view.changes}
        for step, name in view.trend.marks:
            # One whose size is known is among the changes, or too small to be told.
            if name == NEW_PACE and step not in told and not view.window.change:
                self._note((CHANGE, step), _timed(Event(CHANGE, step, (), PACE_WORDS), view))
        died = deaths_of(view)
        if died is not None:
            event = _timed(Event(DIED, view.last_step, (died.rank,), died.words), view)
            died_key = (DIED, len(view.restarts))
            self._note(died_key, self._in_stall(event, view, self._events.get(died_key)))
        for restart in view.restarts:
            anew = f"{text_of.count(len(restart.ranks), 'rank')} started anew"
            words = f"{restart.how_ended}; {anew}" if restart.how_ended else anew
            event = Event(RESTART, restart.after_step, restart.ranks, words, restart.began_wall_s)
            self._note((RESTART, restart.number), event)


def _different(events: Iterable[Event]) -> list[Event]:
    """One that was also collected elsewhere is the same event, with the time at which the last rank was seen there.

    After one step there may be several restarts, each with the time of its processes.
    """
    found: dict[Event, Event] = {}
    for event in events:
        what = event if event.kind == RESTART else replace(event, wall_s=None)
        former = found.setdefault(what, event)
        if (event.wall_s or 0.0) > (former.wall_s or 0.0):
            found[what] = event
    return list(found.values())


def _without_repeats(events: list[Event]) -> tuple[Event, ...]:
    """Whoever comes in the middle sees a finding at the first step that is held: it has begun once, unless it ended.

    A pace that changes for a few seconds has changed once, to that of the last of these steps. events: in order.
    """
    kept: list[Event] = []
    paces: list[Event] = []  # of one change: the first and the last
    going: set[tuple[tuple[int, ...], str]] = set()
    for event in events:
        subject = (event.ranks, event.words)
        if event.kind == RESOLVED:
            going.discard(subject)
        if event.kind == CHANGE and event.words == PACE_WORDS:
            if paces and _is_same_change(paces[0], event):
                kept.remove(paces[-1])
                paces = [paces[0], event]
            else:
                paces = [event]
        if event.kind == ONSET:
            if event.by_then and subject in going:
                continue
            going.add(subject)
        kept.append(event)
    return tuple(kept)


def _is_same_change(first: Event, event: Event) -> bool:
    """Whether a change belongs to one a moment ago; where times are unknown, to one of the steps just before."""
    if first.wall_s is not None and event.wall_s is not None:
        return event.wall_s - first.wall_s <= ONE_CHANGE_S
    return (event.step or 0) - (first.step or 0) <= SAME_STEPS


def _meet(one: Event, other: Event) -> bool:
    """Whether two events that last share a step, or one goes on where the other ends."""
    if one.step is None or one.last_step is None or other.step is None or other.last_step is None:
        return False
    return one.step <= other.last_step + 1 and other.step <= one.last_step + 1


def _joined(one: Event, other: Event) -> Event:
    """Two that meet as one, with the time at which the first of them began."""
    first = min((one, other), key=lambda each: (each.step or 0, each.wall_s is None))
    return replace(
        first,
        ranks=tuple(sorted({*one.ranks, *other.ranks})),
        last_step=max(one.last_step or 0, other.last_step or 0),
    )


def _is_ending(view: RunView, last: int | None) -> bool:
    """Whether ranks go and none has made a step since a stall, that step aside which their end may close."""
    is_going = any(row.state in GONE or row.state_detail == EXITING for row in view.ranks)
    return is_going and (view.last_step or 0) <= (last or 0) + 1


def _steps(event: Event) -> str:
    return text_of.steps(event.step or 0, event.last_step or 0)


def _is_gone(past: Finding, view: RunView) -> bool:
    """Whether a picture shows that the finding is over; one in which it may stand unseen shows nothing of the kind."""
    stages = view.pipeline
    is_untold = past.id in STAGE_FINDINGS and stages is not None and not stages.stages
    return not (view.verdict.may_hide or is_untold or _goes_on(past, view))


def _goes_on(past: Finding, view: RunView) -> bool:
    """Whether a picture has the finding, be it of more or fewer ranks, or has another name for what these ranks do.

    What all ranks do at once has another name only in the same phase: two troubles of the whole job are two.
    """
    ranks = past.ranks
    is_apart = 0 < len(ranks) < len(view.ranks)
    return any(
        found.is_of(past)
        if (found.id, found.subject) == (past.id, past.subject)
        else bool(ranks) and ranks == found.ranks and (is_apart or found.phase == past.phase)
        for found in view.findings
    )


def _timed(event: Event, view: RunView, ended: int | None = None) -> Event:
    """ended: the step whose end is its time, where that is not its own: the one before a stall."""
    if view.step_times is None:
        return event
    return replace(event, wall_s=view.step_times.at(event.step if ended is None else ended))


def _place(event: Event) -> tuple[int, float, str, str]:
    return (-1 if event.step is None else event.step, event.wall_s or 0.0, event.kind, event.words)
