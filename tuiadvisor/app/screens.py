"""The way into the screens: over a desk that is there, or at once, while what is behind them is still being made."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tuiadvisor.app import preferences_file
from tuiadvisor.app.memory_trim import give_back_large_blocks
from tuiadvisor.app.opening import OpeningDesk
from tuiadvisor.paused_gc import collector_off, keep_for_good
from tuiadvisor.tui.contract.desk import ListRuns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.app.desk import Desk
    from tuiadvisor.tui.contract.feed import Mode


def show_opened(
    make: Callable[[OpeningDesk], Desk], mode: Mode, phase: str, path: str = "", *, first_page: str = ""
) -> bool:
    """The screens at once; whether they were left by q.

    make: gives the desk, not started, from a thread when the first frame is out; phase: what is said until then, or
    until it tells what to show meanwhile.
    Whatever `make` raises ends the screens and comes out here. Raises TuiadvisorError where there is no usable
    terminal.
    """
    opening = OpeningDesk(make, mode, phase, path)
    try:
        goes_back = _run(opening, first_page=first_page, intro=None, on_drawn=opening.begin)
    finally:
        opening.stop()
    if opening.failure is not None:
        raise opening.failure
    return goes_back


def show_screens(desk: Desk, *, first_page: str = "", intro: str | None = None) -> None:
    """The screens over this desk, until the user leaves; first_page: "" for the one that is preferred."""
    desk.start()
    try:
        _run(desk, first_page=first_page, intro=intro)
    finally:
        desk.stop()


def _run(
    desk: Desk | OpeningDesk,
    *,
    first_page: str,
    intro: str | None,
    on_drawn: Callable[[], None] | None = None,
) -> bool:
    give_back_large_blocks()
    preferred = preferences_file.current()
    if not first_page and preferred.first_screen == "runs":
        desk.command(ListRuns())
    with ExitStack() as until_drawn:
        until_drawn.enter_context(collector_off())  # it took a fifteenth of the first frame's time
        from tuiadvisor.tui.control.app import run_app  # noqa: PLC0415 - Textual only when screens are shown

        def drawn() -> None:
            keep_for_good()
            until_drawn.close()
            if on_drawn is not None:
                on_drawn()

        return run_app(
            desk,
            desk=desk,
            first_page=first_page or preferred.first_screen,
            intro=intro,
            preferences=preferred,
            preferences_file=str(preferences_file.path()),
            on_drawn=drawn,
            quiet=preferences_file.is_quiet(),
            rules=preferences_file.rules,
        )
