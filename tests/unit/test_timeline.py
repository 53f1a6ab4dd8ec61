"""The timeline of an imported trace: slices that a recording holds, cells at any zoom, keys of a text editor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from patience import wait_until
from snapshot import desks, views
from synthetic_run import Job
from test_import_kineto import ALL_REDUCE, event, trace
from test_import_recording import marked
from unit.test_contents import recording
from unit.test_tui_navigator import FakeShell

from tuiadvisor.app.desk import Desk
from tuiadvisor.app.timeline import SlicesRead
from tuiadvisor.app.whole_recording import frames_of, whole_view
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import slices as slices_of
from tuiadvisor.importers.slices import joined
from tuiadvisor.metrics.traces.lanes import NOTHING, cells, lanes_of, longest
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind, encode
from tuiadvisor.tui.contract.desk import LookAt
from tuiadvisor.tui.control.navigator import Navigator

if TYPE_CHECKING:
    from pathlib import Path


def rows(*events: tuple[int, int, int, int]) -> np.ndarray:
    """(begin, end, stream, kind) as rows of one step, each with a name of its own."""
    return np.array(
        [[5, begin, end, stream, at, 1, kind] for at, (begin, end, stream, kind) in enumerate(events)]
    )


def test_slices_are_joined_only_where_they_are_too_many() -> None:
    """Short neighbours of one stream and kind; a long one stays alone, the events joined are counted."""
    short = [(3000 * at, 3000 * at + 500, 7, 0) for at in range(8)]
    events = rows(*short, (40_000, 90_000, 7, 0), (95_000, 95_500, 7, 1), (0, 100, 20, 0))
    assert (11, 0) == (len(joined(events, 11).rows), joined(events, 11).resolution_ns)
    found = joined(events, 5)
    assert 4000 == found.resolution_ns  # 2,500 between two of them is less, 40,000 - 21,500 is more
    assert [(0, 21_500, 8), (40_000, 90_000, 1), (95_000, 95_500, 1), (0, 100, 1)] == [
        (row[1], row[2], row[5]) for row in found.rows.tolist()
    ]
    assert [(0, 95_500, 10), (0, 100, 1)] == [
        (row[1], row[2], row[5]) for row in joined(events, 2).rows.tolist()
    ]


def test_cells_are_of_the_kind_that_takes_most_worked_out_by_hand() -> None:
    """10 cells of 100: compute 0-250, communication 240-400 beside it, nothing, a copy 950-960."""
    events = np.array(
        [[0, 7, 0, 250, 3, 0], [0, 7, 240, 400, 4, 1], [0, 7, 950, 960, 5, 2], [1, 7, 0, 9, 6, 0]]
    )
    first, second = lanes_of(events)
    assert ((0, 7), (1, 7)) == ((first.rank, first.stream), (second.rank, second.stream))
    kind, share = cells(first, np.arange(0, 1001, 100))
    assert [0, 0, 1, 1, *[NOTHING] * 5, 2] == kind.tolist()
    assert [1, 1, 1, 1, 0, 0, 0, 0, 0, 0.1] == pytest.approx(share.tolist())
    assert [(4, 100), (3, 50)] == longest(first, 200, 340)


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    path = tmp_path / "run.tuirec"
    assert 0 == main(["import", "kineto", str(marked(tmp_path / "traces", 2)), "-o", str(path)])
    return path


def test_a_recording_of_a_trace_holds_its_slices(imported: Path) -> None:
    """Every stream of every rank on one clock, at any zoom, with steps and the kernels' names."""
    found = SlicesRead(frames_of(str(imported)))
    whole = found.picture(0.0, None, 100)
    assert [(rank, stream) for rank in range(4) for stream in (7, 20)] == [
        (lane.rank, lane.stream) for lane in whole.lanes
    ]
    assert 0.4 == pytest.approx(whole.whole_s, rel=0.02)
    assert list(range(100, 140)) == [step for _, step in whole.steps]
    assert ALL_REDUCE[:80] == whole.lanes[1].longest[0][0]
    assert 0.24 == pytest.approx(whole.lanes[1].longest[0][1], rel=0.1)  # 3 of 4 ms, twice a step
    # A step of rank 0: the all-reduce in which it waits for rank 2 takes 3 of 4 ms, rank 2's nearly nothing.
    one = found.picture(0.100, 0.110, 50)
    assert one.lanes[1].busy > 0.55
    assert one.lanes[5].busy < 0.1
    assert set(one.lanes[1].cells) <= set("Nn.")


