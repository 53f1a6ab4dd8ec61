"""A burst while the hub stands still: nothing waits, detail goes first, steps last; the viewer says what is missing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from test_stream import Bench, gaps, read_until, seen

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_COLUMNS
from tuiadvisor.stream.attendance import FRAMES_MISSING
from tuiadvisor.stream.frames import FrameKind, encode, pack_columns
from tuiadvisor.stream.link import AgentLink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = "h/1/2"
NUM_ROUNDS = 300


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_burst_costs_detail_only_and_is_counted_on_the_screen(bench: Bench) -> None:
    """The hub is stopped for 1,200 frames: all steps arrive, events and samples are dropped, their number is shown."""
    hub = bench.hub()
    link = AgentLink(hub.endpoint, SOURCE, max_queued=NUM_ROUNDS + 40)
    bench.links.append(link)
    viewer = bench.watch(hub)
    link.send(FrameKind.HELLO, {"host": "h", "ranks": [{"rank": 0, "state": "live", "world_size": 1}]})
    read_until(viewer, seen(FrameKind.HELLO, 0))
    hub.process.send_signal(signal.SIGSTOP)
    noise = pack_columns(
        [(0, 1, *os.urandom(len(EVENT_COLUMNS))) for _ in range(2000)], ("rank", "kind", *EVENT_COLUMNS)
    )
    for step in range(NUM_ROUNDS):  # a send that waited for the stopped hub would wait for ever
        link.send(FrameKind.EVENTS, noise)
        link.send(FrameKind.HOST, {"host": "h", "cpu": 0.5})
        link.send(FrameKind.STATUS, {"host": "h", "ranks": [{"rank": 0, "state": "live"}]})
        link.send(FrameKind.STEPS, pack_columns([(0, step)], ("rank", "step")))
    assert len(link._queued) <= NUM_ROUNDS + 40
    assert 0 == link.dropped[FrameKind.STEPS]
    # Detail before samples, samples before states: the next in worth is only touched when the one before is gone.
    assert link.dropped[FrameKind.EVENTS] >= link.dropped[FrameKind.HOST] > link.dropped[FrameKind.STATUS] > 0
    num_dropped = link.num_dropped

    hub.process.send_signal(signal.SIGCONT)
    while link._queued:
        link.flush()
    link.send(FrameKind.BYE, {"reason": "done"})
    frames = read_until(viewer, seen(FrameKind.BYE, 4 * NUM_ROUNDS + 1))
    kinds = Counter(frame.kind for frame in frames if frame.source == SOURCE)
    assert NUM_ROUNDS == kinds[FrameKind.STEPS]
    assert num_dropped == link.num_dropped == 4 * NUM_ROUNDS + 1 - kinds.total()
    told = [frame.payload["num_frames"] for frame in gaps(frames, FRAMES_MISSING)]
    assert num_dropped == sum(number for number in told if isinstance(number, int))
    advisor = Advisor()
    advisor.feed_many(encode(f.kind, f.source, f.seq, f.time_ns, f.payload) for f in frames)
    losses = advisor.view().losses
    assert num_dropped == losses.frames_lost
    assert any("frames missing" in note for note in losses.notes)
