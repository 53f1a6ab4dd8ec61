"""Several trainings of one script on a machine: what stands beside each one's name."""

from __future__ import annotations

from dataclasses import replace
from time import tzset

import pytest

from tuiadvisor.agent.told_apart import MAX_CHARS, Program, told_apart, units

SECOND_NS = 10**9


def program(
    *arguments: str, folder: str = "/exp", label: str = "train.py", start_s: int = 0, pid: int = 7
) -> Program:
    """One training."""
    return Program(label, ("-u", "train.py", *arguments), folder, start_s * SECOND_NS, pid)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    tzset()


def test_a_script_of_its_own_needs_nothing() -> None:
    """Its name is enough, whatever its arguments."""
    assert ["", ""] == told_apart([program("--lr", "1"), program("--lr", "2", label="other.py")])


def test_arguments_that_differ_are_shown_with_their_option() -> None:
    """And none that both have, nor values that only changed places."""
    one = program("--epochs", "3", "--lr", "0.1", "--seed", "2", "--amp")
    other = program("--epochs", "3", "--lr", "2", "--seed", "0.1")
    assert ["--lr 0.1 --seed 2 --amp", "--lr 2 --seed 0.1"] == told_apart([one, other])
    assert ["-u train.py", "--lr=0.1", "data", "--fast"] == units(
        ["-u", "train.py", "--lr=0.1", "data", "--fast"]
    )


def test_the_folder_where_the_arguments_are_alike() -> None:
    """As of a sweep that makes a folder for each."""
    assert ["in /exp/a", "in /exp/b"] == told_apart([program(folder="/exp/a"), program(folder="/exp/b")])


def test_the_start_where_nothing_else_differs() -> None:
    """Also beside what two of three share; of an unknown start nothing is said."""
    alike = told_apart([program(start_s=61), program(start_s=3600)])
    assert ["started 00:01:01", "started 01:00:00"] == alike
    three = told_apart([program("--fast", start_s=1), program("--fast", start_s=2), program(start_s=3)])
    assert ["--fast started 00:00:01", "--fast started 00:00:02", "started 00:00:03"] == three


def test_the_process_where_nothing_tells_them_apart() -> None:
    """Of an unknown start nothing is said, and the same second tells nothing; where pids are named below, not here."""
    unknown = Program("train.py", ("train.py",), "", None, 4711)
    assert ["pid 4711", "pid 5"] == told_apart([unknown, replace(unknown, pid=5)])
    same = [program(start_s=5, pid=pid) for pid in (3, 4)]
    assert ["pid 3", "pid 4"] == told_apart(same)
    assert ["", ""] == told_apart(same, with_pid=False)


def test_what_strangers_write_on_their_command_line_is_bounded() -> None:
    """No escape sequence, no end of a line, no page of it."""
    (text, _) = told_apart([program("\x1b[31m" + "a\n" * 500), program()])
    assert len(text) <= MAX_CHARS
    assert text.isprintable()
