"""When a viewer gets its answer: history at once, what is new a few times a second."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import zmq
from patience import wait_until

from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import FILE_HEADER_BYTES, RecordingWriter
from tuiadvisor.stream.serving import GATHER_BYTES, GATHER_S, LONG_POLL_S, Viewers
from tuiadvisor.stream.source import LiveSource
from tuiadvisor.stream.wire import Reply, Request, unpack_reply

if TYPE_CHECKING:
    from pathlib import Path

SESSION = 7


class Router:
    """Questions of one viewer, and the answers to them."""

    def __init__(self) -> None:
        self.questions: list[Request] = []
        self.answers: list[Reply] = []

    def set(self, option: int, value: int) -> None:
        """Nothing to set."""

    def recv_multipart(self, _: int) -> list[bytes]:
        """The next question."""
        if not self.questions:
            raise zmq.Again
        return [b"viewer", self.questions.pop(0).pack()]

    def send_multipart(self, parts: list[bytes], _: int) -> None:
        """Keep an answer."""
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
