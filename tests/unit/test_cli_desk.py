"""The desk behind the screens: the list of recordings, opening one, comparing two, back to the live run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import wait_until
from synthetic_run import Fault, Job
from unit.test_contents import recording

from tuiadvisor.app.before_mark import FILE_NAME, mark_before, marked_before, marks_before
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.sizing import Sizing
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.session.entries import Stated
from tuiadvisor.session.intent import Intent
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.desk import (
    Advise,
    Answer,
    Compare,
    GoLive,
    ListRuns,
    MarkBefore,
    NudgeSize,
    OpenRun,
    Report,
    Scale,
    StateSize,
    WantRuns,
)
from tuiadvisor.tui.contract.feed import End, Pause, SeekStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tuiadvisor.views.run_list import RunEntry

LATE = Job(num_steps=120, faults=(Fault("backward", (2,), 0.015),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old").mkdir()
    recording(tmp_path / "before.tuirec", LATE)
    recording(tmp_path / "old" / "after.tuirec", Job(num_steps=120, seed=3))
    (tmp_path / "torn.tuirec").write_bytes(b"no recording at all")
    return tmp_path


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    desk = Desk(None, folder)
    desk.start()
    yield desk
    desk.stop()


def rows(desk: Desk) -> dict[str, RunEntry]:
    return {entry.name: entry for entry in desk.desk().runs}


def test_rows_are_read_only_where_they_are_looked_at(desk: Desk, folder: Path) -> None:
    """The list comes at once; a row is read when it is on the screen, a damaged file says so in its row."""
    desk.command(ListRuns())
    wait_until(lambda: len(rows(desk)) == 3)
    assert {"unread"} == {entry.state for entry in rows(desk).values()}
    desk.command(WantRuns((str(folder / "before.tuirec"), str(folder / "torn.tuirec"))))
    wait_until(lambda: rows(desk)["before"].state == "read" and rows(desk)["torn"].state == "broken")
    read = rows(desk)["before"]
    assert (4, 119, "tune") == (read.world_size, read.last_step, read.decision)
    assert 0 < len(read.spark) <= 24
    assert "recording" in rows(desk)["torn"].problem
    assert "unread" == rows(desk)["old/after"].state
    desk.command(ListRuns())
    recording(folder / "new.tuirec", Job(num_steps=30))
    desk.command(ListRuns())
    wait_until(lambda: len(rows(desk)) == 4)
    assert "read" == rows(desk)["before"].state


def test_a_recording_is_opened_at_its_end_and_another_after_it(desk: Desk, folder: Path) -> None:
    """What the row spoke of is what is shown; the next one takes its place."""
    assert "no run is open" == desk.latest().phase
    for name, step in (("before", 119), ("old/after", 119)):
        desk.command(OpenRun(str(folder / f"{name}.tuirec")))
        wait_until(lambda wanted=name: desk.desk().open_path.endswith(f"{wanted}.tuirec"))  # type: ignore[misc]
        wait_until(lambda wanted=step: shown_step(desk) == wanted)  # type: ignore[misc]
    desk.command(Pause())
    wait_until(lambda: desk.latest().phase == "paused")
    desk.command(OpenRun(str(folder / "torn.tuirec")))
    wait_until(lambda: "torn.tuirec" in desk.desk().answer)
    assert 119 == shown_step(desk)


def shown_step(desk: Desk) -> int | None:
    view = desk.latest().view
    return view.last_step if view is not None else None


def test_two_recordings_are_compared(desk: Desk, folder: Path) -> None:
    """The first is before; what cannot be read is said where the comparison would be."""
    before, after = str(folder / "before.tuirec"), str(folder / "old" / "after.tuirec")
    desk.command(Compare(before, after))
    wait_until(lambda: desk.desk().comparison is not None)
    comparison = desk.desk().comparison
    assert comparison is not None
    assert (before, after) == (comparison.before.path, comparison.after.path)
    assert "improved" == comparison.verdict
    desk.command(Compare(before, str(folder / "torn.tuirec")))
    wait_until(lambda: "torn.tuirec" in desk.desk().comparison_note and desk.desk().comparison is None)


@pytest.mark.slow
def test_the_report_of_what_is_shown_lies_beside_it(desk: Desk, folder: Path) -> None:
    """With the comparison that was made last only where this run is one of the two."""
    before, after = str(folder / "before.tuirec"), str(folder / "old" / "after.tuirec")
    recording(folder / "third.tuirec", Job(num_steps=30))
    desk.command(Compare(before, after))
    wait_until(lambda: desk.desk().comparison is not None)
    assert "Before and after" not in report_of(desk, folder / "third.tuirec", 29)
    assert "Before and after" in report_of(desk, folder / "before.tuirec", 119)


def test_that_a_report_is_being_written_is_said_at_once(
    desk: Desk, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key R showed nothing for the two seconds that writing it took."""
    said: list[str] = []

    def write(*_given: object) -> str:
        said.append(desk.desk().answer)
        return "there.html"

    monkeypatch.setattr("tuiadvisor.app.reporting.report_of_shown", write)
    desk.command(OpenRun(str(folder / "before.tuirec")))
    wait_until(lambda: shown_step(desk) == 119)
    desk.command(Report())
    wait_until(lambda: desk.desk().answer == "report written to there.html")
    assert said == ["writing the report …"]


