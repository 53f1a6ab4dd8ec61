"""Preferences: hostile until checked, one line with the line and key that is wrong, written whole or not at all."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as some
from patience import wait_until
from snapshot import desks, views
from unit.test_tui_navigator import Keyboard

from tuiadvisor.app import preferences_file as kept
from tuiadvisor.app.desk import Desk
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.preferences import OPTIONS, Preferences, changed, moved, parsed, shown, toml
from tuiadvisor.text import format as text_of
from tuiadvisor.tui.contract.desk import SavePreferences
from tuiadvisor.tui.control.app import Screens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHER = Preferences("light", "ascii", "ranks", "binary", 2.0, 0.7, 150.0)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's own, empty folder of settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    yield tmp_path / "config" / "tuiadvisor" / "preferences.toml"
    kept._held[0] = Preferences()
    text_of.use_binary_bytes(binary=False)


def test_what_is_written_is_read() -> None:
    """Every key, and a file without any."""
    assert OTHER == parsed(toml(OTHER), "file")
    assert Preferences() == parsed(toml(Preferences()), "file") == parsed("", "file")
    assert set(asdict(OTHER)) == {option.name for option in OPTIONS}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('theme = "neon"', "line 1: theme is 'neon'; write auto, dark, light, terminal"),
        ('\n\n"glyphs" = 3', "line 3: glyphs is 3; write auto, ascii"),
        ("colour = 1", "line 1: 'colour' is not a preference; known: theme"),
        (
            "efficiency_floor = 0.8",
            "line 1: 'efficiency_floor' is not a preference; it belongs below [thresholds]",
        ),
        (
            '[thresholds]\ntheme = "dark"',
            "line 2: 'theme' is not a preference; it belongs above [thresholds]",
        ),
        (
            "[thresholds]\n\nefficiency_floor = 3",
            "line 3: efficiency_floor is 3; write a number from 0.1 to 1",
        ),
        ("thresholds.slow_line_ms = nan", "line 1: slow_line_ms is nan; write a number from 50 to 10000"),
        ('refresh_s = "1"', "line 1: 'refresh_s' is a text; write a number"),
        ("refresh_s = true", "line 1: refresh_s is True; write a number"),
        ("refresh_s = 9e999", "line 1: refresh_s is inf"),
        ("thresholds = 4", "line 1: 'thresholds' is not a table; write [thresholds]"),
        ("theme = ", "not TOML"),
        ('theme = "dark"\ntheme = "light"', "not TOML"),
        ("theme = [" * 5000, "not TOML"),
        pytest.param("refresh_s = " + "9" * 5000, "not TOML", id="5000 digits"),
        ('"\\u001b[2J" = 1', "x1b[2J' is not a preference"),
    ],
)
def test_a_bad_file_is_one_line_with_line_and_key(text: str, said: str) -> None:
    """Nothing a terminal would obey comes out."""
    with pytest.raises(TuiadvisorError) as caught:
        parsed(text, "preferences.toml")
    message = str(caught.value)
    assert message.startswith("preferences.toml")
    assert said in message
    assert message.isprintable()


@given(some.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Never another exception."""
    try:
        parsed(text, "file")
    except TuiadvisorError as error:
        assert str(error).isprintable()  # noqa: PT017 - most texts are refused, some are not


