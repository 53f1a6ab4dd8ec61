"""What a project's file states decides alike wherever a verdict is shown, and anew once it states something else."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from patience import wait_until
from synthetic_run import Job
from test_contents import recording
from test_import_ops import pipeline, written
from test_job_goodput import recording as of_job
from test_job_goodput import run as restarted
from test_scaling_one_run import STARVED

import tuiadvisor
from tuiadvisor.app.job_reader import told
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.running_hubs import Followed, Hub
from tuiadvisor.cli.commands import run
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.mcpserver.paths import Roots
from tuiadvisor.mcpserver.questions import Questions
from tuiadvisor.session.intent import FILE_NAME, Intent, changed, write_intent
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import End

RECORDED = Path(__file__).parents[1] / "recordings" / "h200" / "device-ahead.tuirec"
POOR = ["objective=time", "budget=0.01", "price_per_device_hour=2", "remaining_steps=1e6"]


@pytest.mark.slow
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


@pytest.fixture
def poor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose file states that there is next to no money."""
    monkeypatch.chdir(tmp_path)
    stated = changed(Intent(), dict(setting.split("=") for setting in POOR))
    write_intent(FILE_NAME, stated)
    return tmp_path


@pytest.mark.slow
def test_python_and_assistants_are_told_the_same(
    poor: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The whole document, and every other way to ask a run."""
    (poor / RECORDED.name).write_bytes(RECORDED.read_bytes())
    assert run(["diagnose", "--json", RECORDED.name]) == 0
    whole = json.loads(capsysbinary.readouterr().out)
    assert whole["verdict"]["decision"] == "stop"
    asked = tuiadvisor.open(RECORDED.name)
    assert json.loads(json.dumps(asked.diagnose())) == whole
    assert asked.verdict.decision == asked.summary()["tuiadvisor/decision"] == "stop"
    for shown in (repr(asked), asked.report(), asked._repr_html_()):
        assert "beyond the budget of 0.01" in shown
    ask = Questions(Roots([str(poor)]))
    assert ask.diagnose(RECORDED.name, ["economics"])["verdict"] == whole["verdict"]
    assert ask.diagnose(RECORDED.name, ["economics"])["economics"] == whole["economics"]
    (listed,) = ask.list_runs()["runs"]
    assert listed["decision"] == "stop"


@pytest.mark.slow
def test_an_intent_is_stated_in_python_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the options of diagnose: it wins over the file, and a mistake in either is said at once."""
    monkeypatch.chdir(tmp_path)
    assert tuiadvisor.open(RECORDED).verdict.decision == "tune"
    said = dict(setting.split("=") for setting in POOR)
    assert tuiadvisor.open(RECORDED, intent=said).verdict.decision == "stop"
    run(["intent", "--set", *POOR])
    assert tuiadvisor.open(RECORDED, intent={"budget": 1e9}).verdict.decision == "tune"
    with pytest.raises(TuiadvisorError, match="no key 'budge'"):
        tuiadvisor.open(RECORDED, intent={"budge": 1})
    Path(".tuiadvisor.toml").write_text("budget = -1\n")
    with pytest.raises(TuiadvisorError, match="budget is -1"):
        tuiadvisor.open(RECORDED)


def test_an_import_comes_to_the_same_decision(poor: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    table = str(written(poor / "table.csv", pipeline(range(30))))
    assert run(["import", "ops", table, "-o", "run.tuirec"]) == 0
    assert b"beyond the budget of 0.01" in capsysbinary.readouterr().out
    assert run(["import", "ops", table, "--json", "--verdict"]) == 0
    verdict = json.loads(capsysbinary.readouterr().out)["verdict"]
    assert run(["diagnose", "--json", "run.tuirec"]) == 0
    assert verdict == json.loads(capsysbinary.readouterr().out)["verdict"]
    assert verdict["decision"] == "stop"


def test_recordings_of_one_job_come_to_the_decisions_of_each(
    poor: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    names = []
    for at, before in ((0.0, 0), (3600.0, 200)):
        names.append(f"{before}.tuirec")
        of_job(poor / names[-1], restarted(at, before))
    assert run(["diagnose", "--json", *names]) == 0
    told_of_job = json.loads(capsysbinary.readouterr().out)["recordings"]
    for one in told_of_job:
        assert run(["diagnose", "--json", one["file"]]) == 0
        assert one["verdict"] == json.loads(capsysbinary.readouterr().out)["verdict"]
        assert one["verdict"]["decision"] == "stop"
    assert run(["diagnose", "--json", *names, "--budget", "1e9"]) == 0
    assert {"keep"} == {
        one["verdict"]["decision"] for one in json.loads(capsysbinary.readouterr().out)["recordings"]
    }


def test_sizes_are_judged_by_what_is_stated_by_every_command(
    poor: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (poor / "sizes.csv").write_text("devices,step_s\n1,1.0\n2,0.55\n4,0.3\n8,0.2\n")
    assert run(["scale", "--table", "sizes.csv", "--json"]) == 0
    decided = json.loads(capsysbinary.readouterr().out)["decision"]
    assert "within the budget of 0.01" in decided["because"]
    assert tuiadvisor.scale(table="sizes.csv")["decision"] == decided
    assert Questions(Roots([str(poor)])).scale(table="sizes.csv")["decision"] == decided


def test_one_run_is_judged_by_what_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """As on screen 6."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuiadvisor.cli.scale.parts_of", lambda *_: STARVED)
    recording(tmp_path / "a.tuirec", Job())

    def decision() -> str:
        assert run(["scale", "a.tuirec", "--predict", "4", "--json"]) == 0
        return str(json.loads(capsysbinary.readouterr().out)["decision"]["decision"])

    assert decision() == "keep"
    write_intent(FILE_NAME, Intent(objective="efficiency"))
    assert decision() == "stop"


def test_the_list_of_jobs_comes_to_the_same_decision(poor: Path) -> None:
    one = Followed(Hub(1, 2, str(recording(poor / "a.tuirec", Job())), "ipc:///run/viewers", ""))
    one.read(math.inf)
    shown = told(one)
    one.close()
    assert shown.decision == "stop"
    assert "beyond the budget of 0.01" in shown.sentence


def test_what_cannot_be_read_of_the_intent_is_said_beside_the_verdict(
    poor: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who only looks is not stopped, but the decision shown is one without what was stated."""
    (poor / RECORDED.name).write_bytes(RECORDED.read_bytes())
    (poor / ".tuiadvisor.toml").write_text("budget = -1\n")
    for words in (["replay", "--once"], ["open", "--once"]):
        assert run([*words, RECORDED.name]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "decided without what .tuiadvisor.toml states: budget is -1" in shown


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
