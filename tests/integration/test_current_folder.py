"""Every command from a folder that holds a module of each name we import: none of them is, and nothing is different.

A project has a secrets.py of its own; anybody may put an orjson.py into a world-writable folder where root works.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import BESIDE_A_TRAINING, file_commands
from patience import PATIENCE_S, complaints
from ports import free_port
from training import running
from traps import Traps

from tuiadvisor.app.live_session import Session
from tuiadvisor.cli.commands import COMMANDS
from tuiadvisor.ownpython import own_environment
from tuiadvisor.stream.frames import FrameKind, decode

# As the `tuiadvisor` of a virtual environment starts: without the current folder.
STARTED = [sys.executable, "-P", "-m", "tuiadvisor"]
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def traps(tmp_path: Path) -> Traps:
    return Traps(tmp_path)


def run(traps: Traps, *arguments: str, start: list[str] = STARTED) -> Done:
    """One of our commands in that folder."""
    return subprocess.run(
        [*start, *arguments], cwd=traps.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


# One process for all, for each imports the same: before the first of them the folder is on the path.
ALL_OF_THEM = """
import sys
from tuiadvisor.cli import main
for line in sys.stdin:
    sys.argv[1:] = eval(line)
    print(main(), sys.argv[1:], file=sys.stderr)
"""


def test_commands_on_files_import_nothing_from_where_they_stand(traps: Traps, tmp_path: Path) -> None:
    """Recordings, reports, imports, rules, doctor: all of them succeed."""
    lines = file_commands(tmp_path)
    assert set(COMMANDS) == {line[0] for line in lines} | BESIDE_A_TRAINING
    traps.leave_to_python()
    done = subprocess.run(
        [sys.executable, "-c", ALL_OF_THEM], input="".join(f"{line}\n" for line in lines), cwd=traps.folder,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    ended = [line for line in done.stderr.splitlines() if line[:1].isdigit()]
    assert [f"0 {line}" for line in lines] == ended, done.stderr
    assert [] == traps.sprung()


def test_python_m_imports_only_what_python_itself_needs_for_it(traps: Traps) -> None:
    """`python -m tuiadvisor` has the folder on its path before we are asked; then we take it off."""
    for name in traps.names:
        if name in sys.stdlib_module_names:
            (traps.folder / f"{name}.py").unlink()
    done = run(traps, "doctor", start=[sys.executable, "-m", "tuiadvisor"])
    assert (0, "") == (done.returncode, complaints(done.stderr))
    assert [] == traps.sprung()


@pytest.mark.slow
def test_what_beside_a_training_runs_imports_nothing_from_where_it_stands(
    traps: Traps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hub, agent, tracer, capture, background: the ranks are watched, and only they run what is theirs."""
    pytest.importorskip("torch")
    with running(2, "--step-ms", "60", "--seconds", "3000") as (training, _):
        pid = ["--pid", str(training.pid)]
        for arguments, said in [
            (["watch", "--once", "--for", "200s", *pid], "2 ranks"),
            (["record", "-o", str(tmp_path / "run"), "--steps", "20", *pid], "recorded 2 ranks"),
            (["stacks", *pid], "rank 0"),
            (["capture", "0", "-o", str(tmp_path / "capture"), *pid], "rank 0"),
            (["detach", *pid], "2 ranks"),
        ]:
            done = run(traps, *arguments)
            assert (0, "") == (done.returncode, complaints(done.stderr)), arguments
            assert said in done.stdout
        assert [] == traps.sprung()
        in_background = run(traps, "record", "-o", str(tmp_path / "behind"), "--daemon", *pid)
        os.kill(int(re.findall(r"as process (\d+)", in_background.stdout)[0]), signal.SIGTERM)
        # An unset X in X=$X:/more: its empty part is the current folder, whatever Python is told.
        monkeypatch.chdir(traps.folder)
        for name in ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, ":" + os.environ.get(name, "/nowhere"))
        with Session([training.pid], None, "", "") as session:
            source, hosts = session.source(), 0
            deadline_s = time.monotonic() + PATIENCE_S
            while not hosts:
                assert time.monotonic() < deadline_s, session.agent_error()
                hosts += sum(decode(raw).kind is FrameKind.HELLO for raw in source.read(0.5))
            source.close()
        assert training.poll() is None
    assert [] == traps.sprung()


def test_a_command_of_the_users_runs_as_without_us(traps: Traps) -> None:
    """`run` and `arm` start what the user names: there the current folder is theirs."""
    # A traceback would import more from there, from Python 3.13 on.
    user = [
        sys.executable,
        "-c",
        "try: import orjson\nexcept ImportError as error: raise SystemExit(str(error))",
    ]
    traps.leave_to_python()
    for command in ("run", "arm"):
        done = run(traps, command, "--", *user)
        assert (1, ["orjson"]) == (done.returncode, traps.sprung()), done.stderr
        assert "a trap: orjson" in done.stderr


@pytest.mark.slow
def test_the_demo_trains_and_is_watched_from_there(traps: Traps) -> None:
    """Its training is ours too."""
    pytest.importorskip("torch")
    done = run(traps, "demo", "slow-data", "--headless", "--ranks", "2")
    assert 0 == done.returncode, done.stderr
    assert "2 ranks" in done.stdout.partition("attaching")[2]  # in the summary of what was seen
    assert [] == traps.sprung()


@pytest.fixture
def serving(traps: Traps, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    pytest.importorskip("textual_serve")
    command = [*STARTED, "serve", "--port", str(free_port()), "--", "replay", file_commands(tmp_path)[0][1]]
    process = subprocess.Popen(
        command, cwd=traps.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.terminate()
    process.communicate(timeout=PATIENCE_S)


async def test_a_page_of_the_browser_is_shown_from_there(
    serving: subprocess.Popen[str], traps: Traps
) -> None:
    """The process behind a page starts, and its first screen comes."""
    import aiohttp

    assert serving.stdout is not None
    assert select.select([serving.stdout], [], [], PATIENCE_S)[0]
    address = serving.stdout.readline().removeprefix("open ").strip()
    shown = b""
    async with (
        asyncio.timeout(PATIENCE_S),
        aiohttp.ClientSession() as client,
        client.ws_connect(f"{address}ws?width=100&height=40") as page,
    ):
        # This terminal answers no question for its cursor: what follows the first frame comes all the same.
        while b"RECORDED SO FAR" not in shown:  # whose run has no end in it
            message = await page.receive()
            assert isinstance(message.data, bytes | str), (shown[-2000:], message)
            shown += message.data if isinstance(message.data, bytes) else b""
    assert [] == traps.sprung()


def test_what_we_start_looks_nothing_up_where_we_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative and empty parts of the lists that loaders search are left out; the rest stays in its order."""
    monkeypatch.chdir(tmp_path)
    for given, kept in [
        ("/a::/b", "/a:/b"),
        (":/a", "/a"),
        (".:/a:lib", "/a"),
        ("/a", "/a"),
        (":", None),
        (".", None),
    ]:
        for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, given)
        environment = own_environment()
        found = [environment.get(name) for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")]
        assert [kept] * 3 == found, given
