"""Pages that are printed on standard output: as wide as the terminal; in a file each sentence has one row.

In: rows of a width that is asked for here.  Out: str, ready to be printed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from tuiadvisor.text.line import Unbroken, to_ascii
from tuiadvisor.text.printed import columns_of
from tuiadvisor.text.terminal import ascii_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.text.line import Line

COPIED_WIDTH: Final = 80  # of what is put into a message or an issue, whoever reads it
FILE_WIDTH: Final = (
    120  # of rules and tables where no terminal says how wide it is: names are rarely cut there
)


def page_width() -> int:
    """Return the cells of a row on standard output; of a file those of rules and tables, sentences being unbroken."""
    columns = columns_of(sys.stdout, FILE_WIDTH)
    return columns if sys.stdout.isatty() else Unbroken(columns)


def page_text(rows: Sequence[Line], *, plain_ascii: bool | None = None) -> str:
    """Return the page, each line ended by a newline; plain_ascii None asks stdout and the locale."""
    if plain_ascii is None:
        plain_ascii = ascii_only(os.environ, getattr(sys.stdout, "encoding", None))
    text = "\n".join(row.text.rstrip() for row in rows) + "\n"
    return to_ascii(text) if plain_ascii else text
