"""Tables and pairs of a report as HTML; every text in them is escaped, what is unknown looks so.

In: rows of text.  Out: str.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.report.inert import inert
from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NO_PHASE: Final = '<p class="unknown">unknown: no phase was observed</p>'


def figure(text: str) -> str:
    """One value."""
    return f'<span class="unknown">{inert(text)}</span>' if text.startswith(text_of.UNKNOWN) else inert(text)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: int = 1,
    marked: frozenset[int] = frozenset(),
) -> str:
    """Rows of text under their heads; columns from `numbers` on are figures, flush right."""
    cells = [f"<th{_class(place, numbers)}>{inert(head)}</th>" for place, head in enumerate(heads)]
    body = []
    for index, row in enumerate(rows):
        marks = ' class="culprit"' if index in marked else ""
        columns = "".join(
            f"<td{_class(place, numbers)}>{figure(text)}</td>" for place, text in enumerate(row)
        )
        body.append(f"<tr{marks}>{columns}</tr>")
    return f'<div class="scroll"><table><tr>{"".join(cells)}</tr>{"".join(body)}</table></div>'


def _class(place: int, numbers: int) -> str:
    return ' class="n"' if place >= numbers else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values, a line each."""
    lines = "".join(f"<tr><th>{inert(name)}</th><td>{figure(text)}</td></tr>" for name, text in rows)
    return f'<table class="facts">{lines}</table>'


def bullets(texts: Iterable[str]) -> str:
    """A list; nothing where there is nothing to say."""
    lines = "".join(f"<li>{inert(text)}</li>" for text in texts)
    return f"<ul>{lines}</ul>" if lines else ""
