"""What must not be missed: a banner on every screen, and once the terminal's bell with a notification.

In: states of the run.  Out: rows below the header, an Alert to notify with. A stall has its banner as long as it
lasts, a critical finding for half a minute after it opened; that a rank died, without having been asked to end, the
header and the verdict say. Each is told once; a stall that closes and opens again within a minute is told anew only
when it outlasts that minute, and a finding that was told is no news until it was gone for as long, as a warning too;
a rank that a finding had already is none either, whatever ranks come and go beside it;
what is still open is told again where that is preferred, but for the dead. In quiet hours nothing rings but, as
preferred, a job that stands or dies; what they hid and is still open rings when they end. Of recordings and of the
past nothing is told: nobody needs to be called for these.
"""

from __future__ import annotations

from time import localtime
from typing import TYPE_CHECKING, Final

from tuiadvisor.preferences import AlertRules
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, clean, crop, fit, length, wrap
from tuiadvisor.views.deaths import deaths_of
from tuiadvisor.views.event import Alert

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.run_view import Finding, RunView

SHOWN_S: Final = 30.0  # the banner of a critical finding
AGAIN_S: Final = 60.0  # what opens anew within this long was told already
STALL: Final = "stall"
DEATH: Final = "death"
STACKS: Final = "tuiadvisor stacks"  # what the screens do by a key, too
WORD_ROWS: Final = 2  # of a banner, beside a command
INDENT: Final = 3  # of its rows behind the first: below the words, not below the timer
CLAUSES: Final = ("; ", ", ")  # where a sentence may end before its end


def minute_of_day() -> int:
    """Of now, local time."""
    now = localtime()
    return now.tm_hour * 60 + now.tm_min


class Alerts:
    """Mutable: what is open, and when it was told."""

    def __init__(self, clock: Callable[[], float], minute: Callable[[], int] = minute_of_day) -> None:
        """clock: monotonic seconds; minute: of the day, local time."""
        self.clock = clock
        self.minute = minute
        self.rules = AlertRules()
        self._owed: set[str] = set()  # news that quiet hours hid
        self.is_quiet = False  # banners alone
        self._open: frozenset[str] | None = None  # None: no figures were seen yet
        self._told_s: dict[str, float] = {}  # when each was told last
        self._opened_s: dict[str, float] = {}
        self._found_s: dict[str, float] = {}  # when a finding was there last, of whatever severity

    def take(self, state: FeedState) -> Alert | None:
        """Return what to ring for, or None."""
        view = state.view
        if view is None or state.mode != "live" or _is_past(state) or state.replay is not None:
            return None
        now = self.clock()
        former, self._open = self._open, _open_in(view)
        # Whoever comes to a run that has its findings already reads them; a stall is news at any time.
        news = [
            key
            for key in sorted(self._open)
            if key not in (former or ()) and _is_news(key, former) and not self._has_stayed(key, now)
        ]
        self._found_s |= dict.fromkeys((key for finding in view.findings for key in _keys(finding)), now)
        self._opened_s |= dict.fromkeys(news, now)
        self._owed |= set(news)
        self._owed |= {key for key in self._open if self._is_again(key, now)}
        self._owed &= self._open
        due = sorted(key for key in self._owed if not self._is_hushed(key) and not self._is_fresh(key, now))
        self._owed -= set(due)
        self._told_s |= dict.fromkeys(due, now)
        return _alert(view, due[0]) if due and not self.is_quiet else None

    def _is_again(self, key: str, now: float) -> bool:
        if key == DEATH:  # it stays dead
            return False
        told_s, after_s = self._told_s.get(key), self.rules.repeat_s
        return told_s is not None and after_s is not None and now - told_s >= max(after_s, AGAIN_S)

    def _has_stayed(self, key: str, now: float) -> bool:
        """Whether it is a finding that was told and has not been gone for long since: the same trouble goes on."""
        return key in self._told_s and now - self._found_s.get(key, -AGAIN_S) < AGAIN_S

    def _is_fresh(self, key: str, now: float) -> bool:
        """Whether it was told a moment ago: what is still open when the moment is over is told then."""
        return now - self._told_s.get(key, -AGAIN_S) < AGAIN_S

    def _is_hushed(self, key: str) -> bool:
        if key in {STALL, DEATH} and self.rules.lets_hang:
            return False
        return self.rules.is_quiet_at(self.minute())

    def rows(
        self, state: FeedState, width: int, *, has_verdict: bool = False, tells_findings: bool = True
    ) -> list[Line]:
        """Return the banner, or nothing. has_verdict: the page says the finding of the verdict itself.

        tells_findings: else a stall alone has one.
        """
        view = state.view
        if view is None or _is_past(state) or (view.ended and not is_of_dumps(view)):
            return []
        if view.stall is not None:
            head = f" ■ {text_of.stalled(view.stall.for_s).replace('stalled', 'STALLED')}: "
            does = view.stall.command
            if does.startswith(STACKS) and state.mode == "live" and state.replay is None:
                does = f"C shows where each rank stands, as does {does}"
            return _banner(head, stall_words(view), does, view.stall.where, width)
        if state.mode != "live" or state.replay is not None or not tells_findings:
            return []
        now = self.clock()
        fresh = (
            finding
            for finding in view.findings
            if finding.severity == "critical"
            and any(now - self._opened_s.get(key, -SHOWN_S) < SHOWN_S for key in _keys(finding))
        )
        finding = next(fresh, None)
        if finding is None or (has_verdict and finding.id == view.verdict.finding):
            return []
        return _banner(" ■ CRITICAL ", finding.message, "", "", width)


