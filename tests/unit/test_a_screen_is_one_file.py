"""A screen is one class in one list: what is shown of it elsewhere comes from what it declares."""

from __future__ import annotations

from string import ascii_uppercase
from typing import ClassVar

import pytest
from snapshot import views
from unit.test_tui_navigator import FakeShell

from tuiadvisor.preferences import BY_NAME
from tuiadvisor.text.line import Line, line
from tuiadvisor.tui.contract.commands import CommandTable
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.contract.page import Command, Page, Place, only_on, opening
from tuiadvisor.tui.control.navigator import Navigator
from tuiadvisor.tui.control.registry import PAGES, command_table

# Keys that no command has: a screen of ours may take any that a test names.
OPENS, RINGS = [key for key in f"9{ascii_uppercase}" if key not in command_table().by_key][:2]


def ring(place: Place) -> None:
    place.at(Bells).num_rung += 1
    place.say("rung")


def show_bell(place: Place, name: str) -> None:
    place.say(f"the bell of {name}")


class Bells(Page):
    """A screen nobody else knows."""

    name = "bells"
    title = "Bells"
    about = "A bell for each rank that has ended."
    is_screen = True
    keys = ("ring", "open", "next_rank", "help", "quit")
    commands: ClassVar = (
        opening("bells", OPENS, "Bells", "what rings when a rank has ended"),
        Command(
            "ring",
            (RINGS,),
            RINGS,
            "Ring",
            "ring all bells",
            "ranks",
            ring,
            only_on("bells", f"only on the bells: press {OPENS}"),
        ),
    )
    labels: ClassVar = {"next_rank": "Louder"}
    abouts: ClassVar = {"next_rank": "a little louder"}
    does: ClassVar = {"next_rank": lambda place: place.say("louder")}
    opens: ClassVar = {"bell": show_bell}

    def __init__(self) -> None:
        super().__init__()
        self.num_rung = 0

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002
        rows = [line(f"rung {self.num_rung} times", target=("bell", "rank 2"))]
        return self.arranged(rows, width, height)


class Keyboard:
    """A navigator over the screens there are and this one."""

    def __init__(self) -> None:
        self.place = Navigator(FakeShell(), views.live(views.straggler()), pages=(*PAGES, Bells))
        self.press()

    def press(self, *keys: str) -> str:
        for key in keys:
            self.place.key(key, key if len(key) == 1 else None)
            self.place.rows(80, 24)
        return "\n".join(row.text for row in self.place.rows(80, 24))


def test_its_key_shows_it_and_any_other_screen_leaves_it() -> None:
    """Navigation."""
    keyboard = Keyboard()
    assert "rung 0 times" in keyboard.press(OPENS)
    assert ["bells"] == [page.name for page in keyboard.place.stack]
    keyboard.press("2")
    assert ["ranks"] == [page.name for page in keyboard.place.stack]
    keyboard.press(OPENS, "escape")
    assert ["overview"] == [page.name for page in keyboard.place.stack]
    started = Navigator(FakeShell(), views.looking(), first_page="bells", pages=(*PAGES, Bells))
    assert "bells" == started.page.name


def test_its_keys_are_in_the_footer_with_its_own_words() -> None:
    """What it calls a usual command stands there too."""
    footer = Keyboard().press(OPENS).splitlines()[-1]
    for part in (f"{RINGS} Ring", "enter Open", "→ Louder", "? Help", "q Quit"):
        assert part in footer


def test_its_commands_work_there_and_say_why_not_elsewhere() -> None:
    """One of its own, one with another meaning, and what enter does."""
    keyboard = Keyboard()
    assert f"{RINGS}: only on the bells: press {OPENS}" in keyboard.press(RINGS)
    assert "rung 1 times" in keyboard.press(OPENS, RINGS)
    assert "louder" in keyboard.press("right")
    assert [] == keyboard.place.shell.asked, "the usual meaning of the key is not done as well"
    assert "the bell of rank 2" in keyboard.press("enter")


def test_the_palette_finds_them() -> None:
    """By their words; enter does them."""
    keyboard = Keyboard()
    assert "what rings when a rank has ended" in keyboard.press(":", *"rings")
    assert "rung 0 times" in keyboard.press("enter")
    assert "rung 1 times" in keyboard.press(":", *"ring all", "enter")


def test_the_help_tells_of_it() -> None:
    """Its paragraph and its keys above, on other screens among the other keys."""
    text = Keyboard().press(OPENS, "?")
    for part in ("A bell for each rank that has ended.", "on bells", "ring all bells", "a little louder"):
        assert part in text
    keyboard = Keyboard()
    keyboard.press("?")
    assert f"{OPENS}      Bells" in "\n".join(row.text for row in keyboard.place.rows(80, 120))


def test_a_key_or_a_name_that_is_taken_is_refused() -> None:
    """At the first start, with both names."""
    taken = Command("again", ("2",), "2", "Again", "", "screens", ring)
    with pytest.raises(ValueError, match=f"key 2 is ranks already, not again; free: .*{OPENS}"):
        CommandTable((*command_table().commands, taken))
    with pytest.raises(ValueError, match="two commands are called ranks"):
        CommandTable((*command_table().commands, opening("ranks", "0", "Ranks", "")))


def test_every_screen_names_commands_that_there_are() -> None:
    """Footers, own words and own meanings; the kinds that enter opens belong to one page each."""
    names = set(command_table().by_name)
    for page in PAGES:
        assert {*page.keys, *page.labels, *page.abouts, *page.does} <= names, page.name
    kinds = [kind for page in PAGES for kind in page.opens]
    assert sorted(set(kinds)) == sorted(kinds)
    assert len({page.name for page in PAGES}) == len(PAGES)


def test_the_screens_that_may_come_first_are_those_that_can_be_preferred() -> None:
    """The file of preferences is checked before any screen is loaded, so it has names of its own."""
    first = tuple(page.name for page in PAGES if page.may_be_first)
    assert first == BY_NAME["first_screen"].choices, "tuiadvisor/preferences.py, first_screen"
