"""From one hub to the next, without either: what is sent on, what is not, and what a hub that came back hears."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
import zmq
from hub_end import HubEnd
from patience import PATIENCE_S, wait_until

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, encode
from tuiadvisor.stream.keys import Invitation
from tuiadvisor.stream.relay import Relay
from tuiadvisor.stream.source import LiveSource

FIRST, SECOND = "h/1/2", "h/3/4"


@dataclass
class Status:
    """What the relay asks of it."""

    ended: bool = False
    bytes_behind: int = 0


@dataclass
class Lower:
    """Stands for a viewer's source at the lower hub."""

    frames: list[bytes] = field(default_factory=list)
    status: Status = field(default_factory=Status)
    closed: threading.Event = field(default_factory=threading.Event)

    def read(self, timeout_s: float) -> list[bytes]:
        taken, self.frames = self.frames, []
        if not taken:
            threading.Event().wait(min(timeout_s, 0.01))
        return taken

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/upper"


@pytest.fixture
def lower() -> Lower:
    return Lower()


@pytest.fixture
def relay(url: str, lower: Lower) -> Iterator[Relay]:
    made = Relay(cast("LiveSource", lower), Invitation(url, None))
    made.start()
    yield made
    made.stop()
    assert lower.closed.is_set()


def of(source: str, kind: FrameKind, seq: int) -> bytes:
    return encode(kind, source, seq, 0, {})


@pytest.mark.usefixtures("relay")
def test_frames_of_agents_go_on_as_they_are_and_the_hubs_own_stay(url: str, lower: Lower) -> None:
    """The upper hub looks for gaps and writes its RUN itself; what is damaged leaves a hole that it sees."""
    damaged = bytearray(of(SECOND, FrameKind.STEPS, 1))
    damaged[0] ^= 0xFF
    lower.frames = [
        of(HUB_SOURCE, FrameKind.RUN, 0),
        of(FIRST, FrameKind.HELLO, 0),
        of(HUB_SOURCE, FrameKind.GAP, 1),
        of(SECOND, FrameKind.STEPS, 0),
        bytes(damaged),
        of(SECOND, FrameKind.STEPS, 2),
        of(FIRST, FrameKind.BYE, 1),
    ]
    upper = HubEnd(url, most_queued=1)
    try:
        heard = [upper.hear() for _ in range(4)]
    finally:
        upper.close()
    assert [(FIRST, 0), (SECOND, 0), (SECOND, 2), (FIRST, 1)] == [(one.source, one.seq) for one in heard]


@pytest.mark.usefixtures("relay")
def test_a_hub_that_came_back_hears_who_is_still_there(url: str, lower: Lower) -> None:
    """HELLO of each agent that has not said BYE, before anything else."""
    lower.frames = [
        of(FIRST, FrameKind.HELLO, 0),
        of(SECOND, FrameKind.HELLO, 0),
        of(FIRST, FrameKind.BYE, 1),
    ]
    upper = HubEnd(url, most_queued=1)
    assert 3 == len([upper.hear() for _ in range(3)])
    upper.close()
    again = HubEnd(url, most_queued=1)
    again.socket.set(zmq.RCVTIMEO, 50)
    heard: list[Frame] = []
    seq = 1

    def two_came() -> bool:
        nonlocal seq
        lower.frames.append(of(SECOND, FrameKind.STEPS, seq))
        seq += 1
        try:
            heard.append(again.hear())
        except zmq.Again:
            return False
        return len(heard) >= 2

    try:
        wait_until(two_came, "two frames at the hub that came back")
    finally:
        again.close()
    assert [(SECOND, FrameKind.HELLO), (SECOND, FrameKind.STEPS)] == [(one.source, one.kind) for one in heard]


def test_nothing_is_read_while_the_upper_hub_is_away(relay: Relay, lower: Lower) -> None:
    """The lower hub's recording is the buffer; an end that nobody hears takes no longer than its patience."""
    lower.frames = [of(FIRST, FrameKind.STEPS, 0)]
    wait_until(lambda: not lower.frames, "the first frame was taken")
    lower.frames = [of(FIRST, FrameKind.STEPS, number) for number in range(1, 50)]
    relay.stop()
    assert 49 == len(lower.frames)
    assert lower.closed.wait(PATIENCE_S)


def test_the_lower_hubs_end_is_the_relays(url: str, lower: Lower) -> None:
    lower.status.ended = True
    made = Relay(cast("LiveSource", lower), Invitation(url, None))
    made.start()
    assert lower.closed.wait(PATIENCE_S)
    made.stop()


def test_an_upper_hub_elsewhere_wants_a_key(lower: Lower) -> None:
    with pytest.raises(TuiadvisorError, match="key"):
        Relay(cast("LiveSource", lower), Invitation("tcp://192.0.2.1:5000", None))
