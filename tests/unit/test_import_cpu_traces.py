"""Traces of trainings on CPUs: the thread itself does the work, so its phases tell who comes late."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from test_import_kineto import Event, event, trace
from test_import_recording import imported

from tuiadvisor.tui.contract.feed import FeedState, ReplayState
from tuiadvisor.tui.pages.overlap import OverlapPage

if TYPE_CHECKING:
    from pathlib import Path

BASE_US = 1e9
MOVING_US = 2_000.0
NUM_STEPS = 30


def job(
    folder: Path, data_us: tuple[float, ...], *, has_wall: bool = True, shifts: tuple[int, ...] = ()
) -> Path:
    """Ranks that wait so long for a batch, compute 10 ms and meet in gloo; each rank's steps `shifts` others later."""
    folder.mkdir()
    everyone = range(len(data_us))
    events: list[list[Event]] = [[] for _ in everyone]
    begin = BASE_US
    for step in range(NUM_STEPS):
        ready = [begin + data + 10_000 for data in data_us]
        end = max(ready) + MOVING_US
        for rank, data in enumerate(data_us):
            late = (shifts[rank] if shifts else 0) * (max(data_us) + 12_600)
            at = begin + late
            events[rank] += [
                event(f"ProfilerStep#{step}", at, end + 600 - begin, "user_annotation"),
                event(
                    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, data, "user_annotation"
                ),
                event("aten::linear", at + data, 4_000, "cpu_op"),
                event("autograd::engine::evaluate_function: MmBackward0", at + data + 4_000, 6_000, "cpu_op"),
                event("MmBackward0", at + data + 4_000, 6_000, "cpu_op"),
                event("gloo:all_reduce", ready[rank] + late, end - ready[rank], "user_annotation"),
                event("Optimizer.step#SGD.step", end + late, 500, "user_annotation"),
            ]
        begin = end + 600
    for rank in everyone:
        path = trace(folder / f"rank{rank}.json", events[rank], rank, len(data_us))
        if has_wall:
            content = {**json.loads(path.read_text()), "baseTimeNanoseconds": 1_790_857_026_000_000_000}
            path.write_text(json.dumps(content))
    return folder


def test_the_rank_whose_loader_is_slow_is_named_as_in_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was 'every rank waits for data', where a recording of the same job names rank 1."""
    told, view = imported(job(tmp_path / "traces", (6_000, 40_000)), capsys)
    assert [] == told["stragglers"]["ranks"]  # collective by collective nothing is compared
    assert ("tune", "straggler") == (view.verdict.decision, view.verdict.finding)
    assert "rank 1 late by 34 ms in 100 % of the steps, waiting for its next batch" in view.verdict.sentence


@pytest.mark.parametrize(
    ("has_wall", "shifts"), [(False, ()), (True, (0, NUM_STEPS)), (True, (0, 2))],
    ids=["no wall clock", "one after the other", "two steps apart"],
)  # fmt: skip
def test_where_steps_may_be_of_other_moments_a_late_rank_is_not_named_and_nothing_less_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shifts: tuple[int, ...], *, has_wall: bool
) -> None:
    """That all ranks wait 10 % of the step for data says less than that one waits for most of it."""
    _, view = imported(job(tmp_path / "traces", (6_000, 40_000), has_wall=has_wall, shifts=shifts), capsys)
    assert view.verdict.decision is None
    assert "rank 1 is late, which the source cannot confirm" in view.verdict.sentence


def test_equally_slow_loaders_are_the_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is late."""
    _, view = imported(job(tmp_path / "traces", (40_000, 40_000)), capsys)
    assert ("tune", "input_bound") == (view.verdict.decision, view.verdict.finding)


@pytest.mark.parametrize("own_us", [(6_000, 40_000), (40_000, 40_000)], ids=["one rank late", "all alike"])
def test_of_a_trace_no_hook_is_told_and_no_process_is_to_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_us: tuple[float, float]
) -> None:
    """Time in the program's own code: a trace has phases that it shows, and the job that wrote it is over."""
    folder = job(tmp_path / "traces", own_us)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("enumerate(DataLoader)#_Single", "my_own_code_"))
    _, view = imported(folder, capsys)
    told = [view.verdict.sentence, view.verdict.because]
    for found in view.findings:
        told += [found.title, found.message, *found.measure_next]
        told += [text for action in found.actions for text in (action.text, action.command or "")]
    assert any("phases that the trace shows" in text for text in told), told
    assert not [text for text in told if "hook" in text or "py-spy" in text or "PID" in text]


def test_what_one_rank_alone_waits_for_is_not_useful_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The late rank's file is missing: three quarters of the step are exposed communication, and goodput was 100 %."""
    folder = job(tmp_path / "traces", (0, 40_000))
    (folder / "rank1.json").unlink()
    _, view = imported(folder, capsys)
    assert view.step.seconds["comm_exposed"] == pytest.approx(42e-3, rel=0.01)
    assert view.verdict.decision is None
    assert view.goodput is None
    assert view.wall is not None
    assert view.wall.end_to_end is None


def test_whoever_has_all_its_evidence_in_one_trace_is_told_of_two_that_say_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 was named, and below it each rank's line went on that these traces do not tell who is late."""
    told, view = imported(job(tmp_path / "traces", (6_000, 40_000)), capsys)
    assert "rank 1 late" in view.verdict.sentence
    assert view.imported is not None
    said = [*told["says"], view.imported.says]
    assert view.imported.device is not None
    said += view.imported.device.says
    assert any("computes" in words for words in said)
    assert not [words for words in said if "tell who is late" in words]


def test_the_screen_of_overlap_sends_nobody_from_a_trace_to_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said of gloo's calls in a trace that DDP's run in C++, and that a trace shows each of them."""
    _, view = imported(job(tmp_path / "traces", (6_000, 40_000)), capsys)
    replayed = ReplayState(1.0, None, None, None, 1.0, paused=False, marks=())
    state = FeedState(view, "replay", "ended", "", None, replayed, 1)
    page = " ".join("\n".join(row.text for row in OverlapPage().lines(state, 110, 40)).split())
    assert "all of it " in page
    assert "gradient comm" not in page
    assert "a trace shows" not in page
    assert "What ran, by name: K." in page
