"""What the hub of a session is started with: names that look like options, a temporary folder with a long name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from patience import PATIENCE_S

from tuiadvisor.app import live_session as session_module
from tuiadvisor.app.live_session import Session
from tuiadvisor.launch.agents import Agents
from tuiadvisor.stream.frames import Frame, FrameKind, decode
from tuiadvisor.stream.keys import PeerKey


class NoAgents:
    """A launcher that brings nobody, and says where they would have come in."""

    endpoint = ""

    def agents_endpoint(self, folder: Path) -> str:
        return f"ipc://{folder}/agents"

    def start(self, url: str, keys: Sequence[PeerKey]) -> Agents:
        assert not keys
        self.endpoint = url
        return Agents([])


def first_frame(session: Session) -> Frame:
    source = session.source()
    deadline_s = time.monotonic() + PATIENCE_S
    frames: list[bytes] = []
    while not frames:
        assert time.monotonic() < deadline_s
        frames += source.read(0.5)
    source.close()
    return decode(frames[0])


def test_a_script_called_like_an_option_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training `-train.py`, a recording `-run.tuirec`: the recording says so."""
    monkeypatch.chdir(tmp_path)
    with Session((), "-run.tuirec", "-train.py", "-x --share", launcher=NoAgents()) as session:
        run = first_frame(session)
        assert FrameKind.RUN is run.kind
        assert ("-train.py", "-x --share") == (run.payload["label"], run.payload["command"])
    assert (tmp_path / "-run.tuirec").is_file()


@pytest.mark.parametrize("has_runtime", [True, False])
def test_sockets_lie_elsewhere_where_the_temporary_folders_name_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_runtime: bool
) -> None:
    """In a folder of the owner alone, gone with the session; frames stay in the place that the user chose for them."""
    long = tmp_path / ("x" * 60) / ("y" * 60)
    long.mkdir(parents=True)
    short = Path(tempfile.mkdtemp(dir="/tmp")) if has_runtime else Path("/tmp")  # noqa: S108 - paths must be short
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short) if has_runtime else "")
    launcher = NoAgents()
    with Session((), None, "", "", launcher=launcher) as session:
        assert FrameKind.RUN is first_frame(session).kind
        sockets = [Path(url.removeprefix("ipc://")) for url in (session.viewer_url, launcher.endpoint)]
        (folder,) = {path.parent for path in sockets}
        assert short == folder.parent
        assert 0o700 == folder.stat().st_mode & 0o777
        assert all(path.is_socket() for path in sockets)
        assert long == session.record.parents[1]
    assert not folder.exists()
    assert [] == list(long.iterdir())
    if has_runtime:
        short.rmdir()


def test_sockets_of_a_killed_command_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their folder is looked for where they had to go."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = Path(tempfile.mkdtemp(prefix=f"{session_module.FOLDER_PREFIX}{ended.pid}-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session_module.remove_left_folders()
    assert not left.exists()


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh (apt-get install openssh-client)")
def test_a_recording_of_nothing_does_not_stay(tmp_path: Path) -> None:
    """No agent came: the file that was begun would only stand in the way of the next try."""
    config = tmp_path / "ssh_config"
    config.write_text("Host dead\n  HostName 127.0.0.1\n  Port 1\n")
    words = ["record", "--hosts", "dead", "--ssh-config", str(config), "-o", "run.tuirec"]
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *words], cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Connection refused" in done.stderr
    assert done.stderr.endswith("; nothing was recorded, and no run.tuirec is left\n")
    assert not (tmp_path / "run.tuirec").exists()
