"""What each command does: the table of actions, and those that concern several pages at once.

In: the user's place in the screens.  Out: commands to the shell, other pages on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tuiadvisor.preferences import moved
from tuiadvisor.tui.contract import commands
from tuiadvisor.tui.control.place import Place
from tuiadvisor.tui.control.prompts import SEEK_HINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.tui.control.prompts import Prompts


class Here(Place, Protocol):
    """The place in which a key was pressed, with what may be asked there."""

    asking: Prompts


def copy_page(here: Here) -> None:
    """The whole page as text."""
    here.say(here.shell.copy(here.page.copied(here.state)))


def look_again(here: Here) -> None:
    """Look into the folder for new recordings."""
    here.shell.ask("scale" if here.page is here.scaling else "list_runs")


def compare_marked(here: Here) -> None:
    """Compare the two marked recordings."""
    if len(here.runs.marked) < 2:
        here.say("c: mark two recordings first, with m: the one before the change, then the one after")
        return
    here.shell.ask("compare", tuple(here.runs.marked))
    here.show_page(here.compare)


def swap(here: Here) -> None:
    """Compare the other way round."""
    comparison = here.desk.comparison
    if comparison is None:
        here.say("w: nothing is compared yet")
        return
    here.shell.ask("compare", (comparison.after.path, comparison.before.path))


def next_finding(here: Here, by: int) -> None:
    """Show the next finding on its page, or select it on the overview."""
    findings = here.state.view.findings if here.state.view else ()
    if here.page is here.finding_page:
        found = here.finding_page.neighbour(here.state.view, by)
        if found is not None:
            here.open_target(("finding", found))
        return
    if here.page is not here.overview:
        here.show_page(here.overview)
    ids = [finding.id for finding in findings]
    current = here.overview.cursor[1] if here.overview.cursor else ""
    index = ids.index(current) + by if current in ids else 0 if by > 0 else -1
    here.overview.cursor = ("finding", ids[index % len(ids)])


def next_rank(here: Here, by: int) -> None:
    """Show the rank beside this one in the order of the table; in the session the next pattern; else go in time."""
    if here.page is here.preferences:
        pointed = here.preferences.opened()
        if pointed is not None:
            here.asking.prefer(moved(here.preferences.held, pointed[1], by))
        return
    if here.page is here.scaling:
        pointed = here.scaling.opened()
        if pointed is not None:
            here.shell.ask("nudge_size", (pointed[1], by))
        return
    if here.page is here.advisor:
        here.advisor.side(by)
        return
    if here.page is not here.rank_page:
        here.shell.ask("stride", by)
        return
    order = here.ranks.order(here.state.view)
    if here.rank_page.rank in order:
        index = min(max(order.index(here.rank_page.rank) + by, 0), len(order) - 1)
        here.open_target(("rank", str(order[index])))
        here.ranks.cursor = ("rank", str(order[index]))


def capture(here: Here) -> None:
    """Ask for a profiler window in the rank that is shown or selected."""
    rank = commands.rank_at(here.page)
    if rank is not None:
        here.shell.ask("capture", rank)


def detail(here: Here) -> None:
    """Ask for steps in detail: of the rank whose details are open, else of all."""
    rank = here.rank_page.rank if here.page is here.rank_page else None
    here.shell.ask("detail", () if rank is None else (rank,))


def toggle_pause(here: Here) -> None:
    """Freeze or go on."""
    here.shell.ask("resume" if commands.is_paused(here.state) else "pause")


def next_speed(here: Here) -> None:
    """Ask for the next speed of the replay."""
    if here.state.replay is not None:
        here.shell.ask("speed", commands.next_speed(here.state.replay.speed))


def change_theme(here: Here) -> None:
    """Use the next set of colours."""
    name = here.shell.next_theme()
    here.say(f"colours: {name} (, keeps them as a preference)")


# Commands that only pass through to the feed.
FEED_COMMANDS: dict[str, tuple[str, object]] = {
    "step_back": ("step", -1),
    "step_forward": ("step", 1),
    "mark_back": ("prev_finding", None),
    "mark_forward": ("next_finding", None),
    "end": ("end", None),
}

ACTIONS: dict[str, Callable[[Here], None]] = {
    "overview": lambda here: here.show_page(here.overview),
    "ranks": lambda here: here.show_page(here.ranks),
    "pipeline": lambda here: here.show_page(here.pipeline),
    "runs": lambda here: here.show_runs(),
    "compare": lambda here: here.show_page(here.compare),
    "overlap": lambda here: here.show_page(here.overlap),
    "advisor": lambda here: here.show_advisor(),
    "scaling": lambda here: here.show_scaling(),
    "log": lambda here: here.show_page(here.log),
    "report": lambda here: here.shell.ask("report"),
    "copy": copy_page,
    "picture": lambda here: here.say(here.shell.picture()),
    "bookmark": lambda here: here.asking.open("note", "note", "what is to be seen here; enter keeps it"),
    "mark": lambda here: here.say(here.runs.mark()),
    "compare_marked": compare_marked,
    "swap": swap,
    "refresh": look_again,
    "live": lambda here: here.go_live(),
    "help": lambda here: here.show_help(),
    "palette": lambda here: here.show_palette(),
    "back": lambda here: here.go_back(),
    "quit": lambda here: here.shell.leave(),
    "open": lambda here: here.open_target(here.page.opened()),
    "up": lambda here: here.page.move(-1),
    "down": lambda here: here.page.move(1),
    "page_up": lambda here: here.page.turn(-here.page_rows),
    "page_down": lambda here: here.page.turn(here.page_rows),
    "first": lambda here: here.page.move(-1_000_000),
    "last": lambda here: here.page.move(1_000_000),
    "next_finding": lambda here: next_finding(here, 1),
    "previous_finding": lambda here: next_finding(here, -1),
    "next_rank": lambda here: next_rank(here, 1),
    "previous_rank": lambda here: next_rank(here, -1),
    "sort": lambda here: here.say(f"sorted by {here.ranks.next_sort()}"),
    "reverse": lambda here: here.ranks.turn_round(),
    "group": lambda here: here.say(here.ranks.next_grouping(here.state.view)),
    "open_all": lambda here: here.ranks.toggle_all(),
    "heat": lambda here: here.ranks.change_map(),
    "filter": lambda here: here.asking.open("filter", "/", here.asking.filter_hint(), here.filtered().filter),
    "capture": capture,
    "detail": detail,
    "pause": toggle_pause,
    "seek": lambda here: here.asking.open("seek", "step", SEEK_HINT),
    "speed": next_speed,
    "theme": change_theme,
    "preferences": lambda here: here.show_preferences(),
    "redraw": lambda here: here.shell.redraw(),
}
