"""`tuiadvisor intent` and `tuiadvisor advise` as scripts and people use them."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from synthetic_run import MS, Fault, Job, encoded, frames

from tuiadvisor.cli.advise import ask_all
from tuiadvisor.cli.commands import run
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.intent import Intent, checked, read_intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.text.format import share
from tuiadvisor_rules.questions import load_questions

RUN = encode(
    FrameKind.RUN, "hub", 0, 0, {"schema": 1, "tuiadvisor": "0.1.0", "created_wall_ns": 1_700_000_000 * 10**9}
)


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a recording of a late rank."""
    monkeypatch.chdir(tmp_path)
    writer = RecordingWriter("late.rec", RUN)
    for frame in frames(Job(faults=(Fault("data", (2,), 6 * MS),))):
        writer.append(encoded(frame))
    writer.close()
    return tmp_path


def test_intent_is_written_read_and_taken_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was not stated is said so, never filled in."""
    assert 0 == run(
        ["intent", "--set", "objective=cost", "deadline=2d", "--set", "price_per_device_hour=2.5"]
    )
    assert Intent(objective="cost", deadline_h=48, price_per_device_hour=2.5) == read_intent(
        ".tuiadvisor.toml"
    )
    shown = capsys.readouterr()
    assert "budget                 not stated" in shown.out
    assert "written to .tuiadvisor.toml\n" == shown.err
    assert 0 == run(["intent", "--set", "objective="])
    assert Intent(deadline_h=48, price_per_device_hour=2.5) == read_intent(".tuiadvisor.toml")
    assert 0 == run(["intent", "--json"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("objektive=time", "no key 'objektive'; did you mean 'objective'?"),
        ("objective=fast", "objective is 'fast'; write time, efficiency, cost"),
        ("price=2.5", "did you mean 'price_of_time' or 'price_per_device_hour'?"),
        ("budget=-1", "budget is '-1', not a positive number"),
        ("budget=nan", "budget is 'nan'"),
        ("price_per_device_hour=0", "not a positive number"),
        ("deadline=soon", "not a duration like 12h"),
        ("remaining_steps=1e400", "remaining_steps"),
        ("objective", "write key=value"),
        ("workload=\x1b[2J", "one printable line"),
    ],
)
def test_a_wrong_setting_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], setting: str, says: str
) -> None:
    """What, and what to write instead; the file stays as it was."""
    assert 2 == run(["intent", "--set", setting])
    error = capsys.readouterr().err
    assert says in error
    assert 1 == error.count("\n")
    assert not Path(".tuiadvisor.toml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["objective = 3", "x = 1", "objective = ", "\xff", "[budget]\na = 1", "budget = true"]
)
def test_a_wrong_intent_file_is_one_line_with_its_name(
    here: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """People edit it."""
    Path("mine.toml").write_bytes(text.encode("latin-1"))
    assert 2 == run(["advise", "late.rec", "--intent", "mine.toml"])
    error = capsys.readouterr().err
    assert "mine.toml" in error
    assert 1 == error.count("\n")


def test_restart_may_cost_nothing_but_a_device_may_not() -> None:
    """Zero is a statement where it can be true."""
    assert 0 == checked("restart_min", "0")


@pytest.mark.slow
def test_advise_writes_what_it_shows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text, JSON, Markdown, a saved session with its answers, resumed."""
    Path("answers.toml").write_text('effort_hours = 4\nreproducible = true\nobjective = "time"\n')
    common = ["advise", "late.rec", "--session", "session.json"]
    assert 0 == run([*common, "--answers", "answers.toml", "--json", "-o", "session.md"])
    document = json.loads(capsys.readouterr().out)
    assert "tune" == document["decision"]["decision"]
    assert {"effort_hours": 4.0, "reproducible": "yes", "objective": "time"} == document["answers"]
    assert "# Session on late.rec" in Path("session.md").read_text()
    assert 0 == run([*common, "--json"])
    assert document == json.loads(capsys.readouterr().out)
    assert document == json.loads(Path("session.json").read_text())


@pytest.mark.slow
def test_stated_work_is_the_same_in_every_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What diagnose says of FLOPs and peak that were stated, the session and the report say, too."""
    stated = ["--flops-per-step", "2e9", "--peak-flops", "1e11"]
    assert 0 == run(["diagnose", "late.rec", "--json", *stated])
    mfu = json.loads(capsys.readouterr().out)["efficiency"]["mfu"]
    assert mfu is not None
    Path("answers.toml").write_text("")
    assert 0 == run(["advise", "late.rec", "--answers", "answers.toml", *stated])
    assert f"- MFU: {share(mfu)} of what the devices could compute" in capsys.readouterr().out
    assert 0 == run(["report", "late.rec", "-o", "report.md", *stated])
    assert f"- MFU: {share(mfu)} of 100 GFLOP/s" in Path("report.md").read_text()
    assert 2 == run(["report", "late.rec", "late.rec", "-o", "report.md", *stated])
    assert "--flops-per-step: it is stated of one run" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.rec"], "nothing.rec"),
        (["late.rec", "--answers", "none.toml"], "none.toml: cannot be read"),
        (["late.rec", "--answers", "bad.toml"], "bad.toml: no question 'effort_hour'; did you mean 'effort_hours'?"),
        (["late.rec", "--answers", "late.rec"], "late.rec: neither TOML nor JSON"),
        (["late.rec", "-o", "session.txt"], "written as .md or .json"),
        (["late.rec", "--session", "bad.toml"], "not a saved session"),
        (["late.rec", "--objective", "speed"], "objective is 'speed'"),
        (["late.rec", "--remaining-steps", "many"], "remaining_steps is 'many'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    """Exit code 2, no traceback."""
    Path("bad.toml").write_text("effort_hour = 4\n")
    assert 2 == run(["advise", *arguments])
    error = capsys.readouterr().err
    assert says in error
    assert 1 == error.count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["idle", "allreduce", "batch", "devices"])
def test_four_questions_in_plain_words(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """From the run's own numbers, and honest about the rest."""
    assert 0 == run(["advise", "late.rec", "--why", name])
    text = capsys.readouterr().out
    assert " ms" in text or " %" in text
    assert "Not known from this" in text


