"""Commands that move in time: pause, steps, marks, seek, speed; right and left where a page has no other use for them.

In: the user's place in the screens.  Out: commands to the feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.tui.contract.desk import Bookmark
from tuiadvisor.tui.contract.feed import (
    End,
    NextFinding,
    Pause,
    PreviousFinding,
    Resume,
    SeekStep,
    Speed,
    Step,
    Stride,
    Zoom,
)
from tuiadvisor.tui.contract.page import Command
from tuiadvisor.tui.contract.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Page, Place

NEAR: Final = 0.0005  # of a recording: a mark nearer than that is where one stands
SPEEDS: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 100.0, 300.0, 1000.0)
SEEK_HINT: Final = "its number; enter goes there, esc closes"
NEWEST: Final = "this is the newest step already"


def is_paused(state: FeedState) -> bool:
    """Return whether time stands still on the screen."""
    if state.replay is not None:
        return state.replay.paused
    return state.phase == "paused" or state.past is not None or state.stretch is not None


def next_speed(current: float) -> float:
    """Return the speed after this one, around the end."""
    return next((speed for speed in SPEEDS if speed > current), SPEEDS[0])


# --- what they do


def toggle_pause(place: Place) -> None:
    """Freeze or go on."""
    place.shell.ask(Resume() if is_paused(place.state) else Pause())


def speed_up(place: Place) -> None:
    """Ask for the next speed of the replay."""
    if place.state.replay is not None:
        place.shell.ask(Speed(next_speed(place.state.replay.speed)))


def ask_step(place: Place) -> None:
    """Ask for the step to go to."""
    place.ask_for(Prompt("step", SEEK_HINT, lambda typed: seek(place, typed)))


def seek(place: Place, typed: str) -> None:
    """Go to a step that was typed, or say which there are."""
    where = place.state.replay or place.state.past
    text = typed.replace(",", "").strip()
    if not text:
        return
    if not (text.isascii() and text.isdecimal()):
        place.say(f"“{typed}” is not a step number: digits only")
        return
    step = int(text)
    first, last = (where.first_step, where.last_step) if where is not None else (None, None)
    if (first is not None and step < first) or (last is not None and step > last):
        ends = f"{first or 0:,} to {last:,}" if last is not None else f"steps from {first:,} on"
        what = "not in this recording: it" if place.state.replay is not None else "no longer in memory: it"
        place.say(f"step {step:,} is {what} holds {ends}")
        return
    place.shell.ask(SeekStep(step))


def ask_note(place: Place) -> None:
    """Ask for a note to the step that is shown."""
    place.ask_for(
        Prompt("note", "what is to be seen here; enter keeps it", lambda typed: bookmark(place, typed))
    )


def bookmark(place: Place, note: str) -> None:
    """Mark the step that is shown."""
    step = place.state.replay.step if place.state.replay is not None else None
    if step is None:
        place.say("b: no step has been replayed yet")
        return
    place.shell.ask(Bookmark(step, note.strip()))


# --- why they cannot be used


def moving(name: str, *, onward: bool = False) -> Callable[[FeedState, Page], str]:
    """Why one cannot move in time from here; where the page has its own use for the key nothing is in the way."""

    def why_not(state: FeedState, page: Page) -> str:
        if name in page.does:
            return ""
        if state.view is None or state.view.last_step is None:
            return "no step has been seen yet"
        if not page.of_run:
            return "only where the run is shown: press 1"
        if name == "step_forward" and state.stretch is not None:
            return "" if state.stretch.last_step < state.stretch.run_last_step else NEWEST
        return NEWEST if onward and state.replay is None and state.past is None else ""

    return why_not


def to_mark(name: str, *, onward: bool) -> Callable[[FeedState, Page], str]:
    """Why one cannot go to a mark: as any move, and there must be one in that direction."""
    move = moving(name, onward=onward)

    def why_not(state: FeedState, page: Page) -> str:
        reason, replay = move(state, page), state.replay
        if reason or replay is None:
            return reason
        if not replay.marks:
            is_read = replay.share_read >= 1
            return (
                "nothing is marked in this recording"
                if is_read
                else "no mark yet: the recording is being read"
            )
        ahead = any(place > replay.position + NEAR for place, _ in replay.marks)
        behind = any(place < replay.position - NEAR for place, _ in replay.marks)
        return "" if (ahead if onward else behind) else "no finding or bookmark further on in that direction"

    return why_not


def not_a_replay(state: FeedState, _page: Page) -> str:
    """Some keys are for recordings only."""
    if state.replay is not None:
        return ""
    return (
        "the recording is still being opened"
        if state.mode == "replay"
        else "only in a replay: this run is live"
    )


def nothing_to_pause(state: FeedState, _page: Page) -> str:
    """Without a picture there is nothing to freeze."""
    return "there is nothing to pause yet" if state.view is None else ""


def at_the_end(state: FeedState, _page: Page) -> str:
    """The live edge is where one is."""
    stands = state.past is not None or state.stretch is not None or state.phase == "paused"
    return "" if stands or state.replay is not None else NEWEST


def no_stretch(state: FeedState, page: Page) -> str:
    """There is nothing longer than the steps that are shown anyway."""
    has_own = "zoom_out" in page.does
    return moving("zoom_out")(state, page) or (
        ""
        if has_own or state.stretch is not None
        else "the figures are of the newest steps: + chooses a stretch"
    )


def moved_label(former: str) -> Callable[[FeedState, Page], str]:
    """What a bracket would move."""
    return lambda state, _page: former if state.stretch is not None else ""


def pause_label(state: FeedState, _page: Page) -> str:
    """What space would do."""
    return "" if not is_paused(state) else "Go on" if state.past is None else "Live"


def speed_label(state: FeedState, _page: Page) -> str:
    """The speed it has."""
    return f"Speed {state.replay.speed:g}{text_of.TIMES}" if state.replay is not None else ""


COMMANDS: Final = (
    Command(
        "next_rank",
        ("right", "l"),
        "→",
        "Next rank",
        "the rank below, the next pattern, a little more; elsewhere on in time",
        "moving",
        lambda place: place.shell.ask(Stride(1)),
        moving("next_rank", onward=True),
    ),
    Command(
        "previous_rank",
        ("left", "h"),
        "←",
        "Previous rank",
        "the rank above, the pattern before, a little less; elsewhere back in time",
        "moving",
        lambda place: place.shell.ask(Stride(-1)),
        moving("previous_rank"),
    ),
    Command(
        "pause",
        ("space",),
        "space",
        "Pause",
        "freeze the screen; the stream goes on behind it",
        "time",
        toggle_pause,
        nothing_to_pause,
        pause_label,
    ),
    Command(
        "step_back",
        ("[",),
        "[",
        "Step back",
        "one step back; a chosen stretch by half of its length",
        "time",
        lambda place: place.shell.ask(Step(-1)),
        moving("step_back"),
        moved_label("Stretch back"),
    ),
    Command(
        "step_forward",
        ("]",),
        "]",
        "Step on",
        "one step on; a chosen stretch by half of its length",
        "time",
        lambda place: place.shell.ask(Step(1)),
        moving("step_forward", onward=True),
        moved_label("Stretch on"),
    ),
    Command(
        "zoom_in",
        ("+", "="),
        "+",
        "Zoom in",
        "all figures of a shorter stretch of the run; its brackets stand on the ribbon",
        "time",
        lambda place: place.shell.ask(Zoom(1)),
        moving("zoom_in"),
    ),
    Command(
        "zoom_out",
        ("-",),
        "-",
        "Zoom out",
        "of a longer stretch, at last of the newest steps again; End does so at once",
        "time",
        lambda place: place.shell.ask(Zoom(-1)),
        no_stretch,
    ),
    Command(
        "mark_back",
        ("{",),
        "{",
        "Finding before",
        "to the previous finding, in time",
        "time",
        lambda place: place.shell.ask(PreviousFinding()),
        to_mark("mark_back", onward=False),
    ),
    Command(
        "mark_forward",
        ("}",),
        "}",
        "Finding after",
        "to the next finding, in time",
        "time",
        lambda place: place.shell.ask(NextFinding()),
        to_mark("mark_forward", onward=True),
    ),
    Command(
        "seek",
        ("S",),
        "S",
        "Seek",
        "to a step by its number; a live run goes on behind",
        "time",
        ask_step,
        moving("seek"),
    ),
    Command(
        "bookmark",
        ("b",),
        "b",
        "Bookmark",
        "mark this step with a note; { and } find it again",
        "time",
        ask_note,
        not_a_replay,
    ),
    Command(
        "speed",
        ("x",),
        "x",
        "Speed",
        "the next speed of the replay",
        "time",
        speed_up,
        not_a_replay,
        speed_label,
    ),
    Command(
        "end",
        ("end",),
        "End",
        "Newest",
        "the newest step: the live edge or the end",
        "time",
        lambda place: place.shell.ask(End()),
        at_the_end,
    ),
)
