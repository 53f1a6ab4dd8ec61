"""Help for the page one came from with the terms on it, and the palette: the same commands, filtered.

In: FeedState, the page below, the text typed.  Out: lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from tuiadvisor.text import format as text_of
from tuiadvisor.text.glossary import Shown, terms_of
from tuiadvisor.text.line import Cell, Line, crop, fit, indent, line, pad, row, rule, spread, wrap
from tuiadvisor.tui.contract.page import Command, Page
from tuiadvisor.tui.contract.prompt import Prompt
from tuiadvisor.tui.draw import bars

if TYPE_CHECKING:
    from tuiadvisor.text.line import Target
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place

KEY_WIDTH: Final = 6


def show_help(place: Place) -> None:
    """Open the help for the page below, or close it."""
    page = place.at(HelpPage)
    if place.page is page:
        place.go_back()
        return
    page.below, page.all_commands = place.page, place.commands
    place.show_detail(page)


class HelpPage(Page):
    """The keys of the page below, its terms with the figures of this run, and what its marks mean."""

    name = "help"
    title = "Help"
    commands: ClassVar = (
        Command(
            "help", ("?", "f1"), "?", "Help", "keys and terms of the screen you are on", "help", show_help
        ),
    )
    keys = ("back", "selftest", "palette", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.below: Page = self
        self.all_commands: tuple[Command, ...] = ()

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the help."""
        room = width - 2
        by_name = {command.name: command for command in self.all_commands}
        here = [by_name[name] for name in self.below.keys]
        others = [command for command in self.all_commands if command not in here]
        across = max(room // 26, 1)
        rows = [
            *(line(text) for text in wrap(self.below.about, room)),
            rule(f"on {self.below.title.lower()}", room),
            *(each for command in here for each in _command(command, state, self.below, room)),
            *_terms(self.below, self._shown(state), room),
            rule("all other keys", room, "grey: not now, and : says why"),
            *_grid([_short(command, state, self.below) for command in others], room // across, across),
            *_grid([_phase(phase) for phase in bars.PHASE_LETTERS], room // 5, 5),
            spread(bars.level_legend(room), line(("▶", "bad"), (" culprit: arrives last", "dim")), room),
        ]
        shown = self.arranged([indent(crop(each, room), 1) for each in rows], width, height)
        self.targets = []
        return shown

    def _shown(self, state: FeedState) -> Shown:
        """What the terms' figures come from."""
        session = self.desk.session
        return Shown(state.view, self.desk.scaling, self.desk.comparison, session.card if session else ())


def _terms(page: Page, shown: Shown, width: int) -> list[Line]:
    """Each term with its figure in this run, what it means below."""
    if not page.terms:
        return []
    rows = [rule("terms on this screen", width, "T: a self-test on this run")]
    for term in terms_of(page.terms):
        figure = term.figure(shown)
        role = "unknown" if figure == text_of.UNKNOWN else "strong"
        if len(term.word) + 1 + len(figure) <= width:
            rows.append(spread(line((term.word, "accent")), line((figure, role)), width))
        else:  # a sentence has rows of its own
            rows.append(line((term.word, "accent")))
            rows += [indent(line((text, role)), 2) for text in wrap(figure, width - 2)]
        rows += [indent(line((text, "dim")), 2) for text in wrap(term.means, width - 2)]
    return rows


def _command(command: Command, state: FeedState, page: Page, width: int) -> list[Line]:
    reason = page.refusal(command, state)
    role = "dim" if reason else "text"
    name = page.labels.get(command.name, command.label)
    cells = [Cell(command.shown, KEY_WIDTH, "dim" if reason else "accent"), Cell(name, 14, role)]
    about = page.abouts.get(command.name, command.about)
    if command.name == "quit" and state.mode == "replay":
        about = "leave; the recording stays as it is"
    return _told(cells, reason or about, "dim", width)


def _told(cells: list[Cell], about: str, role: str, width: int, target: Target | None = None) -> list[Line]:
    """Return a command and what it does, the whole of it, however many rows that takes."""
    lead = sum(cell.width + 1 for cell in cells)
    room = max(width - lead, 1)
    head, *more = wrap(about, room) or [""]
    below = [Line(((" " * lead, "text"), (fit(text, room), role)), target) for text in more]
    return [row([*cells, Cell(head, room, role)], target=target), *below]


def _short(command: Command, state: FeedState, page: Page) -> Line:
    reason = page.refusal(command, state)
    return row(
        [
            Cell(command.shown, 6, "dim" if reason else "accent"),
            Cell(command.label, 17, "dim" if reason else "text"),
        ]
    )


def _phase(phase: str) -> Line:
    return line((bars.PHASE_LETTERS[phase], f"phase:{phase}"), f" {bars.SHORT_NAMES[phase]}")


def _grid(items: list[Line], width: int, across: int) -> list[Line]:
    """Return the items in `across` columns, down first."""
    deep = -(-len(items) // across)
    rows = []
    for index in range(deep):
        spans = [span for item in items[index::deep] for span in pad(item, width).spans]
        rows.append(Line(tuple(spans)))
    return rows


def show_palette(place: Place) -> None:
    """List the commands with a prompt that filters them."""
    page = place.at(PalettePage)
    page.below, page.all_commands = place.page, place.commands
    page.typed, page.cursor = "", None
    place.show_detail(page)

    def change(typed: str) -> None:
        page.typed = typed

    def keep(_typed: str) -> None:
        chosen = page.opened()
        place.stack.remove(page)
        if chosen is not None:
            place.perform(chosen[1])

    hint = "type to filter, up and down choose, enter does it"
    place.ask_for(Prompt(":", hint, keep, "", change, lambda: place.stack.remove(page), page.move))


class PalettePage(Page):
    """All commands, those first that match what was typed."""

    name = "palette"
    title = "Commands"
    commands: ClassVar = (
        Command(
            "palette", (":", "ctrl+p"), ":", "Commands", "find a command by its name", "help", show_palette
        ),
    )
    opens: ClassVar = {"command": lambda place, _: place.end_prompt(keep=True)}
    keys = ("open", "up", "down", "back")

    def __init__(self) -> None:
        super().__init__()
        self.below: Page = self
        self.all_commands: tuple[Command, ...] = ()
        self.typed = ""

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the matching commands, one a row."""
        found = self.matches()
        rows = [each for command in found for each in self._row(command, state, width - 2)]
        targets = [("command", command.name) for command in found]
        if self.cursor not in targets:
            self.cursor = targets[0] if targets else None
        if not rows:
            rows = [line((row, "dim")) for row in wrap(f"no command contains “{self.typed}”", width - 2)]
        head = [rule("commands", width - 2, f"{len(targets)} of {len(self.all_commands)}")]
        arranged = self.arranged([indent(each, 1) for each in rows], width, height - 1)
        if self.cursor in self.target_rows:
            index = self.target_rows[self.cursor]
            if not self.top <= index < self.top + height - 1:
                self.top = max(index - height + 2, 0)
                arranged = self.arranged([indent(each, 1) for each in rows], width, height - 1)
        return [indent(head[0], 1), *arranged]

    def matches(self) -> list[Command]:
        """Return the commands that contain every word typed."""
        words = self.typed.lower().split()
        found = [
            command
            for command in self.all_commands
            if command.name != "palette"
            and all(word in f"{command.label} {command.about} {command.shown}".lower() for word in words)
        ]
        return sorted(found, key=lambda command: not all(word in command.label.lower() for word in words))

    def _row(self, command: Command, state: FeedState, width: int) -> list[Line]:
        reason = self.below.refusal(command, state)
        cells = [
            Cell(command.shown, KEY_WIDTH, "dim" if reason else "accent"),
            Cell(command.label, 16, "dim" if reason else "strong"),
        ]
        role = "dim" if reason else "text"
        return _told(cells, reason or command.about, role, width, ("command", command.name))
