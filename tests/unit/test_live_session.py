"""A session and a fleet's hubs from the side of who starts them, with processes that only note what is done to them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fake_time import FakeTime

from tuiadvisor.app import fleet, live_session
from tuiadvisor.app.fleet import FIRST_PAUSE_S, LOG, LONGEST_PAUSE_S, SETTLED_S, Limits, hold, open_jobs
from tuiadvisor.app.live_session import FOLDER_PREFIX, Session, Share, Terms, remove_left_folders
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.events import GivenWork
from tuiadvisor.stream.keys import read_invitation
from tuiadvisor.stream.probe_request import ProbeRequest


class Process:
    """One that was started; says: its first line."""

    says = b""
    code: int | None = None
    ends_when_asked = True
    made: list[Process] = []  # noqa: RUF012 - emptied for each test

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command = command
        self.options = options
        self.pid = 1 << 22
        self.returncode = type(self).code
        self.stdin = io.BytesIO()
        self.stdin.close = lambda: None  # type: ignore[method-assign]
        self.stdout = io.BytesIO(self.says)
        self.signals: list[int] = []
        if "hub.log" in str(getattr(options.get("stderr"), "name", "")) and not self.says:
            Path(options["stderr"].name).write_text("two lines\nno space left there\n")
        Process.made.append(self)

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        if self.ends_when_asked:
            self.returncode = 0

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("hub", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self.returncode = -9


class Agents:
    """Those of a launcher."""

    def __init__(self, url: str, keys: Any) -> None:
        self.url, self.keys = url, keys
        self.requests: list[ProbeRequest] = []
        self.launched = [SimpleNamespace(process="first")]
        self.is_closed = False
        self.has_ended = False

    def request(self, request: ProbeRequest) -> None:
        self.requests.append(request)

    def error(self) -> str | None:
        return "it was killed"

    def ended(self) -> bool:
        return self.has_ended

    def close(self) -> None:
        self.is_closed = True


class Launcher:
    """Brings agents to where it is told."""

    def __init__(self, endpoint: str = "", fails: Exception | None = None) -> None:
        self.endpoint, self.fails = endpoint, fails
        self.agents: Agents | None = None

    def agents_endpoint(self, sockets: Path) -> str:
        return self.endpoint or f"ipc://{sockets}/agents"

    def num_keys(self) -> int:
        return 1

    def start(self, url: str, keys: Any) -> Agents:
        if self.fails is not None:
            raise self.fails
        self.agents = Agents(url, keys)
        return self.agents


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Process]]:
    said = {"endpoint": "ipc:///run/agents", "viewer": "ipc:///run/viewers", "share": "tcp://0.0.0.0:4711"}
    kind = type("Kind", (Process,), {"says": orjson.dumps(said) + b"\n"})
    Process.made = []
    for module in (live_session, fleet):
        monkeypatch.setattr(module.subprocess, "Popen", kind)
    monkeypatch.setattr(live_session.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield kind
    assert [] == list(tmp_path.glob(f"{FOLDER_PREFIX}{os.getpid()}*"))


def session(launcher: Launcher, **more: Any) -> Session:
    return Session((), None, "train.py", "python train.py", launcher=launcher, **more)


def test_a_session_of_this_machine_needs_no_keys(process: type[Process]) -> None:
    """Hub and agents meet at a private socket; on leaving, probes go out first, then the hub, then the files."""
    launcher = Launcher()
    terms = Terms(GivenWork(samples_per_step=32), budget_ppm=500)
    with session(launcher, terms=terms) as one:
        (hub,), agents = Process.made, launcher.agents
        assert agents is not None
        assert ("ipc:///run/agents", (), [ProbeRequest(budget_ppm=500)]) == (
            agents.url,
            agents.keys,
            agents.requests,
        )
        assert {"--samples-per-step=32", f"--parent={os.getpid()}", "--label=train.py"} <= set(hub.command)
        assert "--keys" not in hub.command
        assert ("first", "it was killed") == (one.agent, one.why_silent())
        assert not one.agent_ended()
        one.request(ProbeRequest(burst_ms=9))
        assert [None, 9] == [request.burst_ms for request in agents.requests]
        assert one.record.parent == one.folder
        assert "the hub ended; what it wrote before is kept" in one.why_hub_ended()
        (one.folder / "hub.log").write_text("frames are lost\nthe disk is full\n")
        hub.returncode = FailureError.exit_code
        assert "the disk is full" == one.why_hub_ended()
        hub.returncode = -signal.SIGKILL
        said = one.why_hub_ended()
        assert "the hub was killed by SIGKILL, as the kernel does where memory runs out" in said
        assert "not touched" not in said  # which was not seen: the kernel may have taken ranks as well
        hub.returncode = None
    assert agents.is_closed
    assert [signal.SIGTERM] == hub.signals
    assert hub.stdout.closed


def test_a_hub_that_does_not_end_is_ended(process: type[Process]) -> None:
    """Nothing of a session stays behind it."""
    process.ends_when_asked = False
    with session(Launcher()):
        pass
    assert [signal.SIGTERM, signal.SIGKILL] == Process.made[0].signals


def test_who_shares_writes_a_file_for_each_viewer(process: type[Process], tmp_path: Path) -> None:
    """Each with a key of its own and the port that the hub has taken; they open nothing once it is over."""
    files = (tmp_path / "one.share", tmp_path / "two.share")
    launcher = Launcher("tcp://127.0.0.1:*")
    with session(launcher, share=Share(files, "127.0.0.1")):
        hub = Process.made[0]
        invitations = [read_invitation(file) for file in files]
        assert ["tcp://127.0.0.1:4711"] * 2 == [one.url for one in invitations]
        keys = [one.key.public for one in invitations if one.key is not None]
        sent = orjson.loads(hub.stdin.getvalue())
        assert sorted(keys) == sorted(sent["viewers"])
        assert len(set(keys)) == 2
        assert "--keys" in hub.command
        assert any(one.startswith("--share=tcp://") for one in hub.command)
    assert not any(file.exists() for file in files)


@pytest.mark.parametrize(("code", "kind"), [(2, TuiadvisorError), (1, FailureError)])
def test_a_hub_that_cannot_begin_says_why(process: type[Process], code: int, kind: type[Exception]) -> None:
    """In its own words, as the user's mistake or as a failure."""
    process.says, process.code = b"", code
    with pytest.raises(kind, match=r"^no space left there$"):
        session(Launcher())


