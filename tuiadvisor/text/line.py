"""Lines of styled text as plain data: built by the pages, drawn by the canvas, printed by `once`.

A span is (text, role); a role is a name that `colours` turns into a style. Nothing here imports Textual.
Text from outside passes through `clean`, so a host name cannot carry an escape sequence to the terminal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[str, str]
Target = tuple[str, str]  # ("rank", "2"), ("finding", "input_bound"): what enter or a click opens
# Cells from, to (not included), and what a click on them does: a command, or the target "kind:name" that it opens.
Spot = tuple[int, int, str]
Align = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the screen."""

    spans: tuple[Span, ...] = ()
    target: Target | None = None
    spots: tuple[Spot, ...] = ()
    reach: tuple[int, int] | None = (
        None  # cells from, to (not included) that the target's ground covers; None: all
    )

    @property
    def text(self) -> str:
        """The row without its roles."""
        return "".join(text for text, _ in self.spans)

    def spot(self, column: int) -> str:
        """What a click on this cell does, "" for nothing of its own."""
        return next((name for start, end, name in self.spots if start <= column < end), "")


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of a table row, of a fixed width."""

    text: str
    width: int
    role: str = "text"
    align: Align = "left"


class Unbroken(int):
    """Cells of the rules and tables of a page whose sentences have a row each, however long: of one for a file.

    Given on as any width: where a sentence or a row is to be broken or cut at it, it stays whole.
    """

    def __sub__(self, other: int) -> Unbroken:
        """Beside a margin, too."""
        return Unbroken(int(self) - other)


BLANK = Line()
_TO_THE_END: Final = 1 << 16  # cells: further than any row

# One ASCII character for each glyph the pages use, so that widths stay; anything else becomes "?".
_ASCII = str.maketrans(
    {
        "\u00b7": "-",
        "\u2013": "-",
        "\u2014": "-",
        "\u00d7": "x",
        "\u00b5": "u",
        "±": "~",
        "…": "~",
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("─╌┄", "-"),
        **dict.fromkeys("│║▏┊╵", "|"),
        **dict.fromkeys("╭╮╰╯├┤┬┴└", "+"),
        # A curve of braille: high, in the middle or low in its cell.
        **{
            chr(0x2800 + dots): '"' if not dots & 0xF6 else "_" if not dots & 0x3F else "="
            for dots in range(1, 256)
        },
        **dict(zip("━═●○◌◇◆■✖✗⊘▲▼▶◀✓▪", "==*o~.*#xx!^v><+*", strict=True)),
        **dict(zip("⇄→←↑↓↵≥≤", "=><^v/><", strict=True)),
        **dict(zip("▁▂▃▄▅▆▇█░▓", ":-=+*%%#.%", strict=True)),
    }
)
# "16.9 ms" stays in one row: the blank between a number and its unit does not break.
_UNIT_BLANK = re.compile(r"(?<=\d) (?=(?:[munµ]?s|min|h|%|[kMG]?B(?:/s)?)(?:\W|$))")

_SIGNS: Final = (
    ",;=/",
    "._-:",
)  # a long word is cut behind the last of these, rather between names than in one


@lru_cache(4096)
def clean(text: str) -> str:
    """Return the text with control, zero-width and direction characters taken out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character.isprintable() and cell_len(character) else " " if character in "\t\n" else ""
        for character in text
    )


def to_ascii(text: str) -> str:
    """Return the text in ASCII, cell for cell."""
    if text.isascii():
        return text
    translated = text.translate(_ASCII)
    return "".join(
        character if character.isascii() else "?" * cell_len(character) for character in translated
    )


def line(*parts: str | Span, target: Target | None = None) -> Line:
    """Return a row of the parts; a bare string has the role "text"."""
    spans = tuple(
        (clean(part), "text") if isinstance(part, str) else (clean(part[0]), part[1]) for part in parts
    )
    return Line(tuple(span for span in spans if span[0]), target)


def fit(text: str, width: int, align: Align = "left") -> str:
    """Return the text in exactly `width` cells, with an ellipsis where it was cut."""
    if width <= 0:
        return ""
    text = clean(text)
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    gap = " " * (width - length)
    return gap + text if align == "right" else text + gap


def row(cells: Iterable[Cell], *, target: Target | None = None) -> Line:
    """Return a table row, one blank between the fields."""
    spans: list[Span] = []
    for cell in cells:
        if cell.width <= 0:
            continue
        if spans:
            spans.append((" ", "text"))
        spans.append((fit(cell.text, cell.width, cell.align), cell.role))
    return Line(tuple(spans), target)


def length(parts: Line | Sequence[Span]) -> int:
    """Return the width in cells."""
    spans = parts.spans if isinstance(parts, Line) else parts
    return sum(cell_len(text) for text, _ in spans)


