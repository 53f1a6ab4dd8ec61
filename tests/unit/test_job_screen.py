"""The job on the screens: one waterfall over the run that is shown and what of the folder is of its job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import wait_until
from snapshot import desks, views
from test_job_goodput import HOUR_S, recording, run, view
from unit.test_tui_navigator import Keyboard
from unit.test_tui_pages import SIZES, screen

from tuiadvisor.advisor.judge.job import job_view
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.job_of_run import ALONE, MAX_RECORDINGS, job_of, worth_reading
from tuiadvisor.tui.contract.desk import LookAtJob, OpenRun
from tuiadvisor.views.run_list import RunEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.tui.contract.desk import DeskState


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two recordings of one job, one of another script, one that is none."""
    recording(tmp_path / "a.tuirec", run(0.0, 0))
    recording(tmp_path / "b.tuirec", run(HOUR_S, 150, seed=1))
    recording(tmp_path / "other.tuirec", run(2 * HOUR_S, 0, label="other.py"))
    (tmp_path / "torn.tuirec").write_bytes(b"no recording at all")
    return tmp_path


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    found = Desk(None, folder)
    found.start()
    yield found
    found.stop()


def test_the_job_of_an_open_recording_holds_its_restart(desk: Desk, folder: Path) -> None:
    """The same figure as `diagnose A B`; a recording of another script and a damaged one do not matter."""
    desk.command(LookAtJob())
    wait_until(lambda: "No run is open" in desk.desk().job_note)
    desk.command(OpenRun(str(folder / "b.tuirec")))
    wait_until(lambda: desk.desk().open_path.endswith("b.tuirec"))
    desk.command(LookAtJob())
    wait_until(lambda: desk.desk().job is not None)
    job = desk.desk().job
    assert job is not None
    assert [Path(one.name).name for one in job.recordings] == ["a.tuirec", "b.tuirec"]
    told = job_view([("a", view(0.0, 0)), ("b", view(HOUR_S, 150, seed=1))])
    assert job.goodput.end_to_end == pytest.approx(told.goodput.end_to_end)
    assert job.goodput.steps_done_again == 50


def test_a_run_alone_says_what_is_missing() -> None:
    found = job_of(("a", view(0.0, 0)), [])
    assert found.notes == (ALONE,)
    assert found.goodput.end_to_end == pytest.approx(view(0.0, 0).wall.end_to_end)  # type: ignore[union-attr]


def test_what_cannot_be_of_the_job_is_left_out_with_its_reason() -> None:
    """A recording of the same time is of the same script, and yet not a part of the job."""
    found = job_of(("a", view(0.0, 0)), [("b", view(0.5, 0, seed=2)), ("c", view(HOUR_S, 150, seed=1))])
    assert [one.name for one in found.recordings] == ["a", "c"]
    assert any("of the same time" in note for note in found.notes)
    other = job_of(("a", view(0.0, 0)), [("o", view(HOUR_S, 0, label="other.py"))])
    assert other.notes == (ALONE,)


def test_what_was_read_as_another_script_is_not_read_again() -> None:
    def entry(name: str, state: str, label: str = "") -> RunEntry:
        return RunEntry(name, name, "", 1, state, label=label)  # type: ignore[arg-type]

    entries = [entry("own", "read", "train.py"), entry("same", "read", "train.py"), entry("new", "unread")]
    entries += [entry("another", "read", "other.py"), entry("torn", "broken")]
    assert worth_reading(entries, "train.py", {"own", ""}) == ("same", "new")
    many = [entry(str(number), "unread") for number in range(40)]
    assert len(worth_reading(many, "train.py", ())) == MAX_RECORDINGS


def of_job() -> DeskState:
    job = job_of(("/runs/b.tuirec", view(HOUR_S, 150, seed=1)), [("/runs/a.tuirec", view(0.0, 0))])
    return desks.desk(job=job)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("is_known", [True, False])
def test_it_fits(size: tuple[int, int], *, is_known: bool) -> None:
    desk = of_job() if is_known else desks.desk(job_note="reading a.tuirec: 40 %")
    assert screen(views.live(views.straggler()), *size, keys=("J",), desk=desk)


def test_the_key_asks_for_it_and_enter_opens_a_recording() -> None:
    keyboard = Keyboard(views.live(views.straggler()), desk=of_job())
    text = keyboard.press("J")
    assert LookAtJob() in keyboard.shell.asked
    assert "2 recordings of one job" in text
    assert "steps done again" in text
    keyboard.press("down", "enter")
    assert OpenRun("/runs/a.tuirec") in keyboard.shell.asked
