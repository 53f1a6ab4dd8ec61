"""The caller's code, wrapped so that it can neither touch the host's names nor say a word when it fails.

In: Python source.  Out: pure-ASCII Python source that raises nothing of its own.

Where it runs in the main thread, a handler of the host's signals may run between any two of its lines. What that raises
is the host's, and passes: told in its traceback by the handler's code or, for one that has put the former handler back,
by its arguments. A KeyboardInterrupt always is, for Python's own handler is not written in Python.
"""

from __future__ import annotations

NAME_IN_TARGET = "_tuiadvisor_boot"
# A build without a lock of the interpreter ("t") would run that thread beside the training's at every line.
_START = """\
try:
    {before}
    import _thread, sys
    text, is_there = {text!a}, "t" in sys.abiflags
    try:
        is_there or _thread.start_new_thread(exec, (text, {{}}))
    except RuntimeError as error:
        is_there = error.args == ("can't start new thread",)
    if is_there:
        exec(text, {{}})
except BaseException:
    pass
"""
_UNLESS_THE_HOSTS = """\
except BaseException as error:
    from _signal import getsignal, valid_signals
    handlers = [getattr(handler, "func", handler) for handler in map(getsignal, valid_signals())]
    handlers += [type(handler).__call__ for handler in handlers if callable(handler)]
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    is_the_hosts, place = isinstance(error, KeyboardInterrupt), error.__traceback__
    while place is not None:
        frame, place, held = place.tb_frame, place.tb_next, []
        # Of our own it would keep what they have caught, and with that all frames above, the host's too.
        is_ours = str(frame.f_globals.get("__name__")).startswith(("tuiadvisor_probes", "_tuiadvisor"))
        for value in [] if is_ours else list(frame.f_locals.values()):
            held += value if type(value) is tuple else (value,)
        pairs = [pair for pair in zip(held, held[1:]) if pair[1] is frame.f_back and isinstance(pair[0], int)]
        is_the_hosts = is_the_hosts or frame.f_code in codes or bool(frame.f_back and pairs)
    if is_the_hosts:
        raise
"""


def wrapped(code: str) -> str:
    """Code that runs `code` in a fresh namespace."""
    # ascii(): the text crosses as bytes and is decoded under whatever source encoding is in force there.
    return f"try:\n    exec({code!a}, {{'__name__': {NAME_IN_TARGET!r}}})\n{_UNLESS_THE_HOSTS}"


def started(code: str, before: str) -> str:
    """Code that starts a thread which runs `code` as above, or runs it right there where none may be or can be started.

    before: one line run first, under the same guard. Few lines: each is one at which a handler may run in our frames.
    """
    return _START.format(before=before, text=wrapped(code))
