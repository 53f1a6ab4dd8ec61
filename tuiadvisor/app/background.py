"""Go on in the background: the command outlives its terminal and the ssh session that it was typed in.

In: what shall run there.  Out: in the terminal, the line with which it reported for duty, or its error.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from tuiadvisor import log
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.text.printed import say_on_stderr

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LINE_BYTES: Final = 4096
_REFUSED: Final = "!"

logger: Final = log.Logger(__name__)


def run_in_background(work: Callable[[Callable[[str], None]], int], log: str) -> tuple[int, str]:
    """Its process and what it announced. TuiadvisorError if `work` raised one before it announced anything.

    work gets a function that announces one line, once it is at work; its later words go to the file `log`.
    """
    log_fd = _open_log(log)
    read_fd, write_fd = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        _work(work, write_fd, log_fd)
    os.close(write_fd)
    os.close(log_fd)
    with os.fdopen(read_fd, "r", errors="replace") as announcements:
        line = announcements.readline(MAX_LINE_BYTES).rstrip("\n")
    if line.startswith(_REFUSED):
        _, code = os.waitpid(pid, 0)
        error = (
            TuiadvisorError if os.waitstatus_to_exitcode(code) == TuiadvisorError.exit_code else FailureError
        )
        raise error(line.removeprefix(_REFUSED))
    if not line:
        os.waitpid(pid, 0)
        raise FailureError(f"the background process ended before it was at work; its output is in {log}")
    return pid, line


def _open_log(log: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(log, flags, 0o600)
    except OSError as error:
        raise TuiadvisorError(f"{log}: cannot be written: {error.strerror}; choose another -o") from None


def _work(work: Callable[[Callable[[str], None]], int], write_fd: int, log_fd: int) -> NoReturn:
    """The child: its own session, no terminal; never returns into the caller's code."""
    code = 1
    try:
        os.setsid()  # a terminal that goes takes its session with it
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        null_fd = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null_fd, 0), (log_fd, 1), (log_fd, 2)):
            os.dup2(source, target)
        log.to_standard_error()
        logger.info("goes on in the background")
        code = work(lambda line: _announce(write_fd, line))
    except TuiadvisorError as error:
        code = error.exit_code
        say_on_stderr(str(error))
        _announce(write_fd, _REFUSED + str(error))
    except BaseException:  # the parent's stack lies below us: nothing may get there
        logger.exception("the background process ends by a bug")
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _announce(write_fd: int, line: str) -> None:
    """To the terminal, if it still waits."""
    try:
        os.write(write_fd, line.replace("\n", " ").encode()[: MAX_LINE_BYTES - 1] + b"\n")
        os.close(write_fd)
    except OSError:
        return  # announced before, or nobody is there
