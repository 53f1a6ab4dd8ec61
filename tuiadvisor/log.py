"""A log for whoever asks for one: -v, --log FILE or TUIADVISOR_LOG. Without them nothing is written and nothing loaded.

In: what the command line or the environment asks for, and what our modules say.  Out: lines, by `loglines`, in one
file or on standard error. Hub and agents of this machine get the open file itself; what an agent on another machine
says comes back on its standard error, with a mark. Nothing that runs in a rank imports this.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from tuiadvisor.loglines import Lines

DEBUG, INFO, WARNING, ERROR, OFF = 10, 20, 30, 40, 100
LEVELS: Final = {"debug": DEBUG, "info": INFO}
VARIABLE: Final = "TUIADVISOR_LOG"
HELP: Final = (
    "-v and -vv log to standard error, --log FILE to a file of yours alone, which is appended to; while screens are "
    f"shown -v writes to a file that is named when they close. {VARIABLE}=FILE or {VARIABLE}=debug:FILE asks for the "
    "same."
)


class _Held:
    """The log of this process."""

    level: int = OFF
    lines: Lines | None = None


_held: Final = _Held()


class Logger:
    """What one module says; as logging's, but nothing is loaded before somebody wants to read it."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, *values: object) -> None:
        """A detail."""
        if _held.level <= DEBUG:
            self._say(DEBUG, message, values)

    def info(self, message: str, *values: object) -> None:
        """A decision or a turn."""
        if _held.level <= INFO:
            self._say(INFO, message, values)

    def warning(self, message: str, *values: object) -> None:
        """Something is not as it should be, and we go on."""
        if _held.level <= WARNING:
            self._say(WARNING, message, values)

    def exception(self, message: str, *values: object) -> None:
        """What was just caught, with its traceback."""
        if _held.level <= ERROR:
            self._say(ERROR, message, values, has_traceback=True)

    def at(self, level: int, message: str, *values: object) -> None:
        """With the level of whoever said it first."""
        if _held.level <= level:
            self._say(level, message, values)

    def _say(
        self, level: int, message: str, values: tuple[object, ...], *, has_traceback: bool = False
    ) -> None:
        import logging  # noqa: PLC0415 - only where there is a log

        logging.getLogger(self._name).log(level, message, *values, exc_info=has_traceback)


def add_options(parser: argparse.ArgumentParser) -> None:
    """-v and --log for a process that is a program of its own, and the open file that its starter hands to it."""
    import argparse  # noqa: PLC0415 - most who log parse nothing

    parser.add_argument("-v", dest="verbose", action="count", default=0, help="log; -vv logs more")
    parser.add_argument("--log", metavar="FILE", help="log to this file")
    parser.add_argument("--log-fd", type=int, help=argparse.SUPPRESS)


def start(
    process: str, verbosity: int, file: str | None, *, environ: Mapping[str, str], has_screens: bool = False
) -> str:
    """Begin the log that is asked for, if one is; the file's name if it was chosen here, else "".

    TuiadvisorError if it cannot be written or may not be: nothing has been touched then.
    """
    level_asked, file_asked = _asked(environ.get(VARIABLE, ""))
    level = DEBUG if verbosity > 1 else INFO if verbosity or file else level_asked
    file = file or file_asked
    if not (verbosity or file):
        return ""
    from tuiadvisor import loglines  # noqa: PLC0415

    chosen = loglines.state_file(process) if has_screens and not file else ""
    _begin(
        level, loglines.to_file(process, file or chosen) if file or chosen else loglines.to_stderr(process)
    )
    return chosen


def start_beside(process: str, given: argparse.Namespace, *, is_remote: bool) -> None:
    """The log of a hub or an agent: in the file that its starter handed to it, or back to the starter."""
    from tuiadvisor import loglines  # noqa: PLC0415

    level = DEBUG if given.verbose > 1 else INFO
    if given.log_fd is not None:
        _begin(level, loglines.to_descriptor(process, given.log_fd))
    elif not is_remote:
        start(process, given.verbose, given.log, environ=os.environ)
    elif given.verbose:
        _begin(level, loglines.back(process))


def stop() -> None:
    """End it."""
    lines, _held.lines, _held.level = _held.lines, None, OFF
    if lines is not None:
        lines.close()


def is_on() -> bool:
    """Whether somebody reads."""
    return _held.level < OFF


def for_child() -> tuple[list[str], tuple[int, ...]]:
    """Options for a process of ours on this machine, and the descriptors to pass to it."""
    if _held.lines is None:
        return [], ()
    descriptor = _held.lines.descriptor
    return [*for_remote(), f"--log-fd={descriptor}"], (descriptor,)


def for_remote() -> list[str]:
    """Options for an agent on another machine, which sends its lines back."""
    return ["-vv" if _held.level <= DEBUG else "-v"] if is_on() else []


def for_command() -> dict[str, str]:
    """The environment of another command of ours: it writes to the same file."""
    if _held.lines is None or not _held.lines.path:
        return {}
    level = "debug" if _held.level <= DEBUG else "info"
    return {VARIABLE: f"{level}:{_held.lines.path}"}


def hide(*secrets: str) -> None:
    """Whatever is said later, these are not in it."""
    if _held.lines is not None:
        _held.lines.hide(secrets)


def to_standard_error() -> None:
    """Standard error has become another file."""
    if _held.lines is not None:
        _held.lines.reopen()


def _begin(level: int, lines: Lines) -> None:
    stop()
    _held.lines, _held.level = lines, level


def _asked(value: str) -> tuple[int, str]:
    """Level and file of the variable."""
    name, colon, file = value.partition(":")
    return (LEVELS[name], file) if colon and name in LEVELS else (INFO, value)
