"""Keys of one session: who the hub is, and who may talk to it over a network. ZeroMQ CURVE, made anew each time.

A hub holds its own key pair and the public keys it admits: agents may only send frames, viewers only read. A peer
holds the hub's public key and a pair of its own. Keys travel on standard input or in a file of the owner alone;
never on a command line and never in an environment.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
import zmq

from tuiadvisor import log
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.shellword import shell_word

if TYPE_CHECKING:
    from typing import IO

# ZAP domains: an agent's key opens nothing to read, a viewer's nothing to write.
AGENTS: Final = "agents"
VIEWERS: Final = "viewers"
MAX_KEY_BYTES: Final = 1 << 20  # a hub's list may name thousands of peers
MAX_FILE_BYTES: Final = 4096
_Z85: Final = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True, slots=True)
class PeerKey:
    """What an agent or a viewer holds."""

    hub: str
    public: str
    secret: str = field(repr=False)

    def document(self) -> dict[str, object]:
        """As JSON knows it."""
        return {"hub": self.hub, "public": self.public, "secret": self.secret}


@dataclass(frozen=True, slots=True)
class HubKeys:
    """What a hub holds, and whom it admits."""

    public: str
    secret: str = field(repr=False)
    agents: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """As JSON knows it."""
        return {
            "public": self.public,
            "secret": self.secret,
            AGENTS: list(self.agents),
            VIEWERS: list(self.viewers),
        }


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """All keys of one session."""

    hub: HubKeys
    agents: tuple[PeerKey, ...]
    viewers: tuple[PeerKey, ...]

    @property
    def viewer(self) -> PeerKey:
        """The first viewer's."""
        return self.viewers[0]

    @property
    def agent(self) -> PeerKey:
        """The first agent's, or the one that all of them share."""
        return self.agents[0]


@dataclass(frozen=True, slots=True)
class Invitation:
    """Where a hub listens and the key it opens to; without a key it is a local address."""

    url: str
    key: PeerKey | None = None

    def document(self) -> dict[str, object]:
        """As JSON knows it."""
        return {"url": self.url, "key": self.key.document() if self.key else None}


def make_session_keys(num_agents: int = 1, num_viewers: int = 1) -> SessionKeys:
    """New keys for one hub, its agents and its viewers; one for each of them that can be given its own."""
    hub = _pair()
    agents, viewers = ([_pair() for _ in range(number)] for number in (num_agents, num_viewers))
    log.hide(*(key for pair in (hub, *viewers, *agents) for key in pair))
    return SessionKeys(
        HubKeys(*hub, *(tuple(public for public, _ in pairs) for pairs in (agents, viewers))),
        tuple(PeerKey(hub[0], *agent) for agent in agents),
        tuple(PeerKey(hub[0], *viewer) for viewer in viewers),
    )


def use_as_hub(socket: zmq.Socket[Any], keys: HubKeys, domain: str) -> None:
    """From the next bind on, admit only who knows the hub's public key and is on the list of this domain."""
    socket.set(zmq.CURVE_SERVER, 1)
    socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
    socket.set(zmq.ZAP_DOMAIN, domain.encode())
    socket.set(zmq.HANDSHAKE_IVL, 5000)  # who stays mute during the handshake holds no connection


def use_as_peer(socket: zmq.Socket[Any], key: PeerKey) -> None:
    """From the next connect on, speak only to the hub that holds this key's other half."""
    socket.set(zmq.CURVE_SERVERKEY, key.hub.encode())
    socket.set(zmq.CURVE_PUBLICKEY, key.public.encode())
    socket.set(zmq.CURVE_SECRETKEY, key.secret.encode())


def write_invitation(path: Path | str, invitation: Invitation) -> None:
    """A new file that only its owner reads. TuiadvisorError if anything is in its place, a link too."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise TuiadvisorError(
            f"{path}: exists already; a key is never written over a file, choose another"
        ) from None
    except OSError as error:
        raise TuiadvisorError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(invitation.document()) + b"\n")


def read_invitation(path: Path | str) -> Invitation:
    """What write_invitation wrote. TuiadvisorError if others could read it or it is none."""
    return parse_invitation(_read_private(Path(path)), str(path))


def parse_invitation(data: bytes, where: str) -> Invitation:
    """An invitation from its JSON. TuiadvisorError that names `where`, never what was read there."""
    found = _object(data, where)
    url, key = found.get("url"), found.get("key")
    if not isinstance(url, str) or not (key is None or isinstance(key, dict)):
        raise TuiadvisorError(f"{where}: not a key file of tuiadvisor; ask for one made with --share")
    return Invitation(url, _peer(key, where) if key is not None else None)


def read_hub_keys(stream: IO[bytes]) -> HubKeys:
    """The one line with a hub's keys that its starter writes to its standard input."""
    where = "standard input"
    found = _object(stream.readline(MAX_KEY_BYTES), where)
    agents, viewers = (_listed(found.get(name), where) for name in (AGENTS, VIEWERS))
    return HubKeys(_z85(found.get("public"), where), _z85(found.get("secret"), where), agents, viewers)


def read_line_invitation(stream: IO[bytes]) -> Invitation:
    """The one line with an invitation that an agent's starter writes to its standard input."""
    return parse_invitation(stream.readline(MAX_KEY_BYTES), "standard input")


def _pair() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _peer(found: dict[str, object], where: str) -> PeerKey:
    return PeerKey(*(_z85(found.get(name), where) for name in ("hub", "public", "secret")))


def _listed(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TuiadvisorError(f"{where}: not the keys of a hub")
    return tuple(_z85(key, where) for key in value)


def _z85(value: object, where: str) -> str:
    if not isinstance(value, str) or not _Z85.fullmatch(value):
        raise TuiadvisorError(f"{where}: a key in it is damaged; ask for a new one")
    log.hide(value)
    return value


def _object(data: bytes, where: str) -> dict[str, object]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise TuiadvisorError(
            f"{where}: not a key file of tuiadvisor; ask for one made with --share"
        ) from None
    if not isinstance(found, dict):
        raise TuiadvisorError(f"{where}: not a key file of tuiadvisor; ask for one made with --share")
    return found


def _read_private(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise TuiadvisorError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise TuiadvisorError(
                f"{path}: a key must be a file that only you can read; chmod 600 {shell_word(str(path))}"
            )
        return os.read(descriptor, MAX_FILE_BYTES)
    finally:
        os.close(descriptor)
