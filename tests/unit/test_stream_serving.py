"""When a viewer gets its answer: history at once, what is new a few times a second."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import zmq
from patience import PATIENCE_S, wait_until

from tuiadvisor.stream import serving
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import FILE_HEADER_BYTES, RecordingWriter
from tuiadvisor.stream.serving import GATHER_BYTES, GATHER_S, LONG_POLL_S, Viewers
from tuiadvisor.stream.source import HUB_SILENCE_S, LiveSource
from tuiadvisor.stream.wire import Reply, Request, unpack_reply, unpack_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SESSION = 7


class Router:
    """Questions of one viewer, and the answers to them."""

    def __init__(self) -> None:
        self.questions: list[Request] = []
        self.answers: list[Reply] = []
        self.asked_by: list[bytes] = []  # who asks, where it is not always the same
        self.answered: list[bytes] = []
        self.fails_with: int | None = None  # an error of ZeroMQ's

    def set(self, option: int, value: int) -> None:
        """Nothing to set."""

    def recv_multipart(self, _: int) -> list[bytes]:
        """The next question."""
        if not self.questions:
            raise zmq.Again
        return [self.asked_by.pop(0) if self.asked_by else b"viewer", self.questions.pop(0).pack()]

    def send_multipart(self, parts: list[bytes], _: int) -> None:
        """Keep an answer."""
        if self.fails_with is not None:
            raise zmq.ZMQError(self.fails_with)
        self.answered.append(parts[0])
        self.answers.append(unpack_reply(parts[1:]))


def frame(seq: int, num_bytes: int = 0) -> bytes:
    noise = Random(seq).randbytes(num_bytes // 2).hex()  # noqa: S311 - what a compressor makes half as long
    return encode(FrameKind.STATUS, "node0/1/1", seq, 1, {"host": noise})


def test_news_is_gathered_and_history_is_not(tmp_path: Path) -> None:
    """A first question is answered at once, the next when 0.1 s or a good deal of frames have passed."""
    writer, router = RecordingWriter(tmp_path / "run.tuirec", frame(0)), Router()
    viewers = Viewers(cast("zmq.Socket[bytes]", router), writer, SESSION)
    router.questions.append(Request(1, 0, 0, 1 << 20))
    assert 10.0 + LONG_POLL_S == viewers.serve(10.0, "")
    assert [(1, FILE_HEADER_BYTES)] == [(one.request, one.offset) for one in router.answers]

    # All is known: nothing is due before the long poll ends.
    router.questions.append(Request(2, SESSION, writer.num_bytes, 1 << 20))
    assert 10.0 + LONG_POLL_S == viewers.serve(10.0, "")
    writer.append(frame(1))
    assert 10.0 + GATHER_S == viewers.serve(10.01, "")
    writer.append(frame(2))
    viewers.serve(10.0 + GATHER_S, "")
    assert [1, 2] == [one.request for one in router.answers]
    assert frame(1) + frame(2) == router.answers[1].data

    # A good deal of news does not wait.
    router.questions.append(Request(3, SESSION, writer.num_bytes, 1 << 20))
    viewers.serve(11.0, "")
    seq = 3
    while writer.num_bytes - router.answers[-1].end < GATHER_BYTES:
        assert 2 == len(router.answers)
        writer.append(frame(seq, 60_000))
        seq += 1
    viewers.serve(11.01, "")
    assert 3 == len(router.answers)
    writer.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordingWriter]:
    made = RecordingWriter(tmp_path / "run.tuirec", frame(0))
    yield made
    made.close()


def test_a_frame_that_is_larger_than_what_was_asked_for_comes_whole(writer: RecordingWriter) -> None:
    """And alone; more than one only as far as they are whole within what was asked for."""
    router = Router()
    viewers = Viewers(cast("zmq.Socket[bytes]", router), writer, SESSION)
    writer.append(frame(1, 9000))
    writer.append(frame(2))
    for max_bytes, first in ((0, 0), (len(frame(0)) + 40, 0), (10, len(frame(0)))):
        router.questions.append(Request(1, SESSION, FILE_HEADER_BYTES + first, max_bytes))
        viewers.serve(10.0, "")
        viewers.serve(10.0 + GATHER_S, "")
    assert [frame(0), frame(0), frame(1, 9000)] == [one.data for one in router.answers]


def test_an_offset_within_a_frame_gets_no_answer(
    writer: RecordingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what is no question; both are noted, and the next question is answered."""
    router, noted = Router(), []
    monkeypatch.setattr(serving, "logger", SimpleNamespace(warning=lambda _, *told: noted.append(told)))
    viewers = Viewers(cast("zmq.Socket[bytes]", router), writer, SESSION)
    router.questions.append(Request(1, SESSION, FILE_HEADER_BYTES + 5, 1 << 20))
    router.questions.append(cast("Request", SimpleNamespace(pack=lambda: b"hello")))
    router.asked_by = [b"viewer", b"stranger", b"viewer"]
    viewers.serve(10.0, "")
    viewers.serve(10.0 + GATHER_S, "")
    assert [] == router.answers
    assert (1, "request: not of the expected size") == noted[0]
    router.questions.append(Request(2, SESSION, FILE_HEADER_BYTES, 1 << 20))
    viewers.serve(11.0, "")
    viewers.serve(11.0 + GATHER_S, "")
    assert [frame(0)] == [one.data for one in router.answers]


