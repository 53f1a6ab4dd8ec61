"""The plain summary: everything the screens say, as wide as a terminal is, or without one."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.cells import cell_len
from snapshot import views

from tuiadvisor.tui.pages.once import plain_summary

VIEWS = {
    "straggler": views.straggler(),
    "healthy": views.healthy(),
    "too early": views.too_early(),
    "lost ranks": views.lost_ranks(),
    "unknown": views.unknown_everything(),
    "one rank": views.one_rank(),
    "finished": views.finished(),
    "many": views.many(1024),
}


@pytest.mark.parametrize("plain_ascii", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_it_fits_eighty_columns(name: str, plain_ascii: bool) -> None:
    """No row is wider, none ends in blanks, ASCII where asked for."""
    text = plain_summary(VIEWS[name], plain_ascii=plain_ascii, width=80)
    assert text.endswith("\n")
    for row in text.splitlines():
        assert cell_len(row) <= 80
        assert row == row.rstrip()
        assert row.isprintable()
    assert text.isascii() is plain_ascii


class Terminal(io.StringIO):
    """Standard output that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 80, 150])
def test_it_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """It was 80 columns wide everywhere."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Terminal())
    rows = plain_summary(VIEWS["straggler"], plain_ascii=False).splitlines()
    assert columns == max(map(cell_len, rows))


def test_in_a_file_each_sentence_has_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is found whole; rules and tables are no wider than COLUMNS says, or 120."""
    view = VIEWS["straggler"]
    for columns, width in (("", 120), ("100", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        rows = plain_summary(view, plain_ascii=False).splitlines()
        assert {width} == {cell_len(row) for row in rows if row.startswith("── ")}
        said = [finding.message for finding in view.findings] + [view.decided.verify]
        assert all(any(sentence in row for row in rows) for sentence in said)


def test_the_whole_content_is_there() -> None:
    """Verdict, expected gain, steps, phases, ranks, culprit, findings with actions and commands, what is unknown."""
    text = plain_summary(VIEWS["straggler"], plain_ascii=True)
    for part in (
        "TUNE  rank 2 reads its data 11.8 ms late",
        "expected speed-up: 1.69x (1.60x to 1.75x, 90 %)",
        "verify: Record 200 steps",
        "mean 28.6 ms",
        "steps 257-341, without 20 of warm-up, 1 not seen whole",
        "data wait          5.10 ms      21 %",
        "unknown            copy to device",
        "> rank 2 arrives last: data wait",
        ">     2 node01",
        "straggler_data - P1 - rank 2 - 11.8 ms a step",
        "$ py-spy dump --pid 41202 --subprocesses",
        "measure: Compare the read rate",
        "copy to device: the run uses no device",
    ):
        assert part in text


def test_losses_and_remedies_are_there() -> None:
    """Nothing is cut: the reason of a refusal comes out whole."""
    text = " ".join(plain_summary(VIEWS["lost ranks"], plain_ascii=False).split())
    assert "1,204 events dropped; 3 frames lost" in text
    assert "agent on node01 silent for 12 s" in text
    assert "start the job with 'tuiadvisor run', or set kernel.yama.ptrace_scope to 1" in text


def test_of_many_ranks_only_those_that_matter_are_listed() -> None:
    """And how many are not."""
    text = plain_summary(VIEWS["many"], plain_ascii=False)
    assert "▶   612 gpu076" in text
    assert "and 1,023 more ranks" in text
    assert len(text.splitlines()) < 70


def test_nothing_is_claimed_too_early() -> None:
    """No decision, and how many steps are missing."""
    text = plain_summary(VIEWS["too early"], plain_ascii=False)
    assert "NOT YET" in text
    assert "12 more steps" in text


def test_unknown_is_never_a_zero() -> None:
    """No figure where nothing was observed."""
    text = plain_summary(VIEWS["unknown"], plain_ascii=False)
    assert " 0 s" not in text
    assert " 0 %" not in text


def test_it_needs_no_textual() -> None:
    """On a login node --once must start at once: Textual is not even imported."""
    code = "import sys, tuiadvisor.tui.pages.once; print([name for name in sys.modules if name.startswith('textual')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout
