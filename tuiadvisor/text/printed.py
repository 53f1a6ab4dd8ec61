"""Sentences that are printed: broken at blanks to the width of a terminal, left in one line for a file or a script.

In: text, perhaps of many lines.  Out: the same text; on a terminal with more line ends in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import TextIO

# What stands before the words of a line, under which its further rows begin: blanks, the sign of a list, figures.
_HEAD: Final = re.compile(r"\s*(?:[-*] |\d+\. |[\d> -]+ {2})?")
_CODE: Final = re.compile(r"`[^`\n]*`")
_TIE: Final = (
    "\x1f"  # a blank that never ends a row; `clean` and `one_line` leave none in what is a stranger's
)
# "16.9 ms" stays in one row.
_FIGURE: Final = re.compile(r"(?<=\d) (?=(?:[munµ]?s|min|h|%|[kMG]?B(?:/s)?)(?:\W|$))")


def unbroken(command: str) -> str:
    """Return a command as one word: pasted by halves it is another one."""
    return command.replace(" ", _TIE)


def say(text: str, *, stream: TextIO | None = None) -> None:
    """Print it, as wide as the terminal is, where it goes to one."""
    out = sys.stdout if stream is None else stream
    if out.isatty():
        text = fitted(text, columns_of(out))
    print(text.replace(_TIE, " "), file=out, flush=True)


def say_on_stderr(text: str) -> None:
    """Say it on standard error: what went wrong, what is being done, where something was written."""
    say(text, stream=sys.stderr)


def redraw(text: str) -> None:
    """Put one row of a terminal on standard error in the place of the one before; "" takes it away."""
    print(f"\r\x1b[2K{one_row(text)}", end="", file=sys.stderr, flush=True)


def one_row(text: str) -> str:
    """Return what is redrawn in its place in one row of the terminal: of a second one the first would stay behind."""
    most = columns_of(sys.stderr) - 1
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def columns_of(stream: TextIO, otherwise: int = 80) -> int:
    """Return the cells in a row of the terminal that a stream goes to; COLUMNS wins, as everywhere.

    otherwise: where neither tells.

    The other stream may go to a file, of which `shutil` knows no width: `tuiadvisor diagnose x > file`.
    """
    if not os.environ.get("COLUMNS", ""):
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed, or has no descriptor
            if (columns := os.get_terminal_size(stream.fileno()).columns) > 0:
                return columns
    return shutil.get_terminal_size((otherwise, 24)).columns


def fitted(text: str, width: int) -> str:
    """Return the text with no row wider than so many cells, but for words that are: a path stays whole."""
    return "\n".join(row for each in text.split("\n") for row in _rows(each, width)).replace(_TIE, " ")


def _rows(text: str, width: int) -> list[str]:
    """Return one line in rows; blanks within a row stay as many as they are, as in a table."""
    from rich.cells import cell_len  # noqa: PLC0415 - of what is printed to a file nobody needs it

    if cell_len(text) <= width:
        return [text]
    tied = _FIGURE.sub(_TIE, _CODE.sub(lambda found: unbroken(found.group()), text))
    head = _HEAD.match(tied)
    indent = " " * len(head.group()) if head is not None and 2 * len(head.group()) < width else ""
    rows, current = [], ""
    for word in re.findall(r"[^\S\x1f]*(?:\S|\x1f)+", tied):
        if current and cell_len(f"{current}{word}".replace(_TIE, " ")) > width:
            rows.append(current)
            current = indent + word.lstrip(" ")
        else:
            current += word
    return [*rows, current]
