"""Where log lines go and what they look like; loaded only where a log was asked for.

    2026-11-22T23:50:01.123Z INFO agent[4711] agent.agent: rank 0 (process 4700): found -> live

In: records of our own loggers.  Out: each as one write. A text of several lines is indented from its second line on,
so that no name or message of others can look like a line of ours; secrets that were named are left out. Whoever logs
never waits: what a stopped terminal or a full disk does not take is dropped, counted and said later.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.loglimits import MARK, Allowance

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = "tuiadvisor"
HEADER: Final = b"# log of tuiadvisor\n"  # a file that begins otherwise is not ours to append to
MAX_LINE_BYTES: Final = 1800  # shorter than what is read of an agent's line at once
MAX_LINES: Final = 100  # of one record: the end of a traceback tells most
_FLAGS: Final = (
    os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
)


# Whether our logger propagated, and its level, before the first log.
_found: Final[list[tuple[bool, int]]] = []


def _are_there(root: logging.Logger) -> bool:
    return any(isinstance(handler, Lines) for handler in root.handlers)


class Lines(logging.Handler):
    """Writes records to one descriptor. `close` at the end."""

    def __init__(self, process: str, descriptor: int, path: str = "", mark: str = "") -> None:
        """process: who writes, for each line; path: of the file, if it is one."""
        super().__init__()
        self.descriptor = descriptor
        self.path = path
        self._process = process
        self._mark = mark
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._secrets: tuple[str, ...] = ()
        self._allowance = Allowance()
        self._num_lost = 0
        self._is_closed = False
        root = logging.getLogger(ROOT)
        if not _are_there(root):
            _found[:] = [(root.propagate, root.level)]
        root.propagate = False
        root.setLevel(logging.DEBUG)  # `log` has chosen already
        root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, or count it as lost."""
        try:
            if self._is_closed or not self._allowance.take():
                self._num_lost += 1
                return
            if self._num_lost and self._write(self._lost()):
                self._num_lost = 0
            self._num_lost += not self._write(self._encoded(record))
        except (OSError, ValueError, TypeError):  # a log that fails must fail nothing else
            self._num_lost += 1

    def hide(self, secrets: Iterable[str]) -> None:
        """Leave these out from now on."""
        self._secrets = tuple({*self._secrets, *filter(None, secrets)})

    def reopen(self) -> None:
        """Write to what standard error is now, if we write there."""
        if self.path:
            return
        self.acquire()  # a thread that writes meanwhile must not write to whatever gets the number next
        try:
            os.close(self.descriptor)
            self.descriptor = _standard_error()
            self._is_file = stat.S_ISREG(os.fstat(self.descriptor).st_mode)
        finally:
            self.release()

    def close(self) -> None:
        """Say what was lost, and let go of the file; with the last of us the logger is as it was found."""
        root = logging.getLogger(ROOT)
        was_there = self in root.handlers
        root.removeHandler(self)
        if was_there and not _are_there(root):
            root.propagate, level = _found[0]
            root.setLevel(level)
        self.acquire()
        try:
            if not self._is_closed:  # at the end of the interpreter we are closed once more
                self._is_closed = True
                with suppress(OSError):
                    if self._num_lost:
                        self._write(self._lost())
                os.close(self.descriptor)
        finally:
            self.release()
        super().close()

    def _write(self, lines: list[bytes]) -> bool:
        """Whether all of it was taken."""
        if self._is_file:
            data = b"".join(lines)
            return os.write(self.descriptor, data) == len(data)
        look = select.poll()
        look.register(self.descriptor, select.POLLOUT)
        for line in lines:
            # Who reads there may have stopped, and nobody here waits for him.
            if not any(event & select.POLLOUT for _, event in look.poll(0)):
                return False
            os.write(self.descriptor, line)
        return True

    def _lost(self) -> list[bytes]:
        what = f"{self._num_lost} lines left out: too many at once, or nobody took them"
        return self._lines("WARNING", "log", what)

    def _encoded(self, record: logging.LogRecord) -> list[bytes]:
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        return self._lines(record.levelname, record.name.removeprefix(f"{ROOT}."), text)

    def _lines(self, level: str, name: str, text: str) -> list[bytes]:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        first, *rest = text.split("\n")
        rest = [f"    {line}" for line in rest[-MAX_LINES:]]
        if self._mark:
            begin = f"{self._process}@{os.uname().nodename}[{os.getpid()}] {name}: {first}"
            return [_bounded(f"{self._mark}{level} {line}") for line in (begin, *rest)]
        begin = f"{_now()} {level} {self._process}[{os.getpid()}] {name}: {first}"
        return [_bounded(line) for line in (begin, *rest)]


