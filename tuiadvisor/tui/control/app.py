"""The application: polls the feed, passes keys to the navigator, puts its rows on the canvas.

`run_app` returns when the user quits, on ctrl+c, or when the terminal is gone.
Textual is imported here and in `canvas` and `wire`: import this module only when screens are really shown.
"""

from __future__ import annotations

from tuiadvisor.text import terminal

terminal.prepare()

import asyncio  # noqa: E402  # Textual reads the switches above while it is imported
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from time import monotonic  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

from textual.screen import Screen  # noqa: E402

from tuiadvisor.preferences import AlertRules, Preferences, alert_rules  # noqa: E402
from tuiadvisor.text import format as text_of  # noqa: E402
from tuiadvisor.tui.contract.desk import DeskCommand, WantJobs, WantRuns  # noqa: E402
from tuiadvisor.tui.contract.feed import CLOSED, FeedState, Quit, ReplayState, ViewFeed  # noqa: E402
from tuiadvisor.tui.control import clipboard  # noqa: E402
from tuiadvisor.tui.control.navigator import MESSAGE_S, Navigator  # noqa: E402
from tuiadvisor.tui.draw import colours  # noqa: E402
from tuiadvisor.tui.draw.canvas import Canvas  # noqa: E402
from tuiadvisor.tui.terminal.frame_writer import WireApp  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events
    from textual.app import ComposeResult
    from textual.timer import Timer

    from tuiadvisor.tui.contract.desk import Desk
    from tuiadvisor.tui.contract.feed import FeedCommand

__all__ = ["FeedState", "ReplayState", "Screens", "ViewFeed", "run_app"]

UNFOCUSED_REFRESH_S = 2.0
# The answer to a command comes as a later state: look for it sooner than the usual refresh.
ANSWER_POLL_S = 0.05
ANSWER_POLLS = 12
# What is being opened is looked for as often, until it is there or has taken this long.
OPENING_POLLS = 200
NUM_COLOURS = {"standard": 16, "256": 256, "truecolor": 1 << 24}


class Main(Screen[None], inherit_bindings=False):
    """The one Textual screen. Textual's own bindings would take tab and ctrl+c."""


