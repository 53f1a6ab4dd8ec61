"""From one hub to the next: frames of a hub's agents, sent on as they are to the hub above it.

In: a viewer's source at the lower hub and an invitation of the upper one.  Out: every agent's frames there, with their
own names and numbers, so the upper hub sees for itself what is missing. The lower hub's recording is the buffer: while
the upper hub is slow or away nothing is read, nothing dropped and nothing held here. A hub that came back hears HELLO
again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import zmq

from tuiadvisor.stream.attendance import MAX_SOURCES
from tuiadvisor.stream.connecting import connect, take_event
from tuiadvisor.stream.frames import HUB_SOURCE, FrameError, FrameKind, peek
from tuiadvisor.stream.link import SEND_HIGH_WATER
from tuiadvisor.stream.voice import make_voice, speak
from tuiadvisor.stream.wire import check_endpoint

if TYPE_CHECKING:
    from tuiadvisor.stream.keys import Invitation
    from tuiadvisor.stream.source import LiveSource

READ_S: Final = 0.2
READ_MS: Final = 200
DRAIN_S: Final = 2.0


class Relay:
    """A thread of its own; it closes the source at its end."""

    def __init__(self, source: LiveSource, upper: Invitation) -> None:
        """Connect in the background. TuiadvisorError for an address that leaves this machine without a key."""
        self._url = check_endpoint(upper.url, has_key=upper.key is not None)
        self._key = upper.key
        self._source = source
        self._voice = make_voice()
        self._hellos: dict[str, bytes] = {}
        self._is_connected = False
        self._num_connections = 0
        self._num_greeted = 0
        self._stop_s: float | None = None  # when to give up what is left
        self._thread = threading.Thread(target=self._run, name="tuiadvisor-relay", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Send on what the lower hub still has, for a moment at most; then end."""
        self._stop_s = time.monotonic() + DRAIN_S
        if self._thread.is_alive():
            self._thread.join(2 * DRAIN_S)

    def _run(self) -> None:
        with zmq.Context(io_threads=1) as context, context.socket(zmq.PUSH) as pushing:
            pushing.set(zmq.SNDHWM, SEND_HIGH_WATER)
            pushing.set(zmq.IMMEDIATE, 1)  # nothing queues for a hub that is not there
            pushing.set(zmq.LINGER, int(DRAIN_S * 1000))
            monitor = pushing.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            connect(pushing, self._url, self._key)
            try:
                while not self._is_over():
                    for data in self._source.read(READ_S):
                        if not self._forward(pushing, monitor, data):
                            return
            finally:
                self._source.close()
                pushing.disable_monitor()
                monitor.close(linger=0)

    def _is_over(self) -> bool:
        """Stopped, and nothing left to send on or no time for it."""
        if self._stop_s is None:
            return self._source.status.ended
        return self._source.status.bytes_behind == 0 or time.monotonic() > self._stop_s

    def _forward(self, pushing: zmq.Socket[bytes], monitor: zmq.Socket[bytes], data: bytes) -> bool:
        """Wait until the upper hub takes this frame; False if it is time to end."""
        try:
            head = peek(data)
        except FrameError:
            return True  # damaged on the lower hub's disk: the upper one sees the hole in the numbers
        if head.source == HUB_SOURCE or head.kind in {FrameKind.RUN, FrameKind.GAP}:
            return True  # what the lower hub says of itself; the upper one looks for gaps and silences on its own
        self._look(monitor, 0)
        # The socket takes frames a moment before it tells of the new connection: HELLO must be the first of them.
        while not (self._is_connected and pushing.poll(READ_MS, zmq.POLLOUT)):
            if self._stop_s is not None and time.monotonic() > self._stop_s:
                return False
            self._look(monitor, 0 if self._is_connected else READ_MS)
        if self._num_connections > self._num_greeted:
            self._num_greeted = self._num_connections
            for hello in self._hellos.values():
                pushing.send(speak(self._voice, hello))
        if head.kind is FrameKind.HELLO and (head.source in self._hellos or len(self._hellos) < MAX_SOURCES):
            self._hellos[head.source] = data
        elif head.kind is FrameKind.BYE:
            self._hellos.pop(head.source, None)
        pushing.send(speak(self._voice, data))
        return True

    def _look(self, monitor: zmq.Socket[bytes], patience_ms: int) -> None:
        """Take what the socket tells of its connection; wait so long for the first word."""
        while monitor.poll(patience_ms):
            patience_ms = 0
            self._is_connected = take_event(monitor) == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._num_connections += self._is_connected
