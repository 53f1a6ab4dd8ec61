"""The one exception a user may see: what went wrong, where, and what to do next, in one line of letters.

`cli.main` catches it once and prints it; anything else is a bug and propagates.
"""

from __future__ import annotations

import errno
from typing import Final

# What no other name would help against.
_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


class TuiadvisorError(Exception):
    """A mistake of the user or of the system around us. `exit_code` is 2 for the first, 1 for the second."""

    exit_code = 2

    def __str__(self) -> str:
        """What to show; names within may be a stranger's, and a terminal must not obey them."""
        return one_line(super().__str__())


def one_line(text: str, instead: str = "?") -> str:
    """The text with something instead of every control, direction and undecodable character."""
    return text if text.isprintable() else "".join(char if char.isprintable() else instead for char in text)


class EndedError(KeyboardInterrupt):
    """A polite kill: everything that ^C undoes is undone."""


class SeveralTrainingsError(TuiadvisorError):
    """More than one; they are listed with what tells them apart, which may be of their command lines."""


class FailureError(TuiadvisorError):
    """Something outside failed although the user asked for a sensible thing."""

    exit_code = 1


def exists_already(path: object) -> TuiadvisorError:
    """What to raise for a file or folder that is there: nothing is ever overwritten."""
    return TuiadvisorError(f"{path}: exists already; choose another name or remove it")


def unwritable(path: object, error: OSError) -> TuiadvisorError:
    """What to raise for a file that cannot be written: a mistake where the place is wrong, a failure of a disk's."""
    if error.errno in _DISK:
        return FailureError(f"{path}: cannot be written: {error.strerror}; free space, or name another place")
    return TuiadvisorError(f"{path}: cannot be written: {error.strerror}; name another place")
