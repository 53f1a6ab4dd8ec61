"""A thousand viewers that come and go, in good manners and in bad: the hub serves on, and nothing of them stays."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import zmq
from test_stream_secure import PATIENCE_S, SecureHub, read_until

from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.stream.keys import use_as_peer
from tuiadvisor.stream.wire import Request, unpack_reply

NUM_VIEWERS = 1000
AT_ONCE = 100
WAYS = ("reads", "asks and goes", "asks and never reads", "never asks", "talks nonsense")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SecureHub]:
    made = SecureHub(tmp_path)
    yield made
    made.close()


def come_and_go(hub: SecureHub, url: str, num_viewers: int) -> int:
    """So many viewers at once, each in a way of its own; how many got what they asked for."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, num_viewers + 10)
    made = []
    num_served = 0
    for number in range(num_viewers):
        viewer = context.socket(zmq.DEALER)
        viewer.set(zmq.LINGER, 0)
        if url.startswith("tcp:"):
            use_as_peer(viewer, hub.keys.viewer)
        viewer.connect(url)
        way = WAYS[number % len(WAYS)]
        if way == "talks nonsense":
            viewer.send_multipart([b"", b"../../etc/passwd", b"\xff" * 500])
        elif way != "never asks":
            viewer.send(Request(number, 0, 0, 1 << 20).pack())
        if way == "asks and goes":
            viewer.close()
        else:
            made.append((way, viewer))
    for way, viewer in made:
        if way == "reads" and viewer.poll(int(PATIENCE_S * 1000)):
            num_served += unpack_reply(viewer.recv_multipart()).data != b""
    context.destroy(linger=0)
    return num_served


def test_a_thousand_viewers_leave_nothing_behind(hub: SecureHub) -> None:
    """Over the private socket and over the network by turns: who reads is served, then the hub is as it was."""
    link = hub.link(hub.keys.agent)
    link.send(FrameKind.EVENTS, {"rows": 0, "columns": {}, "noise": "x" * 200_000})
    normal = hub.watch(hub.local)
    read_until(normal, lambda frames: len(frames) >= 2)
    process = psutil.Process(hub.process.pid)
    come_and_go(hub, hub.shared, AT_ONCE)  # what any crowd takes once, and keeps
    come_and_go(hub, hub.local, AT_ONCE)
    num_fds, held = settled_fds(process, 40), process.memory_info().rss
    num_served = 0
    for number in range(NUM_VIEWERS // AT_ONCE):
        num_served += come_and_go(hub, (hub.local, hub.shared)[number % 2], AT_ONCE)
        link.send(FrameKind.STATUS, {"host": "h", "round": number})
        read_until(normal, partial(holds_round, number))
    assert NUM_VIEWERS // len(WAYS) == num_served
    assert num_fds >= settled_fds(process, num_fds)
    grown = process.memory_info().rss - held
    print(f"the hub grew by {grown / 1e6:.1f} MB")
    assert grown < 16e6
    assert normal.status.connected
    assert {"hub", "h/1/2"} == {frame.source for frame in hub.recorded()}


def holds_round(number: int, frames: list[Frame]) -> bool:
    """Whether this round's frame is among them."""
    return any(frame.payload.get("round") == number for frame in frames)


def settled_fds(process: psutil.Process, at_most: int) -> int:
    """Its open files once those who went are noticed."""
    deadline_s = time.monotonic() + PATIENCE_S
    while process.num_fds() > at_most and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return process.num_fds()


def test_a_hub_may_hold_as_many_connections_as_the_system_lets_it(tmp_path: Path) -> None:
    """The soft limit on open files is not its bound: 300 viewers are served at once by a hub started with 128."""
    # In the hub alone: this process, which runs the other tests too, may have more open than that.
    hub = SecureHub(tmp_path, behind=("sh", "-c", 'ulimit -Sn 128; exec "$@"', "sh"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    try:
        assert 300 // len(WAYS) == come_and_go(hub, hub.local, 300)
    finally:
        hub.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
