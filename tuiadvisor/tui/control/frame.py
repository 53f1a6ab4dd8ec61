"""The frame around a page: header, notice, replay bar, footer, intro card.

In: FeedState and page.  Out: lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import (
    BLANK,
    Line,
    Span,
    clean,
    crop,
    fit,
    fit_middle,
    indent,
    length,
    line,
    pad,
    wrap,
)
from tuiadvisor.text.wording import device_words
from tuiadvisor.tui.contract.commands import label
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import sections
from tuiadvisor.views.deaths import all_gone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.text.line import Spot
    from tuiadvisor.tui.contract.commands import CommandTable
    from tuiadvisor.tui.contract.feed import FeedState, ReplayState, StretchState
    from tuiadvisor.tui.contract.page import Page
    from tuiadvisor.views.run_view import RunView


@dataclass(frozen=True, slots=True)
class Tab:
    """A screen with a number."""

    key: str
    label: str
    command: str  # that opens it
    is_open: bool


SMALLEST = (60, 16)
IN_LOG = " … (L: log)"
ROOMY = 30  # rows of a screen from which an answer may take three
LEAST_NAME = 8  # columns of a job: with fewer it has all of them, and the screens give way
AT_MARK = 0.003  # of a recording: nearer than that one stands on a mark
# Phases after which the figures on the screen are the last ones; what follows a colon is the reason.
FAILURES = ("hub lost", "agent lost", "failed")


def badge(state: FeedState) -> Span:
    """Return what kind of time is on the screen, as glyph, word and colour."""
    failure = next((word for word in FAILURES if state.phase.startswith(word)), "")
    if failure:
        return f" ✖ {failure.upper()} ", "badge:lost"
    if state.past is not None or state.stretch is not None:
        return (" ◀ PAST " if state.past is not None else " [ ] STRETCH "), "badge:paused"
    if state.replay is not None:
        view = state.view
        is_open = view is not None and not view.ended and view.imported is None
        return _replay_badge(state.phase, paused=state.replay.paused, is_open=is_open)
    if state.phase == "live" and state.view is not None and (makes_none := _without_steps(state.view)):
        return makes_none
    if state.phase == "ended" or (state.view is not None and state.view.ended):
        is_over = state.view is None or all_gone(state.view)
        return (" ■ ENDED " if is_over else " ■ NO LONGER WATCHED "), "badge"
    fixed = {
        "live": (" ● LIVE ", "badge:live"),
        "paused": (" ║ PAUSED ", "badge:paused"),
        "recording ended": (" ■ RECORDING ENDED ", "badge"),
    }
    return fixed.get(state.phase, (f" ◌ {clean(state.phase).upper() or 'STARTING'} ", "badge"))


def _without_steps(view: RunView) -> Span | None:
    """Return what is said of a job that is live and makes no steps; None where it makes some."""
    if view.stall is not None:
        return " ■ STALLED ", "badge:lost"
    if view.restarts and view.restarts[-1].waits_s is not None:
        return " ◌ RESTARTED ", "badge"
    if sections.stands_from_the_start(view):
        return " ◌ NO STEP YET ", "badge"
    return None


def _replay_badge(phase: str, *, paused: bool, is_open: bool) -> Span:
    """Return the badge of a recording; is_open: as far as it goes the run goes on, so its end is not the run's."""
    if phase == "ended" and is_open:
        return " ■ RECORDED SO FAR ", "badge"
    if phase == "ended":
        return " ■ END OF REPLAY ", "badge"
    return (" ║ REPLAY PAUSED ", "badge:paused") if paused else (" ▶ REPLAY ", "badge:replay")


