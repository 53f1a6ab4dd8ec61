"""A hub in this process: what it takes in, what it records of losses, whom it turns away, and how it ends."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from fake_time import FakeTime
from patience import PATIENCE_S, wait_until

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.stream import hub as hubs
from tuiadvisor.stream.attendance import BAD_FRAMES, NOT_RECORDED, PEERS_REFUSED
from tuiadvisor.stream.frames import Frame, FrameKind, decode, encode
from tuiadvisor.stream.hub import TICK_S, Hub, HubConfig
from tuiadvisor.stream.keys import SessionKeys, make_session_keys
from tuiadvisor.stream.link import AgentLink
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.source import LiveSource
from tuiadvisor.stream.voice import make_voice, speak


@dataclass
class Bench:
    """A hub below a folder, those who talk to it, and what it wrote."""

    folder: Path
    keys: SessionKeys | None = None
    context: zmq.Context[zmq.Socket[bytes]] = field(default_factory=zmq.Context)
    closers: list[Callable[[], object]] = field(default_factory=list)
    hub: Any = None
    running: threading.Thread | None = None
    failed: list[Exception] = field(default_factory=list)

    def begin(self, **more: Any) -> Hub:
        """Listening; nothing runs yet."""
        places = [f"ipc://{self.folder}/a", f"ipc://{self.folder}/v"]
        if self.keys is not None:
            more |= {"keys": self.keys.hub, "share": "tcp://127.0.0.1:*"}
            places[0] = "tcp://127.0.0.1:*"
        self.hub = Hub(HubConfig(str(self.folder / "run.tuirec"), *places, **more))
        return self.hub

    def run(self) -> None:
        """In a thread of its own."""

        def run() -> None:
            try:
                self.hub.run()
            except TuiadvisorError as error:
                self.failed.append(error)

        self.running = threading.Thread(target=run)
        self.running.start()

    def link(self, key: Any = None) -> AgentLink:
        """An agent's."""
        made = AgentLink(self.hub.endpoints["endpoint"], "h/1/2", key=key)
        self.closers.append(lambda: made.close(0))
        return made

    def watch(self, url: str, key: Any = None) -> LiveSource:
        """A viewer's."""
        made = LiveSource(url, key=key)
        self.closers.append(made.close)
        return made

    def pushed(self, *messages: list[bytes]) -> None:
        """Someone's messages, of one part or more; on return they have been taken in."""
        bare = self.context.socket(zmq.PUSH)
        bare.connect(self.hub.endpoints["endpoint"])
        self.closers.append(lambda: bare.close(0))
        for parts in messages:
            bare.send_multipart(parts)
        num = 0
        while num < len(messages):
            assert self.hub._agents.poll(1000 * PATIENCE_S)
            num += self.hub._receive()

    def recorded(self) -> list[Frame]:
        """What is in the file now."""
        with RecordingReader(self.folder / "run.tuirec") as reader:
            return [decode(located.data) for located in reader.frames()]

    def told(self, what: str) -> list[Frame]:
        """GAP frames that say this."""
        return [frame for frame in self.recorded() if frame.payload.get("what") == what]

    def end(self) -> list[Frame]:
        """Stopped; all that it wrote."""
        self.hub.stop()
        if self.running is None:
            self.run()
        assert self.running is not None
        self.running.join(PATIENCE_S)
        self.running = None
        return self.recorded()

    def close(self) -> None:
        """End all."""
        for close in self.closers:
            close()
        self.context.destroy(linger=0)
        if self.running is not None:
            self.end()
        elif self.hub is not None and not self.hub._context.closed:
            self.hub._writer.close()
            if self.hub._gate:
                self.hub._gate.close()
            self.hub._context.destroy(linger=0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(hubs, "time", made)
    return made


VOICE = make_voice()


def frame(seq: int, source: str = "h/1/2") -> list[bytes]:
    """As an agent sends it."""
    return [speak(VOICE, encode(FrameKind.STATUS, source, seq, 1, {"host": "h"}))]


def test_what_agents_send_lies_between_run_and_bye(bench: Bench) -> None:
    """A viewer hears it to the end before the hub goes; both sockets are gone then."""
    hub = bench.begin(label="train.py")
    bench.run()
    viewer = bench.watch(hub.endpoints["viewer"])
    bench.link().send(FrameKind.STATUS, {"host": "h"})
    seen: list[Frame] = []

    def has_all() -> bool:
        seen.extend(map(decode, viewer.read(0.05)))
        if any(one.kind is FrameKind.STATUS for one in seen):
            hub.stop()
        return viewer.status.ended

    wait_until(has_all, "the end of the recording")
    kinds = [FrameKind.RUN, FrameKind.STATUS, FrameKind.BYE]
    assert kinds == [one.kind for one in seen]
    assert kinds == [one.kind for one in bench.end()]
    assert "train.py" == seen[0].payload["label"]
    assert "hub stopped" == viewer.status.note
    assert not (bench.folder / "a").exists()
    assert not (bench.folder / "v").exists()


def test_what_is_no_frame_is_counted_and_told_once(bench: Bench) -> None:
    """Parts, letters, a frame that came twice: one GAP for all of them, the good ones are kept."""
    bench.begin()
    bench.pushed(frame(0), [b"of", b"several", b"parts"], [b"letters"], frame(0), frame(1))
    kinds = [(one.kind, one.source) for one in bench.end()]
    assert [(FrameKind.STATUS, "h/1/2")] * 2 == kinds[1:3]
    (told,) = bench.told(BAD_FRAMES)
    assert (3, 3) == (told.payload["num_frames"], bench.hub.num_bad_frames)


def test_a_burst_is_written_in_pieces(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more at a time than viewers can wait for; none is lost, and they stay in order."""
    monkeypatch.setattr(hubs, "BATCH_FRAMES", 3)
    bench.begin()
    bench.pushed(*map(frame, range(10)))
    assert list(range(10)) == [one.seq for one in bench.end() if one.source == "h/1/2"]


def test_who_is_not_heard_is_told_and_its_return(bench: Bench, clock: FakeTime) -> None:
    """Not after a stop of the hub itself: agents only seem silent then."""
    bench.begin()
    bench.hub._tick()
    bench.pushed(frame(0))
    clock.sleep(60)
    bench.hub._tick()
    assert [] == bench.told("agent silent")
    clock.sleep(TICK_S)
    bench.hub._tick()
    bench.hub._tick()  # not twice within a second
    bench.pushed(frame(1))
    bench.end()
    assert ["not heard for 61.0 s"] == [one.payload["why"] for one in bench.told("agent silent")]
    assert ["heard again after 61.0 s"] == [one.payload["why"] for one in bench.told("agent returned")]


def test_a_disk_that_takes_nothing_loses_frames_not_the_hub(
    bench: Bench, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again each second, and how many were lost stands before what follows."""
    bench.begin()
    append, tries = bench.hub._writer.append, []

    def full(data: bytes, num_frames: int = 1) -> None:
        tries.append(num_frames)
        raise FailureError("no space left")

    monkeypatch.setattr(bench.hub._writer, "append", full)
    bench.pushed(frame(0))
    bench.pushed(frame(1))  # within the second: not tried
    assert [1] == tries
    assert "no space left" == bench.hub._note
    clock.sleep(1.5)
    monkeypatch.setattr(bench.hub._writer, "append", append)
    bench.pushed(frame(2))
    assert "" == bench.hub._note
    frames = bench.end()
    (told,) = bench.told(NOT_RECORDED)
    assert (2, "no space left") == (told.payload["num_frames"], told.payload["why"])
    assert [2] == [one.seq for one in frames if one.source == "h/1/2"]
    assert frames.index(told) == 1


def test_room_that_the_training_needs_ends_the_recording_whole(bench: Bench) -> None:
    """The last frame says why, and so does the command; what came after is counted."""
    bench.begin()
    bench.pushed(frame(0))
    bench.hub._room = SimpleNamespace(shortage=lambda *_: "3 MiB free, 9 MiB are left to the training")
    bench.pushed(frame(1))
    frames = bench.end()
    assert [0] == [one.seq for one in frames if one.source == "h/1/2"]
    assert [1] == [one.payload["num_frames"] for one in bench.told(NOT_RECORDED)]
    assert FrameKind.BYE is frames[-1].kind
    (error,) = bench.failed
    assert str(error) == frames[-1].payload["reason"]
    assert "9 MiB are left to the training; the recording ends here and is whole (2 frames)" in str(error)


@pytest.mark.parametrize(("parent_pid", "stays"), [(None, True), (os.getppid(), True), (1 << 22, False)])
def test_a_hub_ends_with_who_started_it(bench: Bench, parent_pid: int | None, *, stays: bool) -> None:
    """One that nobody started so stays."""
    bench.begin(parent_pid=parent_pid)
    bench.hub._tick()
    assert stays is not bench.hub._is_stopping


def test_keys_admit_their_own_and_count_the_others(tmp_path: Path) -> None:
    """An agent and a viewer with a key of this session are served over tcp; one without, and a stranger's, are told."""
    bench = Bench(tmp_path, make_session_keys())
    keys, others = bench.keys, make_session_keys()
    assert keys is not None
    hub = bench.begin()
    bench.run()
    try:
        bench.link(keys.agent).send(FrameKind.STATUS, {"host": "h"})
        viewer = bench.watch(hub.endpoints["share"], keys.viewer)
        seen: list[Frame] = []

        def is_served() -> bool:
            seen.extend(map(decode, viewer.read(0.05)))
            return any(one.kind is FrameKind.STATUS for one in seen)

        wait_until(is_served, "the agent's frame over tcp")
        # Of an agent's key nothing is read, and a key of another session opens nothing.
        bench.watch(hub.endpoints["share"], keys.agent).read(0.0)
        stranger = others.agent
        bench.link(type(stranger)(keys.hub.public, stranger.public, stranger.secret)).send(
            FrameKind.STATUS, {"host": "stranger"}
        )
        wait_until(lambda: hub._gate is not None and hub._gate.num_refused >= 2, "two refusals")
        frames = bench.end()
    finally:
        bench.close()
    assert ["h"] == [one.payload["host"] for one in frames if one.kind is FrameKind.STATUS]
    told = [one.payload["why"] for one in frames if one.payload.get("what") == PEERS_REFUSED]
    assert told
    assert all("without a key of this session turned away" in str(why) for why in told)


def test_an_address_that_is_taken_leaves_no_recording(bench: Bench, tmp_path: Path) -> None:
    """The second hub says so, in one line."""
    taken = bench.context.socket(zmq.PULL)
    bench.closers.append(lambda: taken.close(0))
    port = taken.bind_to_random_port("tcp://127.0.0.1")
    config = HubConfig(str(tmp_path / "b.tuirec"), f"tcp://127.0.0.1:{port}", f"ipc://{tmp_path}/w")
    with pytest.raises(FailureError, match="cannot listen there: Address already in use"):
        Hub(config)
    assert not (tmp_path / "b.tuirec").exists()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, 1 << 20, hubs.MAX_DESCRIPTORS),
        (1024, 4096, 4096),
        (1024, resource.RLIM_INFINITY, hubs.MAX_DESCRIPTORS),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
        (1 << 18, 1 << 20, None),
    ],
)
def test_descriptors_for_thousands_of_agents(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int | None
) -> None:
    """As many as the hard limit allows, never fewer than there were."""
    set_to: list[int] = []
    monkeypatch.setattr(hubs.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(hubs.resource, "setrlimit", lambda _, limits: set_to.append(limits[0]))
    hubs._raise_descriptor_limit()
    assert ([] if wanted is None else [wanted]) == set_to
