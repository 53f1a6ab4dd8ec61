"""One log of a whole session: command, hub and agent write to it, the training is told nothing, no key is in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S, complaints
from training import running

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
WHO = re.compile(r"\S+Z [A-Z]+ (record|hub|agent)\[(\d+)\] ([\w.]+): (.*)")


@pytest.fixture(scope="module")
def training() -> Iterator[tuple[int, set[int]]]:
    """The launcher of two ranks whom both tests watch, and the ranks."""
    with running(2, "--step-ms", "60") as (launcher, ranks):
        yield launcher.pid, {rank.pid for rank in ranks}
        assert launcher.poll() is None, "the training must not notice"


def record(training: int, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuiadvisor", "record", "--pid", str(training), "--steps", "20", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
    )  # fmt: skip


def lines(text: str) -> list[tuple[str, ...]]:
    """Who, its process, its module and what it says."""
    found = [WHO.fullmatch(line) for line in text.splitlines() if not line.startswith(("#", "    "))]
    assert None not in found, text
    return [line.groups() for line in found if line]


def test_command_hub_and_agent_log_one_session(training: tuple[int, set[int]], tmp_path: Path) -> None:
    """By a file and by standard error; without either there is no line; the keys of the session are in neither."""
    launcher, pids = training
    key_file = tmp_path / "key"
    shared = ["--share", str(key_file), "--hub-address", "127.0.0.1"]
    to_file = {"TUIADVISOR_LOG": f"debug:{tmp_path / 'log'}"}
    recorder = record(launcher, "-o", str(tmp_path / "a.tuirec"), *shared, env=to_file)
    deadline_s = time.monotonic() + PATIENCE_S
    while not (keys := key_file.read_text() if key_file.exists() else ""):
        assert time.monotonic() < deadline_s
        assert recorder.poll() is None, recorder.communicate()
        time.sleep(0.02)
    quiet = recorder.communicate(timeout=PATIENCE_S)
    assert 0 == recorder.returncode, quiet
    recorder = record(launcher, "-o", str(tmp_path / "b.tuirec"), "-v")
    loud = recorder.communicate(timeout=PATIENCE_S)
    assert 0 == recorder.returncode, loud
    assert "" == complaints(quiet[1])
    text = (tmp_path / "log").read_text()
    for said in (lines(text), lines(complaints(loud[1]))):
        assert {"record", "hub", "agent"} == {who for who, *_ in said}
        assert 3 == len({process for _, process, *_ in said})
        assert {"agent.rank_link", "agent.agent", "stream.hub", "launch.agents", "cli.commands"} <= {
            module for _, _, module, _ in said
        }
        for pid in pids:
            of_rank = [words for *_, words in said if f"process {pid}" in words]
            assert any(words.startswith("found rank") for words in of_rank)
            assert any(
                re.search(r"attached after [\d.]+ s, by \w+, which held it for", words) for words in of_rank
            )
            assert any(words.endswith("-> DETACHED: probe taken out") for words in of_rank)
        assert "ends with code 0" == said[-1][-1]
    secrets = [key for key in json.loads(keys)["key"].values() if isinstance(key, str)]
    assert 3 == len(secrets)
    assert [] == [key for key in secrets if key in text or key in loud[1]]
    assert "INFO" not in loud[0] + quiet[0]


def test_live_screens_show_no_line_of_any_process(training: tuple[int, set[int]], tmp_path: Path) -> None:
    """`watch -v` on a terminal: command, hub and agent log to a file that is named when the screens close."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "tuiadvisor", "watch", "--pid", str(training[0]), "-v"]
        os.execv(command[0], command)  # noqa: S606  # no shell wanted
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown, deadline_s, has_left = b"", time.monotonic() + PATIENCE_S, False
    with contextlib.suppress(OSError):  # Linux says EIO when the other end is closed
        while select.select([terminal], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            if not (data := os.read(terminal, 65536)):
                break
            shown += data
            (file,) = [*(tmp_path / "tuiadvisor").glob("watch-*.log")] or [None]
            if not has_left and file is not None and "-> LIVE" in file.read_text():
                os.write(terminal, b"q")
                has_left = True
    os.kill(pid, signal.SIGKILL)  # a zombie, unless it hangs
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown[-500:]
    os.close(terminal)
    (file,) = (tmp_path / "tuiadvisor").glob("watch-*.log")
    text = file.read_text()
    assert {"watch", "hub", "agent"} == set(re.findall(r"(?m)^\S+Z [A-Z]+ (\w+)\[", text))
    left = shown.decode(errors="replace").rpartition("\x1b[?1049l")[2]
    assert f"the log is in {file}" in " ".join(left.split())  # its name is longer than a row
    said = [line.partition(": ")[2] for line in text.splitlines() if "Z INFO " in line]
    assert [] == [words for words in said if words.encode() in shown]
