"""The terminal's picture kept beside the wanted one, so that only changed cells go over the wire.

Textual repaints whole rows; over SSH the difference is 3 to 10 times fewer bytes (facts measured on real
lines). In: rows of strips.  Out: one string of escape sequences that turns the old picture into the new.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.strip import SGR_STYLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.color import ColorSystem
    from rich.segment import Segment
    from rich.style import Style

Ink = tuple[str, str, str]  # attributes, foreground, background as SGR parameters
PLAIN: Ink = ("", "", "")
# A jump of the cursor costs about 5 bytes: up to this many unchanged cells are cheaper written again.
BRIDGE_CELLS = 4


@lru_cache(4096)
def ink_of(style: Style | None, system: ColorSystem) -> Ink:
    """Return a style as SGR parameters."""
    if style is None:
        return PLAIN
    bits = style._attributes & style._set_attributes  # noqa: SLF001  # as textual.Strip.render_ansi does
    attributes = ";".join(SGR_STYLES[bit] for bit in range(bits.bit_length()) if bits & (1 << bit))
    colour, back = style.color, style.bgcolor
    foreground = ";".join(colour.downgrade(system).get_ansi_codes()) if colour else ""
    background = ";".join(back.downgrade(system).get_ansi_codes(foreground=False)) if back else ""
    return attributes, foreground, background


@lru_cache(8192)
def change(old: Ink, new: Ink) -> str:
    """Return the shortest sequence from one ink to another."""
    if old == new:
        return ""
    if old[0] != new[0] and old[0]:
        parts = ["", *(part for part in new if part)]
    else:
        parts = [new[0]] if new[0] != old[0] else []
        parts += [new[1] or "39"] if new[1] != old[1] else []
        parts += [new[2] or "49"] if new[2] != old[2] else []
    return f"\x1b[{';'.join(parts)}m"


class CellDiff:
    """What the terminal shows, and what it should show."""

    def __init__(self, system: ColorSystem) -> None:
        self.system = system
        self.width = 0
        self.height = 0
        self._shown: list[tuple[list[str], list[Ink]] | None] = []  # None: unknown, must be written whole
        self._wanted: list[tuple[list[str], list[Ink]] | None] = []
        self._touched: set[int] = set()

    def resize(self, width: int, height: int) -> None:
        """Start over on a screen of this size, whose content is unknown."""
        self.width, self.height = width, height
        self._shown = [None] * height
        self._wanted = [None] * height
        self._touched = set()

    def forget(self) -> None:
        """Assume nothing about what the terminal shows: the next frame is whole."""
        self._shown = [None] * self.height
        self._touched = {row for row, cells in enumerate(self._wanted) if cells is not None}

    def put(self, row: int, column: int, segments: Iterable[Segment]) -> None:
        """Want these segments at this place."""
        if not 0 <= row < self.height:
            return
        wanted = self._wanted[row]
        if wanted is None:
            wanted = self._wanted[row] = ([" "] * self.width, [PLAIN] * self.width)
        characters, inks = wanted
        for text, style, control in segments:
            if control:
                continue
            cells = list(text) if text.isascii() else _cells(text)
            room = self.width - column
            if room <= 0:
                break
            if len(cells) > room:
                cells = [*cells[: room - 1], cells[room - 1] if cells[room] else " "]
            if not cells:
                continue
            # What is left of a wide character that is overwritten by half is a blank.
            if not characters[column] and column:
                characters[column - 1] = " "
            characters[column : column + len(cells)] = cells
            if column + len(cells) < self.width and not characters[column + len(cells)]:
                characters[column + len(cells)] = " "
            inks[column : column + len(cells)] = [ink_of(style, self.system)] * len(cells)
            column += len(cells)
        self._touched.add(row)

    def take(self) -> str:
        """Return what turns the shown picture into the wanted one, and take it as shown."""
        out: list[str] = []
        ink: Ink | None = None
        for row in sorted(self._touched):
            wanted = self._wanted[row]
            if wanted is None:
                continue
            for start, end in self._runs(row, wanted):
                out.append(f"\x1b[{row + 1};{start + 1}H")
                ink = _write(out, wanted, start, end, ink)
            self._shown[row] = (wanted[0].copy(), wanted[1].copy())
        self._touched.clear()
        if out:
            out.append("\x1b[m")
        return "".join(out)

    def _runs(self, row: int, wanted: tuple[list[str], list[Ink]]) -> list[tuple[int, int]]:
        """Return the spans of a row that must be written."""
        shown = self._shown[row]
        if shown is None:
            return [(0, self.width)]
        if shown == wanted:
            return []
        runs: list[tuple[int, int]] = []
        for column, (old, new, old_ink, new_ink) in enumerate(
            zip(shown[0], wanted[0], shown[1], wanted[1], strict=True)
        ):
            if old == new and old_ink == new_ink:
                continue
            # The right half of a wide character is written with its left half.
            first = column - 1 if column and not (old and new) else column
            if runs and first - runs[-1][1] <= BRIDGE_CELLS:
                runs[-1] = (runs[-1][0], column + 1)
            else:
                runs.append((first, column + 1))
        return [(start, _whole(wanted[0], end)) for start, end in runs]


def _whole(characters: list[str], end: int) -> int:
    """Return the end of a run moved behind a wide character it would cut."""
    while end < len(characters) and characters[end] == "":
        end += 1
    return end


def _cells(text: str) -> list[str]:
    """Return one entry a cell: a wide character fills its first cell and leaves the second empty."""
    cells: list[str] = []
    for character in text:
        size = cell_len(character)
        if size:
            cells += [character] + [""] * (size - 1)
    return cells


def _write(
    out: list[str], wanted: tuple[list[str], list[Ink]], start: int, end: int, ink: Ink | None
) -> Ink | None:
    characters, inks = wanted
    column = start
    while column < end:
        new = inks[column]
        stop = column + 1
        while stop < end and inks[stop] == new:
            stop += 1
        # The first cell of a frame sets everything: what the terminal had before is not known.
        out.append(f"\x1b[;{';'.join(part for part in new if part)}m" if ink is None else change(ink, new))
        out.append("".join(characters[column:stop]))
        ink = new
        column = stop
    return ink
