"""Frames come from strangers: whatever they hold, a view comes out, without NaN and with shares that sum to 1."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import orjson
import pytest
from fuzzing import num_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import STEP_NAMES, Job, frames, hello

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.views.run_view import RunView

INT64 = st.one_of(
    st.integers(-5, 100),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 61, 10**9, 10**18, -1, 0]),
)
CLOCK = st.integers(1, 10**10)


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """Rows with plausible ranks, steps and clocks now and then, anything elsewhere."""
    num_rows = draw(st.integers(1, 25))
    plausible = draw(st.booleans())
    result = []
    for _ in range(num_rows):
        row = [draw(INT64) for _ in STEP_NAMES]
        if plausible:
            begin = draw(CLOCK)
            row[:4] = [draw(st.integers(0, 3)), draw(st.integers(0, 60)), begin, begin + draw(CLOCK)]
        result.append(tuple(row))
    return result


def check(view: RunView) -> None:
    """No NaN, no infinity anywhere; shares sum to 1 where they are known; the document is JSON."""
    assert_finite(dataclasses.asdict(view))
    for shares in (view.step.shares, *(row.shares for row in view.ranks)):
        known = [share for share in shares.values() if share is not None]
        assert not known or math.isclose(1, sum(known), rel_tol=1e-6)
        assert all(0 <= share <= 1 + 1e-9 for share in known)
    assert {len(row.lateness_levels) for row in view.ranks} in (
        set(),
        {0},
    ) or view.heat_first_step is not None
    orjson.dumps(document(view))


def assert_finite(value: object) -> None:
    """Assert it of every number within."""
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict):
        for entry in value.values():
            assert_finite(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            assert_finite(entry)


@pytest.mark.slow
@settings(max_examples=num_inputs(50), deadline=None)
@given(st.lists(rows(), min_size=1, max_size=4))
def test_hostile_columns_never_raise(batches: list[list[tuple[int, ...]]]) -> None:
    """Huge, negative, duplicate, unordered and contradicting numbers."""
    advisor = Advisor()
    for number, batch in enumerate(batches):
        advisor.feed_frame(Frame(FrameKind.STEPS, "x/1/1", number, 1, pack_columns(batch, STEP_NAMES)))
    check(advisor.view())


@pytest.mark.slow
@settings(max_examples=num_inputs(20), deadline=None)
@given(st.data())
def test_a_good_run_with_damaged_numbers_never_raises(data: st.DataObject) -> None:
    """Single values of a real-shaped run replaced by anything, rows dropped, doubled and shuffled."""
    job = Job(num_steps=40, num_ranks=data.draw(st.integers(1, 4)), seed=data.draw(st.integers(0, 5)))
    advisor = Advisor()
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    for frame in frames(job, rows_per_frame=data.draw(st.sampled_from([3, 10, 40]))):
        if frame.kind != FrameKind.STEPS:
            advisor.feed_frame(frame)
            continue
        from tuiadvisor.stream.frames import unpack_columns

        columns = unpack_columns(frame.payload, STEP_NAMES)
        table = np.stack([columns[name] for name in STEP_NAMES], axis=1)
        for _ in range(data.draw(st.integers(0, 4))):
            table[random.integers(len(table)), random.integers(table.shape[1])] = data.draw(INT64)
        keep = random.random(len(table)) > 0.1
        table = np.concatenate([table[keep], table[:2]])
        if data.draw(st.booleans()):
            random.shuffle(table)
        payload = pack_columns([tuple(int(value) for value in row) for row in table], STEP_NAMES)
        advisor.feed_frame(Frame(FrameKind.STEPS, frame.source, frame.seq, frame.time_ns, payload))
        check(advisor.view())


JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([
    "host", "ranks", "rank", "state", "detail", "phase", "phase_since_ns", "mono_ns", "wall_ns", "world_size",
    "cpu", "gpus", "num_cpus", "parallel", "lost_steps", "reason", "what", "source", "num_frames", "why",
    "created_wall_ns", "label", "command", "pid", "hooks", "device",
])  # fmt: skip


@pytest.mark.slow
@settings(max_examples=num_inputs(80), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([kind for kind in FrameKind if kind not in {FrameKind.STEPS, FrameKind.EVENTS}]),
            st.sampled_from(["hub", "node0/1/1", "x"]),
            st.dictionaries(FIELDS, JSON | st.lists(st.dictionaries(FIELDS, JSON, max_size=5), max_size=3)),
        ),
        max_size=6,
    )
)
def test_hostile_payloads_never_raise(payloads: list[tuple[FrameKind, str, dict[str, object]]]) -> None:
    """Every field of every kind of frame may be anything."""
    advisor = Advisor()
    advisor.feed_frame(hello(Job(), "node0"))
    for number, (kind, source, payload) in enumerate(payloads):
        advisor.feed_frame(Frame(kind, source, number, number, payload))
    check(advisor.view())


def test_a_clock_that_jumps_back_does_not_undo_what_was_seen() -> None:
    """Records older than those already held are left out and counted."""
    sequence = frames(Job(num_steps=60))
    advisor = Advisor()
    for frame in sequence:
        advisor.feed_frame(frame)
    before = advisor.view()
    for frame in sequence[1:]:
        advisor.feed_frame(dataclasses.replace(frame, seq=frame.seq + 100))
    assert before.window == advisor.view().window
    assert before.findings == advisor.view().findings


def test_control_characters_of_a_stranger_do_not_reach_the_view() -> None:
    """A command line may hold an escape sequence; a terminal must never get it."""
    frame = hello(Job(num_ranks=1), "node0")
    frame.payload["ranks"][0]["command"] = "train.py \x1b[2J\n--lr 1"  # type: ignore[index]
    advisor = Advisor()
    advisor.feed_frame(frame)
    assert "train.py  [2J --lr 1" == advisor.view().run.command
