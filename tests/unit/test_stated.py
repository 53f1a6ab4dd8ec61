"""What a project's file states decides alike wherever a verdict is shown, and anew once it states something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from patience import wait_until

from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.cli.commands import run
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import End

RECORDED = Path(__file__).parents[1] / "recordings" / "h200" / "device-ahead.tuirec"
POOR = ["objective=time", "budget=0.01", "price_per_device_hour=2", "remaining_steps=1e6"]


def test_every_command_comes_to_the_same_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / RECORDED.name).write_bytes(RECORDED.read_bytes())
    assert run(["intent", "--set", *POOR]) == 0
    capsys.readouterr()
    said = {}
    for words in (
        ["diagnose"], ["replay", "--once"], ["open", "--once"], ["advise"], ["report", "-o", "report.md"],
        ["report", "-o", "report.html"],
    ):  # fmt: skip
        assert run([*words, RECORDED.name]) == 0
        shown = capsys.readouterr().out
        said[tuple(words)] = Path(words[2]).read_text() if words[0] == "report" else shown
    assert run(["runs", "--once"]) == 0
    said["runs",] = capsys.readouterr().out
    without = [
        words for words, shown in said.items() if "beyond the budget of 0.01" not in " ".join(shown.split())
    ]
    assert without == []


def test_a_changed_intent_decides_anew_while_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the budget of before nor what was decided for it is held."""
    monkeypatch.chdir(tmp_path)
    run(["intent", "--set", *POOR])
    feed = ReplayFeed(ReplaySource(str(RECORDED)))
    feed.command(End())
    feed.start()

    def decision() -> str | None:
        view = feed.latest().view
        return None if view is None else view.decided.decision

    try:
        wait_until(lambda: decision() == "stop")
        run(["intent", "--set", "budget=1000"])
        wait_until(lambda: decision() == "tune")
        run(["intent", "--set", "budget=0.01"])
        wait_until(lambda: decision() == "stop")
    finally:
        feed.stop()
