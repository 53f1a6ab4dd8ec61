"""Standard output that takes nothing: every command says so in one line and fails. A reader that leaves is none."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import file_commands
from patience import PATIENCE_S

START = [sys.executable, "-P", "-m", "tuiadvisor"]
# All commands in one process would share one standard output: each is a child that has everything imported already.
EACH_IN_A_CHILD = """
import os, sys
from tuiadvisor.cli import main
import numpy, orjson, tuiadvisor.cli.commands as commands
commands.build_parser()
for line in sys.stdin:
    if os.fork() == 0:
        sys.argv[1:] = eval(line)
        sys.exit(main())
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print(f"= {code} {line}", end="", file=sys.stderr, flush=True)
"""
FULL = "tuiadvisor: standard output cannot be written: No space left on device"


def test_a_full_disk_behind_standard_output_is_said(tmp_path: Path) -> None:
    """By every command that prints, its help too, in one line, without a traceback."""
    lines = [*file_commands(tmp_path), ["--help"], ["--version"], ["watch", "--help"], ["arm", "--env"]]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-c", EACH_IN_A_CHILD], input="".join(f"{line}\n" for line in lines),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    said = done.stderr.splitlines()
    ours = [line for line in lines if line[:2] != ["intent", "--set"]]  # it also says on stderr what it wrote
    for line in ours:
        at = said.index(f"= 1 {line}")
        assert FULL == said[at - 1], said[at - 3 : at + 1]
        if line[0] != "open":  # it also says on stderr what it took the file for
            assert at == 1 or said[at - 2].startswith("= ") or "intent" in said[at - 3], said[at - 3 : at + 1]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_standard_output_is_said_and_no_file_takes_its_place(tmp_path: Path) -> None:
    """`>&-`: what is opened next would get its number, and the prints."""
    run, output = file_commands(tmp_path)[0][1], tmp_path / "short.tuirec"
    arguments = ["trim", "--steps", "10:20", "-o", str(output), run]
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" >&-', "sh", *START, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert 1 == done.returncode
    assert "tuiadvisor: standard output cannot be written: Bad file descriptor\n" == done.stderr
    assert b"steps" not in output.read_bytes()[-200:]


def test_a_reader_that_leaves_early_is_no_failure(tmp_path: Path) -> None:
    """`| head -1`: the code of success, and not a word."""
    run = file_commands(tmp_path)[0][1]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody, ThreadPoolExecutor(2) as two:
        done = list(two.map(
            lambda line: subprocess.run(
                [*START, *line], stdin=subprocess.DEVNULL, stdout=nobody, stderr=subprocess.PIPE, text=True,
                timeout=PATIENCE_S, check=False,
            ),
            [["diagnose", run, "--json"], ["--help"]],
        ))  # fmt: skip
    assert [(0, ""), (0, "")] == [(one.returncode, one.stderr) for one in done]


@pytest.mark.parametrize("wrong", [["diagnose", "nowhere.tuirec"], ["nonsense"]])
def test_a_mistake_is_still_told_as_one(wrong: list[str]) -> None:
    """Nothing was printed, so nothing is lost by a full disk."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*START, *wrong], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    assert (2, 1) == (done.returncode, done.stderr.count("\n")), done.stderr
