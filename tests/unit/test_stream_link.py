"""An agent's end of the wire: what is dropped first, what a hub that came back hears, what is left at the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from hub_end import HubEnd
from patience import PATIENCE_S

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.stream.link import AgentLink

SOURCE = "h/1/2"
HELLO = {"host": "h", "ranks": []}


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/hub"


@pytest.fixture
def linked(endpoint: str) -> Iterator[Callable[..., AgentLink]]:
    links: list[AgentLink] = []

    def made(**options: int) -> AgentLink:
        links.append(AgentLink(endpoint, SOURCE, **options))
        return links[-1]

    yield made
    for link in links:
        link.close(0)


def fill(link: AgentLink) -> None:
    """What ZeroMQ itself takes before it says that it is full."""
    while not link._queued:
        link.send(FrameKind.STEPS, {})


def test_frames_are_numbered_and_in_one_voice(endpoint: str, linked: Callable[..., AgentLink]) -> None:
    hub, link = HubEnd(endpoint), linked()
    try:
        link.send(FrameKind.HELLO, HELLO)
        for _ in range(3):
            link.send(FrameKind.STEPS, {})
        frames = [hub.hear() for _ in range(4)]
    finally:
        hub.close()
    assert [0, 1, 2, 3] == [frame.seq for frame in frames]
    assert {SOURCE} == {frame.source for frame in frames}
    assert 1 == len(hub.voices)
    assert 0 == link.num_dropped


def test_a_hub_that_comes_back_hears_hello_again(endpoint: str, linked: Callable[..., AgentLink]) -> None:
    """Of its own recording it must be the first that is known of this agent."""
    first, link = HubEnd(endpoint), linked()
    link.send(FrameKind.HELLO, HELLO)
    assert FrameKind.HELLO is first.hear().kind
    first.close()
    second = HubEnd(endpoint)
    second.socket.set(zmq.RCVTIMEO, 20)
    heard: list[Frame] = []
    try:
        for _ in range(int(PATIENCE_S / 0.02)):
            link.send(FrameKind.STATUS, {})
            try:
                heard.append(second.hear())
            except zmq.Again:
                continue
            if FrameKind.HELLO in {frame.kind for frame in heard}:
                break
    finally:
        second.close()
    (hello,) = [frame for frame in heard if frame.kind is FrameKind.HELLO]
    assert HELLO == hello.payload
    assert hello.seq > 0


def test_detail_goes_first_and_steps_last(linked: Callable[..., AgentLink]) -> None:
    """Without a hub; HELLO and BYE stay whatever comes."""
    link = linked(max_queued=6)
    fill(link)
    order = [FrameKind.HELLO, FrameKind.EVENTS, FrameKind.HOST, FrameKind.STATUS, FrameKind.BYE]
    for kind in order:
        link.send(kind, {})
    assert 0 == link.num_dropped
    gone = []
    for _ in range(5):
        before = Counter(link.dropped)
        link.send(FrameKind.STEPS, {})
        gone += list((link.dropped - before).elements())
    assert [FrameKind.EVENTS, FrameKind.HOST, FrameKind.STATUS, FrameKind.STEPS, FrameKind.STEPS] == gone
    assert {FrameKind.HELLO, FrameKind.BYE} <= {kind for kind, _ in link._queued}


def test_bytes_are_bounded_like_frames(linked: Callable[..., AgentLink]) -> None:
    """Large frames of detail make room long before there are too many of them."""
    link = linked(max_queued_bytes=100_000)
    fill(link)
    for number in range(50):
        link.send(FrameKind.EVENTS, {"rows": number, "columns": {}, "noise": os.urandom(20_000).hex()})
        assert sum(len(data) for _, data in link._queued) == link._num_queued_bytes <= 100_000
    assert link.dropped[FrameKind.EVENTS] >= 40
    assert 0 == link.dropped[FrameKind.STEPS]


def test_what_is_left_at_the_end_is_counted(endpoint: str) -> None:
    link = AgentLink(endpoint, SOURCE)
    fill(link)
    for _ in range(3):
        link.send(FrameKind.HOST, {})
    link.close(0)
    assert Counter({FrameKind.HOST: 3, FrameKind.STEPS: 1}) == link.dropped


def test_an_address_beyond_this_machine_wants_a_key() -> None:
    with pytest.raises(TuiadvisorError, match="key"):
        AgentLink("tcp://192.0.2.1:5000", SOURCE)
