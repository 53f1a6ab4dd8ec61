"""Brings notices to a command or a webhook, from a thread of its own: a slow receiver holds up nobody.

A URL may hold a secret: it is never logged or shown but for its scheme and host.
"""

from __future__ import annotations

import html
import http.client
import os
import queue
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import orjson

from tuiadvisor import expendable
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.log import Logger

if TYPE_CHECKING:
    from tuiadvisor.outlets.notices import Notice

logger: Final = Logger(__name__)
Format = Literal["json", "slack"]
MAX_WAITING: Final = 200  # notices; the oldest go first
COMMAND_S: Final = 30.0
WEBHOOK_S: Final = 5.0
CUT_S: Final = 0.2  # after it, until an attempt has ended: a connection may still be under way
PAUSES_S: Final = (1.0, 4.0)  # before a second and a third attempt
LAST_S: Final = 5.0  # for what is still waiting when the session ends


class Receiver(Protocol):
    """Where notices go."""

    name: str

    def deliver(self, notice: Notice) -> str:
        """Bring it there; in words why that failed, empty where it did not."""
        ...

    def hurry(self) -> None:
        """The session ends: no further attempts."""

    def stop(self) -> None:
        """Nothing of it may outlive the session."""


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
        self._running: subprocess.Popen[bytes] | None = None

    def deliver(self, notice: Notice) -> str:
        """Run it."""
        found = notice.finding
        told = {"EVENT": notice.event, "FINDING": found.id, "SEVERITY": found.severity}
        environment = {**os.environ, **{f"TUIADVISOR_{name}": value for name, value in told.items()}}
        try:
            # A session of its own: what the command starts ends with it, and ^C at the screens is not for it.
            with expendable.as_found():
                running = subprocess.Popen(
                    self._words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
            with running as self._running:
                # A whole line: appended to a log it is one of its own, and a shell's `read` takes it.
                return self._await(self._running, orjson.dumps(notice.document()) + b"\n")
        except OSError as error:
            return error.strerror or "could not be started"

    def _await(self, running: subprocess.Popen[bytes], told: bytes) -> str:
        try:
            running.communicate(told, timeout=COMMAND_S)
        except subprocess.TimeoutExpired:
            self.stop()
            return f"ended after {COMMAND_S:.0f} s without an exit"
        return "" if running.returncode == 0 else f"exit code {running.returncode}"

    def hurry(self) -> None:
        """It is tried once anyway."""

    def stop(self) -> None:
        """Kill what still runs of it."""
        running = self._running
        if running is not None and running.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers with another address does not get what was meant for the first."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the answer counts as an error."""


class _Attempt:
    """One POST that is cut off after WEBHOOK_S: urllib's limit is one of each read, which a byte now and then keeps."""

    def __init__(self) -> None:
        self._connections: list[http.client.HTTPConnection] = []
        self.was_cut = False

    def plain(self, *args: Any, **named: Any) -> http.client.HTTPConnection:
        """A connection to remember, as urllib makes one."""
        self._connections.append(http.client.HTTPConnection(*args, **named))
        return self._connections[-1]

    def encrypted(self, *args: Any, **named: Any) -> http.client.HTTPConnection:
        """The same for https."""
        self._connections.append(http.client.HTTPSConnection(*args, **named))
        return self._connections[-1]

    def limit(self, has_ended: threading.Event) -> None:
        """For a thread of its own: once the time is over, whoever reads from a connection goes on as at its end."""
        while not has_ended.wait(CUT_S if self.was_cut else WEBHOOK_S):
            self.was_cut = True
            for each in self._connections:
                if each.sock is not None:
                    with suppress(OSError):  # not TLS' own shutdown, which is not made for two threads
                        socket.socket.shutdown(each.sock, socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, attempt: _Attempt) -> None:
        super().__init__()
        self._attempt = attempt

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """As urllib does, by a connection that can be cut."""
        return self.do_open(self._attempt.plain, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, attempt: _Attempt) -> None:
        super().__init__()
        self._attempt = attempt

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """The same for https."""
        return self.do_open(self._attempt.encrypted, req)


def slack_text(notice: Notice) -> str:
    """One line in which nothing is a mark-up: a job's name, which is somebody else's, calls no channel."""
    return html.escape(one_line(notice.text()), quote=False)


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
        if parts.username is not None:
            raise TuiadvisorError(
                "--webhook: a user or password in the URL is sent to nobody; use a receiver whose secret is in the path"
            )
        self.name = f"--webhook {parts.scheme}://{parts.hostname}"
        self._url, self._kind = url, kind
        self._ended = threading.Event()

    def deliver(self, notice: Notice) -> str:
        """Send it; the reason of the last attempt where none succeeded."""
        body = orjson.dumps({"text": slack_text(notice)} if self._kind == "slack" else notice.document())
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

    def stop(self) -> None:
        """An attempt ends by its own limit."""

    def _post(self, body: bytes) -> str:
        request = urllib.request.Request(  # noqa: S310  http and https alone get past __init__
            self._url, body, {"Content-Type": "application/json", "User-Agent": "tuiadvisor"}, method="POST"
        )
        attempt, has_ended = _Attempt(), threading.Event()
        threading.Thread(
            target=attempt.limit, args=(has_ended,), name="tuiadvisor-webhook", daemon=True
        ).start()
        try:
            why = self._answer_of(request, attempt)
        finally:
            has_ended.set()
        return f"no answer within {WEBHOOK_S:.3g} s" if attempt.was_cut else why

    def _answer_of(self, request: urllib.request.Request, attempt: _Attempt) -> str:
        opener = urllib.request.build_opener(_NoRedirect(), _Http(attempt), _Https(attempt))
        try:
            with opener.open(request, timeout=WEBHOOK_S):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return f"answered {error.code}"
        except http.client.HTTPException:  # its words may hold a part of the URL
            return "no answer in HTTP"
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                return f"no answer within {WEBHOOK_S:.3g} s"
            return one_line(str(getattr(reason, "strerror", None) or type(reason).__name__))


class _Line:
    """One receiver with a thread of its own, so that a slow one holds up no other."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.failed: Counter[str] = Counter()
        self._waiting: queue.Queue[Notice | None] = queue.Queue()
        self._num_taken = self._num_done = 0  # notices; each is counted by one thread alone
        self.thread = threading.Thread(target=self._run, name="tuiadvisor-notices", daemon=True)
        self.thread.start()

    def add(self, notice: Notice) -> bool:
        """Returns at once; whether there was room."""
        if self._waiting.qsize() >= MAX_WAITING:
            return False
        self._num_taken += 1
        self._waiting.put(notice)
        return True

    def end(self) -> None:
        """After what waits."""
        self._waiting.put(None)
        self.receiver.hurry()

    def num_undelivered(self) -> int:
        """Notices that the thread still has: the one under way, and those behind it."""
        return self._num_taken - self._num_done

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            begin = time.monotonic()
            try:
                why = self.receiver.deliver(notice)
            except Exception:
                logger.exception("a notice failed")
                why = "failed"
            if why:
                self.failed[why] += 1
                logger.warning("%s: %s", self.receiver.name, why)
            else:
                logger.info("%s: told in %.1f s", self.receiver.name, time.monotonic() - begin)
            self._num_done += 1


class Delivery:
    """The threads that deliver, and what became of it."""

    def __init__(self, receivers: list[Receiver]) -> None:
        self._lines = [_Line(receiver) for receiver in receivers]
        self._lost: Counter[str] = Counter()

    def add(self, notice: Notice) -> None:
        """Returns at once."""
        for each in self._lines:
            if not each.add(notice):
                self._lost[each.receiver.name] += 1

    def close(self) -> list[str]:
        """End, with a few seconds for what still waits; a line for each way in which notices failed."""
        for each in self._lines:
            each.end()
        deadline = time.monotonic() + LAST_S
        told = []
        for each in self._lines:
            each.thread.join(max(deadline - time.monotonic(), 0.0))
            lost = self._lost[each.receiver.name] + each.num_undelivered()
            each.receiver.stop()
            told += [f"{each.receiver.name}: {why} ({times}x)" for why, times in list(each.failed.items())]
            if lost:
                what = "1 notice was" if lost == 1 else f"{lost} notices were"
                told.append(f"{each.receiver.name}: {what} not delivered when the session ended")
        return told
