"""A headless Chromium of a test's own, driven over the DevTools protocol: open a page, press keys, read its terminal.

The terminal is read as a person would: everything is marked with the mouse, then copied.
"""

# ruff: noqa: ASYNC220, ASYNC240  one browser, one test: nothing else runs in this loop

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Self

from patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
)  # fmt: skip
COPY = """(() => {
  const data = new DataTransfer();
  const target = document.querySelector(".xterm");
  target.dispatchEvent(new ClipboardEvent("copy", {clipboardData: data, bubbles: true, cancelable: true}));
  return data.getData("text/plain");
})()"""


def executable() -> str | None:
    """Where Chromium is, if it is anywhere."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page. An async context manager."""

    def __init__(self, folder: Path, width: int = 1200, height: int = 760) -> None:
        self.folder = folder
        self.size = (width, height)
        self._number = 0

    async def __aenter__(self) -> Self:
        """Start the browser with nothing in its profile."""
        import aiohttp

        profile = self.folder / "profile"
        profile.mkdir()
        self._log = (self.folder / "chromium.log").open("wb")
        width, height = self.size
        self.browser = subprocess.Popen(
            [
                str(executable()),
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env={**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)},
        )
        self._http = aiohttp.ClientSession()
        try:
            port = await self._port(profile / "DevToolsActivePort")
            async with self._http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            self._socket = await self._http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
            await self.call("Page.enable")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the browser by its own process."""
        await self._http.close()
        self.browser.terminate()
        try:
            await asyncio.to_thread(self.browser.wait, 10)
        except subprocess.TimeoutExpired:
            self.browser.kill()
            self.browser.wait()
        self._log.close()

    async def _port(self, file: Path) -> int:
        for _ in range(int(PATIENCE_S / 0.1)):
            if file.exists() and (lines := file.read_text().splitlines()):
                return int(lines[0])
            assert self.browser.poll() is None, (self.folder / "chromium.log").read_text(errors="replace")[
                -2000:
            ]
            await asyncio.sleep(0.1)
        raise AssertionError("Chromium did not start")

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await asyncio.wait_for(self._socket.receive_json(), PATIENCE_S)
            if message.get("id") == number:
                assert "error" not in message, (method, message)
                return dict(message["result"])

    async def open(self, address: str) -> None:
        """Go to a page."""
        await self.call("Page.navigate", url=address)

    async def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def press(self, key: str) -> None:
        """A key with a character."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def text(self) -> str:
        """What the terminal shows: marked with shift, which no application takes away, and copied."""
        box = await self.evaluate(
            "(() => {const b = document.querySelector('.xterm-screen')?.getBoundingClientRect();"
            "return b ? [b.left, b.top, b.right, b.bottom] : null})()"
        )
        if box is None:
            return ""
        left, top, right, bottom = box
        mouse = {"button": "left", "modifiers": 8, "clickCount": 1}
        await self.call("Input.dispatchMouseEvent", type="mousePressed", x=left + 2, y=top + 2, **mouse)
        await self.call(
            "Input.dispatchMouseEvent", type="mouseMoved", x=right - 2, y=bottom - 2, buttons=1, **mouse
        )
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", x=right - 2, y=bottom - 2, **mouse)
        return str(await self.evaluate(COPY) or "")

    async def picture(self, path: Path) -> None:
        """A PNG of the page."""
        answer = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))
