"""The one widget of the screens: draws lines by Textual's Line API and repaints the rows that changed.

In: lines.  Out: strips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tuiadvisor.text.line import BLANK, Line, length, to_ascii
from tuiadvisor.tui.draw import colours

if TYPE_CHECKING:
    from collections.abc import Callable


class Canvas(Widget):
    """A block of styled rows."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    def __init__(self, on_size: Callable[[], None]) -> None:
        super().__init__()
        self.on_size = on_size
        self.theme_name = "dark"
        self.ascii_only = False
        self.rows: list[Line] = []
        self._strips: dict[int, Strip] = {}

    def on_resize(self) -> None:
        """Ask for rows of the new size."""
        self.on_size()

    def show(self, rows: list[Line]) -> None:
        """Draw these rows; only those that differ are repainted."""
        width = self.size.width
        most = max(len(rows), len(self.rows))
        changed = []
        for index in range(most):
            new = rows[index] if index < len(rows) else BLANK
            old = self.rows[index] if index < len(self.rows) else None
            if new != old:
                self._strips.pop(index, None)
                changed.append(Region(0, index, width, 1))
        self.rows = rows
        if changed:
            self.refresh(*changed)

    def restyle(self, theme_name: str) -> None:
        """Draw everything in another theme."""
        self.theme_name = theme_name
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Textual's hook for a changed style sheet: the cached rows carry the old ground."""
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """Return a row as Textual wants it, cached."""
        width = self.size.width
        strip = self._strips.get(y)
        if strip is None or strip.cell_length != width:
            strip = self._strip(self.rows[y] if y < len(self.rows) else BLANK, width)
            self._strips[y] = strip
        return strip

    def _strip(self, row: Line, width: int) -> Strip:
        theme = self.theme_name
        segments = [
            Segment(to_ascii(text) if self.ascii_only else text, colours.style(theme, role))
            for text, role in row.spans
            if text
        ]
        used = length(row)
        if used > width:
            return Strip(segments, used).crop(0, width)
        tail = row.spans[-1][1] if row.spans else "text"
        ground = "@text" if tail.startswith("@") else "text"
        return Strip([*segments, Segment(" " * (width - used), colours.style(theme, ground))], width)