def fit_middle(text: str, width: int) -> str:
    """Return the text in exactly `width` cells; what is too long loses its middle: names differ at their ends."""
    text = clean(text)
    if cell_len(text) <= width or width < 5 or cell_len(text) != len(text):
        return fit(text, width)
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def crop(source: Line, width: int) -> Line:
    """Return the row cut to `width` cells, with an ellipsis where it was cut."""
    if isinstance(width, Unbroken) or length(source) <= width:
        return source
    spans: list[Span] = []
    left = width
    for text, role in source.spans:
        size = cell_len(text)
        if size >= left:
            # The ellipsis stands for everything behind it, so it is due even where this span just fits.
            spans.append((fit(text + "  ", left), role))
            break
        spans.append((text, role))
        left -= size
    return replace(source, spans=tuple(span for span in spans if span[0]))


def pad(source: Line, width: int) -> Line:
    """Return the row in exactly `width` cells."""
    cropped = crop(source, width)
    gap = width - length(cropped)
    return replace(cropped, spans=(*cropped.spans, (" " * gap, "text"))) if gap > 0 else cropped


def spread(left: Line, right: Line, width: int) -> Line:
    """Return `left` and, flush right, `right` where both fit; `left` wins."""
    room = width - length(left) - length(right)
    if room < 1:
        return crop(left, width)
    return replace(left, spans=(*left.spans, (" " * room, "text"), *right.spans))


def indent(source: Line, cells: int) -> Line:
    """Return the row moved right."""
    spots = tuple((start + cells, end + cells, does) for start, end, does in source.spots)
    reach = None if source.reach is None else (source.reach[0] + cells, source.reach[1] + cells)
    return replace(source, spans=((" " * cells, "text"), *source.spans), spots=spots, reach=reach)


def select(source: Line, width: int) -> Line:
    """Return the row, as far as its target reaches, on the ground of a selection ("@" before each role)."""
    padded = pad(source, width)
    start, end = source.reach or (0, width)
    spans: list[Span] = []
    here = 0
    for text, role in padded.spans:
        spans.append((text, f"@{role}" if start <= here < end else role))
        here += cell_len(text)
    return replace(padded, spans=tuple(spans))


def rule(title: str, width: int, right: str = "", *shorter: str) -> Line:
    """Return a section head: '── title ─────── right ──'. shorter: what stands there where there is less room."""
    head: list[Span] = [("── ", "rule"), (clean(title), "title"), (" ", "rule")]
    tail: list[Span] = [(" ", "rule"), (clean(right), "dim"), (" ──", "rule")] if right else []
    room = width - length(head) - length(tail)
    if room < 2 and right:
        return rule(title, width, *shorter)
    return crop(Line((*head, ("─" * max(room, 0), "rule"), *tail)), width)


def wrap(text: str, width: int) -> list[str]:
    """Return the text broken at blanks into rows of at most `width` cells; long words are cut behind a sign."""
    if isinstance(width, Unbroken):
        return [whole] if (whole := " ".join(clean(text).split())) else []
    rows: list[str] = []
    current = ""
    joined = _UNIT_BLANK.sub("\u00a0", " ".join(clean(text).split()))
    for word in joined.split(" "):
        candidate = f"{current} {word}" if current else word
        if cell_len(candidate) <= width:
            current = candidate
            continue
        if current:
            rows.append(current)
        rest = word
        while cell_len(rest) > width > 0:
            rows.append(_head(rest, width))
            rest = rest[len(rows[-1]) :]
        current = rest
    if current:
        rows.append(current)
    return [row.replace("\u00a0", " ") for row in rows]


def wrap_within(text: str, width: int, num_rows: int) -> list[str]:
    """Return at most so many rows; where that is too few the last one ends in a sign, never silently."""
    rows = wrap(text, width)
    if len(rows) <= num_rows:
        return rows
    rest = " ".join(rows[num_rows - 1 :])
    return [*rows[: num_rows - 1], fit(rest, width).rstrip()] if num_rows > 0 else []


def _head(word: str, width: int) -> str:
    """Return what of a word that is too long stands in the first row: a command or a name stays readable."""
    most = set_cell_size(word, width).rstrip()
    parts = (most[: max(map(most.rfind, signs)) + 1] for signs in _SIGNS)
    return next((part for part in parts if 2 * cell_len(part) >= width), most)


def _reach(first: Line, left_width: int, second: Line, gap: int) -> tuple[int, int] | None:
    if first.target is not None:
        return first.reach or (0, left_width)
    if second.target is None:
        return None
    start, end = second.reach or (0, _TO_THE_END)
    return left_width + gap + start, left_width + gap + end


def beside(left: Sequence[Line], left_width: int, right: Sequence[Line], gap: int = 3) -> list[Line]:
    """Return two blocks side by side; a row keeps the target of the block that has one, which reaches no further."""
    rows = max(len(left), len(right))
    joined: list[Line] = []
    for index in range(rows):
        first = left[index] if index < len(left) else BLANK
        second = right[index] if index < len(right) else BLANK
        first_padded = pad(first, left_width)
        spans = (*first_padded.spans, (" " * gap, "text"), *second.spans)
        joined.append(
            Line(spans, first.target or second.target, reach=_reach(first, left_width, second, gap))
        )
    return joined
