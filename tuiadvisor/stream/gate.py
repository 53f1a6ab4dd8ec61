"""The hub's gate: answers ZeroMQ's question whether a peer's key is on the list, and counts who was turned away.

In: ZAP requests of the hub's own context, handshake failures of its sockets.  Out: a GAP payload now and then.
Bound before any socket listens: CURVE without this handler would admit every key that knows the hub's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import zmq
from zmq.utils import z85

from tuiadvisor.log import Logger
from tuiadvisor.loglimits import SAY_AGAIN_S
from tuiadvisor.stream.attendance import PEERS_REFUSED, PRIVATE, Gap, gap
from tuiadvisor.stream.connecting import take_event
from tuiadvisor.stream.keys import AGENTS, VIEWERS

if TYPE_CHECKING:
    from tuiadvisor.stream.keys import HubKeys

logger: Final = Logger(__name__)
_ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
_KEY_BYTES: Final = 32
# Between two rounds of the hub at most so many: recording comes first.
_MAX_ANSWERS: Final = 64
_MAX_FAILURES: Final = 1024
_FAILURES: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_REFUSED: Final = [b"400", b"not on the list", b""]


def peer_of(message: zmq.Frame) -> str:
    """Who sent this: key and address of its connection; PRIVATE where nobody is asked for a key."""
    try:
        return str(message.get("User-Id"))
    except zmq.ZMQError:
        return PRIVATE


class Gate:
    """Who comes in."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: HubKeys) -> None:
        """Take the one place in this context where ZeroMQ asks."""
        self.num_refused = 0
        self._admitted = {
            domain.encode(): frozenset(z85.decode(key) for key in listed)
            for domain, listed in ((AGENTS, keys.agents), (VIEWERS, keys.viewers))
        }
        self._num_said = 0
        self._say_s = 0.0
        self._monitors: list[zmq.Socket[bytes]] = []
        self._zap = context.socket(zmq.ROUTER)
        self._zap.set(zmq.LINGER, 0)
        self._zap.bind(_ZAP_ADDRESS)

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """What the hub has to wait for on our behalf."""
        return [self._zap, *self._monitors]

    def guard(self, listening: zmq.Socket[bytes]) -> None:
        """Count the failed handshakes of this socket too: a peer without a key never reaches the list."""
        self._monitors.append(listening.get_monitor_socket(_FAILURES))

    def serve(self) -> None:
        """Answer who asks, count who failed."""
        for _ in range(_MAX_ANSWERS):
            try:
                parts = self._zap.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._zap.send_multipart(self._answer(parts))
        for monitor in self._monitors:
            for _ in range(_MAX_FAILURES):
                if not monitor.poll(0):
                    break
                take_event(monitor)
                self.num_refused += 1

    def news(self, now_s: float, *, is_last: bool = False) -> list[Gap]:
        """One GAP for all that were refused since the last one; the first at once, then seldom."""
        num_new = self.num_refused - self._num_said
        if not num_new or (now_s < self._say_s and not is_last):
            return []
        self._num_said = self.num_refused
        self._say_s = now_s + SAY_AGAIN_S
        why = f"{num_new} connection{'s' if num_new > 1 else ''} without a key of this session turned away"
        logger.warning("%s", why)
        return [gap(PEERS_REFUSED, None, None, why)]  # whether they had frames, nobody knows

    def close(self) -> None:
        """Before the context ends."""
        for monitor in self._monitors:
            monitor.close(linger=0)
        self._zap.close(linger=0)

    def _answer(self, parts: list[bytes]) -> list[bytes]:
        asking, _, version, request, domain, address, _, mechanism, *credentials = parts
        key = credentials[0] if len(credentials) == 1 else b""
        listed = self._admitted.get(domain, frozenset())
        is_welcome = mechanism == b"CURVE" and len(key) == _KEY_BYTES and key in listed
        if is_welcome:
            logger.debug(
                "a peer of the %s came in from %s", domain.decode(), address.decode(errors="replace")
            )
        # Each of the peer's messages carries the name that it gets here.
        verdict = [b"200", b"OK", z85.encode(key) + b" " + address] if is_welcome else _REFUSED
        return [asking, b"", version, request, *verdict, b""]
