"""Help for the page one came from, and the palette: the same list of commands, the second one filtered.

In: FeedState, the page below, the text typed.  Out: lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text.line import Cell, Line, crop, indent, line, pad, row, rule, spread, wrap
from tuiadvisor.tui.contract import commands
from tuiadvisor.tui.contract.page import Page
from tuiadvisor.tui.draw import bars

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.commands import Command
    from tuiadvisor.tui.contract.feed import FeedState

ABOUT = {
    "overview": "Top to bottom: the decision, the step's time over the last steps, what a step is spent on, "
    "each rank, what was found. A rank that WAITS is a victim; the culprit arrives last (▶). Goodput is the share of "
    "the time seen that none of the named losses takes. MFU is unknown: FLOPs per step and the device's peak were "
    "not given.",
    "ranks": "Each column of the heat map is a step: taller and warmer is later at the gradient barrier. "
    "'waits' is time lost to later ranks, 'causes' is the time this rank costs all others together. "
    "A group (+8: eight ranks, closed) has the mean of its ranks, causes and last summed, and its latest rank's map; "
    "what stands out (▶ ◆) is always on the screen.",
    "pipeline": "One step, a row a rank: F forward, B backward, W weight gradients, a dot where it waits. The bubble "
    "is the idle share of all ranks; u is what even stages would take off it, f what more micro-batches would.",
    "advisor": "Six patterns, each with what was measured and what only you know. Answers are stated, never measured; "
    "they can forbid, price or end something. left and right change the pattern, up and down the question.",
    "scaling": "Curves over devices: what is expected, within its 90 % interval (one run alone: best to worst case). "
    "Cost and hours are of the work that is left. A limit counts as kept where the whole interval keeps it. Enter on a "
    "row of what is stated changes it, left and right a tenth; curves and decision follow.",
    "preferences": "What is changed here is shown at once and written to the file, whole, each time.",
    "log": "What the tool itself did and met since the screens were opened, newest last.",
    "overlap": "Communication is cheap where compute hides it and dear where it is exposed: then either the last "
    "rank is waited for (skew), or data are moving (transfer). Each collective is seen in steps watched in detail, and "
    "DDP's buckets on CPU too: when each left, and what buckets of another size would hide (by a model).",
    "runs": "Each row is a recording (*.tuirec): its step time from first to last step, and the verdict at its "
    "end. Open one to replay it; mark two, the one before the change first, and compare them.",
    "compare": "Only what lies beyond the noise of two runs of the same code is called a change; * marks phases "
    "that changed surely. The interval is 95 %.",
    "finding": "The evidence is what made the rule fire, in the steps named beside it.",
    "rank": "'mean' is the mean of all ranks: a phase well above it is what makes this rank late.",
}
GROUPS = ("screens", "moving", "ranks", "time", "looks")


class HelpPage(Page):
    """The keys of the page below, and what its marks mean."""

    name = "help"
    title = "Help"
    keys = ("back", "palette", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.below: Page = self

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the help."""
        room = width - 2
        here = [commands.BY_NAME[name] for name in self.below.keys]
        others = [command for command in commands.COMMANDS if command not in here]
        across = max(room // 26, 1)
        rows = [
            *(line(text) for text in wrap(ABOUT.get(self.below.name, ""), room)),
            rule(f"on {self.below.title.lower()}", room),
            *(_command(command, state, self.below, room) for command in here),
            rule("all other keys", room, "grey: not now, and : says why"),
            *_grid([_short(command, state, self.below) for command in others], room // across, across),
            *_grid([_phase(phase) for phase in bars.PHASE_LETTERS], room // 5, 5),
            spread(bars.level_legend(room), line(("▶", "bad"), (" culprit: arrives last", "dim")), room),
        ]
        shown = self.arranged([indent(crop(each, room), 1) for each in rows], width, height)
        self.targets = []
        return shown


def _command(command: Command, state: FeedState, page: Page, width: int) -> Line:
    reason = commands.why_not(command.name, state, page)
    role = "dim" if reason else "text"
    name = page.labels.get(command.name, command.label)
    cells = [Cell(command.shown, 6, "dim" if reason else "accent"), Cell(name, 14, role)]
    about = page.abouts.get(command.name, command.about)
    if command.name == "quit" and state.mode == "replay":
        about = "leave; the recording stays as it is"
    return row([*cells, Cell(reason or about, width - 22, "dim")])


def _short(command: Command, state: FeedState, page: Page) -> Line:
    reason = commands.why_not(command.name, state, page)
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


class PalettePage(Page):
    """All commands, those first that match what was typed."""

    name = "palette"
    title = "Commands"
    keys = ("open", "up", "down", "back")

    def __init__(self) -> None:
        super().__init__()
        self.below: Page = self
        self.typed = ""

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the matching commands, one a row."""
        rows = [self._row(command, state, width - 2) for command in self.matches()]
        targets = [each.target for each in rows]
        if self.cursor not in targets:
            self.cursor = targets[0] if targets else None
        if not rows:
            rows = [line((f"no command contains “{self.typed}”", "dim"))]
        head = [rule("commands", width - 2, f"{len(targets)} of {len(commands.COMMANDS)}")]
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
            for command in commands.COMMANDS
            if command.name != "palette"
            and all(word in f"{command.label} {command.about} {command.shown}".lower() for word in words)
        ]
        return sorted(found, key=lambda command: not all(word in command.label.lower() for word in words))

    def _row(self, command: Command, state: FeedState, width: int) -> Line:
        reason = commands.why_not(command.name, state, self.below)
        about = reason or command.about
        cells = [
            Cell(command.shown, 6, "dim" if reason else "accent"),
            Cell(command.label, 16, "dim" if reason else "strong"),
            Cell(about, width - 24, "dim" if reason else "text"),
        ]
        return row(cells, target=("command", command.name))