def header(state: FeedState, width: int, headline: str = "", tabs: Sequence[Tab] = ()) -> Line:
    """Return the job in one row: label, ranks, hosts, software; tabs and the step flush right.

    headline: "BADGE words", said in place of the run.
    """
    view = state.view
    if headline:
        name, _, words = headline.partition(" ")
        said: list[Span] = [(f" ● {name} ", "badge"), (" ", "header"), (clean(words), "header_strong")]
        return _over(Line(tuple(said)), Line(strip(tabs, width - length(said) - 1)), width, tabs)
    left: list[Span] = [badge(state), (" ", "header")]
    if view is None:
        left.append(("tuiadvisor", "header_strong"))
        return _over(Line(tuple(left)), Line(strip(tabs, width - length(left) - 1)), width, tabs)
    run = view.run
    where = text_of.count(len(run.hosts), "host") if len(run.hosts) != 1 else clean(run.hosts[0])
    world = text_of.count(run.world_size, "rank") if run.world_size is not None else "unknown world size"
    software = " ".join(
        clean(part) for part in (f"torch {run.torch}" if run.torch else "", run.backend or "") if part
    )
    device = clean(device_words(view))
    at = view.present_step
    step = f"step {at:,} " if at is not None else "no step " if view.ended else "no step yet "
    job = clean(run.label) or "unnamed job"
    # Which screen this is stands even beside a long name: of that the ends are enough.
    room = width - length(left) - len(step) - 1 - length(_strip(tabs, names_all=False)) - 2
    if LEAST_NAME <= room < cell_len(job):
        job = fit_middle(job, room)
    left.append((job, "header_strong"))
    right = width - length(left) - len(step) - 1
    size = [f"{world} on {where}", world] if run.hosts else [world]
    # The ranks come first, then the screens by name, then where they run and on what; where it is narrow, the screens.
    rooms = (right - len(size[0]) - 2, right - len(size[-1]) - 2, right)
    shown = next((found for room in rooms if (found := strip(tabs, room))), ())
    left += _details(size, [part for part in (software, device) if part], right - length(shown))
    return _over(Line(tuple(left)), Line((*shown, (step, "header_strong"))), width, tabs)


def _details(sizes: list[str], more: list[str], room: int) -> list[Span]:
    """Return what is known of the job, as much as fits: a part is left out, never cut in two."""
    text = next((f"  {each}" for each in sizes if len(each) + 2 <= room), "")
    for part in more if text else ():
        if len(text) + len(part) + 3 > room:
            break
        text += f" · {part}"
    return [(text, "header_dim")] if text else []


def strip(tabs: Sequence[Tab], room: int) -> tuple[Span, ...]:
    """Return the screens with a number: all by name, or only the one that is open, or nothing where neither fits."""
    for names_all in (True, False):
        spans = _strip(tabs, names_all=names_all)
        if length(spans) + 2 <= room:
            return (*spans, ("  ", "header")) if spans else ()
    return ()


def _strip(tabs: Sequence[Tab], *, names_all: bool) -> list[Span]:
    spans: list[Span] = []
    for tab in tabs:
        if tab.is_open:
            spans += [(f" {tab.key} {tab.label} ", "tab")]
        else:
            spans += [(f" {tab.key}", "key"), (f" {tab.label} " if names_all else " ", "header_dim")]
    return spans


def _over(left: Line, right: Line, width: int, tabs: Sequence[Tab] = ()) -> Line:
    left = crop(left, width - length(right) - 1)
    gap = max(width - length(left) - length(right), 0)
    return Line(
        (*left.spans, (" " * gap, "header"), *right.spans),
        spots=_tab_spots(right.spans, length(left) + gap, tabs),
    )


def _tab_spots(spans: Sequence[Span], begin: int, tabs: Sequence[Tab]) -> tuple[Spot, ...]:
    """Return where the tabs of a strip lie that begins at this cell."""
    spots: list[Spot] = []
    for text, role in spans:
        if role in {"tab", "key"}:
            spots.append((begin, begin + len(text), tabs[len(spots)].command))
        elif role == "header_dim" and spots:
            spots[-1] = (spots[-1][0], begin + len(text), spots[-1][2])
        begin += len(text)
    return tuple(spots)


def notice(state: FeedState, width: int, height: int) -> list[Line]:
    """Return what the user must know before reading the figures, or nothing. height: rows of the whole screen."""
    if state.view is None:
        return []
    text, role = _of_when(state, state.view), "warn"
    if not text:
        text, role = _of_now(state, state.view)
    elif state.phase.startswith(FAILURES):
        text += f" ✖ {state.phase.rstrip('.')}."
    if state.message and (text or state.phase != "live"):
        text = f"{text} {state.message}".strip()
    if state.progress is not None and state.phase != "live":
        done, whole = state.progress
        bar: list[Span] = [
            ("  ", "text"),
            *bars.progress(done, whole, 16),
            (f" {done:,} of {whole:,}", "dim"),
        ]
        return [crop(line((f" {clean(text)}", role), *bar), width)]
    rows = [line((f" {row}", role)) for row in wrap(text, width - 2)[:2]]
    return rows + _answer(clean(state.notice), width - 2, 3 if height >= ROOMY else 2)


