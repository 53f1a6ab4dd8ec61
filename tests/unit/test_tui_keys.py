"""Every key of the list in Textual's own test terminal: it does something, or says why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from snapshot import views
from unit.test_tui_app import screens, text_of

from tuiadvisor.tui.contract.feed import FeedState, Quit
from tuiadvisor.tui.control.registry import command_table

# What Textual calls the characters.
NAMES = {
    "?": "question_mark",
    ":": "colon",
    "/": "slash",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    "{": "left_curly_bracket",
    "}": "right_curly_bracket",
    ",": "comma",
}
# Pressed before, where the second screen alone leaves nothing to do.
BEFORE = {"ranks": ("1",), "open_all": ("2", "a")}
KEYS = [(command.name, key) for command in command_table().commands for key in command.keys]


@pytest.mark.slow
@pytest.mark.parametrize(
    "state",
    [
        pytest.param(views.live(views.straggler()), id="live"),
        pytest.param(views.replay(), id="replay", marks=pytest.mark.extended),
    ],
)
@pytest.mark.parametrize(("name", "key"), KEYS, ids=[f"{name}-{key}" for name, key in KEYS])
async def test_every_key_is_answered(
    name: str, key: str, state: FeedState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another picture, a command to the feed, or a word why not; drawing anew changes nothing and leaving ends."""
    monkeypatch.chdir(tmp_path)  # pictures and reports lie there
    monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", str(tmp_path))
    app, feed = screens(state)
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press(*BEFORE.get(name, ("2",)))
        await pilot.pause()
        before, num_commands = text_of(app), len(feed.commands)
        await pilot.press(NAMES.get(key, key))
        await pilot.pause()
        if name == "quit":
            assert Quit() in feed.commands
        elif name == "redraw":
            assert before == text_of(app)
        else:
            assert before != text_of(app) or len(feed.commands) > num_commands
