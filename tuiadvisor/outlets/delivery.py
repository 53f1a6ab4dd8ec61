"""Brings notices to a command or a webhook, from a thread of its own: a slow receiver holds up nobody.

A URL may hold a secret: it is never logged or shown but for its scheme and host.
"""

from __future__ import annotations

import os
import queue
import shlex
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import orjson

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.log import Logger

if TYPE_CHECKING:
    from tuiadvisor.outlets.notices import Notice

logger: Final = Logger(__name__)
Format = Literal["json", "slack"]
FORMATS: Final = ("json", "slack")
MAX_WAITING: Final = 200  # notices; the oldest go first
COMMAND_S: Final = 30.0
WEBHOOK_S: Final = 5.0
PAUSES_S: Final = (1.0, 4.0)  # before a second and a third attempt
LAST_S: Final = 5.0  # for what is still waiting when the session ends


class Receiver(Protocol):
    """Where notices go."""

    name: str

    def deliver(self, notice: Notice) -> str:
        """Bring it there; in words why that failed, empty where it did not."""
        ...


class CommandReceiver:
    """A command of the user's; the notice is its standard input as JSON, and in three variables. No shell."""

    def __init__(self, words: str) -> None:
        """TuiadvisorError where it is no command that can be run."""
        try:
            self._words = shlex.split(words)
        except ValueError as error:
            raise TuiadvisorError(
                f"--on-finding {words!r}: {error}; quote it like a line of a shell"
            ) from None
        if not self._words:
            raise TuiadvisorError("--on-finding: no command; name a program and its arguments in quotes")
        if shutil.which(self._words[0]) is None:
            raise TuiadvisorError(f"--on-finding {self._words[0]}: no such program; give its path")
        self.name = f"--on-finding {self._words[0]}"

    def deliver(self, notice: Notice) -> str:
        """Run it."""
        found = notice.finding
        told = {"EVENT": notice.event, "FINDING": found.id, "SEVERITY": found.severity}
        environment = {**os.environ, **{f"TUIADVISOR_{name}": value for name, value in told.items()}}
        try:
            done = subprocess.run(
                self._words,
                input=orjson.dumps(notice.document()),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                timeout=COMMAND_S,
                check=False,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return f"ended after {COMMAND_S:.0f} s without an exit"
        except OSError as error:
            return error.strerror or "could not be started"
        return "" if done.returncode == 0 else f"exit code {done.returncode}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers with another address does not get what was meant for the first."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the answer counts as an error."""


class WebhookReceiver:
    """POSTs each notice as JSON, up to three times."""

    def __init__(self, url: str, kind: Format) -> None:
        """TuiadvisorError where it is no http or https URL."""
        try:
            parts = urlsplit(url)
            is_usable = (
                parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or True)
            )
        except ValueError:
            is_usable = False
        if not is_usable or not url.isprintable() or " " in url:
            raise TuiadvisorError("--webhook: no URL of a receiver; write https://HOST/PATH")
        self.name = f"--webhook {parts.scheme}://{parts.hostname}"
        self._url, self._kind = url, kind
        self._opener = urllib.request.build_opener(_NoRedirect())
        self._ended = threading.Event()

    def deliver(self, notice: Notice) -> str:
        """Send it; the reason of the last attempt where none succeeded."""
        body = orjson.dumps({"text": notice.text()} if self._kind == "slack" else notice.document())
        why = ""
        for pause_s in (0.0, *PAUSES_S):
            if self._ended.wait(pause_s) and pause_s:
                break
            why = self._post(body)
            if not why:
                break
        return why

    def hurry(self) -> None:
        """No further attempts from now on."""
        self._ended.set()

    def _post(self, body: bytes) -> str:
        request = urllib.request.Request(  # noqa: S310  http and https alone get past __init__
            self._url, body, {"Content-Type": "application/json", "User-Agent": "tuiadvisor"}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=WEBHOOK_S):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return f"answered {error.code}"
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            return one_line(str(getattr(reason, "strerror", None) or type(reason).__name__))


class Delivery:
    """The thread that delivers, and what became of it."""

    def __init__(self, receivers: list[Receiver]) -> None:
        self._receivers = receivers
        self._waiting: queue.Queue[Notice | None] = queue.Queue()
        self._lost = 0
        self._failed: Counter[tuple[str, str]] = Counter()
        self._thread = threading.Thread(target=self._run, name="tuiadvisor-notices", daemon=True)
        self._thread.start()

    def add(self, notice: Notice) -> None:
        """Returns at once."""
        if self._waiting.qsize() >= MAX_WAITING:
            self._lost += 1
            return
        self._waiting.put(notice)

    def close(self) -> list[str]:
        """End, with a few seconds for what still waits; a line for each way in which notices failed."""
        self._waiting.put(None)
        for receiver in self._receivers:
            if isinstance(receiver, WebhookReceiver):
                receiver.hurry()
        self._thread.join(LAST_S)
        lost = self._lost + (max(self._waiting.qsize() - 1, 0) if self._thread.is_alive() else 0)
        told = [f"{name}: {why} ({times}x)" for (name, why), times in self._failed.items()]
        return [*told, f"{lost} notices were not delivered"] if lost else told

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            for receiver in self._receivers:
                begin = time.monotonic()
                try:
                    why = receiver.deliver(notice)
                except Exception:
                    logger.exception("a notice failed")
                    why = "failed"
                if why:
                    self._failed[receiver.name, why] += 1
                    logger.warning("%s: %s", receiver.name, why)
                else:
                    logger.info("%s: told in %.1f s", receiver.name, time.monotonic() - begin)
