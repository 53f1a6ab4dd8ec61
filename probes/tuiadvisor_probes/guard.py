"""Where the probe catches everything: a hook of ours may fail, the training may not.

`timed` wraps a function of the host; whatever our half of it raises is counted, the hook is switched off, and the
host's call goes through untouched. KeyboardInterrupt and SystemExit belong to the host and always pass. So does what a
signal handler of the host raises while our lines run: a time limit by signal.alarm has to end what it limits.
Other hooks that each step passes (`data_hook`, `optimizer_hook`, `iterator_hook`) have the same
lines inside: a call more is cold code in every step.
"""

from __future__ import annotations

import signal
from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from . import books, native, step_clock
from .books import MAX_NOTES
from .phases import FORWARD
from .step_clock import BROKEN, CARE, DEVICE, EVALUATING, GONE, MEASURING, NOW, STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from .step_clock import StepClock

ANY_PHASE = -1
STAY_OUT = -1
OURS = __name__.partition(".")[0]
KEEP_BOOKS = (books.__name__, step_clock.__name__)
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

    def failed(self, error: BaseException) -> bool:
        """Count an exception of ours; at the limit the hook goes inert for good. Raises what is the host's own.

        False where it stays as it is: a program at its limit of nested calls has none left for our lines, and this one
        call goes by unseen. Nothing is called for that here, and nothing is raised.
        """
        if type(error) is RecursionError:
            place = error.__traceback__
            while place is not None and place.tb_frame.f_globals["__name__"] not in KEEP_BOOKS:
                place = place.tb_next
            if place is None:  # else what keeps the books may have done a half of something
                return False
        elif is_the_hosts(error):
            _leave_as_found(error)
            raise error
        self.num_errors += 1
        self.error = type(error).__name__ + ": " + str(error)[:120]
        if self.num_errors >= MAX_ERRORS_PER_HOOK:
            self.active = False
            try:  # noqa: SIM105 - contextlib would be one more import in a stranger's process
                self.on_disable(self)
            except Exception:  # noqa: BLE001, S110 - the last line: there is nobody left to tell
                pass
        return True


def _stands(_hook: Hook) -> None:
    """Nothing is taken out where nothing was put in."""


INSPECTION = Hook("inspection", 0, _stands)  # for `attempt`: an object of the host that cannot be looked at


def is_the_hosts(error: BaseException) -> bool:
    """Whether it passes: a signal handler, which Python calls between any two of our lines, has raised it."""
    if not isinstance(error, Exception):
        return True
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code in handlers or _answers_a_signal(place.tb_frame):
            return True
        place = place.tb_next
    return False


def _answers_a_signal(frame: Any) -> bool:
    """Whether its arguments are a signal's number and the frame that it was called in: nobody but Python calls so.

    Many a handler puts the former one back before it raises: then `signal.getsignal` does not know it any more. Frames
    of our own are none and are not asked: up to Python 3.12 what is asked for its names keeps what they were, the
    caught exception too, and with that all frames above, down to the model, until garbage is collected.
    """
    name, outer = frame.f_globals.get("__name__"), frame.f_back
    if outer is None or (type(name) is str and name.startswith(OURS)):
        return False
    held: list[Any] = []
    for value in list(frame.f_locals.values()):  # arguments come first, in their order
        held.extend(value if type(value) is tuple else (value,))
    return any(held[place] is outer and isinstance(held[place - 1], int) for place in range(1, len(held)))


def _code_of(handler: Any) -> Any:
    handler = getattr(handler, "func", handler)  # functools.partial
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)


def _leave_as_found(error: BaseException) -> None:
    """Close what the interrupted hook may have opened: back to the phase around it, and no half note."""
    frame = (
        error.__traceback__.tb_frame if error.__traceback__ else None
    )  # the hook's own: it has caught the error
    found: dict[str, Any] = frame.f_locals if frame else {}
    clock, outer = found.get("clock"), found.get("outer")
    if clock is None or outer is None or not clock.active:
        return
    if len(clock.log) % 2:
        clock.log.pop()
    clock.change(outer, monotonic_ns())


def attempt(hook: Hook, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call function once under the guard; None when it failed."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - this is the guard
        hook.failed(error)
        return None


def all_of(hook: Hook, left: list[Callable[[], Any]]) -> None:
    """Call each under the guard, the last one first, whatever handlers of signals raise meanwhile: that is raised then.

    One that was broken off is called again, so it has to bear that.
    """
    raised: BaseException | None = None
    while left:
        try:
            while left:
                attempt(hook, left[-1])
                left.pop()
        except BaseException as error:  # noqa: BLE001 - raised below
            raised = error
    if raised is not None:
        try:
            raise raised
        finally:
            raised = None  # else it would hold itself


def timed(  # noqa: PLR0915 - one function with all of it on purpose, see below
    original: Callable[..., Any],
    hook: Hook,
    clock: StepClock,
    phase_of: Callable[[tuple[Any, ...]], int] | int,
    after: Callable[[int, int, tuple[Any, ...], Any], None] | None = None,
    *,
    observes: int = 0,
    after_phase: int = ANY_PHASE,
    after_alert: int = 0,
    roots: set[int] | tuple[int, ...] = (),
    meant: set[int] | None = None,
    is_grad_enabled: Callable[[], bool] = bool,
    on_device: Callable[[tuple[Any, ...], dict[str, Any]], None] | None = None,
    stranger: Callable[[], None] | None = None,
    any_root: bool = False,
    only_with: str = "",
    is_looked_up: bool = False,
    kind: str | None = None,
    awaited: list[Any] | None = None,
) -> Callable[..., Any]:
    """Wrap `original` so that the training thread's time inside belongs to a phase.

    phase_of: the phase, or a function of the arguments that gives it, negative to stay out of this call.
    after(begin_ns, end_ns, args, result) runs when the call has returned or raised (result None); where after_phase is
    given, only after calls that were in that phase, where after_alert is given, only while that bit of the clock's
    alert is set. observes: bits of the clock's `observed` that entering sets.
    roots: ids of modules whose training forward is known without asking phase_of.
    meant: ids beside which phase_of stays out, for the native core, which need not ask.
    on_device(args, kwargs) runs before the call, on ranks whose device is timed.
    stranger() runs before a call by a thread that is not the training thread; it never raises.
    any_root: a training module with gradients is in forward, whichever it is: for the native core, which need not ask.
    only_with: the keyword argument that is true in the calls that are meant, for a function that serves several ends.
    is_looked_up: torch finds `original` by its name in its module, and no compiled code looks through it: what stands
    there need not be a function.
    kind: DDP_FORWARD or DDP_BACKWARD, with awaited, the modules whose gradients are still to be exchanged: while there
    is none the native core does what `after` would, of the only module that there is.
    One frame of ours around each call of the host, which notes that it came by and no more: cold code and data are what
    a hook costs, each function and each object more is cold too.
    """
    constant = phase_of if isinstance(phase_of, int) else None
    in_any_phase = after_phase == ANY_PHASE
    own = clock.own  # emptied in a forked child: a loader worker never gets past the first test
    thin, log, words, admit, stand_in = clock.thin, clock.log, clock.words, clock.admit, clock.stand_in
    note = log.append
    group = clock.books.group(observes)
    inherits: tuple[Any, Any, Any] = getattr(original, "inherits", (None, None, None))
    owner, name, base = inherits

    def tuiadvisor_hook(*args: Any, **kwargs: Any) -> Any:  # noqa: PLR0912, PLR0915 - likewise
        is_meant = not only_with or kwargs.get(only_with) is True
        if get_ident() != own[0] or not is_meant:
            if stranger is not None and is_meant:
                stranger()
            return original(*args, **kwargs)
        called_ns = begin_ns = 0
        call = original
        # What a class inherits, without a frame for looking it up: a model that calls itself has its levels counted.
        if base is not None and args and type(args[0]) is owner and owner.__base__ is base:
            found = getattr(base, name)
            call = found if type(found) is FunctionType else original
        try:
            alert, outer, phase = thin.alert, thin.phase, STAY_OUT
            if not alert & STOPPED or (hook.active and clock.active):
                if alert & MEASURING:
                    called_ns = monotonic_ns()
                    stand_in(*args, **kwargs)
                if constant is not None:
                    phase = constant
                elif not args or 5 < outer < 8:  # a method without its object, or nothing to tell
                    pass
                elif (
                    id(args[0]) in roots and args[0].training and not alert & EVALUATING and is_grad_enabled()
                ):
                    phase = FORWARD
                else:
                    phase = phase_of(args)  # type: ignore[operator]
            if phase >= 0 and not 5 < outer < 8:  # ABSORBS
                begin_ns = admit(phase) if alert & CARE else monotonic_ns()
                if begin_ns:
                    thin.phase = phase
                    note(group | phase)
                    note(begin_ns)
                    words[NOW] = begin_ns << 4 | phase
                    if alert & DEVICE and on_device is not None:
                        on_device(args, kwargs)
        except BaseException as error:  # noqa: BLE001 - this is the guard
            if hook.failed(error):
                clock.alert(BROKEN, True)
        if called_ns and begin_ns:
            clock.count_own(monotonic_ns() - called_ns)
        if not begin_ns:
            return call(*args, **kwargs)
        result = None
        try:
            result = call(*args, **kwargs)
        finally:
            try:
                now = monotonic_ns()
                thin.phase = outer
                alert = thin.alert
                if not alert & GONE:
                    note(outer)
                    note(now)
                    words[NOW] = now << 4 | outer
                    if alert & DEVICE:
                        clock.device.ends(phase, outer, now)
                    if len(log) > MAX_NOTES:  # where no optimizer of torch's ends a step
                        clock.catch_up()
                    if (
                        after is not None
                        and (in_any_phase or phase == after_phase)
                        and (alert & after_alert or not after_alert)
                    ):
                        after(begin_ns, now, args, result)
                    if called_ns:
                        clock.count_own(monotonic_ns() - now)
            except BaseException as error:  # noqa: BLE001 - this is the guard
                if hook.failed(error):
                    clock.alert(BROKEN, True)
        return result

    if native.core is not None and (constant is not None or any_root or isinstance(roots, set)):
        gate = native.core.Gate(
            clock,
            original,
            tuiadvisor_hook,
            failing(hook, clock),
            after,
            nothing,
            FORWARD if constant is None else constant,
            group,
            native.core.CALL if kind is None else getattr(native.core, kind),
            original.__qualname__
            if is_looked_up
            else (cast, (None, original)),  # for picklers, as in `pickled`
            after_phase=after_phase,
            after_alert=after_alert,
            roots=roots if isinstance(roots, set) else None,
            is_grad_enabled=is_grad_enabled,
            is_forward=constant is None,
            owner=owner,
            name=name,
            ids=meant,
            base=base,
            only_with=only_with or None,
            open=awaited,
        )
        tuiadvisor_hook = gate if is_looked_up else through(gate)
    update_wrapper(tuiadvisor_hook, original, updated=())
    if isinstance(original, FunctionType):
        tuiadvisor_hook._torchdynamo_inline = original  # type: ignore[attr-defined]  # what torch.compile traces
    return tuiadvisor_hook


def through(gate: Any) -> Callable[..., Any]:
    """A function of Python's that is the gate: torch.compile looks through functions, and through nothing else.

    What calls it as an object, as the slots of classes do, is in the gate at once; its own line is for what calls it
    from Python's bytecode until 3.11, and for after the probe has left.
    """

    def tuiadvisor_hook(*args: Any, **kwargs: Any) -> Any:
        return gate(*args, **kwargs)

    gate.stand_for(tuiadvisor_hook)
    return tuiadvisor_hook


def failing(hook: Hook, clock: StepClock) -> Callable[[BaseException], None]:
    """What the native core does with an exception of ours: as `timed`."""

    def failed(error: BaseException) -> None:
        if hook.failed(error):
            clock.alert(BROKEN, True)

    return failed


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """What a native hook has cost before its first line, for `StepClock.stand_in`."""


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
