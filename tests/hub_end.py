"""The socket of a hub to which agents, or relays from below, push their frames."""

from __future__ import annotations

import zmq
from patience import PATIENCE_S

from tuiadvisor.stream.frames import Frame, decode
from tuiadvisor.stream.voice import hear


class HubEnd:
    """Bound to an address; `close` at the end. voices: of those who were heard."""

    def __init__(self, endpoint: str, most_queued: int | None = None) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PULL)
        self.socket.set(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
        if most_queued is not None:
            self.socket.set(zmq.RCVHWM, most_queued)
        self.socket.bind(endpoint)
        self.voices: set[bytes] = set()

    def hear(self) -> Frame:
        """The next frame."""
        voice, frame = hear(memoryview(self.socket.recv()))
        self.voices.add(voice)
        return decode(bytes(frame))

    def close(self) -> None:
        """Nothing is waited for."""
        self.socket.close(linger=0)
        self.context.term()
