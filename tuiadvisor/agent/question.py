"""A question to a process that may stand still: a standalone module of the probe's answers in an injected thread.

In: the process, a function of `tuiadvisor_probes.stuck`.  Out: the files that it writes into a folder made for it,
unread. It works while the training thread is blocked in C, as long as nobody holds the interpreter there.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.ownfolder import new_folder
from tuiadvisor.agent.payload import standalone_code
from tuiadvisor.errors import FailureError
from tuiadvisor.inject import inject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.agent.discovery import RankProcess

ANSWER_S: Final = 5.0
LOOK_S: Final = 0.05
MAX_BYTES: Final = 1 << 20


class Answer:
    """What the process wrote. said: its answer; other files of the folder are read by name."""

    def __init__(self, directory_fd: int, patience_s: float, limit: int) -> None:
        """Wait for it. FailureError where none comes."""
        self._directory_fd = directory_fd
        deadline_s = time.monotonic() + patience_s
        while not (said := self.read("state.json", limit)):
            if time.monotonic() >= deadline_s:
                raise FailureError("its interpreter does not answer: a thread is busy in C code")
            time.sleep(LOOK_S)
        self.said = said

    def read(self, name: str, limit: int) -> bytes:
        """The file, b"" where there is none or it is no plain one."""
        with suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=self._directory_fd), "rb") as file:
                return file.read(limit)
        return b""


@contextmanager
def asked(
    process: RankProcess, function: str, *arguments: int, patience_s: float = ANSWER_S, limit: int = MAX_BYTES
) -> Iterator[Answer]:
    """Its answer, as long as the folder is there. OSError or TuiadvisorError where it cannot be asked or says nothing.

    arguments: after the folder. limit: bytes of the answer.
    """
    files = new_folder(process)
    try:
        call = f"{function}{(files.inner_directory, *arguments)!r}"
        inject(process.identity, standalone_code("stuck", call))
        yield Answer(files.directory_fd, patience_s, limit)
    finally:
        files.remove()