def _of_now(state: FeedState, view: RunView) -> tuple[str, str]:
    """Why the newest figures are not those of a run that goes on, and its role."""
    if state.phase.startswith(FAILURES):
        return f"✖ {state.phase.rstrip('.')}; these are the last figures.", "bad"
    if view.ended:
        last = "." if view.last_step is None else ": these are the last figures."
        return f"■ {view.ended}{last}", "accent"
    if state.phase == "recording ended":
        return (
            "■ Whoever recorded this run has stopped; the run may go on. These are the last figures.",
            "accent",
        )
    if state.phase not in {"live", "paused", "ended"} and state.replay is None:
        return state.phase, "warn"
    if state.replay is not None and state.replay.paused:
        # Standing on a mark: say what it marks.
        here = [name for place, name in state.replay.marks if abs(place - state.replay.position) < AT_MARK]
        return (f"▲ {here[0]}", "mark") if here else ("", "warn")
    return "", "warn"


def _of_when(state: FeedState, view: RunView) -> str:
    """What is shown where it is not the present, or an empty text."""
    if state.past is not None:
        return (
            f"◀ The past: as of step {state.past.step:,}. The run goes on, at step {state.past.last_step:,}; End goes "
            "there. States of ranks and hosts are the present ones."
        )
    return "" if state.stretch is None else stretch_words(state.stretch, view)


def stretch_words(stretch: StretchState, view: RunView) -> str:
    """Which steps the figures are of, how many of them, and which figures cannot follow."""
    chosen = text_of.steps(stretch.first_step, stretch.last_step)
    of = text_of.steps(stretch.run_first_step, stretch.run_last_step).removeprefix("steps ")
    return (
        f"[ ] Every figure is of {chosen} of {of}; {view.window.num_steps:,} of them decide. "
        "Of now: ranks' states, hosts, losses. Not shown: wall-time goodput, collectives."
    )


def _answer(text: str, width: int, max_rows: int) -> list[Line]:
    """What came of a command, in a few rows; the log keeps the whole of it."""
    rows = wrap(text, width)
    if len(rows) > max_rows:
        rows = [*rows[: max_rows - 1], wrap(rows[max_rows - 1], width - len(IN_LOG))[0] + IN_LOG]
    return [line((f" {row}", "accent")) for row in rows]


def lost(state: FeedState, width: int, height: int) -> list[Line]:
    """Return what was not seen, in one row of a low screen and two at most, or nothing where everything was."""
    return (
        [indent(row, 1) for row in sections.losses(state.view, width - 2, 2 if height >= ROOMY else 1)]
        if state.view is not None
        else []
    )


def replay_bar(state: FeedState, width: int) -> list[Line]:
    """Return the recording as a line with its marks, or the steps of a live run that one may look back on."""
    replay, past = state.replay, state.past
    if past is not None:
        head = line((" ◀ ", "accent"), (f"step {past.step:,}  ", "strong"), (f"{past.first_step:,} ", "dim"))
        end = f" {past.last_step:,} live "
        track = bars.time_line(past.position, (), max(width - length(head) - len(end), 5))
        return [crop(Line((*head.spans, *track, (end, "dim"))), width)]
    if replay is None:
        return []
    left, first, last = _bar_ends(replay)
    room = width - length(left) - len(first) - len(last)
    track = bars.time_line(replay.position, replay.marks, max(room, 5))
    return [crop(Line((*left.spans, (first, "dim"), *track, (last, "dim"))), width)]


def _bar_ends(replay: ReplayState) -> tuple[Line, str, str]:
    """Return what stands before the line of a recording, and the steps at its ends."""
    now = f"step {replay.step:,}" if replay.step is not None else "before the first step"
    left = line(
        (" ║ " if replay.paused else " ▶ ", "accent"),
        (now, "strong"),
        (f"  {replay.speed:g}{text_of.TIMES}  ", "dim"),
    )
    last = f" {replay.last_step:,} " if replay.last_step is not None else " "
    first = f"{replay.first_step:,} " if replay.first_step is not None else ""
    return left, first, last


def bar_step(replay: ReplayState, column: int, width: int) -> int | None:
    """Return the step under a column of the line of a recording, None beside it."""
    left, first, last = _bar_ends(replay)
    begin = length(left) + len(first)
    room = max(width - begin - len(last), 5)
    if replay.last_step is None or not begin <= column < begin + room:
        return None
    low = replay.first_step or 0
    return low + round((column - begin) / max(room - 1, 1) * (replay.last_step - low))


