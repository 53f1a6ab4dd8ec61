"""Frames folded in one go give what folding them one by one gives, to the last digit, however they are cut."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from synthetic_run import MS, Fault, Job, elastic, encoded, frames, hello
from thinned import num_examples

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.steps.recent_steps import KEPT
from tuiadvisor.stream.columns import unpack_columns
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.stream.shapes import FrameError
from tuiadvisor.stream.tables import unpack_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.advisor.steps.tracks import RankTracks

SLOW = Job(num_steps=120, faults=(Fault("forward", (2,), 6 * MS, onset=60),))


def in_batches(data: list[bytes], lots: random.Random) -> Advisor:
    """Folded a few frames at a time."""
    advisor, begin = Advisor(), 0
    while begin < len(data):
        stop = begin + lots.randrange(1, 40)
        advisor.feed_many(data[begin:stop])
        begin = stop
    return advisor


def assert_same_state(one: Advisor, other: Advisor) -> None:
    """Every column of both stores, not only what a view shows of them."""
    num = one.store.tracks.num
    assert num == other.store.tracks.num
    assert one.store.capacity == other.store.capacity
    assert np.array_equal(one.store.tracks._table[:, :num], other.store.tracks._table[:, :num])
    held = one.store.recent._steps[:num] >= 0
    assert np.array_equal(one.store.recent._steps[:num], other.store.recent._steps[:num])
    for name in KEPT:
        mine, others = one.store.recent.column(name), other.store.recent.column(name)
        assert np.array_equal(mine[:num][held], others[:num][held])
    assert np.array_equal(one.store._early[:num], other.store._early[:num])
    assert_hosts_are_known(one.store.tracks)
    assert_hosts_are_known(other.store.tracks)
    assert one.store.num_bad_rows == other.store.num_bad_rows
    assert one.view() == other.view()


def assert_hosts_are_known(tracks: RankTracks) -> None:
    """What alignment asks of hosts and ranks instead of looking at all rows is what looking at them shows."""
    for host in range(len(tracks.hosts)):
        of_host = np.flatnonzero((tracks.host == host) & (tracks.born_tick != 0))
        assert np.array_equal(of_host, np.sort(tracks.rows_on(host)))
        others = tracks.aligned_rows()
        others = others[tracks.host[others] != host]
        assert np.array_equal(others[:3], tracks.lowest_aligned(3, host))
    assert bool(tracks.is_aligned.any()) == tracks.any_aligned()
    assert int((tracks.restarted != 0).sum()) <= tracks.num_restarts


def with_clocks(sequence: list[Frame]) -> list[Frame]:
    """A STATUS frame after every third one: the first of a host says what its clock shows."""
    result = []
    for number, frame in enumerate(sequence):
        result.append(frame)
        if number % 3 == 2:
            host = frame.source.split("/", 1)[0]
            payload: dict[str, object] = {
                "host": host,
                "mono_ns": frame.time_ns,
                "wall_ns": frame.time_ns + 7,
                "ranks": [{"rank": 0, "state": "live", "step": number}],
            }
            result.append(Frame(FrameKind.STATUS, frame.source, 1000 + number, frame.time_ns, payload))
    return result


def doubled(sequence: list[Frame]) -> list[Frame]:
    """Every fifth frame comes again, and some long after."""
    return [
        *(again for n, one in enumerate(sequence) for again in [one] * (1 + (n % 5 == 0))),
        *sequence[-3:],
    ]


def shuffled(sequence: list[Frame]) -> list[Frame]:
    """Frames of another order than time."""
    lots = random.Random(4)  # noqa: S311
    mixed = list(sequence)
    for begin in range(0, len(mixed), 6):
        piece = mixed[begin : begin + 6]
        lots.shuffle(piece)
        mixed[begin : begin + 6] = piece
    return mixed


JOBS: dict[str, Callable[[], list[Frame]]] = {
    "one host": lambda: frames(SLOW, rows_per_frame=3),
    "one row a frame": lambda: frames(replace(SLOW, num_steps=60), rows_per_frame=1),
    "attached at different steps": lambda: frames(replace(SLOW, attach=(2, 0, 5, 9)), rows_per_frame=4),
    "two hosts, clocks hours apart": lambda: with_clocks(
        frames(replace(SLOW, ranks_per_host=2, host_clock_s={1: 7200.0}), rows_per_frame=5)
    ),
    "frames twice": lambda: doubled(frames(SLOW, rows_per_frame=4)),
    "frames out of order": lambda: shuffled(frames(replace(SLOW, ranks_per_host=2), rows_per_frame=4)),
    "frames lost": lambda: [f for n, f in enumerate(frames(SLOW, rows_per_frame=4)) if n % 7 != 3],
    "an elastic restart": lambda: elastic(replace(SLOW, num_steps=100), "ten steps of one rank a frame"),
    "both generations in one frame": lambda: elastic(replace(SLOW, num_steps=100), "both in one frame"),
    "a rank moves to another host": lambda: [
        *frames(replace(SLOW, num_steps=60), rows_per_frame=5),
        hello(SLOW, "node9"),
        *(
            replace(frame, source="node9/1/1")
            for frame in frames(SLOW, rows_per_frame=5)[14:]
            if frame.kind == FrameKind.STEPS
        ),
    ],
    "no sequence numbers": lambda: frames(replace(SLOW, seq_known=False), rows_per_frame=4),
    "more steps than are held": lambda: frames(
        Job(num_steps=2300, num_ranks=2, noise=0.01), rows_per_frame=50
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_batches_fold_as_single_frames_do(name: str) -> None:
    """Live takes frames as they come, replay by the hundred: both show the same."""
    data = [encoded(frame) for frame in JOBS[name]()]
    single = Advisor()
    for frame in data:
        single.feed(frame)
    assert single.store.tracks.num
    for seed in range(num_examples(3)):
        lots = random.Random(f"{name} {seed}")  # noqa: S311
        assert_same_state(single, in_batches(data, lots))


def test_bad_frames_between_good_ones_are_noted_in_their_order() -> None:
    """Damaged bytes, columns that are none, and good frames: the notes of both ways read the same."""
    data = [encoded(frame) for frame in frames(SLOW, rows_per_frame=10)]
    bad = encoded(Frame(FrameKind.STEPS, "node0/1/1", 900, 5, {"rows": 2, "columns": {"rank": "x"}}))
    mixed = [*data[:4], data[4][:-2], bad, *data[5:8], b"", bad, *data[8:]]
    single, many = Advisor(), Advisor()
    for frame in mixed:
        single.feed(frame)
    many.feed_many(mixed)
    assert 4 == many.num_bad_frames
    assert single.roster.notes == many.roster.notes
    assert_same_state(single, many)


INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 40)
NAMES = ("rank", "begin_ns", "end_ns", "arrive_ns", "release_ns", "comm_exposed_ns")
PLANES = st.fixed_dictionaries(
    {"w": st.integers(0, 3), "lo": INT64, "p": st.sampled_from(["AAAA", "AQID", "AAAAAAAA", "A", ""])},
    optional={
        "d": INT64,
        "at": st.lists(st.lists(st.sampled_from([*NAMES, "other"]), max_size=2), min_size=1, max_size=3),
        "after": st.sampled_from(NAMES),
    },
)
HOSTILE = st.dictionaries(st.sampled_from(NAMES), INT64 | st.none() | PLANES, max_size=6)
SOUND = st.lists(st.tuples(*[INT64] * len(NAMES)), min_size=1, max_size=5).map(
    lambda rows: pack_columns(rows, NAMES)
)


ABSENT = {"rows": 3, "columns": {"rank": {"w": 1, "lo": 0, "p": "AAAA", "at": [["begin_ns"], []]}}}


@pytest.mark.slow
@settings(max_examples=num_examples(300), deadline=None)
@example([ABSENT])
@given(st.lists(HOSTILE.map(lambda columns: {"rows": 3, "columns": columns}) | SOUND, max_size=6))
def test_many_payloads_read_as_each_of_them_alone(payloads: list[dict[str, object]]) -> None:
    """The same numbers or the same words of complaint, whatever stands beside them."""
    for payload, table in zip(payloads, unpack_tables(payloads, NAMES), strict=True):
        if isinstance(table, FrameError):
            with pytest.raises(FrameError) as refused:
                unpack_columns(payload, NAMES)
            assert str(refused.value) == str(table)
        else:
            columns = unpack_columns(payload, NAMES)
            assert np.array_equal(np.stack([columns[name] for name in NAMES]), table)
