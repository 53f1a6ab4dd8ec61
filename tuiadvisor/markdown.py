"""Text that is not ours within a page of Markdown: on one line, and nothing that Markdown or HTML would act on."""

from __future__ import annotations

from typing import Final

from tuiadvisor.errors import one_line

_MARKS: Final = "\\`*<>[]|#"


def plain(text: object) -> str:
    """As it is to be read."""
    shown = one_line(str(text), " ")
    for mark in _MARKS:
        shown = shown.replace(mark, "\\" + mark)
    return shown


def code(text: str) -> str:
    """A command as code: no way out of the span."""
    return "`" + one_line(text, " ").replace("`", "'") + "`"
