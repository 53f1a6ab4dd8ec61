"""What a training prints behind the screens is kept, and never stops or ends the training."""

from __future__ import annotations

import argparse
import errno
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.app import kept_output
from tuiadvisor.app.kept_output import NUM_LINES, NUM_LINES_OF_ERROR, SAID_S, KeptOutput
from tuiadvisor.app.output_keeper import END_BYTES, OutputFile, keep
from tuiadvisor.cli import run_
from tuiadvisor.errors import TuiadvisorError


class Room:
    """Of a disk."""

    said = ""

    def shortage(self, _now_s: float, _num_bytes: int) -> str:
        return self.said


@pytest.fixture
def file(tmp_path: Path) -> Any:
    descriptor = os.open(tmp_path / "o.txt", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def text_of(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 22, 0)


def test_what_is_printed_is_kept_as_it_came(file: int) -> None:
    kept = OutputFile(file, 1000)
    for data in (b"step 1\n", b"\xff\x1b[1m", b"step 2\n"):
        kept.add(data)
    assert b"step 1\n\xff\x1b[1mstep 2\n" == text_of(file)


def test_beyond_the_bound_beginning_and_end_are_kept(file: int) -> None:
    """A training of weeks does not fill the disk, and its last words are what is asked for."""
    kept = OutputFile(file, 100)
    for number in range(20_000):
        kept.add(f"line {number}\n".encode())
    found = text_of(file)
    assert found.startswith(b"line 0\nline 1\n")
    assert found.endswith(b"line 19998\nline 19999\n")
    assert b"bytes are left out here: no more than 100 bytes are kept" in found
    assert len(found) < 100 + END_BYTES + 200


def test_just_beyond_the_bound_nothing_is_left_out(file: int) -> None:
    kept = OutputFile(file, 10)
    kept.add(b"0123456789abc")
    kept.add(b"def")
    assert b"0123456789abcdef" == text_of(file)


def test_room_is_left_to_the_training(file: int) -> None:
    """Its checkpoints go to the same disk."""
    room: Any = Room()
    kept = OutputFile(file, 1 << 30, room)
    kept.add(b"a" * 50_000)
    room.said = "1.0 MiB free, 256.0 MiB are left to the training"
    kept.add(b"b" * 50_000)
    found = text_of(file)
    assert len(found) < 50_000 + END_BYTES + 200
    assert b"left out here: 1.0 MiB free" in found
    assert found.endswith(b"bbb")


def test_a_full_disk_stops_nobody(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipe is read to its end, and once there is room again the end is there."""
    kept = OutputFile(file, 1 << 30)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        source, target = os.pipe()
        reader = threading.Thread(target=keep, args=(source, kept))
        reader.start()
        for _ in range(100):
            os.write(target, b"x" * 4096)  # more than a pipe holds
        os.close(target)
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
        os.close(source)
    kept.add(b"the last line")
    assert text_of(file).endswith(b"xxthe last line")
    assert b"No space left" in text_of(file)


def test_a_fault_of_ours_stops_nobody() -> None:
    source, target = os.pipe()
    broken: Any = argparse.Namespace(add=lambda _: 1 / 0)
    os.write(target, b"x")
    reader = threading.Thread(target=keep, args=(source, broken))
    reader.start()
    for _ in range(100):
        os.write(target, b"x" * 4096)
    os.close(target)
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    os.close(source)


def printing(kept: KeptOutput, script: str) -> None:
    subprocess.run(["/bin/sh", "-c", script], stdout=kept.descriptor, stderr=kept.descriptor, check=False)
    kept.handed_over()


def test_both_streams_lie_beside_the_recording(tmp_path: Path) -> None:
    kept = KeptOutput(str(tmp_path / "tiny.tuirec"))
    printing(kept, "echo epoch 1; echo RuntimeError: bad sample 17 >&2")
    said = kept.last_words()
    kept.close()
    path = tmp_path / "tiny.output.txt"
    assert str(path) == kept.path
    assert "epoch 1\nRuntimeError: bad sample 17\n" == path.read_text()
    assert 0o600 == path.stat().st_mode & 0o777
    assert f"all of it in {path}" in said
    assert said.endswith("epoch 1\nRuntimeError: bad sample 17")


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tiny.output.txt").write_text("mine")
    kept = KeptOutput(str(tmp_path / "tiny.tuirec"))
    printing(kept, "echo other")
    kept.last_words()
    kept.close()
    assert "mine" == (tmp_path / "tiny.output.txt").read_text()
    assert "other\n" == (tmp_path / "tiny.output-2.txt").read_text()


def test_without_a_recording_only_the_last_lines_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = KeptOutput(None)
    printing(kept, "for n in $(seq 100); do echo line $n; done; printf '10 %%\\r90 %%\\r\\033[0mdone\\n'")
    said = kept.last_words().split("\n")
    longer = kept.last_words(has_failed=True).split("\n")
    kept.close()
    assert NUM_LINES_OF_ERROR == len(longer) - 1
    assert said[1:] == longer[-NUM_LINES:]
    assert NUM_LINES == len(said) - 1
    assert "line 100" == said[-2]
    assert said[-1].endswith("done")
    assert "\x1b" not in said[-1]
    assert "90 %" not in said[-1]
    assert [] == list(tmp_path.iterdir())


def test_silence_is_said(tmp_path: Path) -> None:
    kept = KeptOutput(str(tmp_path / "tiny.tuirec"))
    printing(kept, "true")
    assert "printed nothing" in kept.last_words()
    kept.close()


def test_who_prints_outlives_whoever_watches(tmp_path: Path) -> None:
    """A killed `tuiadvisor run` leaves a training that prints on: to a pipe without a reader it would die."""
    (tmp_path / "goes_on.py").write_text(
        "import time\nfor n in range(40): print(n, flush=True); time.sleep(0.05)\nopen('end', 'w').close()\n"
    )
    starter = (
        "import subprocess, sys; from tuiadvisor.app.kept_output import KeptOutput\n"
        "kept = KeptOutput('r.tuirec')\n"
        "child = subprocess.Popen([sys.executable, 'goes_on.py'], stdout=kept.descriptor)\n"
        "kept.handed_over(); print(child.pid, flush=True); child.wait()"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", starter], cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True
    )
    assert ours.stdout is not None
    child = int(ours.stdout.readline())
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    ours.stdout.close()
    end = os.pidfd_open(child)
    assert select.select([end], [], [], PATIENCE_S)[0]
    os.close(end)
    assert (tmp_path / "end").exists()


def test_the_screens_say_where_it_goes_first_and_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptOutput(str(tmp_path / "tiny.tuirec"))
    assert kept.sentence(has_ended=False).endswith("tiny.output.txt")
    assert kept.sentence(has_ended=True).endswith("tiny.output.txt")
    now_s = kept_output.time.monotonic()
    monkeypatch.setattr(kept_output.time, "monotonic", lambda: now_s + SAID_S + 1)
    assert "" == kept.sentence(has_ended=False)
    kept.handed_over()
    kept.last_words()
    kept.close()


@pytest.mark.parametrize("options", [[], ["-o", "r.tuirec"]], ids=["unnamed", "named"])
def test_a_command_that_ends_before_its_ranks_tells_its_last_words(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With screens a wrong import said nothing at all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    parser = argparse.ArgumentParser()
    run_.add_options(parser)
    failing = "echo loading; echo 'ModuleNotFoundError: No module' >&2; exit 4"
    assert 4 == run_.run(parser.parse_args([*options, "--", "sh", "-c", failing]))
    told = capfd.readouterr()
    assert "loading\nModuleNotFoundError: No module\n" in told.out
    assert "ended with exit code 4 before a rank appeared" in told.err
    assert bool(options) == (tmp_path / "r.output.txt").exists()


def test_a_command_that_is_not_there_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    parser = argparse.ArgumentParser()
    run_.add_options(parser)
    with pytest.raises(TuiadvisorError, match="check the command after --"):
        run_.run(parser.parse_args(["-o", "r.tuirec", "--", "./not-there"]))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("whom", ["first", "second"])
def test_who_prints_outlives_whoever_keeps(tmp_path: Path, whom: str) -> None:
    """One of the two processes that hold the pipe is killed: more than a pipe holds is taken all the same."""
    kept = KeptOutput(str(tmp_path / "r.tuirec"))
    assert kept._keeper is not None
    waiting = psutil.Process(kept._keeper.pid)
    wait_until(lambda: bool(waiting.children()), "both are there")
    (keeping,) = waiting.children()
    (keeping if whom == "first" else waiting).kill()
    script = "import sys; [print('x' * 4096) for _ in range(1000)]; print('end', file=open(sys.argv[1], 'w'))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "end")],
        stdout=kept.descriptor,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0
    assert (tmp_path / "end").exists()
    kept.handed_over()
    kept._keeper.wait(PATIENCE_S)
    kept.close()
