"""All that a session tells others while it runs, as the user asked for: started with it, ended with it."""

from __future__ import annotations

import importlib
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from tuiadvisor import __version__
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.log import Logger
from tuiadvisor.outlets.delivery import CommandReceiver, Delivery, Format, WebhookReceiver
from tuiadvisor.outlets.metrics import PREFIX
from tuiadvisor.outlets.notices import Notices
from tuiadvisor.outlets.page import MetricsServer, check_host, registry_of, write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tuiadvisor.outlets.delivery import Receiver
    from tuiadvisor.outlets.notices import Labels
    from tuiadvisor.views.run_view import RunView

logger: Final = Logger(__name__)
LOOK_S: Final = 0.5  # as often as there is a new view
OURS: Final = f"# HELP {PREFIX}".encode()
FILE_S: Final = 10.0  # between two writings of the file: collectors read it once in 15 s or less often


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to tell, where."""

    address: tuple[str, int] | None = None  # of the page
    token: str = ""
    labels: Labels = ()  # of the user's own, on each sample
    file: Path | None = None
    otlp: bool = False  # to where OpenTelemetry's standard variables say
    command: str | None = None
    webhook: str | None = None
    webhook_format: Format = "json"

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return any((self.address, self.file, self.otlp, self.command, self.webhook))


def receivers_of(wishes: Wishes) -> list[Receiver]:
    """Who gets notices. TuiadvisorError where one of them cannot be told anything."""
    found: list[Receiver] = []
    if wishes.command is not None:
        found.append(CommandReceiver(wishes.command))
    if wishes.webhook is not None:
        found.append(WebhookReceiver(wishes.webhook, wishes.webhook_format))
    return found


def check(wishes: Wishes) -> None:
    """TuiadvisorError for what can be told at once not to work in a session that is started later."""
    receivers_of(wishes)
    if wishes.address is not None:
        check_host(wishes.address[0], wishes.token)
    if wishes.otlp:
        importlib.import_module("tuiadvisor.outlets.otlp").check()


class Outlets:
    """A context manager; what cannot work is a TuiadvisorError at its making, before anything is attached."""

    def __init__(self, wishes: Wishes) -> None:
        """Validate, and listen."""
        self._latest: RunView | None = None
        self._registry = registry_of(lambda: self._latest, __version__, wishes.labels)
        receivers = receivers_of(wishes)
        self._file, self._file_failure = wishes.file, ""
        if self._file is not None:
            self._write_first(self._file)
        self._sender: Any = None
        if wishes.otlp:
            otlp = importlib.import_module("tuiadvisor.outlets.otlp")  # an extra
            self._sender = otlp.OtlpSender(self._registry, __version__)
        self._server = (
            MetricsServer(self._registry, *wishes.address, token=wishes.token) if wishes.address else None
        )
        self._delivery = Delivery(receivers) if receivers else None
        self._notices = Notices(wishes.labels)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.said: list[str] = []  # once closed: what did not work

    @property
    def url(self) -> str | None:
        """Where the metrics are served."""
        return self._server.url if self._server else None

    def follow(self, latest: Callable[[], RunView | None]) -> None:
        """Tell of these views from now on; latest: the newest, None where there is none or it is of the past."""
        self._thread = threading.Thread(
            target=self._follow, args=(latest,), name="tuiadvisor-outlets", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        """Made already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what runs, and the file with it: figures of a run that nobody watches any more are none."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(LOOK_S + 5.0)
        if self._server is not None:
            self._server.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)
        self.said += self._sender.close() if self._sender else []
        self.said += self._delivery.close() if self._delivery else []
        self.said += [self._file_failure] if self._file_failure else []

    def _write_first(self, path: Path) -> None:
        if not _is_ours(path):
            raise TuiadvisorError(f"--metrics-file {path}: holds something else; name a new file")
        try:
            write_file(self._registry, path)
        except OSError as error:
            raise TuiadvisorError(
                f"--metrics-file {path}: {error.strerror}; name a file that can be written"
            ) from None

    def _follow(self, latest: Callable[[], RunView | None]) -> None:
        file_due_s = 0.0
        while not self._stopped.is_set():
            try:
                view = latest()
                if view is not None and view is not self._latest:
                    self._latest = view
                if self._latest is not None and self._delivery is not None:
                    for notice in self._notices.look(self._latest, time.monotonic()):
                        self._delivery.add(notice)
                if self._file is not None and time.monotonic() >= file_due_s:
                    file_due_s = time.monotonic() + FILE_S
                    self._rewrite(self._file)
            except Exception:
                logger.exception("a view could not be told")
            self._stopped.wait(LOOK_S)

    def _rewrite(self, path: Path) -> None:
        try:
            write_file(self._registry, path)
        except OSError as error:
            if not self._file_failure:
                logger.warning("the metrics' file cannot be written: %s", error.strerror)
            self._file_failure = f"--metrics-file {path}: {error.strerror}"
            with suppress(OSError):
                path.unlink(missing_ok=True)  # what it says is of the past, and would be read as of now


def _is_ours(path: Path) -> bool:
    """Whether it may be overwritten, and taken away at the end: absent, empty or metrics of an earlier session."""
    try:
        with path.open("rb") as file:
            return file.read(len(OURS)) in {b"", OURS}
    except FileNotFoundError:
        return True
    except OSError:
        return False
