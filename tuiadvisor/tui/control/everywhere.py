"""Commands of no single page: keeping what is shown, leaving, moving, looks. A page may give one another meaning.

In: the user's place in the screens.  Out: commands to the shell, pages on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.tui.contract.desk import Report
from tuiadvisor.tui.contract.page import Command
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.views.finding_keys import keyed

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Page, Place

FAR: Final = 1_000_000  # rows: beyond any page


def copy_page(place: Place) -> None:
    """The whole page as text."""
    place.say(place.shell.copy(place.page.copied(place.state)))


def select_finding(place: Place, by: int) -> None:
    """Select the next finding on the overview."""
    overview = place.at(Overview)
    if place.page is not overview:
        place.show_page(overview)
    keys = list(keyed(place.state.view.findings)) if place.state.view else []
    current = overview.cursor[1] if overview.cursor else ""
    index = keys.index(current) + by if current in keys else 0 if by > 0 else -1
    overview.cursor = ("finding", keys[index % len(keys)])


def change_theme(place: Place) -> None:
    """Use the next set of colours."""
    name = place.shell.next_theme()
    place.say(f"colours: {name} (, keeps them as a preference)")


def where_to(_state: FeedState, page: Page) -> str:
    """What was opened from home is left for home."""
    desk = page.desk
    return "Home" if desk.leads_home or (desk.can_attach and page.name != "home") else ""


def nothing_to_open(state: FeedState, page: Page) -> str:
    """Enter needs something to open."""
    return "" if page.can_open(state) else "there is nothing to open here"


def no_finding(state: FeedState, _page: Page) -> str:
    """The keys of findings need one."""
    return "" if state.view is not None and state.view.findings else "there is no finding to go to"


COMMANDS: Final = (
    Command(
        "report",
        ("R",),
        "R",
        "Report",
        "write what is shown as one HTML file",
        "keeping",
        lambda place: place.shell.ask(Report()),
    ),
    Command(
        "copy", ("y",), "y", "Copy", "this page as text: clipboard (OSC 52) and a file", "keeping", copy_page
    ),
    Command(
        "picture",
        ("I",),
        "I",
        "Picture",
        "save this screen as SVG",
        "keeping",
        lambda place: place.say(place.shell.picture()),
    ),
    Command(
        "back",
        ("escape",),
        "esc",
        "Back",
        "close what is open, clear the filter, go back",
        "leaving",
        lambda place: place.go_back(),
    ),
    Command(
        "quit",
        ("q", "ctrl+c", "ctrl+q"),
        "q",
        "Quit",
        "leave at once; training goes on",
        "leaving",
        lambda place: place.quit(),
        next_label=where_to,
    ),
    Command(
        "suspend",
        ("ctrl+z",),
        "^Z",
        "To the shell",
        "back to the shell until fg; training, agent and recording go on",
        "leaving",
        lambda place: place.say(place.shell.to_shell()),
    ),
    Command(
        "open",
        ("enter",),
        "enter",
        "Open",
        "details of the selected rank or finding",
        "moving",
        lambda place: place.open_target(place.page.opened()),
        nothing_to_open,
    ),
    Command("up", ("up", "k"), "↑", "Up", "the row above", "moving", lambda place: place.page.move(-1)),
    Command("down", ("down", "j"), "↓", "Down", "the row below", "moving", lambda place: place.page.move(1)),
    Command(
        "page_up",
        ("pageup", "ctrl+b"),
        "PgUp",
        "Page up",
        "a screenful up",
        "moving",
        lambda place: place.page.turn(-place.page_rows),
    ),
    Command(
        "page_down",
        ("pagedown", "ctrl+f"),
        "PgDn",
        "Page down",
        "a screenful down",
        "moving",
        lambda place: place.page.turn(place.page_rows),
    ),
    Command(
        "first", ("home", "g"), "g", "First", "the first row", "moving", lambda place: place.page.move(-FAR)
    ),
    Command("last", ("G",), "G", "Last", "the last row", "moving", lambda place: place.page.move(FAR)),
    Command(
        "next_finding",
        ("n",),
        "n",
        "Next finding",
        "select or show the next finding",
        "moving",
        lambda place: select_finding(place, 1),
        no_finding,
    ),
    Command(
        "previous_finding",
        ("N",),
        "N",
        "Previous",
        "select or show the previous finding",
        "moving",
        lambda place: select_finding(place, -1),
        no_finding,
    ),
    Command(
        "theme",
        ("t",),
        "t",
        "Colours",
        "dark, light, or the terminal's own colours",
        "looks",
        change_theme,
    ),
    Command(
        "ribbon",
        ("H",),
        "H",
        "Whole run",
        "above each screen: step time, events, [steps of the figures]",
        "looks",
        lambda place: place.turn_ribbon(),
    ),
    Command(
        "alerts",
        ("A",),
        "A",
        "Alerts",
        "bell and notification on or off; the banner stays",
        "looks",
        lambda place: place.turn_alerts(),
    ),
    Command(
        "redraw",
        ("ctrl+l",),
        "^L",
        "Redraw",
        "redraw the whole screen",
        "looks",
        lambda place: place.shell.redraw(),
    ),
)