def _is_past(state: FeedState) -> bool:
    return state.past is not None or state.stretch is not None


def is_of_dumps(view: RunView) -> bool:
    """Whether it shows a job as it stood when its flight recorders were dumped: what is over stands still there."""
    return view.stall is not None and view.stall.for_s is None


def stall_words(view: RunView) -> str:
    """Return who waits for whom."""
    return view.stall.words if view.stall is not None else ""


def _keys(finding: Finding) -> list[str]:
    """One for each of its ranks: that a rank joins is news of that rank, that one leaves is none."""
    what = f"{finding.id} {finding.subject}"
    return [f"{what} {rank}" for rank in finding.ranks] or [what]


def _open_in(view: RunView) -> frozenset[str]:
    died = deaths_of(view)
    lost = frozenset({DEATH}) if died is not None and not died.was_asked else frozenset[str]()
    if view.ended:
        return lost
    if view.stall is not None:
        return lost | {STALL}  # what else there is can wait
    return lost | {
        key for finding in view.findings if finding.severity == "critical" for key in _keys(finding)
    }


def _is_news(key: str, former: frozenset[str] | None) -> bool:
    return (
        key == STALL or (key == DEATH and former is not None) or (former is not None and STALL not in former)
    )


def _alert(view: RunView, key: str) -> Alert:
    label = view.run.label or "training"
    if key == STALL:
        return Alert(
            f"{label} stalled: {stall_words(view)}", view.stall.missing if view.stall is not None else ()
        )
    died = deaths_of(view)
    if key == DEATH and died is not None:
        return Alert(f"{label}: rank {died.rank} {died.words}", (died.rank,))
    found = next((each for each in view.findings if key in _keys(each)), None)
    return Alert(label) if found is None else Alert(f"{label}: {found.message}", found.ranks)


def _banner(head: str, words: str, command: str, where: str, width: int) -> list[Line]:
    """Return head and words on one ground over the whole width; a command is never cut off by them."""
    does = f"{command}{f'   (on {where})' if where else ''}"
    text = " ".join(clean(words).split())
    rows = _fitted(text, width - len(head) - 1, width - INDENT - 1)
    if len(rows) > 1 and not does and " " not in rows[-1]:  # a row of the screen for one word
        short = _in_one_row(text, width - len(head) - 1)
        rows = [short] if short else rows
    if does and len(rows[-1]) + len(does) + 3 <= width - (len(head) if len(rows) == 1 else INDENT) - 1:
        rows[-1] += f" · {does}"
    elif does:
        rows.append(does)
    drawn = []
    for number, each in enumerate(rows):
        lead = head if number == 0 else " " * INDENT
        spans = ((lead, "badge:lost"), (each, "badge:lost"))
        row = crop(Line(spans), width)
        drawn.append(Line((*row.spans, (" " * (width - length(row)), "badge:lost"))))
    return drawn


def _in_one_row(text: str, room: int) -> str:
    """Return the whole clauses from its beginning that fit, and a sign; "" where that is less than half of the row."""
    fits = [end for end in _clause_ends(text) if room <= 2 * end and end + 2 <= room]
    return f"{text[: max(fits)]} …" if fits else ""


def _clause_ends(text: str) -> list[int]:
    ends = [place for place in range(len(text)) if text.startswith(CLAUSES, place)]
    return [place for place in ends if not text[place + 2 : place + 3].isdigit()]  # "ranks 0, 1 and 2"


def _fitted(text: str, first_room: int, room: int) -> list[str]:
    """Return as many rows as words may have: of what is too long whole clauses from its beginning, and a sign."""
    rows = _wrapped(text, first_room, room)
    if len(rows) <= WORD_ROWS:
        return rows
    for end in sorted(_clause_ends(text), reverse=True):
        if 2 * end < first_room + room:
            break
        rows = _wrapped(f"{text[:end]} …", first_room, room)
        if len(rows) <= WORD_ROWS:
            return rows
    rows = _wrapped(text, first_room, room)
    return [rows[0], fit(" ".join(rows[1:]), room).rstrip()]


def _wrapped(text: str, first_room: int, room: int) -> list[str]:
    first = wrap(text, first_room)[0] if text else ""
    return [first, *wrap(text[len(first) :], room)]