def test_without_agents_a_session_is_taken_down_again(process: type[Process]) -> None:
    """The launcher's reason is what is said."""
    with pytest.raises(FailureError, match="no such node"):
        session(Launcher(fails=FailureError("no such node")))
    assert [signal.SIGTERM] == Process.made[0].signals


def test_folders_of_commands_that_were_killed_are_removed(process: type[Process], tmp_path: Path) -> None:
    """Of those that live, of others' and what is no folder nothing."""
    del process
    dead, alive = tmp_path / f"{FOLDER_PREFIX}{1 << 22}-x", tmp_path / f"{FOLDER_PREFIX}{os.getppid()}-x"
    link, other = tmp_path / f"{FOLDER_PREFIX}{(1 << 22) + 1}-x", tmp_path / f"{FOLDER_PREFIX}none-x"
    for folder in (dead, alive, other):
        folder.mkdir()
    link.symlink_to(alive)
    remove_left_folders()
    assert [alive, link, other] == sorted(tmp_path.glob(f"{FOLDER_PREFIX}*"), key=[alive, link, other].index)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(fleet, "time", made)
    return made


def test_a_jobs_hub_begins_anew_when_it_ends(process: type[Process], tmp_path: Path, clock: FakeTime) -> None:
    """Sooner where it held for a while, ever later where it does not; each time into another file, with new keys."""
    del process
    hub = fleet.Hub(tmp_path, "node7", ("ann",))
    hub.look()
    hub.look()
    assert 1 == len(Process.made)
    assert {"--hub-address", "node7", f"--share={tmp_path / 'viewer-ann'}"} <= set(Process.made[0].command)
    outputs, pauses = [hub.output], []
    (tmp_path / "viewer-gone").write_text("a key of before")
    for held_s in (1.0, 1.0, SETTLED_S + 1, *[1.0] * 9):
        clock.sleep(held_s)
        Process.made[-1].returncode, begun_s, num = 1, clock.now_s, len(Process.made)
        while len(Process.made) == num:
            hub.look()
            clock.sleep(0.25)
        pauses.append(round(clock.now_s - 0.25 - begun_s, 1))
        outputs.append(hub.output)
    assert [2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, FIRST_PAUSE_S, 2 * FIRST_PAUSE_S] == pauses[:4]
    assert LONGEST_PAUSE_S == pauses[-1] == max(pauses)
    assert len(set(outputs)) == len(outputs)
    assert not (tmp_path / "viewer-gone").exists()
    assert 0o600 == (tmp_path / LOG).stat().st_mode & 0o777


def test_a_hub_that_cannot_be_started_is_tried_again(
    process: type[Process], tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk may pass."""
    hub = fleet.Hub(tmp_path, "")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fleet.subprocess, "Popen", full)
    hub.look()
    monkeypatch.setattr(fleet.subprocess, "Popen", process)
    hub.look()
    assert [] == Process.made
    clock.sleep(2 * FIRST_PAUSE_S)
    hub.look()
    assert 1 == len(Process.made)


def test_a_fleet_holds_its_jobs_until_it_is_interrupted(
    process: type[Process], tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond the limits goes meanwhile and is told; then each hub is asked to end, and ended if it does not."""
    process.ends_when_asked = False
    monkeypatch.setattr(fleet, "_end_with_parent", lambda: None)
    old = tmp_path / "a" / "old.tuirec"
    old.parent.mkdir(mode=0o700)
    old.touch()
    os.utime(old, (0, 0))
    said: list[str] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.after(2.0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        hold(tmp_path, {"a": (), "b": ()}, "", Limits(age_s=100.0), said.append, words={"a": ("--otlp",)})
    assert [f"removed {old}: beyond what is kept"] == said
    assert [True, False] == ["--otlp" in one.command for one in Process.made]
    assert [[signal.SIGTERM, signal.SIGKILL]] * 2 == [one.signals for one in Process.made]
    with pytest.raises(TuiadvisorError, match="one folder holds"):
        hold(
            tmp_path,
            {f"job{at}": () for at in range(fleet.MAX_JOBS + 1)},
            "",
            Limits(),
            said.append,
            words={},
        )


def test_jobs_that_may_be_looked_at_are_those_with_a_key(tmp_path: Path) -> None:
    """By name."""
    for job in ("b", "a", "c"):
        (tmp_path / job).mkdir()
    for job in ("b", "a"):
        (tmp_path / job / fleet.VIEWER).touch()
    assert [("a", tmp_path / "a" / fleet.VIEWER), ("b", tmp_path / "b" / fleet.VIEWER)] == open_jobs(tmp_path)
