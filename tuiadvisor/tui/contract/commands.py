"""Every key in one list: what it is called, where it works, and why it does not right now.

Footer, help, palette and dispatch read this list; there is no second place that knows a key.
In: FeedState and page.  Out: Command, reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Page


@dataclass(frozen=True, slots=True)
class Command:
    """Something a key does."""

    name: str
    keys: tuple[str, ...]  # Textual's key names, or the character typed
    shown: str  # the key as written in footer and help
    label: str  # two words for the footer
    about: str  # a sentence for the help
    group: str


COMMANDS = (
    Command(
        "overview",
        ("1",),
        "1",
        "Overview",
        "verdict, step time, where a step goes, ranks, findings",
        "screens",
    ),
    Command("ranks", ("2",), "2", "Ranks", "a row and a heat map for each rank", "screens"),
    Command("pipeline", ("3",), "3", "Pipeline", "a step by stage and micro-batch, or its chain", "screens"),
    Command(
        "overlap",
        ("4",),
        "4",
        "Overlap",
        "communication beside compute: hidden, exposed, each collective",
        "screens",
    ),
    Command("advisor", ("5",), "5", "Advisor", "the guided session: six patterns, one decision", "screens"),
    Command(
        "scaling",
        ("6",),
        "6",
        "Scaling",
        "efficiency and cost of other sizes, your limits, one decision",
        "screens",
    ),
    Command("compare", ("7",), "7", "Compare", "two recordings, before and after", "screens"),
    Command("runs", ("8",), "8", "Runs", "the recordings of this folder: open, compare", "screens"),
    Command("log", ("L",), "L", "Log", "what the tool did: attaching, ranks, losses, answers", "screens"),
    Command("report", ("R",), "R", "Report", "write what is shown as one HTML file", "screens"),
    Command("copy", ("y",), "y", "Copy", "this page as text: clipboard (OSC 52) and a file", "screens"),
    Command("picture", ("I",), "I", "Picture", "save this screen as SVG", "screens"),
    Command("help", ("?", "f1"), "?", "Help", "the keys of the screen you are on", "screens"),
    Command("palette", (":", "ctrl+p"), ":", "Commands", "find a command by its name", "screens"),
    Command("back", ("escape",), "esc", "Back", "close what is open, clear the filter, go back", "screens"),
    Command("quit", ("q", "ctrl+c", "ctrl+q"), "q", "Quit", "leave at once; training goes on", "screens"),
    Command("open", ("enter",), "enter", "Open", "details of the selected rank or finding", "moving"),
    Command("up", ("up", "k"), "up", "Up", "the row above", "moving"),
    Command("down", ("down", "j"), "down", "Down", "the row below", "moving"),
    Command("page_up", ("pageup", "ctrl+b"), "PgUp", "Page up", "a screenful up", "moving"),
    Command("page_down", ("pagedown", "ctrl+f"), "PgDn", "Page down", "a screenful down", "moving"),
    Command("first", ("home", "g"), "g", "First", "the first row", "moving"),
    Command("last", ("G",), "G", "Last", "the last row", "moving"),
    Command("next_finding", ("n",), "n", "Next finding", "select or show the next finding", "moving"),
    Command("previous_finding", ("N",), "N", "Previous", "select or show the finding before", "moving"),
    Command(
        "next_rank",
        ("right", "l"),
        "right",
        "Next rank",
        "the rank below, the next pattern, a little more; elsewhere on in time",
        "moving",
    ),
    Command(
        "previous_rank",
        ("left", "h"),
        "left",
        "Previous rank",
        "the rank above, the pattern before, a little less; elsewhere back in time",
        "moving",
    ),
    Command("sort", ("s",), "s", "Sort", "sort the ranks by the next column", "ranks"),
    Command("reverse", ("r",), "r", "Reverse", "turn the order round", "ranks"),
    Command("group", ("a",), "a", "Group", "a row a host, a stage, a replica, a rank", "ranks"),
    Command("open_all", ("e",), "e", "Open all", "open or close all groups; enter does one", "ranks"),
    Command("heat", ("M",), "M", "Phases", "the map: ranks by steps, or ranks by phases", "ranks"),
    Command(
        "filter",
        ("/",),
        "/",
        "Filter",
        "ranks by number, host, group, state; runs by name",
        "ranks",
    ),
    Command(
        "capture",
        ("P",),
        "P",
        "Capture",
        "3 steps of this rank under PyTorch's profiler: exact overlap, a trace for Perfetto",
        "ranks",
    ),
    Command(
        "detail",
        ("D",),
        "D",
        "Detail",
        "each call of the next 3 s one by one: of all ranks, or of the one whose details are open",
        "ranks",
    ),
    Command("mark", ("m",), "m", "Mark", "mark a recording; two can be compared", "runs"),
    Command(
        "compare_marked", ("c",), "c", "Compare marked", "the two marked recordings, before and after", "runs"
    ),
    Command("swap", ("w",), "w", "Swap", "before and after the other way round", "runs"),
    Command("refresh", ("u",), "u", "Look again", "look into the folder for new recordings", "runs"),
    Command("live", ("v",), "v", "Live", "back from a recording to the live run", "runs"),
    Command("pause", ("space",), "space", "Pause", "freeze the screen; the stream goes on behind it", "time"),
    Command("step_back", ("[",), "[", "Step back", "one step back", "time"),
    Command("step_forward", ("]",), "]", "Step on", "one step on", "time"),
    Command("mark_back", ("{",), "{", "Finding before", "to the finding before, in time", "time"),
    Command("mark_forward", ("}",), "}", "Finding after", "to the next finding, in time", "time"),
    Command("seek", ("S",), "S", "Seek", "to a step by its number; a live run goes on behind", "time"),
    Command("bookmark", ("b",), "b", "Bookmark", "mark this step with a note; { and } find it again", "time"),
    Command("speed", ("x",), "x", "Speed", "the next speed of the replay", "time"),
    Command("end", ("end",), "End", "Newest", "the newest step: the live edge or the end", "time"),
    Command(
        "preferences",
        (",",),
        ",",
        "Preferences",
        "colours, units, thresholds, first screen; kept in a file",
        "looks",
    ),
    Command("theme", ("t",), "t", "Colours", "dark, light, or the terminal's own colours", "looks"),
    Command("redraw", ("ctrl+l",), "^L", "Redraw", "draw the whole screen anew", "looks"),
)
BY_NAME = {command.name: command for command in COMMANDS}
BY_KEY = {key: command for command in COMMANDS for key in command.keys}
NEAR = 0.0005  # of a recording: a mark nearer than that is where one stands
SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 100.0, 300.0, 1000.0)

_REPLAY_ONLY = frozenset({"bookmark", "speed"})
_IN_TIME = frozenset(
    {"step_back", "step_forward", "mark_back", "mark_forward", "seek", "next_rank", "previous_rank"}
)
_ONWARD = frozenset({"step_forward", "mark_forward", "next_rank"})
_RANKS_ONLY = frozenset({"sort", "reverse", "group", "open_all", "heat"})
_RUNS_ONLY = frozenset({"mark", "compare_marked"})
_LOOKING = frozenset({"runs", "scaling"})
_SIDEWAYS = frozenset({"rank", "advisor", "scaling", "preferences"})
_AROUND = frozenset({"next_rank", "previous_rank"})
_LISTS = frozenset({"ranks", "runs"})
_FINDINGS = frozenset({"next_finding", "previous_finding"})
_MARKS = frozenset({"mark_back", "mark_forward"})


def why_not(name: str, state: FeedState, page: Page) -> str:
    """Return why a command cannot be used now, or "" where it can."""
    view = state.view
    has_findings = view is not None and bool(view.findings)
    can_open = bool(page.targets) or page.name == "runs" or (has_findings and page.name == "overview")
    moves_in_time = name in _IN_TIME and not (name in _AROUND and page.name in _SIDEWAYS)
    reasons = (
        (
            name in _REPLAY_ONLY and state.replay is None and state.mode == "replay",
            "the recording is still being opened",
        ),
        (name in _REPLAY_ONLY and state.replay is None, "only in a replay: this run is live"),
        (name in _RANKS_ONLY and page.name != "ranks", "only on the ranks screen: press 2"),
        (name == "filter" and page.name not in _LISTS, "only on a list: 2 ranks or 8 runs"),
        (name in _RUNS_ONLY and page.name != "runs", "only on the list of recordings: press 8"),
        (
            name == "refresh" and page.name not in _LOOKING,
            "only on the recordings or on scaling: press 8 or 6",
        ),
        (name == "swap" and page.name != "compare", "only on a comparison: press 7"),
        (name == "live" and not page.can_go_live, "this is the live run already, or there is none"),
        (moves_in_time and (view is None or view.last_step is None), "no step has been seen yet"),
        (moves_in_time and not page.of_run, "only where the run is shown: press 1"),
        (
            moves_in_time and name in _ONWARD and state.replay is None and state.past is None,
            "this is the newest step already",
        ),
        (name == "capture" and state.mode == "replay", "only in a live run: this is a recording"),
        (name == "detail" and state.mode == "replay", "only in a live run: this is a recording"),
        (
            name in {"capture", "detail"} and view is not None and bool(view.ended),
            "the run has ended: there is nothing more to see",
        ),
        (name == "capture" and rank_at(page) is None, "choose a rank first: press 2, then enter"),
        (name in _FINDINGS and not has_findings, "there is no finding to go to"),
        (
            name in _MARKS and state.replay is not None and not state.replay.marks,
            "nothing is marked in this recording",
        ),
        (
            name in _MARKS and not _has_mark(name, state),
            "no finding or bookmark further on in that direction",
        ),
        (name == "open" and not can_open, "there is nothing to open here"),
        (name == "pause" and view is None, "there is nothing to pause yet"),
        (
            name == "end" and state.replay is None and state.past is None and state.phase != "paused",
            "this is the newest step already",
        ),
    )
    return next((reason for applies, reason in reasons if applies), "")


def _has_mark(name: str, state: FeedState) -> bool:
    """Whether a replay has a mark before or behind where it stands."""
    replay = state.replay
    if replay is None:
        return True
    if name == "mark_back":
        return any(place < replay.position - NEAR for place, _ in replay.marks)
    return any(place > replay.position + NEAR for place, _ in replay.marks)


def rank_at(page: Page) -> int | None:
    """Return the rank that is shown or selected."""
    shown: int | None = getattr(page, "rank", None)
    pointed = page.opened()
    if shown is None and pointed is not None and pointed[0] == "rank":
        shown = int(pointed[1])
    return shown


def is_paused(state: FeedState) -> bool:
    """Return whether time stands still on the screen."""
    if state.replay is not None:
        return state.replay.paused
    return state.phase == "paused" or state.past is not None


def next_speed(current: float) -> float:
    """Return the speed after this one, around the end."""
    return next((speed for speed in SPEEDS if speed > current), SPEEDS[0])


def usable(names: Iterable[str], state: FeedState, page: Page) -> list[Command]:
    """Return the commands that would work now."""
    return [BY_NAME[name] for name in names if not why_not(name, state, page)]


def label(command: Command, state: FeedState, page: Page) -> str:
    """Return the footer's words: what the key would do next."""
    if command.name == "pause" and is_paused(state):
        return "Go on" if state.past is None else "Live"
    if command.name == "heat" and getattr(page, "shows_phases", False):
        return "Steps"
    if command.name == "speed" and state.replay is not None:
        return f"Speed {state.replay.speed:g}{text_of.TIMES}"
    return page.labels.get(command.name, command.label)
