"""Checkpoints that are written while training goes on: steps in which one is under way are flagged.

Two ways in: what `async_save` returns, asked at step borders whether it is done, and a save function that another
thread of this process is in. A flag makes its step be told at once, and `look` sets it anew for the next one, so
nothing is added to steps without a save. Not seen: threads that write files on their own.
"""

from __future__ import annotations

from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from .guard import INSPECTION, attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from .step_clock import StepClock

FLAG_SAVING = 512
MAX_HELD = 16  # futures at a time: whoever starts more saves than that has one under way anyhow
LONGEST_NS = 3_600_000_000_000  # a future that nobody will ever set is no save under way any more


class BackgroundSaves:
    """What is under way of this process."""

    __slots__ = ("clock", "futures", "threads")

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.futures: list[tuple[Any, int]] = []  # with the time at which each was begun
        self.threads: list[int] = []  # idents, one for each save function that a thread is in

    def begun(self, result: Any) -> None:
        """A save function has returned in the training thread: of an asynchronous one a promise is left."""
        future = getattr(result, "upload_completion", result)
        if callable(getattr(type(future), "done", None)) and len(self.futures) < MAX_HELD:
            self.futures.append((future, monotonic_ns()))
            self.look()

    def look(self) -> None:
        """At the border of a step, in the training thread: flag the next one while a save is under way."""
        since_ns = monotonic_ns() - LONGEST_NS
        self.futures = [
            entry for entry in self.futures if entry[1] > since_ns and not attempt(INSPECTION, entry[0].done)
        ]
        if self.futures or self.threads:
            self.clock.flags |= FLAG_SAVING

    def aside(
        self, original: Callable[..., Any], is_meant: Callable[[tuple[Any, ...]], bool] | None = None
    ) -> Callable[..., Any]:
        """The same function, known to be under way while a thread that does not train is in it.

        is_meant: whether a call with these arguments is a save; None: every one is.
        """
        own, threads, clock = self.clock.own, self.threads, self.clock

        def tuiadvisor_hook(*args: Any, **kwargs: Any) -> Any:
            ident = get_ident()
            if not own[0] or ident == own[0] or not clock.active:
                return original(*args, **kwargs)
            if is_meant is not None and not is_meant(args):
                return original(*args, **kwargs)
            threads.append(ident)
            # The training thread may set another flag between our reading and our writing: once in a million saves, and
            # then a flag of one step is lost.
            clock.flags |= FLAG_SAVING
            try:
                return original(*args, **kwargs)
            finally:
                threads.remove(ident)

        return update_wrapper(tuiadvisor_hook, original)
