"""Whoever comes late to a long run, on a busy machine: the history is read first, and no hub is called silent."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import zmq
from patience import PATIENCE_S, wait_until
from synthetic_run import MS, Job, encoded, frames

from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.app.live_session import Visit
from tuiadvisor.cli import watching
from tuiadvisor.cli.watching import watch_once
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.keys import Invitation
from tuiadvisor.stream.source import LiveSource, SourceStatus
from tuiadvisor.stream.wire import Reply, unpack_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = Job(num_steps=120)
RUN = encode(FrameKind.RUN, "hub", 0, 1, {"schema": 1, "label": "train.py"})
FAR_BEHIND = 5 << 20
NUM_PAUSES = 30  # of a read's own length: longer than whoever waits is patient
STATUS = SourceStatus("live", connected=True, bytes_behind=0, note="", ended=False, history_share=1.0)


class SlowHistory:
    """A hub that has a long history to tell, in parts with pauses in between."""

    def __init__(self, parts: list[list[bytes]]) -> None:
        self._num_parts = len(parts)
        self._reads = iter([read for part in parts for read in (part, *[[]] * NUM_PAUSES)])
        self._num_read = 0
        self.status = replace(STATUS, history_share=None, connected=False)

    def read(self, timeout_s: float) -> list[bytes]:
        taken = next(self._reads, [])
        if not taken:
            threading.Event().wait(timeout_s)
            return taken
        self._num_read += 1
        is_all = self._num_read == self._num_parts
        self.status = replace(
            STATUS, history_share=self._num_read / self._num_parts, bytes_behind=0 if is_all else FAR_BEHIND
        )
        return taken

    def close(self) -> None:
        """Nothing to close."""


class FakeHub:
    """The hub's end of a viewer's connection; each answer is one the test gives."""

    def __init__(self, url: str) -> None:
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(url)

    def asked(self) -> tuple[bytes, int]:
        """Who asks, and the number of the question."""
        assert self._router.poll(1000 * PATIENCE_S)
        viewer, *parts = self._router.recv_multipart()
        return viewer, unpack_request(parts).request

    def answer(self, viewer: bytes, request: int, begin: int, data: bytes) -> None:
        reply = Reply(request, 7, begin, begin + len(data), False, data, "")
        self._router.send_multipart([viewer, *reply.pack()])

    def close(self) -> None:
        self._router.close(linger=0)
        self._context.term()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[FakeHub, str]]:
    url = f"ipc://{tmp_path}/viewers"
    made = FakeHub(url)
    yield made, url
    made.close()


def summary_of(parts: list[list[bytes]], capsys: pytest.CaptureFixture[str], patience_s: float) -> str:
    """What `watch --once` prints of it."""
    session: Any = SimpleNamespace(
        agent_error=lambda: None, agent_ended=lambda: False, why_silent=lambda: "no hub answers"
    )
    feed = LiveFeed(SlowHistory(parts), lambda: None)
    feed.start()
    try:
        wait_until(
            lambda: feed.history_share is not None, "the hub has answered"
        )  # our own thread's start is no part
        assert 0 == watch_once(session, feed, patience_s, 0.0)
    finally:
        feed.stop()
    return capsys.readouterr().out


@pytest.mark.slow
def test_the_history_is_read_before_patience_begins(capsys: pytest.CaptureFixture[str]) -> None:
    """In the first part there is no rank yet: it was said that no hub answers there."""
    told = [encoded(frame) for frame in frames(JOB)]
    said = summary_of([[RUN], told], capsys, 0.5)
    assert "4 ranks" in said
    # Of few steps a verdict says so: what comes and goes may have been seen only coming, or going.
    assert re.search(
        r"^judged on \d+ steps, [\d.]+ s of the run: what comes and goes takes a longer look",
        said,
        re.MULTILINE,
    )


@pytest.mark.slow
def test_a_verdict_of_the_first_part_of_a_history_is_not_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The beginning was judged, and stood, while the rest was still being read."""
    told = [encoded(frame) for frame in frames(JOB, rows_per_frame=10)]
    parts = [[RUN, *told[: len(told) // 2]], told[len(told) // 2 :]]
    whole = summary_of([[RUN, *told]], capsys, PATIENCE_S)
    assert whole == summary_of(parts, capsys, PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize(("other_s", "is_final"), [(60 * MS, True), (0, False)])
def test_that_nothing_will_be_decided_is_not_waited_for_until_patience_ends(
    other_s: int, is_final: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the step in code without a hook: an actor's episodes took all 30 s. Too few steps are waited for."""
    monkeypatch.setattr(watching, "FINAL_SETTLE_S", 0.0)
    job = replace(JOB, other_s=other_s) if is_final else replace(JOB, num_steps=10)
    patience_s = PATIENCE_S if is_final else 2.0
    begin_s = time.monotonic()
    said = summary_of([[RUN, *(encoded(frame) for frame in frames(job))]], capsys, patience_s)
    assert ("pass in code that no hook sees" in " ".join(said.split())) == is_final
    assert (time.monotonic() - begin_s < patience_s) == is_final


def test_an_answer_that_waited_while_we_were_busy_is_an_answer(hub: tuple[FakeHub, str]) -> None:
    """Ten seconds of folding between two looks: the connection was given up, with the answer lying there."""
    fake, url = hub
    now_s = 100.0
    source = LiveSource(url, clock=lambda: now_s)
    try:
        source.read(0.0)
        viewer, request = fake.asked()
        fake.answer(viewer, request, FILE_HEADER_BYTES, RUN)
        assert source._socket.poll(1000 * PATIENCE_S)
        assert [RUN] == source.read(1.0)
        assert (viewer, request + 1) == fake.asked()
        fake.answer(viewer, request + 1, FILE_HEADER_BYTES + len(RUN), RUN)
        assert source._socket.poll(1000 * PATIENCE_S)
        now_s += 10.0
        assert source.status.connected
        assert [RUN] == source.read(1.0)
        assert (viewer, request + 2) == fake.asked()
    finally:
        source.close()


def test_a_hub_that_answers_is_not_said_to_be_silent(hub: tuple[FakeHub, str]) -> None:
    """It has no rank yet, which is another trouble with another way out."""
    fake, url = hub
    visit = Visit(Invitation(url))
    try:
        visit.source().read(0.0)
        assert "no hub answers there" in visit.why_silent()
        fake.answer(*fake.asked(), FILE_HEADER_BYTES, RUN)
        assert visit.source()._socket.poll(1000 * PATIENCE_S)
        visit.source().read(1.0)
        assert "the hub answers, but no rank" in visit.why_silent()
    finally:
        visit.source().close()
