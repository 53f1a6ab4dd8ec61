"""Between hub and viewers: which addresses are allowed, and the two messages, request and reply.

A viewer asks for the recording's bytes from an offset on; the hub answers with whole frames, or with none after
about a second (the heartbeat). Both messages are fixed structs: there is nothing to parse, name or evaluate.

    request  magic 4s b"TUIP", version u32, request u64, session u64, offset u64, max_bytes u32
    reply    magic 4s b"TUIA", version u32, request u64, session u64, offset u64, end u64, ending u32
             + part 2: whole frames from offset on   + part 3: a note in UTF-8, usually empty
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.shapes import FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

WIRE_VERSION: Final = 1
MAX_REPLY_BYTES: Final = 4 << 20
MAX_NOTE_BYTES: Final = 300
_REQUEST: Final = struct.Struct("<4sIQQQI")
_REPLY: Final = struct.Struct("<4sIQQQQI")
_REQUEST_MAGIC, _REPLY_MAGIC = b"TUIP", b"TUIA"
_LOOPBACK: Final = re.compile(r"tcp://(?:127\.0\.0\.1|\[::1\]):(?:\d{1,5}|\*)")
_NETWORK: Final = re.compile(
    r"tcp://(?:\*|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):(?:\d{1,5}|\*)"
)
_MAX_SOCKET_PATH_BYTES: Final = 107


@dataclass(frozen=True, slots=True)
class Request:
    """A viewer's only sentence: give me the recording from here on.

    The offset counts only in the session that it was learnt in; a hub of another session answers from the start.
    """

    request: int
    session: int  # 0: none yet
    offset: int
    max_bytes: int

    def pack(self) -> bytes:
        """The message's bytes."""
        fields = (self.request, self.session, self.offset, self.max_bytes)
        return _REQUEST.pack(_REQUEST_MAGIC, WIRE_VERSION, *fields)


@dataclass(frozen=True, slots=True)
class Reply:
    """The hub's answer. A session other than before means: another hub, another recording, begin again."""

    request: int
    session: int
    offset: int
    end: int  # where the recording ends now
    is_ending: bool  # the hub is closing: nothing follows these frames
    data: bytes
    note: str

    def pack(self) -> list[bytes]:
        """The message's parts."""
        head = (self.request, self.session, self.offset, self.end, int(self.is_ending))
        return [
            _REPLY.pack(_REPLY_MAGIC, WIRE_VERSION, *head),
            self.data,
            self.note.encode()[:MAX_NOTE_BYTES],
        ]


def unpack_request(parts: Sequence[bytes]) -> Request:
    """The request in a message's parts. FrameError if it is anything else."""
    if len(parts) != 1 or len(parts[0]) != _REQUEST.size:
        raise FrameError("request: not of the expected size")
    magic, version, request, session, offset, max_bytes = _REQUEST.unpack(parts[0])
    if magic != _REQUEST_MAGIC or version != WIRE_VERSION or offset >= 1 << 62:
        raise FrameError("request: not of this version")
    return Request(request, session, offset, min(max_bytes, MAX_REPLY_BYTES))


def unpack_reply(parts: Sequence[bytes]) -> Reply:
    """The reply in a message's parts. FrameError if it is anything else; its frames are not yet checked."""
    if len(parts) != 3 or len(parts[0]) != _REPLY.size or len(parts[2]) > MAX_NOTE_BYTES:
        raise FrameError("reply: not of the expected size")
    magic, version, request, session, offset, end, ending = _REPLY.unpack(parts[0])
    if magic != _REPLY_MAGIC or version != WIRE_VERSION or end < offset:
        raise FrameError("reply: not of this version")
    note = "".join(char for char in parts[2].decode("utf-8", "replace") if char.isprintable())
    return Reply(request, session, offset, end, bool(ending), parts[1], note)


def check_endpoint(endpoint: str, *, has_key: bool = False) -> str:
    """The endpoint itself if it stays on this machine or is encrypted; TuiadvisorError otherwise."""
    if endpoint.startswith("ipc://"):
        path = endpoint.removeprefix("ipc://")
        if not path.startswith("/") or "\0" in path:
            raise TuiadvisorError(f"{endpoint}: give an absolute path after ipc://")
        if not fits_socket(path):
            raise TuiadvisorError(
                f"{endpoint}: longer than a socket's path may be ({_MAX_SOCKET_PATH_BYTES} bytes); use a shorter one"
            )
        return endpoint
    if _LOOPBACK.fullmatch(endpoint):
        return endpoint
    if not _NETWORK.fullmatch(endpoint):
        raise TuiadvisorError(f"{endpoint}: not an address; write ipc:///path or tcp://HOST:PORT")
    if has_key:
        return endpoint
    raise TuiadvisorError(
        f"{endpoint}: only ipc:///path and tcp://127.0.0.1:port are open without a key, because nothing else is "
        "encrypted; give --key FILE (made with --share FILE), or reach the machine through an ssh tunnel"
    )


def fits_socket(path: Path | str) -> bool:
    """Whether the kernel takes a path of this length for a socket."""
    return len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES


def is_network(endpoint: str) -> bool:
    """Whether others than the owner of a folder can reach it: every tcp port, also on loopback."""
    return endpoint.startswith("tcp://")


def prepare_socket_path(endpoint: str) -> None:
    """Make room for an ipc endpoint: its folder is the owner's alone, and no file of the user is in the way."""
    if not endpoint.startswith("ipc://"):
        return
    path = Path(endpoint.removeprefix("ipc://"))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = path.parent.stat()
        if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != os.geteuid() or folder.st_mode & 0o077:
            raise TuiadvisorError(
                f"{path.parent}: others may reach sockets in this folder; use one that is yours alone (chmod 700)"
            )
        _remove_stale(path)
    except OSError as error:
        raise TuiadvisorError(f"{endpoint}: cannot be made: {error.strerror}") from None


def remove_socket(endpoint: str) -> None:
    """Take our own closed ipc socket out of the file system; ZeroMQ leaves it there."""
    if endpoint.startswith("ipc://"):
        Path(endpoint.removeprefix("ipc://")).unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """ZeroMQ would unlink whatever is there: only a socket that nobody answers on may go."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise TuiadvisorError(f"{path}: exists and is no socket; choose another endpoint")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise TuiadvisorError(f"{path}: a hub listens there already; watch it, or choose another endpoint")
