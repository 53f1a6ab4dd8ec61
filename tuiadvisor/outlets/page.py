"""The metrics as a page for Prometheus, and as a file for node_exporter's textfile collector.

The page is served to this machine alone unless a token is asked for: what a job is called and where it runs is not
everybody's business. Nothing here is ever waited for by a session.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import socket
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.log import Logger
from tuiadvisor.outlets.metrics import families, labelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from tuiadvisor.outlets.notices import Labels
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)
PATH: Final = "/metrics"
REQUEST_S: Final = 5.0  # whoever connects and says nothing is let go
WHOLE_S: Final = 20.0  # nor does anybody hold a place for longer, who sends or takes a byte now and then
MAX_READERS: Final = 16  # at a time
LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost."})


class _Run(Collector):
    """The newest view, whenever somebody asks."""

    def __init__(self, latest: Callable[[], RunView | None], version: str, labels: Labels = ()) -> None:
        self._latest, self._version, self._labels = latest, version, labels

    def collect(self) -> Iterable[Metric]:
        """No family before there is a view."""
        view = self._latest()
        return [] if view is None else labelled(families(view, self._version), dict(self._labels))


def registry_of(latest: Callable[[], RunView | None], version: str, labels: Labels = ()) -> CollectorRegistry:
    """A registry of its own: nothing of this process, of Python or of other libraries is on the page.

    labels: the user's own, on each sample.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Run(latest, version, labels))
    return registry


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host.lower() in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, token: str) -> None:
    """TuiadvisorError where other machines would read without a token."""
    if not token and not is_loopback(host):
        raise TuiadvisorError(
            f"--metrics {host}: other machines reach it; give the readers a token with --metrics-token FILE"
        )


class MetricsServer:
    """Serves PATH on an address in threads of its own; a context manager. TuiadvisorError where it cannot listen."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int, token: str = "") -> None:
        """token: what a reader has to send as `Authorization: Bearer TOKEN`; without one loopback is the only host."""
        check_host(host, token)
        try:
            self._server = _Server((host, port), registry, token)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise TuiadvisorError(f"--metrics {host}:{port}: {why}; name another address or port") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="tuiadvisor-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host, port = self._server.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}{PATH}"

    def close(self) -> None:
        """No more readers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(REQUEST_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, token: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.registry, self.token = registry, token
        self.is_private = not token
        self._readers = threading.BoundedSemaphore(MAX_READERS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._readers.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._readers.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        limit = threading.Timer(WHOLE_S, _hang_up, (request,))
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._readers.release()

    def handle_error(self, *_: Any) -> None:
        """Nothing on the terminal: readers come and go."""
        logger.debug("a reader of the metrics left early")


def _hang_up(connection: socket.socket) -> None:
    """Whoever waits for it in another thread goes on."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    server_version, sys_version = "tuiadvisor", ""
    server: _Server

    def do_GET(self) -> None:
        """The page, for who may read it."""
        if self.path.partition("?")[0] != PATH:
            return self._refuse(404, "the metrics are at /metrics")
        if self.server.is_private and not self._is_asked_for_here():
            return self._refuse(403, "this page is for this machine alone")
        sent = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if self.server.token and not hmac.compare_digest(sent, f"Bearer {self.server.token}".encode()):
            return self._refuse(401, "a token is needed: Authorization: Bearer TOKEN")
        try:
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
        except (TypeError, ValueError):  # a version that is none
            encode, kind = choose_encoder("")
        body = encode(self.server.registry)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self._answer(body)
        return None

    def do_HEAD(self) -> None:
        """What a look at the page alone asks for (`curl -I`): all but the page."""
        self.do_GET()

    def _answer(self, body: bytes) -> None:
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _is_asked_for_here(self) -> bool:
        """By a name of this machine: a web page elsewhere may have its own name point here."""
        host = self.headers.get("Host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return is_loopback(name)

    def _refuse(self, code: int, why: str) -> None:
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self._answer(f"{why}\n".encode())

    def log_message(self, *args: Any) -> None:
        """Into our log, not onto the terminal."""
        logger.debug("metrics: %s", one_line(args[0] % args[1:]))


def write_file(registry: CollectorRegistry, path: Path) -> None:
    """The page as a file, whole or not at all. OSError where it cannot be written."""
    body = generate_latest(registry)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            os.fchmod(file.fileno(), 0o644)  # the collector runs as another user
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
