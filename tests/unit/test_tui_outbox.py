"""What leaves the screens: pictures, copied text, bookmarks, the log."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import wait_until
from snapshot import desks, views
from synthetic_run import Job
from unit.test_contents import recording
from unit.test_tui_navigator import Keyboard

from tuiadvisor.app.bookmarks import bookmark_file, bookmarks, save_bookmark
from tuiadvisor.app.desk import Desk
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.tui.contract.desk import Bookmark, OpenRun, Report
from tuiadvisor.tui.contract.feed import Pause, PreviousFinding
from tuiadvisor.tui.control import clipboard
from tuiadvisor.tui.control.app import Screens
from tuiadvisor.tui.pages.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path


def test_copied_text_reaches_the_terminal_by_osc_52() -> None:
    """As base64; not where there is no terminal, and not when it is too long for one."""
    sequence = clipboard.clipboard_sequence("rank 2\n", {"TERM": "xterm-256color"})
    assert sequence.startswith("\x1b]52;c;")
    assert b"rank 2\n" == base64.b64decode(sequence[7:-1])
    assert "" == clipboard.clipboard_sequence("rank 2", {"TERM": "dumb"})
    assert "" == clipboard.clipboard_sequence("x" * 80_000, {"TERM": "xterm"})


def test_a_copied_page_is_whole(tmp_path: Path) -> None:
    """All ranks, not only those on the screen; the file is the owner's alone and no link is followed."""
    keyboard = Keyboard(views.live(views.many(200)))
    keyboard.press("2", "y")
    copied = keyboard.shell.copied[-1]
    assert "gpu024" in copied
    assert 400 <= copied.count("\n") < 460  # what all do, and the phases of each
    assert "copied" in keyboard.draw().splitlines()[-1]
    keyboard.press("1", "y")
    assert "expected speed-up" in keyboard.shell.copied[-1]
    path = tmp_path / "tuiadvisor" / "copied.txt"
    assert path == clipboard.copy_file({"XDG_CACHE_HOME": str(tmp_path)})
    clipboard.write_private(path, "a")
    clipboard.write_private(path, "b")
    assert "b" == path.read_text()
    assert 0o600 == path.stat().st_mode & 0o777
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        clipboard.write_private(path, "c")


async def test_a_picture_is_saved_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new SVG each time, without anything to fetch."""
    monkeypatch.chdir(tmp_path)
    app = Screens(views.FakeFeed(views.live(views.straggler())), theme="dark", ascii_only=False)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("I")
        await pilot.press("I")
        assert "saved tuiadvisor-" in app.canvas.render_line(23).text
    pictures = saved_pictures(tmp_path)
    assert 2 == len(pictures)
    text = pictures[0].read_text()
    assert "TUNE" in text
    assert "@font-face" not in text


def saved_pictures(folder: Path) -> list[Path]:
    return sorted(folder.glob("tuiadvisor-*.svg"))


def test_bookmarks_are_kept_beside_the_recording(tmp_path: Path) -> None:
    """In step order with their notes; a damaged file is said and left alone."""
    path = str(tmp_path / "run.tuirec")
    assert () == bookmarks(path)
    assert "step 40 is marked, in run.bookmarks.json" == save_bookmark(path, 40, "slow here")
    save_bookmark(path, 7, "")
    assert ((7, "bookmark"), (40, "note: slow here")) == bookmarks(path)
    for damaged in (
        "{}",
        "[1]",
        '[{"step": -1, "note": ""}]',
        '[{"step": 1, "note": "\\u001b"}]',
        "[" * 5000,
    ):
        bookmark_file(path).write_text(damaged)
        with pytest.raises(TuiadvisorError, match=r"run\.bookmarks\.json"):
            bookmarks(path)
    assert "until you leave" in save_bookmark(str(tmp_path / "nowhere" / "run.tuirec"), 1, "")


def marked(desk: Desk) -> list[tuple[str, int | None, str]]:
    return [(each.kind, each.step, each.words) for each in desk.latest().events if each.kind == "bookmark"]


def test_b_marks_the_step_with_a_note_and_the_mark_is_found_again(tmp_path: Path) -> None:
    """On the time line at once, in the file for the next time; { stands on it and shows the note."""
    keyboard = Keyboard(views.replay(paused=True), desk=desks.desk())
    keyboard.press("b", *"warm", "enter")
    assert Bookmark(341, "warm") == keyboard.shell.asked[-1]
    path = str(recording(tmp_path / "run.tuirec", Job(num_steps=120)))
    desk = Desk(None, tmp_path)
    desk.start()
    try:
        desk.command(OpenRun(path))
        wait_until(lambda: desk.latest().replay is not None)
        desk.command(Bookmark(50, "warm"))
        wait_until(lambda: "run.bookmarks.json" in desk.desk().answer)
        desk.command(Pause())
        desk.command(PreviousFinding())
        wait_until(lambda: (view := desk.latest().view) is not None and view.last_step == 50)
        replay = desk.latest().replay
        assert replay is not None
        assert "note: warm" in [name for _, name in replay.marks]
        assert [("bookmark", 50, "note: warm")] == marked(desk)
        text = Keyboard(desk.latest()).draw()
        assert "▲ note: warm" in text
    finally:
        desk.stop()
    again = Desk(None, tmp_path)
    again.start()
    try:
        again.command(OpenRun(path))
        wait_until(lambda: [("bookmark", 50, "note: warm")] == marked(again))
    finally:
        desk.stop()


def test_a_report_is_written_from_any_screen(tmp_path: Path) -> None:
    """Beside its recording, of the step that is shown; without a run it is said."""
    path = str(recording(tmp_path / "run.tuirec", Job(num_steps=60)))
    desk = Desk(None, tmp_path)
    desk.start()
    try:
        desk.command(Report())
        wait_until(lambda: "no run is open" in desk.desk().answer)
        desk.command(OpenRun(path))
        wait_until(lambda: (view := desk.latest().view) is not None and view.last_step == 59)
        desk.command(Report())
        wait_until(lambda: "run-step59.html" in desk.desk().answer)
        assert (tmp_path / "run-step59.html").read_text().startswith("<!doctype html>")
    finally:
        desk.stop()


def test_the_log_keeps_what_is_new() -> None:
    """Attaching, ranks that come and go, losses, findings; the same state twice is nothing new."""
    journal = Journal()
    journal.observe("10:00:00", views.attaching())
    journal.observe("10:00:01", views.live(views.straggler()))
    journal.observe("10:00:02", views.live(views.straggler()))
    before = len(journal.entries)
    journal.observe("10:00:03", views.live(views.straggler()))
    assert before == len(journal.entries)
    journal.observe("10:00:04", views.live(views.lost_ranks()))
    journal.observe("10:00:05", views.hub_lost())
    texts = [entry.text for entry in journal.entries]
    for part in (
        "attaching 2/4",
        "Injecting into pid 41202.",
        "ranks 0\u20133 ● live",
        "finding: Rank 2 reads its data late",
        "rank 1 ✖ killed: killed by SIGKILL after step 341",
        "1,204 events dropped",
        "hub lost",
    ):
        assert part in texts
    keyboard = Keyboard(views.live(views.straggler()))
    keyboard.place.take_state(views.live(replace(views.lost_ranks(), ended="run finished")))
    assert "run finished" in keyboard.press("L")
    assert "overview" == (keyboard.press("escape"), keyboard.page)[1]