class Screens(WireApp, inherit_bindings=False):
    """Screens over a ViewFeed."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "tuiadvisor"

    def __init__(
        self,
        feed: ViewFeed,
        *,
        desk: Desk | None = None,
        first_page: str = "overview",
        intro: str | None = None,
        theme: str | None = None,
        ascii_only: bool | None = None,
        preferences: Preferences | None = None,
        preferences_file: str = "",
        clock: Callable[[], float] = monotonic,
        on_drawn: Callable[[], None] | None = None,
        quiet: bool = False,
        rules: Callable[[Preferences], AlertRules] = alert_rules,
    ) -> None:
        """rules: when the terminal may be rung; quiet: neither bell nor notification, whatever is preferred.

        desk: what lies beside the run; theme, ascii_only: None takes what is preferred, else reads them
        off the terminal; preferences_file: where changed ones are kept; on_drawn: called when the first frame is out.
        """
        super().__init__()
        self.feed = feed
        self.clock = clock
        self.beside = desk
        self.preferences = preferences or Preferences()
        self.place = Navigator(
            self,
            feed.latest(),
            intro=intro,
            first_page=first_page,
            preferences=self.preferences,
            preferences_file=preferences_file,
            clock=clock,
        )
        self.place.alerts.is_quiet = quiet or self.preferences.alerts == "quiet"
        self.rules = rules
        self.place.alerts.rules = rules(self.preferences)
        self._wanted: tuple[str, ...] = ()
        self._wants_jobs = False
        self.goes_back = False  # how the user left
        self.colour_theme = theme or self._preferred_theme()
        self.canvas = Canvas(self.draw)
        self.canvas.ascii_only = self._prefers_ascii() if ascii_only is None else ascii_only
        self._use_units()
        self.canvas.theme_name = self.colour_theme
        self.ansi_color = self.colour_theme == "terminal"
        self._on_drawn = on_drawn
        self._opening_polls = 0
        self._ticks: Timer | None = None
        self._answer_polls = 0
        self._unfocused_due_s = 0.0
        self._pressed_at: tuple[int, int] | None = None  # row, column

    def get_default_screen(self) -> Screen[None]:
        """Return the one screen."""
        return Main(id="_default")

    def compose(self) -> ComposeResult:
        """Yield the canvas with its rows: the first frame is whole then, not empty with another to follow."""
        self.canvas.rows = self.place.rows(*self.size)
        yield self.canvas

    def on_mount(self) -> None:
        """Start polling; leave when the terminal goes, or somebody asks for it."""
        self._paint_ground()
        if not self.is_headless:
            # With SIGHUP ignored (nohup) a lost terminal would spin a core on reads that return at once.
            for number in (signal.SIGHUP, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.leave)
        self._ticks = self.set_interval(self.preferences.refresh_s, self.tick)

    def post_display_hook(self) -> None:
        """Textual's hook after each frame: with the first one out, what comes next may take its time."""
        on_drawn, self._on_drawn = self._on_drawn, None
        if on_drawn is not None:
            on_drawn()
            self._opening_polls = OPENING_POLLS
            self.set_timer(ANSWER_POLL_S, self._poll_opening)

    def _poll_opening(self) -> None:
        former = self.place.state
        if self.feed.latest() != former:
            self.take_state()
        self._opening_polls -= 1
        if self._opening_polls > 0 and self.place.state.view is None:
            self.set_timer(ANSWER_POLL_S, self._poll_opening)

    # --- preferences

    def _preferred_theme(self) -> str:
        num_colours = NUM_COLOURS.get(self.console.color_system or "")
        return terminal.first_theme(os.environ, num_colours, self.preferences.theme)

    def _prefers_ascii(self) -> bool:
        encoding = getattr(sys.__stderr__, "encoding", None)
        return self.preferences.glyphs == "ascii" or terminal.ascii_only(os.environ, encoding)

    def _use_units(self) -> None:
        text_of.use_binary_bytes(binary=self.preferences.bytes == "binary")
        self.slow_line_s = self.preferences.slow_line_ms / 1e3

    def prefer(self, preferences: Preferences) -> None:
        """Show everything as preferred from now on."""
        former, self.preferences = self.preferences, preferences
        self._use_units()
        if preferences.alerts != former.alerts:
            self.place.alerts.is_quiet = preferences.alerts == "quiet"
        self.place.alerts.rules = self.rules(preferences)
        if preferences.refresh_s != former.refresh_s and self._ticks is not None:
            self._ticks.stop()
            self._ticks = self.set_interval(preferences.refresh_s, self.tick)
        if preferences.theme != former.theme:
            self.colour_theme = self._preferred_theme()
            self.ansi_color = self.colour_theme == "terminal"
            self._paint_ground()
        if preferences.glyphs != former.glyphs:
            self.canvas.ascii_only = self._prefers_ascii()
        self.canvas.restyle(self.colour_theme)

    def _paint_ground(self) -> None:
        foreground, background = colours.ground(self.colour_theme)
        self.screen.styles.background = background
        self.screen.styles.color = foreground

    # --- time

    def tick(self) -> None:
        """Look for a newer state; called twice a second, heeded less often where nobody looks or bytes are dear."""
        if not self.is_headless:
            if not terminal.is_there():
                self.leave()
                return
            if not self.budget.allows(monotonic()):
                return
        if not self.app_focus:
            now = self.clock()
            if now < self._unfocused_due_s:
                return
            self._unfocused_due_s = now + UNFOCUSED_REFRESH_S
        self.take_state()

    def take_state(self) -> None:
        """Draw the newest state."""
        state = self.feed.latest()
        if state.phase == CLOSED:
            self.leave()
            return
        self.place.take_state(state)
        if self.beside is not None:
            self.place.take_desk(self.beside.desk())
        self.draw()
        wanted = self.place.wanted_runs()
        if self.beside is not None and wanted != self._wanted:
            self._wanted = wanted
            self.beside.command(WantRuns(wanted))
        if self.beside is not None and self.place.page.wants_jobs != self._wants_jobs:
            self._wants_jobs = self.place.page.wants_jobs
            self.beside.command(WantJobs(self._wants_jobs))

    def draw(self) -> None:
        """Put everything on the canvas, which repaints the rows that changed."""
        width, height = self.canvas.size
        if width and height:
            self.place.wire_note = self.wire_note()
            self.canvas.show(self.place.rows(width, height))

    # --- what the navigator asks for

    def ask(self, command: FeedCommand | DeskCommand) -> None:
        """Send a command to the feed and look for its answer soon."""
        if isinstance(command, DeskCommand):
            if self.beside is None:
                self.place.say("not available in these screens")
                return
            self.beside.command(command)
        else:
            self.feed.command(command)
        polling = self._answer_polls > 0
        self._answer_polls = ANSWER_POLLS
        if not polling:
            self.set_timer(ANSWER_POLL_S, self._poll_answer)

    def _poll_answer(self) -> None:
        self.take_state()
        self._answer_polls -= 1
        if self._answer_polls > 0:
            self.set_timer(ANSWER_POLL_S, self._poll_answer)

    def leave(self, *, back: bool = False) -> None:
        """Quit at once; back: to where the screens were opened from."""
        self.goes_back = back
        self.feed.command(Quit())
        self.exit()

    def to_shell(self) -> str:
        """Stop until the shell's `fg`; only where a shell with job control is behind that can do so."""
        if self.is_headless or not terminal.has_shell():
            return "^Z: there is no shell behind these screens to go back to"
        self.action_suspend_process()
        self.set_timer(ANSWER_POLL_S, self.redraw)
        return ""

    def alert(self, text: str) -> None:
        """The bell, which tmux passes on as a mark of its window, and OSC 9, which some terminals show as a message."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(clipboard.alert_sequence(text, os.environ))
            self._driver.flush()

    def next_theme(self) -> str:
        """Use the next set of colours; returns its name."""
        names = list(colours.THEMES)
        self.colour_theme = names[(names.index(self.colour_theme) + 1) % len(names)]
        self.ansi_color = self.colour_theme == "terminal"
        self._paint_ground()
        self.canvas.restyle(self.colour_theme)
        return self.colour_theme

    def copy(self, text: str) -> str:
        """Ask the terminal to take the text, and keep it in a file for terminals that do not."""
        lines = text.count("\n")
        sequence = clipboard.clipboard_sequence(text, os.environ)
        if sequence and self._driver is not None and not self.is_headless:
            self._driver.write(sequence)
            self._driver.flush()
        path = clipboard.copy_file(os.environ)
        try:
            clipboard.write_private(path, text)
        except OSError as error:
            return f"asked the terminal to copy {lines:,} lines" if sequence else f"{path}: {error.strerror}"
        shown = str(path).replace(str(Path.home()), "~", 1)
        return f"copied {lines:,} lines{'' if sequence else ', too long for a clipboard'}; also in {shown}"

    def picture(self) -> str:
        """Save the screen as SVG here."""
        try:
            path = clipboard.new_picture(Path.cwd(), self.export_screenshot(title="tuiadvisor"))
        except OSError as error:
            return f"no picture: {error.strerror or error}"
        return f"saved {path.name}"

    # --- input

    def on_key(self, event: events.Key) -> None:
        """Pass a key on and draw what it did, with the newest figures."""
        event.stop()
        event.prevent_default()
        self.place.key(event.key, event.character)
        if self.place.message:
            self.set_timer(MESSAGE_S + 0.1, self.draw)
        self.take_state()

    def on_paste(self, event: events.Paste) -> None:
        """Pass pasted text on."""
        self.place.paste(event.text)
        self.draw()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a drag begins."""
        self._pressed_at = (event.screen_y, event.screen_x)

    def on_click(self, event: events.Click) -> None:
        """Open what was clicked, or take the stretch over which the mouse was drawn."""
        begin, here = self._pressed_at, (event.screen_y, event.screen_x)
        if begin is None or not self.place.drag(begin, here):
            self.place.click(*here)
        self.draw()

    def on_mouse_scroll_down(self) -> None:
        """Scroll the page."""
        self.place.page.scroll(3)
        self.draw()

    def on_mouse_scroll_up(self) -> None:
        """Scroll the page."""
        self.place.page.scroll(-3)
        self.draw()


def run_app(
    feed: ViewFeed,
    *,
    desk: Desk | None = None,
    first_page: str = "overview",
    intro: str | None = None,
    preferences: Preferences | None = None,
    preferences_file: str = "",
    on_drawn: Callable[[], None] | None = None,
    quiet: bool = False,
    rules: Callable[[Preferences], AlertRules] = alert_rules,
) -> bool:
    """Show the screens until the user leaves: whether by q, not by ^C, a signal or a lost terminal.

    Raises TuiadvisorError where there is no usable terminal.
    """
    terminal.require_terminal()
    screens = Screens(
        feed,
        desk=desk,
        first_page=first_page,
        intro=intro,
        preferences=preferences,
        preferences_file=preferences_file,
        on_drawn=on_drawn,
        quiet=quiet,
        rules=rules,
    )
    screens.run()
    return screens.goes_back