def report_of(desk: Desk, recording: Path, last_step: int) -> str:
    """What is written of a run that is opened for it."""
    desk.command(OpenRun(str(recording)))
    wait_until(lambda: desk.desk().open_path == str(recording) and shown_step(desk) == last_step)
    desk.command(Report())
    path = recording.with_name(f"{recording.stem}-step{last_step}.html")
    wait_until(lambda: desk.desk().answer == f"report written to {path}")
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_run_after_a_marked_one_is_compared_with_it_by_itself(folder: Path) -> None:
    """B on the run before; the job's next run, once it has the steps, stands on screen 7 with what it saved."""
    recording(folder / "next.tuirec", Job(num_steps=250, seed=3))
    first = Desk(None, folder)
    first.start()
    first.command(OpenRun(str(folder / "before.tuirec")))
    wait_until(lambda: first.latest().view is not None)
    first.command(MarkBefore())
    wait_until(
        lambda: (
            "before.tuirec is the state before. Change one thing, start the job again with -o FILE: 7 compares"
            in first.desk().answer
        )
    )
    first.stop()
    live = ReplayFeed(ReplaySource(folder / "next.tuirec"))
    live.start()
    live.command(End())
    stated = Intent(remaining_steps=1e6, price_per_device_hour=2.0, currency="EUR")
    desk = Desk(live, folder, live_path=str(folder / "next.tuirec"), intent=stated)
    desk.start()
    try:
        wait_until(lambda: desk.desk().comparison is not None and "7 shows" in desk.desk().answer)
        comparison, worth = desk.desk().comparison, desk.desk().comparison_worth
        assert comparison is not None
        assert ("improved", "before.tuirec") == (comparison.verdict, Path(comparison.before.path).name)
        # 15 ms a step less on 4 ranks over a million steps: about 4.2 h, 16.7 device-hours, 33 EUR.
        hours, device_hours, money = (float(each) for each in re.findall(r"([\d.]+) to", worth))
        assert 3.0 < hours < 5.0
        assert device_hours == pytest.approx(4 * hours, rel=0.01)
        assert money == pytest.approx(8 * hours, rel=0.01)
        assert "EUR" in worth
    finally:
        desk.stop()
        live.stop()