def footer(table: CommandTable, state: FeedState, page: Page, width: int, *, message: str, wire: str) -> Line:
    """Return the next useful keys, or the answer to the last one."""
    tail: list[Span] = [(f"{wire} ", "header_dim")] if wire else []
    if message:
        return _over(Line(((f" {clean(message)}", "header"),)), Line(tuple(tail)), width)
    names = ["page_down", *page.keys] if page.num_below else list(page.keys)
    if state.replay is not None and page.of_run:
        names = [*names[:3], "step_forward", "mark_forward", "seek", "speed", *names[3:]]
    elif state.past is not None and page.of_run:
        names = ["end", "step_back", "step_forward", "seek", *names]
    spans: list[Span] = [(" ", "header")]
    spots: list[Spot] = []
    used = 1 + length(tail)
    at = 1
    shown = table.usable(dict.fromkeys(names), state, page)
    # Quit is always told: it is kept where the others run out of room.
    last = [command for command in shown if command.name == "quit"]
    reserve = sum(len(command.shown) + len(command.label) + 3 for command in last)
    for command in [*(each for each in shown if each.name != "quit"), *last]:
        text = label(command, state, page)
        if command.name == "page_down" and page.num_below:
            text = f"{page.num_below:,} more"
        size = len(command.shown) + len(text) + 3
        if command.name != "quit" and used + size + reserve > width:
            continue
        spans += [(command.shown, "key"), (f" {text}  ", "header_dim")]
        spots.append((at, at + size - 2, command.name))
        at += size
        used += size
    spans[-1] = (
        spans[-1][0].rstrip(),
        spans[-1][1],
    )  # the blanks behind the last one are no text that is cut
    return replace(_over(Line(tuple(spans)), Line(tuple(tail)), width), spots=tuple(spots))


def prompt(question: str, typed: str, hint: str, width: int, refused: str = "") -> Line:
    """Return the row in which something is typed; refused: why it was not taken, in place of the hint."""
    head: list[Span] = [(f" {question} ", "key"), (clean(typed), "header_strong"), ("▏", "header_strong")]
    room = width - length(head) - 2
    shown, role = (refused, "warn") if refused else (hint, "header_dim")
    tail: list[Span] = [(fit(clean(shown), room).rstrip(), role)] if room > 8 else []
    return _over(Line(tuple(head)), Line(tuple(tail)), width)


def card(text: str, width: int) -> list[Line]:
    """Return the intro as a framed card; blank lines of the text part its paragraphs."""
    room = min(width - 8, 72)
    rows: list[Line] = []
    for paragraph in text.strip().split("\n\n"):
        rows += [*(line((each, "intro")) for each in wrap(paragraph, room - 4)), BLANK]
    rows.append(line(("any key closes this", "intro_dim")))
    head = "╭─ what to look at "
    framed = [line((head, "intro_title"), ("─" * (room - len(head) - 1) + "╮", "intro"))]
    for each in rows:
        inner = pad(each, room - 4)
        spans = tuple((part, "intro" if role == "text" else role) for part, role in inner.spans)
        framed.append(Line((("│ ", "intro"), *spans, (" │", "intro"))))
    framed.append(line(("╰" + "─" * (room - 2) + "╯", "intro")))
    return framed


def overlay(rows: list[Line], card_rows: list[Line], width: int) -> list[Line]:
    """Return the rows with the card over their middle."""
    top = max((len(rows) - len(card_rows)) // 2, 0)
    covered = list(rows)
    for index, card_row in enumerate(card_rows[: len(rows) - top]):
        size = length(card_row)
        lead = max((width - size) // 2, 0)
        below = pad(covered[top + index], width)
        covered[top + index] = Line(
            (*_part(below, 0, lead), *card_row.spans, *_part(below, lead + size, width))
        )
    return covered


def _part(source: Line, start: int, end: int) -> tuple[Span, ...]:
    """Return the cells start..end of a row of one-cell characters."""
    spans: list[Span] = []
    place = 0
    for text, role in source.spans:
        cut = text[max(start - place, 0) : max(end - place, 0)]
        if cut:
            spans.append((cut, role))
        place += len(text)
    return tuple(spans)


def too_small(width: int, height: int) -> list[Line]:
    """Return what to do about a screen too small to read."""
    needed = f"{SMALLEST[0]}x{SMALLEST[1]}"
    rows = wrap(
        f"This window is {width}x{height}: tuiadvisor needs {needed}. Enlarge it, or press q.", max(width, 10)
    )
    return [line(text) for text in rows][:height]
