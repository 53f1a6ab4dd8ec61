"""Ports for what a test starts: from below those that the system hands out.

One that was handed out and let go of is handed out again: of 400 such, 3 to one of the next 200 sockets. Between the
choice and the use torch is imported, and the tests beside open hundreds.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack


def free_port() -> int:
    """One that nobody had just now, on any address."""
    return free_ports(1)


def free_ports(number: int) -> int:
    """The first of so many neighbouring ones."""
    while True:
        first = random.SystemRandom().randrange(
            20_000, 32_000
        )  # a test's seed would be that of the tests beside it
        try:
            with ExitStack() as held:
                for port in range(first, first + number):
                    held.enter_context(socket.socket()).bind(("", port))
                return first
        except OSError:
            continue