@pytest.mark.slow
def test_a_live_run_is_compared_anew_as_it_goes_on(folder: Path) -> None:
    """The comparison stood at the step at which it was made; what is marked was nowhere on the screens."""
    path = folder / "next.tuirec"
    recording(path, Job(num_steps=400, seed=3))
    mark_before(folder, str(folder / "before.tuirec"), "train.py", 119)
    live = ReplayFeed(ReplaySource(path))
    live.start()
    live.command(SeekStep(150))
    wait_until(lambda: (view := live.latest().view) is not None and (view.last_step or 0) >= 150)
    live.command(Pause())
    wait_until(lambda: live.latest().phase == "paused")
    desk = Desk(live, folder, live_path=str(path))
    desk.start()
    try:
        wait_until(lambda: bool(desk.desk().before))
        (marked,) = desk.desk().before
        assert ("before.tuirec", "train.py", 119, False) == (
            marked.name, marked.label, marked.step, marked.is_live,
        )  # fmt: skip
        wait_until(lambda: desk.desk().compared_step is not None)
        first = desk.desk().comparison
        assert first is not None
        # The file was read to its end, further than the screens were: it said "up to step 495" beside 668 steady steps.
        assert (399, (0, 399)) == (desk.desk().compared_step, (0, (first.after.judged_steps or (0, 0))[1]))
        assert desk.before_after.due_again() is None
        live.command(End())
        wait_until(lambda: (anew := desk.desk().comparison) is not None and anew is not first)
        comparison = desk.desk().comparison
        assert comparison is not None
        assert "before.tuirec" == Path(comparison.before.path).name
        assert desk.before_after.due_again() is None
        desk.command(Compare(str(folder / "before.tuirec"), str(folder / "old" / "after.tuirec")))
        wait_until(lambda: desk.desk().compared_step is None)  # the live run is none of the two
        assert desk.before_after.due_again() is None
    finally:
        desk.stop()
        live.stop()


def test_a_run_of_which_nothing_is_decided_is_compared_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has steps enough: "after 100 steady steps: 100 so far" stood there for 1,299 steps."""
    mark_before(folder, str(folder / "before.tuirec"), "train.py", 3)
    live = ReplayFeed(ReplaySource(folder / "old" / "after.tuirec"))
    desk = Desk(live, folder, live_path=str(folder / "old" / "after.tuirec"))
    live.start()
    live.command(End())
    try:
        wait_until(lambda: (view := live.latest().view) is not None and view.window.enough)
        state = live.latest()
        assert state.view is not None
        window = replace(state.view.window, enough=False, why_undecided="what passes is in no hook")
        undecided = replace(state, view=replace(state.view, window=window))
        monkeypatch.setattr(live, "latest", lambda: undecided)
        due = desk.before_after.due_comparison()
        assert due is not None
        assert "before.tuirec" == Path(due.path).name
    finally:
        live.stop()


def test_another_job_is_not_compared_and_a_run_that_is_not_kept_says_so(folder: Path) -> None:
    """The mark is of a job; without a recording there is nothing to hold against it."""
    mark_before(folder, str(folder / "before.tuirec"), "another.py", 3)
    live = ReplayFeed(ReplaySource(folder / "old" / "after.tuirec"))
    desk = Desk(live, folder, live_path=str(folder / "old" / "after.tuirec"))
    assert desk.before_after.due_comparison() is None  # nothing was seen yet
    live.start()
    live.command(End())
    try:
        wait_until(lambda: (view := live.latest().view) is not None and view.window.enough)
        assert desk.before_after.due_comparison() is None
    finally:
        live.stop()
    unkept = Desk(None, folder)
    unkept.start()
    unkept.command(MarkBefore())
    wait_until(lambda: "only a recorded run" in unkept.desk().answer)
    unkept.stop()


def test_marks_of_two_jobs_live_beside_each_other(folder: Path) -> None:
    """B on another job in the same folder dropped the first one's mark without a word; the old form is read on."""
    old = {"recording": "before.tuirec", "label": "train.py", "step": 3}
    (folder / FILE_NAME).write_text(json.dumps(old))
    mark_before(folder, str(folder / "old" / "after.tuirec"), "sweep.py", 7)
    mark_before(folder, "/elsewhere/x.tuirec", "eval.py", 1)
    first, second = marked_before(folder, "train.py"), marked_before(folder, "sweep.py")
    assert first is not None
    assert second is not None
    assert (str(folder / "before.tuirec"), 3) == (first.recording, first.step)
    assert (str(folder / "old" / "after.tuirec"), 7) == (second.recording, second.step)
    assert "before.tuirec" == json.loads((folder / FILE_NAME).read_text())["marks"][0]["recording"]
    mark_before(folder, str(folder / "before.tuirec"), "train.py", 9)
    assert [("sweep.py", 7), ("eval.py", 1), ("train.py", 9)] == [
        (each.label, each.step) for each in marks_before(folder)
    ]
    assert marked_before(folder, "other.py") is None