def test_who_waits_longest_makes_room(writer: RecordingWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand questions of strangers cannot fill the hub; a second one of the same viewer replaces its first."""
    monkeypatch.setattr(serving, "MAX_WAITING", 2)
    router = Router()
    viewers = Viewers(cast("zmq.Socket[bytes]", router), writer, SESSION)
    end = writer.num_bytes
    router.questions += [Request(number, SESSION, end, 1 << 20) for number in (1, 2, 3, 4)]
    router.asked_by = [b"a", b"b", b"b", b"c"]
    viewers.serve(10.0, "")
    assert 2 == viewers.num_watching(10.0)
    writer.append(frame(1))
    viewers.serve(10.0 + GATHER_S, "")
    assert [(b"b", 3), (b"c", 4)] == [
        (who, one.request) for who, one in zip(router.answered, router.answers, strict=True)
    ]


@pytest.mark.parametrize(("error", "num_watching"), [(zmq.EHOSTUNREACH, 0), (zmq.EAGAIN, 1)])
def test_who_is_gone_is_not_waited_for(writer: RecordingWriter, error: int, num_watching: int) -> None:
    """Who only reads nothing asks again, or is forgotten in its time."""
    router = Router()
    viewers = Viewers(cast("zmq.Socket[bytes]", router), writer, SESSION)
    router.fails_with = error
    router.questions.append(Request(1, 0, 0, 1 << 20))
    viewers.serve(10.0, "")
    assert num_watching == viewers.num_watching(10.0)
    assert 0 == viewers.num_watching(10.0 + serving.WATCHING_S)


class Hub:
    """A hub's end of a viewer's connection, which answers as it is told."""

    def __init__(self, folder: Path) -> None:
        self.address = f"ipc://{folder}/hub"
        self.context = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.bind(self.address)

    def asked(self) -> tuple[bytes, Request]:
        """Who asked, and what."""
        assert self.router.poll(1000 * PATIENCE_S)
        viewer, question = self.router.recv_multipart()
        return viewer, unpack_request([question])

    def answer(self, viewer: bytes, reply: Reply) -> None:
        """Send it."""
        self.router.send_multipart([viewer, *reply.pack()])


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path)
    yield made
    made.router.close(linger=0)
    made.context.term()


def test_a_viewer_says_what_it_cannot_read_and_asks_on(hub: Hub) -> None:
    """Damage, another place than the one that was asked for, an answer to an older question: none of it is shown."""
    now_s = [100.0]
    source = LiveSource(hub.address, lambda: now_s[0])
    try:
        assert [] == source.read(0.0)
        viewer, first = hub.asked()
        good = Reply(first.request, SESSION, FILE_HEADER_BYTES, 400, is_ending=False, data=frame(0), note="")
        hub.answer(viewer, replace(good, request=first.request + 7, data=frame(9)))
        hub.answer(viewer, replace(good, data=b"no frame, " * 20))
        hub.answer(viewer, good)

        def is_seen() -> bool:
            return bool(source.read(0.0))

        wait_until(is_seen, "the frame")
        assert "1 unreadable replies from" in source.status.note
        assert source.status.connected
        _, second = hub.asked()
        assert FILE_HEADER_BYTES + len(frame(0)) == second.offset
        hub.answer(viewer, replace(good, request=second.request, data=frame(1)))  # the old place
        wait_until(lambda: source.read(0.0) or "2 unreadable" in source.status.note, "a second complaint")
        source.read(0.0)
        assert (viewer, second.offset) == ((again := hub.asked())[0], again[1].offset)
        # A hub that says no more: after a while the viewer tells, and calls anew on a connection of its own.
        now_s[0] += 1.5 * HUB_SILENCE_S
        source.read(0.0)
        assert source.status.note.endswith(f"silent for {1.5 * HUB_SILENCE_S:.0f} s")
        assert not source.status.connected
        another, third = hub.asked()
        assert (viewer != another, second.offset) == (True, third.offset)
        hub.answer(
            another, replace(good, request=third.request, offset=third.offset, data=b"", is_ending=True)
        )
        wait_until(lambda: source.read(0.0) or source.status.ended, "the end")
        assert "hub stopped" == source.status.note
        assert [] == source.read(0.0)
    finally:
        source.close()


def test_a_hub_that_sends_nothing_readable_does_not_hold_its_viewer(
    hub: Hub,
) -> None:
    """However fast its answers come, a read ends when its time is over: a screen must go on."""
    now_s = [100.0]
    source = LiveSource(hub.address, lambda: now_s[0])
    answers: list[float] = []

    def answer() -> list[bytes]:
        answers.append(now_s[0])
        assert len(answers) < 100
        now_s[0] += 0.1
        return [b"nothing"]

    flood = SimpleNamespace(poll=lambda *_: 1, recv_multipart=answer, send=lambda *_: None)
    source._socket, own = cast("zmq.Socket[bytes]", flood), source._socket
    try:
        assert [] == source.read(1.0)
        assert now_s[0] < 102.0
    finally:
        source._socket = own
        source.close()


def test_the_end_is_told_at_once(tmp_path: Path) -> None:
    """Nobody waits for more from a hub that closes."""
    writer, router = RecordingWriter(tmp_path / "run.tuirec", frame(0)), Router()
    viewers = Viewers(cast("zmq.Socket[bytes]", router), writer, SESSION)
    router.questions.append(Request(1, SESSION, writer.num_bytes, 1 << 20))
    viewers.serve(10.0, "")
    assert not router.answers
    viewers.serve(10.01, "", is_ending=True)
    assert [True] == [one.is_ending for one in router.answers]
    writer.close()


def test_a_viewer_that_left_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It was answered, closed its connection and asks no more; one that is there is waited for, and told the end."""
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    address = f"ipc://{tmp_path}/viewers"
    router.bind(address)
    writer = RecordingWriter(tmp_path / "run.tuirec", frame(0))
    viewers = Viewers(router, writer, SESSION)
    gone, there = LiveSource(address), LiveSource(address)
    seen: dict[LiveSource, list[bytes]] = {gone: [], there: []}

    def have_seen_all() -> bool:
        for source in seen:
            seen[source] += source.read(0.0)
        viewers.serve(10.0, "")
        return all(seen.values())

    def gone_is_forgotten() -> bool:
        viewers.serve(10.0, "", is_ending=True)
        return viewers.num_watching(10.0) == 1

    try:
        wait_until(have_seen_all, "both have read the recording")
        wait_until(lambda: viewers.serve(10.0, "") and len(viewers._waiting) == 2, "both ask for more")
        writer.append(frame(1))
        viewers.serve(11.0, "")
        assert not viewers._waiting  # both are answered, and neither reads it
        assert viewers.num_watching(11.0) == 2
        gone.close()
        wait_until(gone_is_forgotten, "only one is waited for")

        def is_told() -> bool:
            there.read(0.0)
            viewers.serve(10.0, "", is_ending=True)
            return there.status.ended

        wait_until(is_told, "the other one is told the end")
        assert viewers.num_watching(10.0) == 0
    finally:
        there.close()
        router.close(linger=0)
        context.term()
        writer.close()
