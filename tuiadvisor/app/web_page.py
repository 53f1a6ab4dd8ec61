"""The web server around the screens: textual-serve's, below a secret path and without any other host.

Imports textual-serve and aiohttp, which only `pip install "tuiadvisor[web]"` brings.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from textual_serve.server import Server

from tuiadvisor import log
from tuiadvisor.text.printed import say

if TYPE_CHECKING:
    import socket

# The template links a web server of fonts; nothing is fetched from anywhere but here.
FONTS: Final = re.compile(r"<link\b[^>]*//fonts\.[^>]*>")
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page(Server):
    """Serves one command to whoever has the address."""

    def __init__(self, command: str, title: str, listening: socket.socket) -> None:
        host, port = listening.getsockname()
        super().__init__(command, host=host, port=port, title=title)
        # In the path and in no cookie: a browser sends cookies of one port to every port of the host.
        self._listening = listening
        self.key = secrets.token_urlsafe(24)
        log.hide(self.key)

    @property
    def address(self) -> str:
        """Where to look."""
        return f"http://{self.host}:{self.port}/{self.key}/"

    def serve(self, debug: bool = False) -> None:  # noqa: ARG002 - its parent declares it
        """Until a signal ends it; on the socket that listens already, so that no other program takes the port."""
        loop = asyncio.new_event_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.request_exit)
        web.run_app(self._make_app(), sock=self._listening, handle_signals=False, loop=loop, print=None)

    async def _make_app(self) -> web.Application:
        inner = await super()._make_app()
        outer = web.Application()
        outer.add_subapp(f"/{self.key}", inner)
        outer.on_response_prepare.append(_add_headers)
        return outer

    async def handle_index(self, request: web.Request) -> Any:
        """The page; its parts are looked for where the browser found it, which may be another port of an ssh tunnel."""
        self.public_url = f"{request.scheme}://{request.host}"
        response = await super().handle_index(request)
        response.text = without_fonts(response.text or "")
        return response

    async def on_startup(self, _app: web.Application) -> None:
        """Say where to look."""
        say(f"open {self.address}")
        say(
            f"from your own machine: ssh -L {self.port}:{self.host}:{self.port} HOST, then the same address. "
            "Ctrl-C ends it.",
        )


def without_fonts(page: str) -> str:
    """The page without links to a web server of fonts: the headers would refuse them, and a console would say so."""
    return FONTS.sub("", page)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