def test_marks_of_very_many_jobs_stay_readable(folder: Path) -> None:
    """The oldest give way: the file is not read beyond its limit."""
    for number in range(300):
        mark_before(folder, str(folder / "before.tuirec"), f"{'long' * 10}{number}.py", number)
    assert 299 == marks_before(folder)[-1].step
    assert 100 < len(marks_before(folder)) < 300


def test_what_b_says_is_whole_on_a_narrow_screen(folder: Path) -> None:
    """It was cut at 100 columns, and asked to type -o FILE although the key o does that itself."""
    said = mark_before(folder, str(folder / "nl.tuirec"), "train.py", 3, watches_next=True)
    assert (
        "nl.tuirec is the state before. Change one thing, start the job again: o watches it, 7 compares"
        == said
    )
    said = mark_before(folder, str(folder / "nl.tuirec"), "train.py", 3)
    assert "start the job again with -o FILE: 7 compares" in said
    assert len(said) < 100


def test_a_mark_that_is_damaged_is_said(folder: Path) -> None:
    """Nothing is compared with what was guessed."""
    assert marks_before(folder) == []
    for text in (
        "[]",
        "{",
        '{"recording": 3}',
        '{"recording": "a", "label": "b", "step": -1}',
        '{"marks": 3}',
        '{"marks": [[]]}',
    ):
        (folder / FILE_NAME).write_text(text)
        with pytest.raises(TuiadvisorError, match="no mark of a run"):
            marks_before(folder)


@pytest.mark.slow
def test_the_session_is_held_saved_and_resumed(desk: Desk, folder: Path) -> None:
    """Each answer is in the file beside the recording before the next is asked; a wrong one is refused."""
    desk.command(Advise())
    wait_until(lambda: "No run is open" in desk.desk().session_note)
    desk.command(OpenRun(str(folder / "before.tuirec")))
    desk.command(Advise())
    wait_until(lambda: desk.desk().session is not None)
    session = desk.desk().session
    assert session is not None
    assert ("tune", 6) == (session.decision, len(session.stages))
    assert "answers go to before.session.json" == session.saved
    desk.command(Answer("objective", "nonsense"))
    wait_until(lambda: "answer one of time" in desk.desk().answer)
    desk.command(Answer("objective", "cost"))
    wait_until(lambda: desk.desk().session is not session)
    file = folder / "before.session.json"
    assert b'"objective": "cost"' in file.read_bytes()
    again = Desk(None, folder)
    again.start()
    again.command(OpenRun(str(folder / "before.tuirec")))
    again.command(Advise())
    wait_until(lambda: again.desk().session is not None)
    resumed = again.desk().session
    assert resumed is not None
    assert "cost" in [asked.answer for stage in resumed.stages for asked in stage.asked]
    again.command(Answer("objective", ""))
    wait_until(lambda: again.desk().session is not resumed)
    assert b'"objective": "cost"' not in file.read_bytes()
    again.stop()


def test_the_live_run_goes_on_behind_a_recording(folder: Path) -> None:
    """A recording is shown and left again; without a live run there is no way back, and it is said."""
    live = ReplayFeed(ReplaySource(folder / "old" / "after.tuirec"))
    live.start()
    desk = Desk(live, folder)
    desk.start()
    try:
        assert desk.desk().has_live
        desk.command(OpenRun(str(folder / "before.tuirec")))
        wait_until(lambda: desk.desk().open_path != "")
        assert desk.latest() is not live.latest()
        desk.command(GoLive())
        wait_until(lambda: desk.desk().open_path == "")
        assert desk.latest() is live.latest()
    finally:
        desk.stop()
        live.stop()
    lonely = Desk(None, folder)
    lonely.start()
    lonely.command(GoLive())
    wait_until(lambda: "no live run" in lonely.desk().answer)
    lonely.stop()


