"""How a hub tells who speaks: a secret of each sender that stands before its frames on the wire, and nowhere else.

Agents of one job may share a key, and whoever watches sees the names of all sources. So a source belongs to the voice
that spoke first in its name: it stays with the sender over a new connection, viewers never hear it, and no recording
holds it.

    message  magic 4s b"TUIV", voice 16s, then one frame
"""

from __future__ import annotations

import secrets
from typing import Final

VOICE_BYTES: Final = 16
PREFIX_BYTES: Final = 4 + VOICE_BYTES
_MAGIC: Final = b"TUIV"
NOBODYS: Final = b""  # of a frame without a voice; only private sockets take those


def make_voice() -> bytes:
    """A new sender's."""
    return secrets.token_bytes(VOICE_BYTES)


def speak(voice: bytes, frame: bytes) -> bytes:
    """The message in which this sender sends a frame."""
    return b"".join((_MAGIC, voice, frame))


def hear(message: memoryview) -> tuple[bytes, memoryview]:
    """Voice and frame of a message; nothing of the frame is checked yet."""
    if bytes(message[:4]) != _MAGIC:
        return NOBODYS, message
    return bytes(message[4:PREFIX_BYTES]), message[PREFIX_BYTES:]
