"""The one place where the probe catches everything: a hook of ours may fail, the training may not.

`timed` wraps a function of the host; whatever our half of it raises is counted, the hook is switched off, and the
host's call goes through untouched. KeyboardInterrupt and SystemExit belong to the host and always pass.
"""

from __future__ import annotations

from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .step_clock import ABSORBS, BEGINS_ITERATION, MAX_DEPTH, NOW_PHASE, NOW_SINCE, OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    from .step_clock import StepClock

ANY_PHASE = -1
MAX_ERRORS_PER_HOOK = 1  # a hook that failed once has met a world it was not written for


class Hook:
    """Name, number and health of one hook. `active` is read on the hot path, everything else seldom."""

    __slots__ = ("active", "error", "index", "name", "num_errors", "on_disable")

    def __init__(self, name: str, index: int, on_disable: Callable[[Hook], None]) -> None:
        self.name = name
        self.index = index
        self.active = True
        self.num_errors = 0
        self.error = ""
        self.on_disable = on_disable

    def failed(self, error: Exception) -> None:
        """Count an exception of ours; at the limit the hook goes inert for good."""
        self.num_errors += 1
        self.error = type(error).__name__ + ": " + str(error)[:120]
        if self.num_errors >= MAX_ERRORS_PER_HOOK:
            self.active = False
            try:  # noqa: SIM105 - contextlib would be one more import in a stranger's process
                self.on_disable(self)
            except Exception:  # noqa: BLE001, S110 - the last line: there is nobody left to tell
                pass


def attempt(hook: Hook, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call function once under the guard; None when it failed."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - this is the guard
        hook.failed(error)
        return None


def timed(  # noqa: PLR0915 - one function with all of it on purpose, see below
    original: Callable[..., Any],
    hook: Hook,
    clock: StepClock,
    phase_of: Callable[[tuple[Any, ...]], int] | int,
    after: Callable[[int, int, tuple[Any, ...], Any], None] | None = None,
    *,
    observes: int = 0,
    after_phase: int = ANY_PHASE,
) -> Callable[..., Any]:
    """Wrap `original` so that the training thread's time inside belongs to a phase.

    phase_of: the phase, or a function of the arguments that gives it, negative to stay out of this call.
    after(begin_ns, end_ns, args, result) runs when the call has returned or raised (result None); where after_phase is
    given, only after calls that were in that phase. observes: bits of the clock's `observed` to set then.
    One frame of ours around each call of the host, and in it the lines of the clock's `enter` and `leave`: cold code
    is what a hook costs, and each function more that it calls is cold too.
    """
    constant = phase_of if isinstance(phase_of, int) else None
    in_any_phase = after_phase == ANY_PHASE
    own = clock.own  # emptied in a forked child: a loader worker never gets past the first test

    def tuiadvisor_hook(*args: Any, **kwargs: Any) -> Any:  # noqa: PLR0912, PLR0915 - likewise
        called_ns = monotonic_ns() if clock.measuring else 0  # first: the tests below are cold too
        if not hook.active or get_ident() != own[0]:
            return original(*args, **kwargs)
        begin_ns, has_closed = 0, False
        try:
            phase = constant if constant is not None else phase_of(args)  # type: ignore[operator]
            outer, depth = clock.phase, clock.depth
            if phase >= 0 and depth < MAX_DEPTH and not ABSORBS[outer]:
                now = monotonic_ns()
                if clock.stepped and not depth and BEGINS_ITERATION[phase]:
                    clock.close_step(now)
                    has_closed = True
                if clock.active:
                    clock.totals[outer] += now - clock.since
                    clock.outers[depth] = outer
                    clock.depth = depth + 1
                    clock.phase = phase
                    clock.since = begin_ns = now
                    clock.num_transitions += 2
                    words = clock.words
                    words[NOW_PHASE] = phase
                    words[NOW_SINCE] = now
                    if clock.device is not None:
                        clock.device.begins(phase, outer, now)
        except Exception as error:  # noqa: BLE001 - this is the guard
            hook.failed(error)
        if called_ns:
            clock.count_entry(monotonic_ns() - called_ns, begin_ns > 0, has_closed)
        if not begin_ns:
            return original(*args, **kwargs)
        result = None
        try:
            result = original(*args, **kwargs)
        finally:
            try:
                now = monotonic_ns()
                if clock.active:
                    ended, depth = clock.phase, clock.depth
                    clock.totals[ended] += now - clock.since
                    clock.since = now
                    outer = OTHER
                    if depth:
                        clock.depth = depth = depth - 1
                        outer = clock.outers[depth]
                    clock.phase = outer
                    words = clock.words
                    words[NOW_PHASE] = outer
                    words[NOW_SINCE] = now
                    if clock.device is not None:
                        clock.device.ends(ended, outer, now)
                    clock.observed |= observes
                    if after is not None and (in_any_phase or ended == after_phase):
                        after(begin_ns, now, args, result)
                if called_ns:
                    clock.count_exit(monotonic_ns() - now)
            except Exception as error:  # noqa: BLE001 - this is the guard
                hook.failed(error)
        return result

    update_wrapper(tuiadvisor_hook, original, updated=())
    if isinstance(original, FunctionType):
        tuiadvisor_hook._torchdynamo_inline = original  # type: ignore[attr-defined]  # what torch.compile traces
    return tuiadvisor_hook


def guarded_callback(hook: Hook, function: Callable[..., None]) -> Callable[..., None]:
    """A callback the host calls (optimizer hooks, gc callbacks) that can never raise into it."""

    def tuiadvisor_callback(*args: Any) -> None:
        if hook.active:
            try:
                function(*args)
            except Exception as error:  # noqa: BLE001 - this is the guard
                hook.failed(error)

    not_traced(tuiadvisor_callback)
    return tuiadvisor_callback


def not_traced(callback: Any) -> None:
    """A compiled optimizer.step calls its hooks from compiled code: not to be traced, and not to be left out."""
    callback._torchdynamo_disable = True
