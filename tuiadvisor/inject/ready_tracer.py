"""The process that waits ready and forks a tracer for each plan.  In: a socket for each on stdin.  Out: outcomes there.

Each tracer says a byte when it is there, reads its plan to the end, and writes the outcome. Both ends are the same
interpreter, so `marshal` carries the values. It ends when nobody can ask any more; tracers end with their plans.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Final

from tuiadvisor import priority
from tuiadvisor.inject import tracer

BEGUN: Final = b"b"


def main() -> None:
    """Fork a tracer for each socket that comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # tracers are not waited for
    gc.disable()
    # Tracers hold it open, too: whoever reads our last words must not have to wait for them.
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
    with socket.socket(fileno=sys.stdin.fileno()) as asking:
        while (connection := _next(asking)) is not None:
            with connection:
                _fork(asking, connection)


def _next(asking: socket.socket) -> socket.socket | None:
    asked, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
    return socket.socket(fileno=descriptors[0]) if asked and descriptors else None


def _fork(asking: socket.socket, connection: socket.socket) -> None:
    try:
        is_tracer = os.fork() == 0
    except OSError as error:
        what = f"no process could be started for it: {error.strerror}"
        _tell(connection, BEGUN)
        with suppress(OSError), connection.makefile("rb") as plan:
            plan.read()  # unread, it would take the answer with it
        _tell(connection, marshal.dumps({"reason": "tracer", "what": what}))
        return
    if is_tracer:
        try:
            asking.close()  # the watcher has to see when nobody waits ready any more
            _tell(connection, BEGUN)
            _trace(connection)
        finally:
            os._exit(0)


def _trace(connection: socket.socket) -> None:
    """Carry out the plan that comes."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would not even become pending
    priority.no_longer()  # whoever started us may give way; a thread that is held must not wait for that
    with connection.makefile("rb") as plans:
        plan = marshal.loads(plans.read())  # noqa: S302  written by our own parent
    try:
        outcome = tracer.run(plan)
    except BaseException as error:  # a bug of ours: the target was left in order, or nobody can
        what = f"the tracer failed: {type(error).__name__}: {error}"
        _tell(connection, marshal.dumps({"reason": "tracer", "what": what}))
        raise
    _tell(connection, marshal.dumps(outcome))


def _tell(connection: socket.socket, said: bytes) -> None:
    with suppress(OSError):  # the watcher may be gone; the target is served all the same
        connection.sendall(said)