@pytest.mark.slow
def test_the_view_of_the_run_does_not_change_for_its_slices(
    imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are for looking at, not for judging; few of them are a recording, too."""
    monkeypatch.setattr(slices_of, "MAX_ALL", 4)
    path = tmp_path / "few.tuirec"
    assert 0 == main(["import", "kineto", str(tmp_path / "traces"), "-o", str(path)])
    few, many = whole_view(str(path)), whole_view(str(imported))
    assert (few.step, few.overlap, few.collectives, few.stragglers) == (
        many.step,
        many.overlap,
        many.collectives,
        many.stragglers,
    )
    assert 8 == len(SlicesRead(frames_of(str(path))).picture(0.0, None, 10).lanes)


@pytest.mark.slow
def test_a_copy_that_names_nobody_keeps_the_timeline_without_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says how fine it is."""
    monkeypatch.setattr(slices_of, "MAX_ALL", 40)
    path, copy = tmp_path / "run.tuirec", tmp_path / "nobody.tuirec"
    assert 0 == main(["import", "kineto", str(marked(tmp_path / "traces", 2)), "-o", str(path)])
    assert 0 == main(["anonymize", str(path), "-o", str(copy)])
    first, second = (SlicesRead(frames_of(str(one))).picture(0.0, None, 50) for one in (path, copy))
    assert 0 < first.resolution_s == second.resolution_s
    assert [lane.cells for lane in first.lanes] == [lane.cells for lane in second.lanes]
    assert {"another kernel"} == {name for lane in second.lanes for name, _ in lane.longest}


def test_streams_beyond_the_busiest_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three the one with least to do."""
    monkeypatch.setattr(slices_of, "MAX_STREAMS", 2)
    events = [event(f"ProfilerStep#{n}", 100 * n, 100, "user_annotation") for n in range(3)]
    events += [event("gemm", 10, 5 + stream, stream=stream) for stream in (3, 1, 2)]
    path = tmp_path / "run.tuirec"
    trace(tmp_path / "rank0.json", events, 0, 1)
    assert 0 == main(["import", "kineto", str(tmp_path / "rank0.json"), "-o", str(path)])
    lanes = SlicesRead(frames_of(str(path))).picture(0.0, None, 10).lanes
    assert [2, 3] == [lane.stream for lane in lanes]


@pytest.mark.parametrize(
    "told",
    [None, [], {"device": 7}, {"device": {"names": 9, "resolution_ns": "x"}}, {"device": {"names": [None]}}],
)
def test_a_recording_without_slices_says_so(told: object) -> None:
    """Whatever it says of its names."""
    with pytest.raises(TuiadvisorError, match="tuiadvisor open TRACE"):
        SlicesRead([encode(FrameKind.RUN, HUB_SOURCE, 0, 1, {"schema": 1, "imported": told}), b"nothing"])


def wait_for(desk: Desk, until: str = "timeline") -> None:
    wait_until(lambda: getattr(desk.desk(), until) and not desk.desk().timeline_note.startswith("reading"))


def test_the_desk_reads_once_and_shows_any_stretch(imported: Path) -> None:
    """Of a recording that probes wrote it says why there is nothing; a live run has none."""
    desk = Desk(None, imported.parent, str(imported))
    desk.start()
    try:
        desk.command(LookAt(0.0, None, 40))
        wait_for(desk)
        held = desk.desk().timeline
        assert held is not None
        assert {40} == {len(lane.cells) for lane in held.lanes}
        desk.command(LookAt(0.1, 0.2, 30))
        wait_until(lambda: (shown := desk.desk().timeline) is not None and shown.begin_s != 0.0)
        held = desk.desk().timeline
        assert held is not None
        assert (0.1, 0.2) == pytest.approx((held.begin_s, held.end_s))
    finally:
        desk.stop()


@pytest.mark.parametrize(
    ("is_open", "says"), [(True, "no device's work one by one"), (False, "no recording is open")]
)
def test_where_there_is_no_timeline_the_reason_is_said(tmp_path: Path, is_open: bool, says: str) -> None:
    """And what has one."""
    path = tmp_path / "probes.tuirec"
    recording(path, Job(num_steps=60))
    desk = Desk(None, tmp_path, str(path) if is_open else "")
    desk.start()
    try:
        desk.command(LookAt(0.0, None, 40))
        wait_for(desk, "timeline_note")
        assert says in desk.desk().timeline_note
        assert "tuiadvisor open TRACE" in desk.desk().timeline_note
    finally:
        desk.stop()


class Keyboard:
    """On the timeline of `views.timeline`: 1.25 s to 1.31 s of 4 s."""

    def __init__(self) -> None:
        self.shell = FakeShell()
        self.place = Navigator(self.shell, views.live(views.straggler()), clock=lambda: 0.0)
        self.place.take_desk(desks.desk(timeline=views.timeline()))
        self.press("Z")

    def press(self, *keys: str) -> str:
        for key in keys:
            self.place.rows(80, 24)
            self.place.key(key, key if len(key) == 1 else None)
        return "\n".join(row.text for row in self.place.rows(80, 24))

    @property
    def asked(self) -> LookAt:
        last = self.shell.asked[-1]
        assert isinstance(last, LookAt)
        return last


@pytest.mark.parametrize(
    ("key", "begin_s", "end_s"),
    [
        ("+", 1.265, 1.295),
        ("-", 1.22, 1.34),
        ("l", 1.265, 1.325),
        ("right", 1.265, 1.325),
        ("h", 1.235, 1.295),
        ("u", 0.0, None),
    ],
)
def test_keys_of_a_text_editor_ask_for_another_stretch(key: str, begin_s: float, end_s: float | None) -> None:
    """In as many cells as the screen has room for."""
    keyboard = Keyboard()
    keyboard.press(key)
    assert begin_s == pytest.approx(keyboard.asked.begin_s)
    assert end_s == (end_s if end_s is None else pytest.approx(keyboard.asked.end_s))
    assert (end_s is None) == (keyboard.asked.end_s is None)
    assert 59 == keyboard.asked.num_cells


def test_j_and_k_choose_a_row_and_below_stands_what_took_longest() -> None:
    """Rows, steps, letters with a legend; nothing is cut on 80 columns but names."""
    keyboard = Keyboard()
    text = keyboard.press()
    for part in (
        "1.25 s to 1.31 s of 4.00 s",
        "▏104",
        "r2 s7",
        "CCCCccCCCCCCCC",
        "C compute  N communication",
    ):
        assert part in text
    assert "12.0 ms ampere_sgemm" in text
    assert "20.0 ms nccl" in keyboard.press("j")


def test_the_ends_of_the_trace_are_not_passed() -> None:
    """Zooming out shows all, moving stops there."""
    keyboard = Keyboard()

    near_end = replace(views.timeline(), begin_s=3.95, end_s=4.0)
    keyboard.place.take_desk(desks.desk(timeline=near_end))
    keyboard.press("l")
    assert (3.95, 4.0) == pytest.approx((keyboard.asked.begin_s, keyboard.asked.end_s))
    keyboard.place.take_desk(desks.desk(timeline=replace(views.timeline(), begin_s=0.5, end_s=3.5)))
    keyboard.press("-")
    assert (0.0, None) == (keyboard.asked.begin_s, keyboard.asked.end_s)
