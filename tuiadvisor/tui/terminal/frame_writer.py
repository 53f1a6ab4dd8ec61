"""The way to the terminal: cell differences, one frame at a time, the next one when the last was taken.

After each frame the terminal is asked for its cursor position; its answer says that it has drawn the frame.
Frames that fall due meanwhile are merged, so a slow line shows fewer frames and never lags behind the keys.
Mixed into the App; Textual's own way is taken where there is no terminal (tests, web).
"""

from __future__ import annotations

import os
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from textual.app import App

from tuiadvisor.tui.terminal.cell_diff import CellDiff
from tuiadvisor.tui.terminal.input_bytes import read_any_bytes
from tuiadvisor.tui.terminal.textual_private import ChopsUpdate, LayoutUpdate

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual import events
    from textual.screen import Screen

ASK_CURSOR = "\x1b[6n"
# A terminal that never answers gets frames after this long anyway, and after three of them unpaced.
ANSWER_TIMEOUT_S = 2.0
MAX_UNANSWERED = 3
# What the screens may write on their own, on 80x24 and for each further cell; a key is always answered at once.
SMALL_CELLS = 80 * 24
SMALL_BYTES_PER_S = 850.0
BYTES_PER_S_PER_CELL = 0.22
# Bytes that may be saved up, in seconds of the above: one whole frame of a busy screen.
SAVED_S = 3.0
# From here on it is worth a word how long the terminal takes to answer.
SLOW_LINE_S = 0.3
# However dear the frames are, the next one is drawn after this long.
LONGEST_WAIT_S = 4.0
# A single dear frame (another page, the first figures) delays the next by no more than this: it is told by being
# twice as large as most of so many before it, or among the first ones.
LONGEST_DEBT_S = 1.5
NUM_USUAL_FRAMES = 8


class Budget:
    """Bytes a second that frames nobody asked for may cost; a busy heat map is drawn less often."""

    def __init__(self) -> None:
        self.bytes_per_s = SMALL_BYTES_PER_S
        self.left = 0.0
        self.frames: deque[int] = deque(maxlen=NUM_USUAL_FRAMES)  # bytes of the last ones
        self.counted_s = 0.0
        self.drawn_s = 0.0

    def resize(self, num_cells: int) -> None:
        """Allow more on a larger screen."""
        self.bytes_per_s = SMALL_BYTES_PER_S + max(num_cells - SMALL_CELLS, 0) * BYTES_PER_S_PER_CELL

    def allows(self, now_s: float) -> bool:
        """Return whether a frame may be drawn now."""
        saved = self.left + (now_s - self.counted_s) * self.bytes_per_s
        self.left = min(saved, self.bytes_per_s * SAVED_S)
        self.counted_s = now_s
        return self.left >= 0 or now_s - self.drawn_s >= LONGEST_WAIT_S

    def spend(self, num_bytes: int, now_s: float) -> None:
        """Count a frame. A debt is forgiven beyond what the longest delay pays back."""
        usual = sorted(self.frames)[len(self.frames) // 2] if len(self.frames) == NUM_USUAL_FRAMES else 0
        longest_s = LONGEST_DEBT_S if num_bytes > 2 * usual else LONGEST_WAIT_S
        self.frames.append(num_bytes)
        self.left = max(self.left - num_bytes, -self.bytes_per_s * longest_s)
        self.drawn_s = now_s


class WireApp(App[None]):
    """An App that writes only changed cells and never queues frames."""

    def __init__(self) -> None:
        # Under NO_COLOR Textual picks its filter here: the one for native colours drops them, the other one
        # turns the terminal's default colours into black on black.
        super().__init__(ansi_color="NO_COLOR" in os.environ)
        read_any_bytes()
        self._cells = CellDiff(ColorSystem.TRUECOLOR)
        self._asked_s: float | None = None
        self._unanswered = 0
        self._answers = False
        self._is_due = False  # a timer looks after a frame that waits for an answer
        self.round_trip_s: float | None = None
        self.num_merged_frames = 0
        self.budget = Budget()
        self.slow_line_s = SLOW_LINE_S

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Take a frame from Textual's compositor (private, the same in all of 8.x)."""
        if not self._draws_itself() or not isinstance(renderable, LayoutUpdate | ChopsUpdate):
            if renderable is not None:
                self._cells.forget()
            super()._display(screen, renderable)
            return
        if self._batch_count:
            return
        if (self._cells.width, self._cells.height) != (self.size.width, self.size.height):
            self._cells.system = self.console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001
            self._cells.resize(self.size.width, self.size.height)
            self.budget.resize(self.size.width * self.size.height)
        if isinstance(renderable, LayoutUpdate):
            self._take_whole(renderable)
        else:
            self._take_parts(renderable)
        self._write_frame()
        self.post_display_hook()

    def _draws_itself(self) -> bool:
        driver = self._driver
        return (
            self._running
            and not self._closed
            and not self.is_headless
            and driver is not None
            and not driver.is_inline
        )

    def _take_whole(self, update: LayoutUpdate) -> None:
        for row, strips in enumerate(update.strips, update.region.y):
            column = update.region.x
            for strip in strips:
                self._cells.put(row, column, strip)
                column += strip.cell_length

    def _take_parts(self, update: ChopsUpdate) -> None:
        for row in {y for y, _, _ in update.spans}:
            for column, strip in update.chops[row].items():
                if strip is not None:
                    self._cells.put(row, column, strip)

    def _write_frame(self) -> None:
        if self._asked_s is not None and self._unanswered < MAX_UNANSWERED:
            waited_s = monotonic() - self._asked_s
            if waited_s < ANSWER_TIMEOUT_S:
                self.num_merged_frames += 1
                self._write_later(ANSWER_TIMEOUT_S - waited_s)
                return
            if not self._answers:
                self._unanswered += 1
        data = self._cells.take()
        if not data or self._driver is None:
            return
        if self._unanswered < MAX_UNANSWERED:
            self._asked_s = monotonic()
            data += ASK_CURSOR
        self.budget.spend(len(data.encode()), monotonic())
        self._begin_update()
        self._driver.write(data)
        self._end_update()
        self._driver.flush()

    def _write_later(self, left_s: float) -> None:
        """Send what was merged though no answer comes: nothing else may ever change on the screen."""
        if self._is_due:
            return
        self._is_due = True
        self.set_timer(left_s, self._write_due)

    def _write_due(self) -> None:
        self._is_due = False
        if self._draws_itself():
            self._write_frame()

    def on_cursor_position(self, _event: events.CursorPosition) -> None:
        """The terminal has drawn the last frame: send what was merged meanwhile."""
        if self._asked_s is not None:
            self.round_trip_s = monotonic() - self._asked_s
            self._answers = True
            self._unanswered = 0
        self._asked_s = None
        if self._draws_itself():
            self._write_frame()

    def redraw(self) -> None:
        """Draw everything anew, whatever the terminal shows."""
        self._cells.forget()
        self._asked_s = None
        self._write_frame()

    def wire_note(self) -> str:
        """Return how slow the terminal is, where it is worth a word."""
        if self.round_trip_s is None or self.round_trip_s < self.slow_line_s:
            return ""
        return f"terminal lag {self.round_trip_s * 1e3:,.0f} ms, {self.num_merged_frames:,} frames merged"
