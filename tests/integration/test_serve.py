"""The screens as a web page: a real server, a real browser, keys pressed in it; nobody without the address gets in."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from chromium import Tab, executable
from patience import PATIENCE_S, wait_until

from tuiadvisor.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_server = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('textual_serve')",
    reason="no textual-serve (pip install 'tuiadvisor[web]')",
)
needs_browser = pytest.mark.skipif(executable() is None, reason="no browser (apt-get install chromium)")


class Serving:
    """`tuiadvisor serve` on a recording."""

    def __init__(self, folder: Path) -> None:
        sys.path.append(str(Path(__file__).parents[1] / "unit"))
        from synthetic_run import Fault, Job
        from unit.test_contents import recording

        file = folder / "before.tuirec"
        recording(file, Job(num_steps=200, faults=(Fault("backward", (2,), 0.015),)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tuiadvisor.cli", "serve", "--port", "0", "--", "replay", str(file),
             "--at", "199"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TERM": "dumb", "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)},
        )  # fmt: skip
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert ready, "the server said nothing"
        self.address = self.process.stdout.readline().removeprefix("open ").strip()
        self.port = int(self.address.split("/")[2].rpartition(":")[2])

    def viewers(self) -> list[int]:
        """The processes behind the open pages."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    server = Serving(tmp_path)
    yield server
    left = server.viewers() if server.process.poll() is None else []
    server.end()
    wait_until(lambda: not any(alive(pid) for pid in left))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def shows(tab: Tab, *parts: str) -> str:
    """Wait until the terminal in the page shows all parts."""
    text = ""
    for _ in range(int(PATIENCE_S / 0.3)):
        text = await tab.text()
        if all(part in text for part in parts):
            return text
        await asyncio.sleep(0.3)
    raise AssertionError(f"not shown: {parts}; the page shows:\n{text}")


@needs_server
@needs_browser
async def test_a_recording_is_replayed_in_a_browser(serving: Serving, tmp_path: Path) -> None:
    """The overview with its verdict; a key changes the screen; the process behind the page ends with it."""
    async with Tab(tmp_path) as tab:
        await tab.open(serving.address)
        await shows(tab, "TUNE", "where a step goes", "REPLAY")
        await tab.picture(tmp_path / "overview.png")
        assert 1 == len(serving.viewers())
        await tab.press("2")
        await shows(tab, "ranks by rank")
        await tab.press("6")
        await shows(tab, "scaling and cost", "what is stated")
        await tab.picture(tmp_path / "scaling.png")
        for name in ("overview", "scaling"):
            assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        # textual-serve's template links fonts of another host: the link is taken out, nothing else is asked for.
        names = await tab.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
        assert names
        assert [] == [each for each in names if not each.startswith(f"http://127.0.0.1:{serving.port}/")]
        await tab.press("q")
        await asyncio.to_thread(wait_until, lambda: not serving.viewers())
        assert "-closed" in await tab.evaluate("document.body.className")


@needs_server
def test_nobody_without_the_address_gets_in(serving: Serving) -> None:
    """Every other path is not there, and a page may load nothing from elsewhere."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    root = f"http://127.0.0.1:{serving.port}/"
    for path in ("", "ws", "static/js/textual.js", f"{serving.address.split('/')[3][:-1]}/"):
        with pytest.raises(HTTPError) as caught:
            urlopen(root + path, timeout=PATIENCE_S)
        assert 404 == caught.value.code
        caught.value.close()
    with urlopen(serving.address, timeout=PATIENCE_S) as page:
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        assert "no-referrer" == page.headers["Referrer-Policy"]
        # Found by the host the browser used: the other end of an ssh tunnel may have another port.
        content = page.read().decode()
        assert f'"ws://127.0.0.1:{serving.port}/' in content
        assert "xterm.css" in content
        assert "fonts." not in content
    assert [] == serving.viewers()


@needs_server
def test_the_address_is_said_when_the_page_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens the page in the moment its address is printed is not refused."""
    from aiohttp.web_runner import GracefulExit

    from tuiadvisor.app import web_page

    said = []

    def at_once(line: str, **_: object) -> None:
        said.append(line)
        socket.create_connection(("127.0.0.1", int(line.split("/")[2].rpartition(":")[2]))).close()
        raise GracefulExit

    monkeypatch.setattr(web_page, "say", at_once)
    main(["serve", "--port", "0", "--", "runs"])
    assert 1 == len(said)


@needs_server
def test_a_port_in_use_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Before any page is promised."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert 1 == main(["serve", "--port", str(taken.getsockname()[1]), "--", "runs"])
    assert "try another one" in capsys.readouterr().err


@needs_server
@needs_browser
async def test_a_server_that_is_killed_leaves_no_viewer_behind(serving: Serving, tmp_path: Path) -> None:
    """The process behind the page notices that nobody is there."""
    async with Tab(tmp_path) as tab:
        await tab.open(serving.address)
        await shows(tab, "TUNE")
        (viewer,) = serving.viewers()
        serving.end(signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: not alive(viewer))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to show"),
        (["--", "record", "-o", "x"], "'record' shows no screens"),
        (["--", "replay", "x.tuirec", "--once"], "leave --once out"),
        (["--", "compare", "a", "b"], "add --tui"),
    ],
)
def test_what_shows_no_screens_is_refused_at_once(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before a page is opened on it."""
    assert 2 == main(["serve", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert 1 == len(lines)
    assert said in lines[0]
