"""What others who hold the agents' key can do to an agent: they speak for themselves alone and leave room for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import zmq
from test_stream_secure import PATIENCE_S, SecureHub, has, read_until

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.attendance import BAD_FRAMES, FRAMES_MISSING, MAX_SOURCES
from tuiadvisor.stream.frames import Frame, FrameKind, encode
from tuiadvisor.stream.keys import use_as_peer
from tuiadvisor.stream.voice import make_voice, speak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCE = "h/1/2"
FAR = 1 << 62


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SecureHub]:
    made = SecureHub(tmp_path)
    yield made
    made.close()


def status(seq: int, source: str = SOURCE) -> bytes:
    return encode(FrameKind.STATUS, source, seq, 1, {"host": "h"})


def number_of(seq: int, source: str = SOURCE) -> Callable[[list[Frame]], bool]:
    return lambda frames: any((frame.seq, frame.source) == (seq, source) for frame in frames)


def losses_of(frames: list[Frame]) -> tuple[int, int]:
    """Frames lost and bad frames, as a screen shows them."""
    advisor = Advisor()
    for frame in frames:
        advisor.feed_frame(frame)
    losses = advisor.view().losses
    return losses.frames_lost, losses.frames_bad


def num_bad(frames: list[Frame]) -> int:
    bad = (frame.payload for frame in frames if frame.payload.get("what") == BAD_FRAMES)
    return sum(number for one in bad if isinstance(number := one["num_frames"], int))


@pytest.mark.parametrize("has_voice", [True, False])
def test_a_forged_number_silences_nobody_and_makes_up_no_loss(hub: SecureHub, has_voice: bool) -> None:
    """With the same key, from another connection: refused and said; the agent's next frame is recorded."""
    agent, viewer = hub.link(hub.keys.agent, SOURCE), hub.watch(hub.local)
    agent.send(FrameKind.STATUS, {"host": "h"})
    frames = read_until(viewer, number_of(0))
    forged = status(FAR)
    attacker = hub.socket(zmq.PUSH, hub.agents, hub.keys.agent)
    attacker.send(speak(make_voice(), forged) if has_voice else forged)
    frames += read_until(viewer, has(BAD_FRAMES))
    agent.send(FrameKind.STATUS, {"host": "h"})
    frames += read_until(viewer, number_of(1))
    assert [0, 1] == [frame.seq for frame in frames if frame.source == SOURCE]
    assert not has(FRAMES_MISSING)(frames)
    assert (0, 1) == losses_of(frames)
    (bad,) = [frame for frame in frames if frame.payload.get("what") == BAD_FRAMES]
    assert f"a frame of {SOURCE} from somebody else" == bad.payload["why"]


def test_a_source_of_ones_own_makes_up_no_loss_either(hub: SecureHub) -> None:
    """A number that no agent can have reached is a jump whose size nobody knows, at the first frame or later."""
    attacker = hub.socket(zmq.PUSH, hub.agents, hub.keys.agent)
    voice = make_voice()
    for source, seq in (("h/6/6", FAR), ("h/6/7", 0), ("h/6/7", FAR)):
        attacker.send(speak(voice, status(seq, source)))
    frames = read_until(hub.watch(hub.local), number_of(FAR, "h/6/7"))
    missing = [frame.payload["num_frames"] for frame in frames if frame.payload.get("what") == FRAMES_MISSING]
    assert [None, None] == missing
    assert (0, 0) == losses_of(frames)


def test_invented_sources_leave_room_for_others(hub: SecureHub) -> None:
    """17,000 of them from one node: half of the room is used up; the agent of another node is admitted and recorded."""
    attacker = hub.context.socket(zmq.PUSH)
    use_as_peer(attacker, hub.keys.agent)
    attacker.set(zmq.SNDTIMEO, int(PATIENCE_S * 1000))
    attacker.connect(hub.agents.replace("tcp://", "tcp://127.0.0.2:0;"))
    voice = make_voice()
    num_invented = 17_000
    for number in range(num_invented):
        attacker.send(speak(voice, status(0, f"i/{number}/1")))
    viewer = hub.watch(hub.local)
    frames = read_until(viewer, lambda got: num_bad(got) == num_invented - MAX_SOURCES // 2)
    hub.link(hub.keys.agent, SOURCE).send(FrameKind.STATUS, {"host": "h"})
    frames += read_until(viewer, number_of(0))
    assert MAX_SOURCES // 2 == len({frame.source for frame in frames if frame.source.startswith("i/")})
    attacker.close(linger=0)


def test_an_agent_that_names_no_voice_is_told_to_be_updated(hub: SecureHub) -> None:
    """A bare frame over a port for keys: not recorded, and the losses say why."""
    hub.socket(zmq.PUSH, hub.agents, hub.keys.agent).send(status(0))
    frames = read_until(hub.watch(hub.local), has(BAD_FRAMES))
    (bad,) = [frame for frame in frames if frame.payload.get("what") == BAD_FRAMES]
    assert f"{SOURCE}: an agent of an older version; update it" == bad.payload["why"]


def test_no_viewer_and_no_recording_learns_a_voice(hub: SecureHub) -> None:
    """What would let others speak in an agent's name is neither handed out nor written down."""
    voice = make_voice()
    hub.socket(zmq.PUSH, hub.agents, hub.keys.agent).send(speak(voice, status(0)))
    viewer = hub.watch(hub.shared, hub.keys.viewer)
    raw = b""
    while status(0) not in raw:
        raw += b"".join(viewer.read(0.5))
    assert voice not in raw
    assert voice not in hub.record.read_bytes()