@pytest.mark.parametrize(
    "command", [["runs"], ["replay", "none.tuirec"], ["watch"], ["scale", "--table", "x", "--tui"]]
)
def test_a_bad_file_ends_the_command_with_two(
    file: Path, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a training is touched; scripts, which see no screens, do not read it."""
    file.parent.mkdir(parents=True)
    file.write_text('theme = "neon"\n')
    monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    assert 2 == main(command)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{file} line 1: theme is 'neon'" in line
    if command == ["runs"]:
        assert 0 == main(["runs", str(file.parent), "--once"])


def test_what_is_no_file_is_refused(file: Path) -> None:
    """A folder, a pipe that nobody writes, too much, other bytes."""
    file.parent.mkdir(parents=True)
    file.mkdir()
    with pytest.raises(TuiadvisorError, match="is no file"):
        kept.read(file)
    file.rmdir()
    os.mkfifo(file)
    with pytest.raises(TuiadvisorError, match="is no file"):
        kept.read(file)
    file.unlink()
    file.write_bytes(b"#" * (kept.MAX_BYTES + 1))
    with pytest.raises(TuiadvisorError, match="larger than 64 KiB"):
        kept.read(file)
    file.write_bytes(b"\n\xff")
    with pytest.raises(TuiadvisorError, match="line 2: not UTF-8"):
        kept.read(file)


def test_saving_replaces_the_whole_file_and_keeps_a_link(file: Path, tmp_path: Path) -> None:
    """A new file for the owner alone; a link into a folder of dotfiles stays one; nothing is left beside."""
    assert file == kept.path()
    kept.save(OTHER)
    assert OTHER == kept.load() == kept.current()
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    dotfile = tmp_path / "dotfiles.toml"
    file.replace(dotfile)
    file.symlink_to(dotfile)
    kept.save(Preferences())
    assert file.is_symlink()
    assert "auto" == tomllib.loads(dotfile.read_text())["theme"]
    assert [file.name] == [path.name for path in file.parent.iterdir()]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file stands where the folder would be."""
    (tmp_path / "config").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(TuiadvisorError, match="cannot be written"):
        kept.save(OTHER)


def test_a_relative_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the XDG convention says."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".config" / "tuiadvisor" / "preferences.toml" == kept.path()


def test_steps_stay_within_their_ends_and_choices_go_round() -> None:
    """Left and right."""
    assert "light" == moved(moved(Preferences(), "theme", 1), "theme", 1).theme
    assert "terminal" == moved(Preferences(), "theme", -1).theme
    assert 0.85 == moved(Preferences(), "efficiency_floor", 1).efficiency_floor
    assert 0.2 == moved(replace(Preferences(), refresh_s=0.25), "refresh_s", -1).refresh_s
    assert "0.5" == shown(Preferences(), "refresh_s")
    with pytest.raises(TuiadvisorError, match="write a number from"):
        changed(Preferences(), "refresh_s", "fast")


def test_each_key_of_the_page() -> None:
    """Arrows change and save, enter types a number, a wrong one is said; escape goes back to where one was."""
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk())
    text = keyboard.press("2", ",")
    for option in OPTIONS:
        assert option.label in text
    keyboard.press("right")
    assert "dark" == keyboard.shell.preferred[-1].theme
    assert SavePreferences(keyboard.shell.preferred[-1]) == keyboard.shell.asked[-1]
    keyboard.press("enter", "left", "left")
    assert "auto" == keyboard.shell.preferred[-1].theme
    keyboard.press("down", "down", "down", "down", "enter", "ctrl+u", *"2.5", "enter")
    assert 2.5 == keyboard.shell.preferred[-1].refresh_s
    num_saved = len(keyboard.shell.asked)
    assert "write a number from 0.2 to 10" in keyboard.press("enter", "ctrl+u", *"99", "enter")
    keyboard.press("enter", "escape")
    assert num_saved == len(keyboard.shell.asked)
    assert "on preferences" in keyboard.press("?")
    keyboard.press("escape", "escape")
    assert "ranks" == keyboard.page
    assert "preferences" in keyboard.press(":", *"preferences", "enter")


@pytest.mark.slow
async def test_the_application_follows_at_once() -> None:
    """Colours, glyphs, units and the pace."""
    beside = desks.FakeDesk(desks.desk())
    app = Screens(views.FakeFeed(views.live(views.straggler())), theme="dark", ascii_only=False, desk=beside)
    async with app.run_test(size=(80, 24)) as pilot:
        before = app._ticks
        await pilot.press("comma", "right", "right", "down", "right")
        assert ("light", True) == (app.colour_theme, app.canvas.ascii_only)
        assert app.canvas.render_line(5).text.isascii()
        await pilot.press("down", "down", "right", "down", "right")
        assert "1.00 KiB" == text_of.num_bytes(1024)
        assert app._ticks is not before
        await pilot.press("up", "right")
    assert "1.02 kB" == text_of.num_bytes(1024)
    saved = [command.preferences for command in beside.commands if isinstance(command, SavePreferences)]
    assert saved[-1] == replace(Preferences(), theme="light", glyphs="ascii", refresh_s=0.6)


def test_preferred_screens_come_up_as_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the environment wins over the file."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("TUIADVISOR_THEME", raising=False)
    feed = views.FakeFeed(views.live(views.straggler()))
    app = Screens(feed, first_page=OTHER.first_screen, preferences=OTHER)
    assert ("light", True, "ranks") == (app.colour_theme, app.canvas.ascii_only, app.place.page.name)
    assert 0.15 == app.slow_line_s
    monkeypatch.setenv("TUIADVISOR_THEME", "dark")
    assert "dark" == Screens(feed, preferences=OTHER).colour_theme
    text_of.use_binary_bytes(binary=False)


def test_the_desk_writes_them(file: Path, tmp_path: Path) -> None:
    """And says where."""
    desk = Desk(None, tmp_path)
    desk.start()
    try:
        desk.command(SavePreferences(OTHER))
        wait_until(lambda: "saved in" in desk.desk().answer)
        assert OTHER == kept.read(file)
    finally:
        desk.stop()


def test_a_number_has_its_unit() -> None:
    """Without it stood "refresh every 0.5", "slow line from 300" and "quiet from 0", but where the cursor stood."""
    keyboard = Keyboard(views.live(views.healthy()))
    drawn = keyboard.press(",")
    for label, value in {
        "refresh every": "0.5 s",
        "slow line from": "300 ms",
        "ring again after": "0 min",
        "quiet from": "0 h",
        "efficiency floor": "0.8  0.1 to 1",
    }.items():
        (row,) = [row for row in drawn.splitlines() if label in row]
        assert value in row
