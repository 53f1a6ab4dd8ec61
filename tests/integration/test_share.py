"""A second viewer with a key, on the very commands: it sees what the first sees; without the key it sees nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S, complaints
from training import running

from tuiadvisor.app.live_session import Session, Share
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.keys import Invitation, make_session_keys, read_invitation, write_invitation

pytest.importorskip("torch")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def training() -> Iterator[int]:
    """The launcher of two ranks whom the tests watch one after the other: nothing of a watch is left in them."""
    with running(2, "--step-ms", "60", "--seconds", "3000") as (launcher, _):
        yield launcher.pid
        assert launcher.poll() is None, "the training must not notice"


def watch(*arguments: str, patience_s: int = 200) -> subprocess.CompletedProcess[str]:
    """`tuiadvisor watch --once` as a user types it."""
    command = [sys.executable, "-m", "tuiadvisor", "watch", "--once", "--for", f"{patience_s}s", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_key_file_lets_a_viewer_in_and_its_absence_keeps_it_out(training: int, tmp_path: Path) -> None:
    """With the file: the ranks as text. Without, or with another session's: nothing. The file goes with the hub."""
    key = tmp_path / "key"
    with Session([training], None, "train.py", "", share=Share((key,), "127.0.0.1")):
        assert 0o600 == key.stat().st_mode & 0o777
        done = watch("--key", str(key))
        assert (0, "") == (done.returncode, complaints(done.stderr))
        assert "2 ranks" in done.stdout
        url = read_invitation(key).url
        stranger = tmp_path / "stranger"
        write_invitation(stranger, Invitation(url, make_session_keys().viewer))
        for arguments in ([url], ["--key", str(stranger)]):
            refused = watch(*arguments, patience_s=2)
            assert (1, "") == (refused.returncode, refused.stdout)
            assert "no hub answers there, or not to this key" in refused.stderr
    assert not key.exists()


def test_a_recording_on_one_command_is_watched_by_another(training: int, tmp_path: Path) -> None:
    """`record --share FILE` in one process, `watch --key FILE` in another."""
    key = tmp_path / "key"
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(tmp_path / "run"), "--pid"]
    command += [str(training), "--share", str(key), "--hub-address", "127.0.0.1"]
    recording = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + PATIENCE_S
    while not (key.exists() and key.read_bytes()):
        assert time.monotonic() < deadline_s
        assert recording.poll() is None
        time.sleep(0.1)
    done = watch("--key", str(key))
    assert (0, "") == (done.returncode, complaints(done.stderr))
    assert "2 ranks" in done.stdout
    recording.send_signal(signal.SIGINT)
    assert 0 == recording.wait(PATIENCE_S)


def test_a_key_is_never_written_over_a_file(training: int, tmp_path: Path) -> None:
    """The session does not start, nothing is left of it, and the user's file is as it was."""
    (tmp_path / "key").write_text("mine")
    with pytest.raises(TuiadvisorError, match="exists already"):
        Session([training], None, "", "", share=Share((tmp_path / "key",), "127.0.0.1"))
    assert "mine" == (tmp_path / "key").read_text()


def test_a_visit_and_a_session_at_once_are_refused(tmp_path: Path) -> None:
    """A hub has its own ranks and recording: one line that says what to leave out."""
    done = watch("ipc:///nowhere", "-o", str(tmp_path / "run"))
    assert (2, 1) == (done.returncode, done.stderr.count("\n"))
    assert "leave out" in done.stderr
