"""What a newcomer meets first: wrong commands, a process that is no training, single steps of a replay."""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import wait_until
from synthetic_run import Fault, Job, encoded, final_view, frames

from tuiadvisor.advisor.judge.findings import catalog, with_process
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.cli import main
from tuiadvisor.cli import replay as replay_command
from tuiadvisor.cli.replaying import begin
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.text import evidence
from tuiadvisor.tui.contract.feed import Pause, PreviousFinding, Resume, SeekStep, Step

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job(num_ranks=4, num_steps=100, faults=(Fault("backward", (2,), 0.015),))
RUN = encode(FrameKind.RUN, "hub", 0, 0, {"label": "train.py"})


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        (
            "tuiadvisor: no command 'wach'; did you mean watch?; tuiadvisor --help shows what there is",
            ["wach"],
        ),
        (
            "tuiadvisor replay: the following arguments are required: FILE; tuiadvisor replay --help",
            ["replay"],
        ),
        ("tuiadvisor replay: --speed: '0' is not a speed; write 0.01", ["replay", "f", "--speed", "0"]),
    ],
)
def test_a_wrong_command_line_is_one_line(
    expected: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong and where to look; code 2."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    said = capsys.readouterr().err
    assert 2 == left.value.code
    assert 1 == said.count("\n")
    assert said.startswith(expected)


def test_a_python_that_is_no_training_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is put into it, and nobody waits for its steps: a Python that has not loaded torch."""
    # Not this process: another test may have loaded torch into it.
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as python:
        assert python.stdout is not None
        assert python.stdout.readline()
        try:
            code = main(["watch", "--once", "--pid", str(python.pid)])
        finally:
            python.kill()
    assert code == 2
    said = capsys.readouterr().err
    assert "has not loaded torch, so it is no PyTorch training" in said
    assert 1 == said.count("\n")


def test_replay_at_a_step_it_does_not_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the last step."""
    path = recorded(tmp_path)
    assert 2 == main(["replay", str(path), "--at", "99999"])
    assert "--at 99999: the recording holds steps 0 to 99" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "begins_at_end"), [([], True), (["--speed", "1"], False), (["--at", "7"], False)]
)
def test_replay_opens_on_the_verdict(tmp_path: Path, words: list[str], begins_at_end: bool) -> None:
    """At the end, unless it is to be played or a step was asked for."""
    parser = argparse.ArgumentParser()
    replay_command.add_options(parser)
    options = parser.parse_args([str(recorded(tmp_path)), *words])
    with ExitStack() as stack:
        _, feed = begin(options, None, stack)
        if begins_at_end:
            wait_until(lambda: step_of(feed) == 99)
            view = feed.latest().view
            assert view is not None
            assert view.window.enough
        else:
            wait_until(lambda: feed.latest().view is not None)
            assert step_of(feed) != 99


def recorded(folder: Path) -> Path:
    path = folder / "run.tuirec"
    writer = RecordingWriter(path, RUN)
    for frame in frames(JOB):
        writer.append(encoded(frame))
    writer.close()
    return path


def test_single_step_is_one_training_step(tmp_path: Path) -> None:
    """Frames hold forty steps each; ] shows the next one, [ the one before, and neither leaves the recording."""
    feed = ReplayFeed(ReplaySource(recorded(tmp_path)))
    feed.start()
    try:
        feed.command(Pause())
        feed.command(SeekStep(50))
        wait_until(lambda: step_of(feed) == 50)
        for command, expected in ((1, 51), (1, 52), (-1, 51), (-1, 50), (-1, 49)):
            feed.command(Step(command))
            wait_until(lambda wanted=expected: step_of(feed) == wanted)  # type: ignore[misc]
        view = feed.latest().view
        assert view is not None
        assert 49 == max(row.last_step or 0 for row in view.ranks)
        assert 49 == view.window.last_step
        assert 50 == len(view.trend.step_s)
        feed.command(SeekStep(5000))
        wait_until(lambda: step_of(feed) == 99)
        feed.command(Step(1))
        feed.command(Step(-1))
        wait_until(lambda: step_of(feed) == 98)
    finally:
        feed.stop()


def test_a_step_that_was_gone_to_stays_on_the_screen(tmp_path: Path) -> None:
    """A click on the ribbon, a typed number, a finding: a replay that plays on shows another step a moment later."""
    feed = ReplayFeed(ReplaySource(recorded(tmp_path)))
    feed.add_mark(5, "here")
    feed.start()
    try:
        for command, expected in ((SeekStep(40), 40), (PreviousFinding(), 5)):
            feed.command(Resume())
            wait_until(lambda: feed.latest().phase in {"replay", "ended"})
            feed.command(command)
            wait_until(lambda wanted=expected: step_of(feed) == wanted and feed.latest().phase == "paused")  # type: ignore[misc]
        feed.command(Resume())
        wait_until(lambda: (step_of(feed) or 0) > 5)
    finally:
        feed.stop()


def step_of(feed: ReplayFeed) -> int | None:
    state = feed.latest()
    return state.view.last_step if state.view is not None else None


def test_commands_of_actions_name_the_process() -> None:
    """RANK is the late rank, and PID its own; after its end the number may be another's, so the word stays."""
    view = final_view(JOB)
    found = next(finding for finding in view.findings if finding.id == "straggler")
    assert (2,) == found.ranks
    assert any(act.command and "tuiadvisor stacks 2 --lines" in act.command for act in found.actions)
    placed = with_process(replace(found, measure_next=("py-spy dump --pid PID",)), {2: (102, "")}, 1)
    assert placed.measure_next == ("py-spy dump --pid 102",)


def test_every_figure_of_the_rules_has_a_name_for_people() -> None:
    """No identifier of the catalogue reaches the screen."""
    names = {name for rule in catalog() for name in rule.evidence}
    nameless = sorted(name for name in names if name not in evidence.NAMES)
    assert [] == nameless, "give each a name in tuiadvisor/text/evidence.py, NAMES"
