"""The way into the screens: what is loaded for the first frame is looked through for cycles neither then nor later."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tuiadvisor.app import screens
from tuiadvisor.tui.control import app as control


class _Desk:
    """Nothing of it is asked for."""

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def command(self, command: object) -> None:
        """Nothing to do."""


@pytest.mark.parametrize("is_drawn", [True, False])
def test_the_collector_of_cycles_is_off_until_the_first_frame(
    monkeypatch: pytest.MonkeyPatch, *, is_drawn: bool
) -> None:
    """And on again afterwards, also where no frame was ever drawn."""
    seen = []

    def run_app(*_: object, on_drawn: Any, **__: object) -> bool:
        seen.append(gc.isenabled())
        if is_drawn:
            on_drawn()
            seen.extend([gc.isenabled(), gc.get_freeze_count() > 0])
        return False

    monkeypatch.setattr(control, "run_app", run_app)
    try:
        screens.show_screens(_Desk())  # type: ignore[arg-type]
        assert ([False, True, True] if is_drawn else [False]) == seen
        assert gc.isenabled()
    finally:
        gc.unfreeze()
