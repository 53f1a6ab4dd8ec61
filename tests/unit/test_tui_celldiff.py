"""Cell differences: what is written turns the old picture into the new one, and nothing else is written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from thinned import num_examples

from tuiadvisor.tui.terminal.cell_diff import PLAIN, CellDiff, change, ink_of

WIDTH, HEIGHT = 12, 3
STYLES = [
    None,
    Style.parse("bold red on blue"),
    Style.parse("green"),
    Style.parse("#123456 on #654321"),
    Style.parse("default on default"),
    Style.parse("reverse"),
]
TOKEN = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([\d;]*)m|(.)", re.DOTALL)


class Terminal:
    """Enough of a terminal to draw what CellDiff writes: cursor address, SGR, characters one or two wide."""

    def __init__(self) -> None:
        self.cells = [[("?", frozenset[str]())] * WIDTH for _ in range(HEIGHT)]
        self.row = self.column = 0
        self.pen: dict[str, str] = {}

    def write(self, data: str) -> None:
        for row, column, sgr, character in TOKEN.findall(data):
            if row:
                self.row, self.column = int(row) - 1, int(column) - 1
            elif character:
                size = cell_len(character)
                pen = frozenset(self.pen.items())
                for offset in range(size):
                    self.cells[self.row][self.column + offset] = (character if offset == 0 else "", pen)
                self.column += size
            else:
                self._sgr(sgr.split(";"))

    def _sgr(self, codes: list[str]) -> None:
        while codes:
            code = codes.pop(0) or "0"
            if code == "0":
                self.pen = {}
            elif code in {"38", "48"}:
                count = 4 if codes[0] == "2" else 2
                self.pen["fg" if code == "38" else "bg"] = ";".join(codes[:count])
                del codes[:count]
            elif code in {"39", "49"}:
                self.pen.pop("fg" if code == "39" else "bg", None)
            elif len(code) == 2 and code[0] in "349":
                self.pen["bg" if code[0] == "4" else "fg"] = code
            elif len(code) == 3:
                self.pen["bg"] = code
            else:
                self.pen[f"attribute {code}"] = code


TEXT = st.text(alphabet="ab ▁漢█", max_size=8)
PUTS = st.lists(
    st.tuples(
        st.integers(0, HEIGHT - 1),
        st.integers(0, WIDTH),
        st.lists(st.tuples(TEXT, st.sampled_from(STYLES)), max_size=3),
    ),
    max_size=4,
)


def fitting(text: str, column: int) -> str:
    """Cut before a wide character that would hang over the edge, as Textual's strips are."""
    kept = ""
    for character in text:
        if column + cell_len(kept + character) > WIDTH:
            break
        kept += character
    return kept


@pytest.mark.slow
@settings(max_examples=num_examples(200))
@given(frames=st.lists(PUTS, min_size=1, max_size=4))
def test_the_terminal_shows_what_is_wanted(
    frames: list[list[tuple[int, int, list[tuple[str, Style | None]]]]],
) -> None:
    """Frame by frame, a terminal that got only the differences shows the same as one that is drawn anew."""
    diff, terminal = CellDiff(ColorSystem.TRUECOLOR), Terminal()
    diff.resize(WIDTH, HEIGHT)
    for row in range(HEIGHT):
        diff.put(row, 0, [Segment(" " * WIDTH, STYLES[2])])
    for puts in frames:
        for row, column, parts in puts:
            at = column
            segments = []
            for text, style in parts:
                kept = fitting(text, at)
                segments.append(Segment(kept, style))
                at += cell_len(kept)
            diff.put(row, column, segments)
        terminal.write(diff.take())
        anew = Terminal()
        diff.forget()
        anew.write(diff.take())
        assert anew.cells == terminal.cells


def test_an_unchanged_picture_costs_nothing() -> None:
    """Not a byte, not even a cursor move."""
    diff = CellDiff(ColorSystem.TRUECOLOR)
    diff.resize(WIDTH, 1)
    diff.put(0, 0, [Segment("abc         ", STYLES[1])])
    assert diff.take() != ""
    diff.put(0, 0, [Segment("abc         ", STYLES[1])])
    assert "" == diff.take()


def test_only_the_changed_cells_are_written() -> None:
    """One changed digit is one cursor move, one ink, one character."""
    diff = CellDiff(ColorSystem.STANDARD)
    diff.resize(WIDTH, 1)
    diff.put(0, 0, [Segment("step 341    ", None)])
    diff.take()
    diff.put(0, 0, [Segment("step 342    ", None)])
    assert "\x1b[1;8H\x1b[;m2\x1b[m" == diff.take()


def test_changes_close_together_are_one_run() -> None:
    """A jump costs more than two cells written again."""
    diff = CellDiff(ColorSystem.STANDARD)
    diff.resize(WIDTH, 1)
    diff.put(0, 0, [Segment("abcdefghijkl", None)])
    diff.take()
    diff.put(0, 0, [Segment("aBcDefghijKl", None)])
    assert "\x1b[1;2H\x1b[;mBcD\x1b[1;11HK\x1b[m" == diff.take()


def test_a_resize_writes_everything() -> None:
    """What a terminal shows after a resize is not known."""
    diff = CellDiff(ColorSystem.STANDARD)
    diff.resize(4, 1)
    diff.put(0, 0, [Segment("abcd", None)])
    diff.take()
    diff.resize(5, 1)
    diff.put(0, 0, [Segment("abcde", None)])
    assert "abcde" in diff.take()


def test_an_attribute_that_ends_resets_the_ink() -> None:
    """Bold cannot be taken back by a colour alone; a colour can be changed alone."""
    red, bold_red = ("", "31", ""), ("1", "31", "")
    assert "\x1b[1m" == change(red, bold_red)
    assert "\x1b[;31m" == change(bold_red, red)
    assert "\x1b[39m" == change(red, PLAIN)
    assert "" == change(red, red)


def test_colours_are_brought_down_to_what_the_terminal_has() -> None:
    """True colour becomes one of 256, or of 16."""
    style = Style.parse("#ff0000")
    assert ("", "38;2;255;0;0", "") == ink_of(style, ColorSystem.TRUECOLOR)
    assert ("", "38;5;196", "") == ink_of(style, ColorSystem.EIGHT_BIT)
    assert (
        "3" == ink_of(style, ColorSystem.STANDARD)[1][0] or "9" == ink_of(style, ColorSystem.STANDARD)[1][0]
    )
