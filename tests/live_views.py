"""A live session's frames folded until its view shows what a test waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

from patience import PATIENCE_S

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.source import LiveSource
from tuiadvisor.views.run_view import RunView


def follow(
    source: LiveSource, advisor: Advisor, until: Callable[[RunView], bool], patience_s: float = PATIENCE_S
) -> RunView:
    """Fold what comes until the view satisfies the condition."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        for frame in source.read(0.2):
            advisor.feed(frame)
        view = advisor.view()
        if until(view):
            return view
    raise AssertionError(
        f"not within {patience_s} s: {view.ranks}, {view.losses}, {view.stall}, {view.verdict}"
    )
