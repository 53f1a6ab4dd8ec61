"""Names in commands that we print: pasted into a shell they are one word, that name, and no option."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tuiadvisor.cli.watching import say_goodbye
from tuiadvisor.shellword import shell_word

BASH = shutil.which("bash") or ""
NAMES = [
    "run.tuirec",
    "my run.tuirec",
    "it's.tuirec",
    "$(reboot).tuirec",
    "a\nb\t\x1b[2Jc'd\\e\x9b\u202ef.tuirec",
    os.fsdecode(b"\xff\x80 latin"),
    "zeit\u00fcberschreitung",
    "",
]


@pytest.mark.skipif(not BASH, reason="no bash here")
@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_very_name(name: str) -> None:
    """And a terminal that shows it obeys nothing in it."""
    word = shell_word(name)
    assert word.isprintable()
    done = subprocess.run([BASH, "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert os.fsencode(name) == done.stdout


@pytest.mark.parametrize("name", ["-train.py", "--help", "-o x", "-\n"])
def test_no_name_is_taken_for_an_option(name: str) -> None:
    """It is told from one by its folder."""
    assert "./" == shell_word(name).removeprefix("$").removeprefix("'")[:2]


def test_a_lone_surrogate_of_a_recording_is_shown_too() -> None:
    """No file can have such a name; what says so must not fail."""
    assert "$'\\xed\\xa0\\x80'" == shell_word("\ud800")


def test_the_goodbye_of_a_recording_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the file is called."""
    say_goodbye(None, "my\nrun.tuirec")
    said = "recorded in my?run.tuirec; look again with: tuiadvisor replay $'my\\x0arun.tuirec'\n"
    assert said == capsys.readouterr().out
