"""A hub with keys: who has none, a wrong one or another's gets nothing and is counted; nothing secret is visible."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
import zmq
from patience import PATIENCE_S

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.attendance import BAD_FRAMES, PEERS_REFUSED
from tuiadvisor.stream.frames import Frame, FrameKind, decode, encode
from tuiadvisor.stream.gate import SAY_AGAIN_S
from tuiadvisor.stream.keys import PeerKey, SessionKeys, make_session_keys, use_as_peer
from tuiadvisor.stream.link import AgentLink
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.source import LiveSource
from tuiadvisor.stream.wire import Request

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested
REFUSAL_S = 1.0  # a loopback handshake takes milliseconds: silence for so long is a refusal


def own_address() -> str:
    """This machine's address on a network; loopback where it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


class SecureHub:
    """A hub process whose tcp ports demand keys, and those who try."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", *, behind: tuple[str, ...] = ()) -> None:
        """behind: a command that becomes the hub, in front of the hub's own."""
        self.keys: SessionKeys = make_session_keys()
        self.record = folder / "run.tuirec"
        command = [
            *behind,
            sys.executable,
            "-m",
            "tuiadvisor.stream.hub",
            "--record",
            str(self.record),
            "--keys",
        ]
        command += ["--endpoint", f"tcp://{address}:*", "--viewer", f"ipc://{folder}/s/viewer"]
        command += ["--share", f"tcp://{address}:*"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(orjson.dumps(self.keys.hub.document()) + b"\n")
        self.process.stdin.close()
        said = orjson.loads(self.process.stdout.readline())
        self.local = said["viewer"]
        self.agents, self.shared = (
            said[name].replace(EVERYWHERE, own_address()) for name in ("endpoint", "share")
        )
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._closers: list[Callable[[], object]] = []

    def socket(self, kind: int, url: str, key: PeerKey | None) -> zmq.Socket[bytes]:
        """A bare socket with this key."""
        made = self.context.socket(kind)
        if key is not None:
            use_as_peer(made, key)
        made.connect(url)
        self._sockets.append(made)  # ZeroMQ complains of sockets that nobody holds and nobody closed
        return made

    def link(self, key: PeerKey | None, source: str = "h/1/2") -> AgentLink:
        """An agent's link with this key."""
        made = AgentLink(self.agents, source, key=key)
        self._closers.append(lambda: made.close(0))
        return made

    def watch(self, url: str, key: PeerKey | None = None) -> LiveSource:
        """A viewer with this key."""
        made = LiveSource(url, key=key)
        self._closers.append(made.close)
        return made

    def recorded(self) -> list[Frame]:
        """End the hub; what it wrote."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0
        with RecordingReader(self.record) as reader:
            return [decode(located.data) for located in reader.frames()]

    def close(self) -> None:
        """End the process, close the sockets."""
        for close in self._closers:
            close()
        self.context.destroy(linger=0)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SecureHub]:
    made = SecureHub(tmp_path)
    yield made
    made.close()


def read_until(source: LiveSource, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
    frames: list[Frame] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while not enough(frames):
        assert time.monotonic() < deadline_s, source.status
        frames += map(decode, source.read(0.5))
    return frames


def has(what: str) -> Callable[[list[Frame]], bool]:
    return lambda frames: any(frame.payload.get("what") == what for frame in frames)


def test_who_has_the_key_is_served_over_tcp_as_over_ipc(hub: SecureHub) -> None:
    """The agent's frame reaches a viewer with a key over tcp, and one without a key over the private ipc socket."""
    hub.link(hub.keys.agent).send(FrameKind.STATUS, {"host": "h"})
    for viewer in (hub.watch(hub.shared, hub.keys.viewer), hub.watch(hub.local)):
        frames = read_until(viewer, lambda got: len(got) >= 2)
        assert [FrameKind.RUN, FrameKind.STATUS] == [frame.kind for frame in frames[:2]]


@pytest.mark.parametrize("who", ["none", "stranger", "viewer", "wrong hub"])
def test_an_agent_without_the_right_key_writes_nothing_and_is_counted(hub: SecureHub, who: str) -> None:
    """No key, a key of nobody's, a viewer's key, the key of another hub: no frame, and the losses say it."""
    stranger = make_session_keys().agent
    key = {
        "none": None,
        "stranger": PeerKey(hub.keys.hub.public, stranger.public, stranger.secret),
        "viewer": hub.keys.viewer,
        "wrong hub": PeerKey(stranger.hub, hub.keys.agent.public, hub.keys.agent.secret),
    }[who]
    attacker = hub.socket(zmq.PUSH, hub.agents, key)
    attacker.set(zmq.SNDTIMEO, 500)
    with suppress(zmq.Again):
        attacker.send(encode(FrameKind.STATUS, "h/1/2", 0, 1, {"host": "forged"}))
    frames = read_until(hub.watch(hub.local), has(PEERS_REFUSED))
    advisor = Advisor()
    for frame in frames:
        advisor.feed(encode(frame.kind, frame.source, frame.seq, frame.time_ns, frame.payload))
    assert any("peers refused" in note for note in advisor.view().losses.notes)
    assert {"hub"} == {frame.source for frame in hub.recorded()}


@pytest.mark.parametrize("who", ["none", "agent"])
def test_a_viewer_without_the_right_key_reads_nothing(hub: SecureHub, who: str) -> None:
    """No key, or an agent's: not one byte of the recording comes back, and the refusal is recorded."""
    key = {"none": None, "agent": hub.keys.agent}[who]
    attacker = hub.socket(zmq.DEALER, hub.shared, key)
    attacker.send(Request(1, 0, 0, 1 << 20).pack(), zmq.NOBLOCK)
    assert 0 == attacker.poll(int(REFUSAL_S * 1000))
    read_until(hub.watch(hub.local), has(PEERS_REFUSED))


def test_a_peer_with_a_key_is_not_believed_more(hub: SecureHub) -> None:
    """Garbage and forged hub frames from an authenticated agent are counted; requests from a viewer stay requests."""
    attacker = hub.socket(zmq.PUSH, hub.agents, hub.keys.agent)
    attacker.send(b"garbage" * 100)
    attacker.send(encode(FrameKind.GAP, "hub", 0, 1, {"what": "forged"}))
    attacker.send_multipart([b"a", b"b"])
    spy = hub.socket(zmq.DEALER, hub.shared, hub.keys.viewer)
    spy.send(encode(FrameKind.STATUS, "h/1/2", 0, 1, {"host": "forged"}))
    frames = read_until(hub.watch(hub.local), has(BAD_FRAMES))
    (bad,) = [frame for frame in frames if frame.payload.get("what") == BAD_FRAMES]
    assert 3 == bad.payload["num_frames"]
    assert {"hub"} == {frame.source for frame in hub.recorded()}


def test_on_every_address_at_once_keys_decide_as_on_one(tmp_path: Path) -> None:
    """A hub on 0.0.0.0, reached from the network: who has no key reads nothing, writes nothing and is counted."""
    hub = SecureHub(tmp_path, EVERYWHERE)
    try:
        writer = hub.socket(zmq.PUSH, hub.agents, None)
        writer.set(zmq.SNDTIMEO, 500)
        with suppress(zmq.Again):
            writer.send(encode(FrameKind.STATUS, "h/6/6", 0, 1, {"host": "forged"}))
        reader = hub.socket(zmq.DEALER, hub.shared, None)
        reader.send(Request(1, 0, 0, 1 << 20).pack(), zmq.NOBLOCK)
        hub.link(hub.keys.agent).send(FrameKind.STATUS, {"host": "h"})
        read_until(
            hub.watch(hub.shared, hub.keys.viewer), lambda got: any(one.source == "h/1/2" for one in got)
        )
        assert 0 == reader.poll(int(REFUSAL_S * 1000))
        read_until(hub.watch(hub.local), has(PEERS_REFUSED))
        assert {"hub", "h/1/2"} == {frame.source for frame in hub.recorded()}
    finally:
        hub.close()


def test_raw_bytes_on_the_port_are_counted_and_survived(hub: SecureHub) -> None:
    """An http request, random bytes and mute connections change nothing for the agent that has the key."""
    port = int(hub.agents.rpartition(":")[2])
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 10, b"\xff" * 64, b""):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw, suppress(OSError):
            raw.sendall(data)
            raw.settimeout(0.3)
            raw.recv(100)
    hub.link(hub.keys.agent).send(FrameKind.STATUS, {"host": "h"})
    frames = read_until(hub.watch(hub.local), lambda got: has(PEERS_REFUSED)(got) and any(
        frame.source == "h/1/2" for frame in got))  # fmt: skip
    assert [] == [frame for frame in frames if frame.source not in ("hub", "h/1/2")]


def test_a_flood_of_strangers_is_one_line(hub: SecureHub) -> None:
    """A hundred refused connections within seconds: at most two reports, with their number, and the hub serves on."""
    port, begin_s = int(hub.agents.rpartition(":")[2]), time.monotonic()
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as raw, suppress(OSError):
            raw.sendall(b"\xff" * 64)
    hub.link(hub.keys.agent).send(FrameKind.STATUS, {"host": "h"})
    read_until(hub.watch(hub.local), lambda got: any(frame.source == "h/1/2" for frame in got))
    said = [f.payload["why"] for f in hub.recorded() if f.payload.get("what") == PEERS_REFUSED]
    assert 1 <= len(said) <= 2 + (time.monotonic() - begin_s) / SAY_AGAIN_S


def test_nothing_secret_is_on_a_command_line_or_in_an_environment(hub: SecureHub) -> None:
    """The hub got its keys on standard input: no process shows them to those who may look at its arguments."""
    secrets = [key.encode() for key in (hub.keys.hub.secret, hub.keys.agent.secret, hub.keys.viewer.secret)]
    for name in ("cmdline", "environ"):
        shown = Path(f"/proc/{hub.process.pid}/{name}").read_bytes()
        assert [] == [secret for secret in secrets if secret in shown]
    raw = hub.record.read_bytes()
    assert [] == [secret for secret in secrets if secret in raw]


def test_without_keys_the_network_stays_closed(tmp_path: Path) -> None:
    """A hub without keys refuses every address that leaves the machine; so do agent and viewer."""
    command = [sys.executable, "-m", "tuiadvisor.stream.hub", "--record", str(tmp_path / "r")]
    command += ["--endpoint", f"ipc://{tmp_path}/s/a", "--viewer", f"ipc://{tmp_path}/s/v"]
    done = subprocess.run(
        [*command, "--share", "tcp://0.0.0.0:*"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert "key" in done.stderr
    with pytest.raises(TuiadvisorError, match="--key"):
        LiveSource("tcp://10.0.0.1:5000")
    with pytest.raises(TuiadvisorError, match="--key"):
        AgentLink("tcp://10.0.0.1:5000", "h/1/2")