def to_file(process: str, path: str) -> Lines:
    """Append to this file. TuiadvisorError if it cannot be written, is another's, or is anything but a log of ours."""
    path = os.path.abspath(path)  # noqa: PTH100 - a link stays a link, and is refused
    try:
        descriptor = _above_standard(os.open(path, _FLAGS, 0o600))
    except OSError as error:
        raise _refused(path, error.strerror or "no such file") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, "it is no regular file")
        if found.st_uid != os.geteuid():
            raise _refused(path, "it belongs to somebody else")
        if found.st_size and os.pread(descriptor, len(HEADER), 0) != HEADER:
            raise _refused(path, "it holds something else than a log of tuiadvisor")
        os.fchmod(descriptor, 0o600)
        if not found.st_size and os.write(descriptor, HEADER) != len(HEADER):
            raise _refused(path, "no space left")
        return Lines(process, descriptor, path)
    except OSError as error:
        os.close(descriptor)
        raise _refused(path, error.strerror or "it fails") from None
    except TuiadvisorError:
        os.close(descriptor)
        raise


def to_stderr(process: str) -> Lines:
    """Standard error, which nobody is made to wait for."""
    try:
        return Lines(process, _standard_error())
    except OSError:
        raise TuiadvisorError("standard error is closed: -v has nowhere to write; add --log FILE") from None


def to_descriptor(process: str, descriptor: int) -> Lines:
    """What the process that started us has opened."""
    os.set_inheritable(descriptor, False)
    return Lines(process, descriptor)


def back(process: str) -> Lines:
    """To whoever started us over a network: on standard error, with a mark."""
    return Lines(process, os.dup(2), mark=MARK)


def state_file(process: str) -> str:
    """A new name in the user's state folder, ~/.local/state/tuiadvisor."""
    from platformdirs import user_state_path  # noqa: PLC0415

    folder = user_state_path("tuiadvisor", appauthor=False)
    if not folder.is_absolute():  # the XDG convention: a relative path is ignored
        folder = Path.home() / ".local" / "state" / "tuiadvisor"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(str(folder), error.strerror or "it fails") from None
    return str(folder / f"{process}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log")


def _standard_error() -> int:
    """A descriptor of our own, which does not wait where there is somebody to wait for."""
    mode = os.fstat(2).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        try:
            # A second opening: "does not wait" on the first would hold for everybody who shares it.
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            return _above_standard(os.open("/proc/self/fd/2", flags))
        except OSError:
            pass  # a terminal of another user, after su
    return _above_standard(os.dup(2))


def _above_standard(descriptor: int) -> int:
    """Not 0, 1 or 2, which were closed when we came: a child's own streams get these numbers."""
    if descriptor > 2:
        return descriptor
    higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return higher


def _refused(path: str, why: str) -> TuiadvisorError:
    return TuiadvisorError(f"{path}: the log cannot be written: {why}; name another file with --log")


def _bounded(line: str) -> bytes:
    return one_line(line).encode()[:MAX_LINE_BYTES] + b"\n"


def _now() -> str:
    now_s = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s * 1000) % 1000:03d}Z"