@pytest.mark.slow
def test_diagnose_adds_what_the_rest_costs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Additive: the keys of the document stay, unknown is null."""
    assert 0 == run(["diagnose", "late.rec", "--json"])
    nothing = json.loads(capsys.readouterr().out)["economics"]
    assert nothing["remaining_cost"] is None
    assert {"objective", "price_per_device_hour"} <= set(nothing["not_stated"])
    stated = [
        "--remaining-steps",
        "1000000",
        "--price-per-device-hour",
        "2",
        "--deadline",
        "1h",
        "--budget",
        "5",
    ]
    assert 0 == run(["diagnose", "late.rec", "--json", *stated])
    said = json.loads(capsys.readouterr().out)["economics"]
    assert said["remaining_cost"] == pytest.approx(8 * said["remaining_h"])
    assert said["saved_h"] is None, "the budget ends it"
    assert said["meets_deadline"] is False
    assert said["within_budget"] is False
    stated[-1] = "1e9"
    assert 0 == run(["diagnose", "late.rec", "--json", *stated])
    said = json.loads(capsys.readouterr().out)["economics"]
    assert 0 < said["saved_h"]["low"] < said["saved_h"]["expected"]
    assert said["within_budget"] is True
    assert 0 == run(["diagnose", "late.rec", *stated])
    assert "break-even" in capsys.readouterr().out


def test_a_rest_that_would_never_end_says_why_its_hours_are_unknown(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "unknown" alone, and advise to state the steps that were stated."""
    assert 0 == run(["intent", "--set", "failures_per_day=1e6", "restart_min=600", "remaining_steps=1e6"])
    capsys.readouterr()
    assert 0 == run(["diagnose", "late.rec", "--json"])
    said = json.loads(capsys.readouterr().out)["economics"]
    assert said["remaining_h"] is None
    assert "nothing would ever finish" in said["contradiction"]
    assert 0 == run(["diagnose", "late.rec"])
    assert "nothing would ever finish" in capsys.readouterr().out
    assert 0 == run(["advise", "late.rec"])
    told = capsys.readouterr().out
    assert "nothing would ever finish" in told
    assert "--set remaining_steps=N" not in told


@pytest.mark.slow
def test_a_person_is_asked_one_question_at_a_time(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong answer is asked again, ? tells how to measure, q decides at once."""
    from tuiadvisor.advisor.fold import diagnose
    from tuiadvisor.app.progress import read_frames

    view, questions = diagnose(read_frames("late.rec")), load_questions()
    replies = iter(["?", "perhaps", "?", "yes", "", "q"])
    asked: list[str] = []

    def read(prompt: str) -> str:
        asked.append(prompt)
        return next(replies)

    def hold(given: dict[str, str | float], last: str, skipped: Collection[str]) -> Session:
        return conduct([Recorded("late.rec", view)], Intent(), given, questions, last=last, skipped=skipped)

    session = ask_all(hold, {}, read)
    shown = capsys.readouterr().out
    assert 6 == len(asked)
    assert 3 == len({*asked}), "an answer and a skip each lead to another question"
    assert "not a probability" in shown
    assert "ONE change: " in shown
    assert 2 == shown.count("Measure it:")
    assert "  'perhaps'; answer yes or no" in shown
    assert ["yes"] == list(session.answers.values())
    assert "tune" == session.decision.decision


@pytest.mark.slow
def test_price_deadline_and_remaining_steps_decide_in_the_dialogue(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that costs more than the rest of the run brings is not made; a long run at a price pays it."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)

    def told(remaining: str) -> str:
        given = {"How many steps of this run remain": remaining, "What does one device cost": "30",
                 "How many hours of an engineer": "40"}  # fmt: skip
        monkeypatch.setattr(
            "builtins.input", lambda ask: next((text for start, text in given.items() if start in ask), "")
        )
        assert 0 == run(["advise", "late.rec", "--objective", "cost", "--deadline", "12h"])
        return capsys.readouterr().out

    short, long = told("50"), told("1000000000")
    assert "## Decision: tune" in long
    assert "## Decision: tune" not in short
    assert "decision: tune -> " in short, "the answer that changed it says so"


@pytest.mark.slow
def test_answers_are_kept_when_the_user_leaves_amid_a_question(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--session promises to save what was given."""
    replies = iter(["yes"])

    def ask(_asked: object, _read: object) -> str:
        try:
            return next(replies)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("tuiadvisor.cli.advise._ask", ask)
    assert 130 == run(["advise", "late.rec", "--session", "s.json"])
    assert ["yes"] == list(json.loads((here / "s.json").read_text())["answers"].values())


@pytest.mark.parametrize(
    "text",
    ["budget = " + "9" * 5000, "budget = " + "[" * 5000, "budget = \xff"],
    ids=["digits", "brackets", "bytes"],
)
def test_an_intent_that_python_cannot_hold_is_one_line(tmp_path: Path, text: str) -> None:
    """Digits and brackets without end are no TOML error to Python."""
    path = tmp_path / "intent.toml"
    path.write_bytes(text.encode("latin1"))
    with pytest.raises(TuiadvisorError, match="not TOML") as caught:
        read_intent(path)
    assert "\n" not in str(caught.value)
