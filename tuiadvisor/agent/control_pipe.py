"""The agent's standard input when somebody started it for a session: its end is our end, its lines are requests.

Nobody else can write there: over ssh and srun it is the same pipe that brought the key.  In: a descriptor, lines of
JSON.  Out: requests, checked field by field; a line that is none is left out.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Final

from tuiadvisor.stream.probe_request import ProbeRequest, parse_probe_request

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LINE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16


class ControlPipe:
    """Held by whoever started us."""

    def __init__(self, descriptor: int) -> None:
        """The invitation, its first line, has been read."""
        self.is_loose = False  # the other end let go
        self._descriptor = descriptor
        self._begun = b""
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)

    def take(self) -> Sequence[ProbeRequest]:
        """What was wished since the last time. Never waits."""
        try:
            while not self.is_loose and (events := self._ready.poll(0)):
                data = os.read(self._descriptor, _READ_BYTES) if events[0][1] & select.POLLIN else b""
                self.is_loose = not data
                self._begun += data
                if len(self._begun) > MAX_LINE_BYTES:
                    break
        except OSError:
            self.is_loose = True
        *lines, self._begun = self._begun.split(b"\n")
        if len(self._begun) > MAX_LINE_BYTES:
            self._begun = b""
        requests = [parse_probe_request(line) for line in lines]
        return [request for request in requests if request is not None]
