"""Sentences on a terminal break at blanks to its width; a file or a script has each in one line."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import sys
import termios
from pathlib import Path

import pytest
from snapshot import views
from synthetic_run import MS, Fault, Job, encoded, frames

from tuiadvisor.app.awaiting_ranks import _WaitingLine
from tuiadvisor.cli.commands import run
from tuiadvisor.cli.watching import say_goodbye
from tuiadvisor.stream.frames import FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.text.printed import columns_of, fitted, one_row, say, unbroken
from tuiadvisor.tui.contract.feed import FeedState

RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1, "tuiadvisor": "0.1.0", "created_wall_ns": 10**18})


class Terminal(io.StringIO):
    """A terminal that remembers what it shows."""

    def isatty(self) -> bool:
        return True


WORDS = "of 100 by loss explained and answers: where to look first, not a probability"


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output from here on; a fixture's would be pytest's own again."""
    out = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", out)
    return out


def test_a_line_breaks_at_blanks_and_goes_on_under_its_words() -> None:
    assert (
        "- of 100 by loss\n  explained and\n  answers: where to\n  look first, not a\n  probability"
        == fitted(f"- {WORDS}", 20)
    )
    assert "    12  of 100 by\n        loss" == fitted("    12  of 100 by loss", 18)


def test_figures_commands_and_paths_stay_whole() -> None:
    assert "it takes\n16.9 ms" == fitted("it takes 16.9 ms", 13)
    assert "run\n`tuiadvisor watch here`\nfirst" == fitted("run `tuiadvisor watch here` first", 10)
    assert "again:\ntuiadvisor replay x" == fitted(f"again: {unbroken('tuiadvisor replay x')}", 12)
    assert "in\n/a/very/long/path.tuirec" == fitted("in /a/very/long/path.tuirec", 12)


def test_blanks_of_a_table_stay() -> None:
    assert "  rank   window\n  file" == fitted("  rank   window   file", 16)


def test_a_file_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{WORDS} {WORDS} {unbroken('a b')}")
    assert f"{WORDS} {WORDS} a b\n" == capsys.readouterr().out


def test_what_is_redrawn_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert "short" == one_row("short")
    assert "of 100 by loss exp…" == one_row(WORDS)


@pytest.fixture(name="late")
def _late(tmp_path: Path) -> str:
    """A recording of a late rank."""
    path = str(tmp_path / "late.tuirec")
    writer = RecordingWriter(path, RUN)
    for frame in frames(Job(faults=(Fault("data", (2,), 6 * MS),))):
        writer.append(encoded(frame))
    writer.close()
    return path


def broken_by_the_terminal(text: str, width: int = 60) -> list[str]:
    """Rows that are too wide, but for a path or a command, which is one word."""
    return [row for row in text.split("\n") if len(row) > width and not {"`", "/"} & {*row}]


@pytest.mark.parametrize("why", [[], ["--why", "idle"]])
def test_a_session_is_as_wide_as_the_terminal(
    late: str, monkeypatch: pytest.MonkeyPatch, why: list[str]
) -> None:
    """At 80 columns it read "not a probabi/lity"."""
    terminal = a_terminal(monkeypatch)
    assert 0 == run(["advise", late, *why])
    assert len(terminal.getvalue().splitlines()) > 1
    assert not broken_by_the_terminal(terminal.getvalue())


def test_a_dialogue_is_as_wide_as_the_terminal(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question too, whose last row alone the line editor knows: "[... q: de/cide now]"."""
    terminal = a_terminal(monkeypatch)
    asked: list[str] = []
    replies = iter(["?", "perhaps", "", "q"])
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda prompt: (asked.append(prompt), next(replies))[1])
    assert 0 == run(["advise", late])
    assert 4 == len(asked)
    assert all(len(prompt) < 60 and prompt.endswith("q: decide now] ") for prompt in asked)
    assert "Measure it:" in terminal.getvalue()
    assert not broken_by_the_terminal(terminal.getvalue())


def test_what_is_left_on_the_terminal_is_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines after q read "without that the m/ean step"; the command can still be copied."""
    terminal = a_terminal(monkeypatch)
    state = FeedState(views.straggler(), "live", "live", "", None, None, 1)
    say_goodbye(state, "a/b.tuirec")
    *rows, last = terminal.getvalue().splitlines()
    assert "tuiadvisor replay a/b.tuirec" in last
    assert len(rows) > 2
    assert not broken_by_the_terminal("\n".join(rows))


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "no-recording-of-this-name.tuirec"],
        ["watch", "--once", "--pid", "999999999"],
        ["diagnose", "run.tuirec", "--jsn"],
        ["dignose"],
    ],
)
def test_an_error_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """At 60 columns it read "leave --pid| out", "no such re|cording"; a log has it in one line."""
    monkeypatch.setenv("COLUMNS", "50")
    assert 2 == ended(words)
    in_a_file = capsys.readouterr().err
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert 2 == ended(words)
    rows = terminal.getvalue().splitlines()
    assert 1 == in_a_file.count("\n")
    assert len(rows) > 1
    assert not broken_by_the_terminal(terminal.getvalue(), 50)
    assert in_a_file.split() == terminal.getvalue().split()


def ended(words: list[str]) -> int:
    """The code with which a command ends, also where its words are wrong."""
    try:
        return run(words)
    except SystemExit as left:
        return int(str(left.code))


def test_the_terminal_of_standard_error_is_as_wide_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where standard output goes to a file, whose width nobody knows, errors broke at 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, terminals = os.openpty()
    fcntl.ioctl(terminals, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 47, 0, 0))
    with os.fdopen(ours, "rb"), os.fdopen(terminals, "w") as stream:
        assert 47 == columns_of(stream)
        monkeypatch.setenv("COLUMNS", "33")
        assert 33 == columns_of(stream)
    assert 33 == columns_of(io.StringIO())


def test_a_line_that_waits_stays_in_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two rows the first stayed on the screen each second."""
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    now_s = iter([0.0, 1.0, 2.0])
    line = _WaitingLine("watch", lambda: next(now_s))
    line.show(41_203)
    line.show(41_203)
    line.show(41_203)
    line.end()
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert 5 == len(shown)
    assert all(len(row) < 60 for row in shown)
