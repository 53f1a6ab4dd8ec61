"""How agents, relays and viewers connect to a hub, and how they notice that the way to it is cut.

In: a socket with its own options set, an address, a key.  Out: connected in the background, again and again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import zmq

from tuiadvisor.stream.keys import use_as_peer

if TYPE_CHECKING:
    from tuiadvisor.stream.keys import PeerKey

# The kernel would go on for a quarter of an hour and, after a cut of 30 s, wait another 20 before it tries again. What
# is not acknowledged for so long is given up and the hub called anew. A hub that is only stopped acknowledges.
UNACKNOWLEDGED_MS: Final = 10_000
CONNECT_MS: Final = 3000
RECONNECT_MS: Final = 1000


def connect(socket: zmq.Socket[Any], url: str, key: PeerKey | None) -> None:
    """Connect in the background; what is lost with a dead connection leaves a hole in the frames' numbers."""
    socket.set(zmq.TCP_MAXRT, UNACKNOWLEDGED_MS)
    socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS)
    if key is not None:
        use_as_peer(socket, key)
    if url.startswith("tcp://["):
        socket.set(zmq.IPV6, 1)
    socket.connect(url)


def take_event(monitor: zmq.Socket[Any]) -> int:
    """What a socket's monitor tells next, one of zmq.EVENT_*; waits for it. zmq.utils.monitor would load asyncio."""
    event: int = struct.unpack_from("=H", monitor.recv_multipart()[0])[0]
    return event
