"""Standard output as other programs treat it: if it cannot be written, that is said once and the command has failed."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class OutputError(OSError):
    """A full disk behind `>`, or no standard output at all; a reader that left (`| head`) is no error."""


class _Raw(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


def prepare_output() -> None:
    """Have failed writes told apart from other errors, and no file of ours opened in the place of a closed one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Not for writing, so that who prints hears of it; stderr is where we would say so.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as we run
    given = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Raw(1, "wb", closefd=False)),
        encoding=given.encoding if given else "utf-8",
        errors=given.errors if given else "replace",
        line_buffering=given is not None and given.isatty(),
    )


def give_up_output() -> None:
    """Let the interpreter end without trying once more to write what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