def test_the_list_as_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal: a row each, and its verdict's sentence in one below; an unknown folder is one line."""
    assert 0 == main(["runs", str(folder), "--once"])
    text = capsys.readouterr().out
    assert "3 recordings" in text
    rows = text.splitlines()
    told = [row for row in rows if "rank 2 late by" in row]
    assert told
    assert all(row.startswith(" " * 4) and row.endswith(".") for row in told)
    assert max(len(row) for row in rows if not row.startswith(" " * 4)) <= 120
    assert 2 == main(["runs", str(folder / "nowhere")])
    assert "no such folder" in capsys.readouterr().err


def test_sizes_beside_the_run_are_read_and_what_is_stated_changes_the_picture(folder: Path) -> None:
    """On processors that ranks share one size says nothing; a table is fitted, and follows what is typed at once."""
    desk = Desk(None, folder, live_path=str(folder / "before.tuirec"))
    desk.start()
    try:
        desk.command(Scale())
        wait_until(lambda: desk.desk().scaling is not None and not desk.desk().scaling_note)
        picture = desk.desk().scaling
        assert picture is not None
        assert any("record this training at a second size" in text for text in picture.missing)
        assert any("torn.tuirec" in note for note in picture.notes)
    finally:
        desk.stop()


def test_what_is_said_of_reading_is_what_has_been_worked_through(folder: Path) -> None:
    """A small file is read ahead at once: 100 % stood there while its frames were folded, and while it was judged."""
    notes: list[str] = []

    class Watched(Sizing):
        def read(self, path: str, frames: Iterable[bytes]) -> None:
            notes.extend(desk.desk().scaling_note for _ in frames)
            notes.append(desk.desk().scaling_note)
            super().read(path, iter(()))

    desk = Desk(None, folder / "old", sizing=Watched(stated=Stated(Aim())))
    desk.start()
    try:
        desk.command(Scale())
        wait_until(lambda: desk.desk().scaling is not None and not desk.desk().scaling_note)
    finally:
        desk.stop()
    *reading, last = notes
    shares = [int(note.removeprefix("reading after.tuirec: ").removesuffix(" %")) for note in reading]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert len(set(shares)) >= 3
    assert shares[-1] < 100
    assert last == "after.tuirec is read: working out what it shows …"


def test_a_table_on_the_screen_follows_what_is_typed(tmp_path: Path) -> None:
    """A price changes the cost, a bad text is said and changes nothing."""
    table = tmp_path / "sizes.csv"
    table.write_text("devices,step_s,global_batch\n8,1.0,512\n16,0.53,512\n32,0.30,512\n")
    desk = Desk(None, tmp_path, sizing=Sizing(str(table), Stated(Aim(remaining_steps=36_000))))
    desk.start()
    try:
        desk.command(Scale())
        wait_until(lambda: desk.desk().scaling is not None)
        desk.command(StateSize("price", "2"))
        wait_until(lambda: cost_at(desk, 8) == pytest.approx(160.0))
        desk.command(NudgeSize("price", 1))
        wait_until(lambda: cost_at(desk, 8) == pytest.approx(176.0))
        desk.command(StateSize("price", "cheap"))
        wait_until(lambda: "not a positive number" in desk.desk().answer)
        desk.command(StateSize("candidates", "48"))
        wait_until(lambda: desk.desk().scaling.rows[-1].devices == 48)  # type: ignore[union-attr]
        assert cost_at(desk, 8) == pytest.approx(176.0)
    finally:
        desk.stop()


def cost_at(desk: Desk, devices: int) -> float:
    picture = desk.desk().scaling
    assert picture is not None
    return next(row.cost.expected for row in picture.rows if row.devices == devices and row.cost is not None)


def test_a_bad_table_is_one_line_before_anything_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, with the file and what is wrong in it."""
    table = tmp_path / "sizes.csv"
    table.write_text("devices,step_s\n8,fast\n")
    assert 2 == main(["scale", "--table", str(table), "--tui"])
    assert 2 == main(["replay", str(tmp_path / "none.tuirec"), "--table", str(table)])
    lines = capsys.readouterr().err.splitlines()
    assert 2 == len(lines)
    assert all("line 2: step_s 'fast' is not a positive number" in line for line in lines)
