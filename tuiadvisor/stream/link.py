"""The agent's end of the wire: frames out to the hub, never waiting for it.

When the hub is slow or away, frames queue here up to a bound; beyond it detail goes first and step summaries go
last. What is dropped leaves a hole in the sequence numbers, so the recording says it too.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import zmq

from tuiadvisor.stream.connecting import connect, take_event
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.voice import make_voice, speak
from tuiadvisor.stream.wire import check_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.stream.keys import PeerKey

# Lowest goes first. HELLO and BYE are small, rare and carry what nothing else says.
_WORTH: Final = {
    FrameKind.EVENTS: 0,
    FrameKind.HOST: 1,
    FrameKind.STATUS: 2,
    FrameKind.STEPS: 3,
}
_MOST_WORTH: Final = 4
# Frames within ZeroMQ are out of reach of the policy: keep them few.
GRACE_S: Final = 0.1  # several times as long as a hub gathers before it reads on
SEND_HIGH_WATER: Final = 64


class AgentLink:
    """One agent's frames, numbered from 0. Use it from one thread."""

    def __init__(
        self,
        endpoint: str,
        source: str,
        *,
        key: PeerKey | None = None,
        max_queued: int = 512,
        max_queued_bytes: int = 32 << 20,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Connect in the background; the hub need not be there yet."""
        check_endpoint(endpoint, has_key=key is not None)
        self.source = source
        self._voice = make_voice()
        self.dropped: Counter[FrameKind] = Counter()
        self._max_queued = max_queued
        self._max_queued_bytes = max_queued_bytes
        self._clock_ns = clock_ns
        self._queued: list[tuple[FrameKind, bytes]] = []
        self._num_queued_bytes = 0
        self._next_seq = 0
        self._hello: dict[str, object] | None = None
        self._num_connections = 0
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.set(zmq.SNDHWM, SEND_HIGH_WATER)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        connect(self._socket, endpoint, key)

    @property
    def num_dropped(self) -> int:
        """Frames dropped so far, of all kinds."""
        return self.dropped.total()

    def send(self, kind: FrameKind, payload: dict[str, object]) -> None:
        """Queue one frame and hand over what the hub takes now. Never waits."""
        if kind is FrameKind.HELLO:
            self._hello = payload
        self._append(kind, payload)
        self.flush()

    def flush(self) -> None:
        """Hand over what the hub takes now; say HELLO again to a hub that came back."""
        if self._has_new_hub() and self._hello is not None and self._next_seq > 1:
            self._append(FrameKind.HELLO, self._hello)
        num_sent = 0
        for _, data in self._queued:
            try:
                self._socket.send(data, zmq.NOBLOCK)
            except zmq.Again:
                break
            num_sent += 1
            self._num_queued_bytes -= len(data)
        del self._queued[:num_sent]
        while len(self._queued) > self._max_queued or self._num_queued_bytes > self._max_queued_bytes:
            self._drop_one()

    def close(self, linger_ms: int = 500) -> None:
        """Hand over what is left within linger_ms, then let go."""
        deadline_ns = time.monotonic_ns() + linger_ms * 1_000_000
        while self._queued and (left_ms := (deadline_ns - time.monotonic_ns()) // 1_000_000) > 0:
            self._socket.poll(left_ms, zmq.POLLOUT)
            self.flush()
        # A hub that has stopped reading loses what lies in the kernel's buffer once this end is closed.
        time.sleep(min(GRACE_S, linger_ms / 1000))
        self.dropped.update(kind for kind, _ in self._queued)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
        self._context.term()

    def _append(self, kind: FrameKind, payload: dict[str, object]) -> None:
        frame = encode(kind, self.source, self._next_seq, self._clock_ns(), payload)
        data = speak(self._voice, frame)
        self._next_seq += 1
        self._queued.append((kind, data))
        self._num_queued_bytes += len(data)

    def _drop_one(self) -> None:
        """The oldest frame of the least worth."""
        index = min(range(len(self._queued)), key=lambda i: _WORTH.get(self._queued[i][0], _MOST_WORTH))
        kind, data = self._queued.pop(index)
        self._num_queued_bytes -= len(data)
        self.dropped[kind] += 1

    def _has_new_hub(self) -> bool:
        """True when a connection was made since the last call and it was not the first."""
        before = self._num_connections
        while self._monitor.poll(0):
            take_event(self._monitor)
            self._num_connections += 1
        return self._num_connections > max(before, 1)
