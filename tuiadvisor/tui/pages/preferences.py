"""The page of preferences: each with what it does; changed with the arrows or typed, shown and saved at once.

In: Preferences.  Out: lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.preferences import BY_NAME, OPTIONS, Preferences, changed, moved, shown
from tuiadvisor.text.line import BLANK, Line, crop, fit, indent, line, rule, wrap
from tuiadvisor.tui.contract.desk import SavePreferences
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.pages.details import bullet

if TYPE_CHECKING:
    from tuiadvisor.preferences import Option
    from tuiadvisor.text.line import Span, Target
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place

MARGIN = 1
LABEL = 20
NOTES = (
    "TUIADVISOR_THEME, TUIADVISOR_ASCII and NO_COLOR win over this file.",
    "Thresholds of findings: rules of your own in the folder rules beside it; tuiadvisor rules list shows them.",
)


def ask_preference(place: Place) -> None:
    """Take the next choice of a preference, or ask for its value."""
    page = place.at(PreferencesPage)
    option = page.option()
    if option is None:
        return
    if option.choices:
        prefer(place, moved(page.held, option.name, 1))
    else:
        hint = f"{option.about}; esc stops"
        typed = shown(page.held, option.name)
        place.ask_for(Prompt(option.label, hint, lambda text: prefer_typed(place, text), typed))


def prefer_typed(place: Place, typed: str) -> None:
    """Keep a value that was typed, or say what may stand there."""
    page = place.at(PreferencesPage)
    option = page.option()
    if option is None:
        return
    try:
        prefer(place, changed(page.held, option.name, typed.strip()))
    except TuiadvisorError as error:
        place.say(str(error))


def prefer_other(place: Place, by: int) -> None:
    """The choice beside the one that is held, or a little more or less."""
    page = place.at(PreferencesPage)
    pointed = page.opened()
    if pointed is not None:
        prefer(place, moved(page.held, pointed[1], by))


def prefer(place: Place, preferences: Preferences) -> None:
    """Show it at once and keep it."""
    page = place.at(PreferencesPage)
    if preferences != page.held:
        page.held = preferences
        place.shell.prefer(preferences)
        place.shell.ask(SavePreferences(preferences))


class PreferencesPage(Page):
    """What is preferred."""

    name = "preferences"
    title = "Preferences"
    about = "What is changed here is shown at once and written to the file, whole, each time."
    commands: ClassVar = (
        Command(
            "preferences",
            (",",),
            ",",
            "Preferences",
            "colours, units, thresholds, first screen; kept in a file",
            "looks",
            lambda place: place.show_detail(place.at(PreferencesPage)),
        ),
    )
    does: ClassVar = {
        "next_rank": lambda place: prefer_other(place, 1),
        "previous_rank": lambda place: prefer_other(place, -1),
    }
    opens: ClassVar = {"preference": lambda place, _: ask_preference(place)}
    of_run = False
    keys = ("open", "next_rank", "previous_rank", "up", "down", "back", "help", "quit")
    labels: ClassVar = {"open": "Change", "next_rank": "Next", "previous_rank": "Former"}
    abouts: ClassVar = {
        "open": "the next choice, or type another value",
        "next_rank": "the next choice, or a little more",
        "previous_rank": "the choice before, or a little less",
    }

    def __init__(self) -> None:
        super().__init__()
        self.held = Preferences()
        self.file = ""

    def take_preferences(self, held: Preferences, file: str) -> None:
        """What is preferred as the screens begin, and where it is kept."""
        self.held, self.file = held, file

    def option(self) -> Option | None:
        """What the cursor stands on."""
        return BY_NAME.get(self.cursor[1]) if self.cursor and self.cursor[0] == "preference" else None

    def opened(self) -> Target | None:
        """What the cursor stands on; without one the first."""
        if super().opened() is None and self.targets:
            self.cursor = self.targets[0]
        return super().opened()

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:  # noqa: ARG002 - of no run
        """Return a row each, what stands there and what may."""
        room = width - 2 * MARGIN
        rows = [rule("preferences", room, "left and right change, enter types a number"), BLANK]
        rows += [row for option in OPTIONS for row in self._rows(option, room)]
        where = f"Kept in {self.file}" if self.file else "Not kept: these screens keep no preferences"
        rows += [BLANK, *(line((text, "dim")) for text in wrap(where, room))]
        rows += [each for text in NOTES for each in bullet("·", text, room, "dim")]
        return self.arranged(
            [indent(crop(each, room), MARGIN) if each.spans else each for each in rows], width, height
        )

    def _rows(self, option: Option, width: int) -> list[Line]:
        target = ("preference", option.name)
        here = self.cursor == target
        value = shown(self.held, option.name)
        unit = f" {option.unit}" if option.unit else ""
        spans: list[Span] = [("▶ " if here else "  ", "accent"), (fit(option.label, LABEL), "text")]
        for choice in option.choices or (value,):
            # Brackets for whoever sees no bold.
            is_held = bool(option.choices) and choice == value
            spans.append(
                (f"[{choice}] " if is_held else f" {choice}{unit}  ", "strong" if choice == value else "dim")
            )
        if not option.choices:
            spans.append((f"{option.low:g} to {option.high:g}", "dim"))
        about = wrap(option.about, width - LABEL - 3) if here else []
        return [
            Line(tuple(spans), target),
            *(Line(indent(line((text, "dim")), LABEL + 3).spans, target) for text in about),
        ]
