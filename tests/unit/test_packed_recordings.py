"""Recordings that were packed: every reader takes them as they are; damaged ones and bombs get one line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import zstandard
from synthetic_run import Job
from unit.test_contents import recording

from tuiadvisor.app.recordings import recordings
from tuiadvisor.cli import main
from tuiadvisor.stream.replay import ReplaySource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
}
HELD_BYTES = 20 << 20  # that a refused bomb may cost
# In a process of its own: beside other tests the peak is theirs. VmHWM, for ru_maxrss begins with that of the parent.
OPENED = """
import sys
from pathlib import Path
from tuiadvisor import unpacking
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.recording import RecordingReader

def peak_kib():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

unpacking.MAX_FILE_BYTES = int(sys.argv[2])
before = peak_kib()
try:
    RecordingReader(sys.argv[1])
except TuiadvisorError as error:
    print(peak_kib() - before, error)
"""


def packed(folder: Path, end: str) -> tuple[Path, Path]:
    """(a recording, the same packed in two streams behind each other, as parallel packers write)."""
    plain = folder / "run.tuirec"
    recording(plain, Job(num_steps=60))
    data, path = plain.read_bytes(), folder / f"copy.tuirec.{end}"
    path.write_bytes(PACKERS[end](data[:1000]) + PACKERS[end](data[1000:]))
    return plain, path


@pytest.mark.parametrize("end", PACKERS)
def test_it_says_what_the_plain_one_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    """Diagnosed, compared, replayed; a folder lists it."""
    plain, path = packed(tmp_path, end)
    said = []
    for each in (plain, path):
        assert 0 == main(["diagnose", "--json", str(each)])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert 0 == main(["compare", str(plain), str(path)])
    assert 0 == main(["open", "--once", str(path)])
    assert "a recording of tuiadvisor" in capsys.readouterr().err
    source = ReplaySource(path)
    source.close()
    assert {"run", f"copy.tuirec.{end}"} == {entry.name for entry in recordings(tmp_path)}


@pytest.mark.parametrize("end", PACKERS)
@pytest.mark.parametrize("command", ["open", "diagnose", "report"])
def test_a_damaged_one_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str, command: str
) -> None:
    """Cut, or with other bytes in it: exit code 2; only a cut one can not be read at all."""
    _, path = packed(tmp_path, end)
    data = path.read_bytes()
    middle = len(data) // 2
    for spoiled in (data[:middle], data[:middle] + bytes(40) + data[middle + 40 :]):
        path.write_bytes(spoiled)
        more = ["-o", str(tmp_path / "r.html")] if command == "report" else []
        # zstd keeps no sum of its own: then the recording's frames tell what is damaged.
        code = main([command, str(path), *more])
        err = capsys.readouterr().err
        assert "damaged" in err
        if len(spoiled) < len(data):
            assert 2 == code
        elif code != 2:
            assert 0 == code
            assert "recording damaged in 1 place" in err


@pytest.mark.slow
@pytest.mark.parametrize("end", PACKERS)
def test_a_bomb_is_refused(tmp_path: Path, end: str) -> None:
    """One that is no recording at its first bytes; one that is at its limit; neither is held in memory."""
    path = tmp_path / f"bomb.tuirec.{end}"
    for data, why in (
        (bytes(60 << 20), "not a recording"),
        (b"TUIREC\r\n" + bytes(64 << 20), "GiB unpacked"),
    ):
        path.write_bytes(PACKERS[end](data))
        told = subprocess.run(
            [sys.executable, "-c", OPENED, str(path), str(16 << 20)],
            capture_output=True,
            text=True,
            check=True,
        )
        held_kib, _, words = told.stdout.partition(" ")
        assert why in words
        assert int(held_kib) < HELD_BYTES >> 10


def test_it_is_read_anew_once_it_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was unpacked is of the file that was there."""
    plain, path = packed(tmp_path, "gz")
    assert 0 == main(["diagnose", str(path)])
    before = capsys.readouterr().out
    plain.unlink()
    recording(plain, Job(num_steps=90))
    path.write_bytes(gzip.compress(plain.read_bytes()))
    assert 0 == main(["diagnose", str(path)])
    assert before != capsys.readouterr().out
