"""A metrics page from a server: plain http or https, once, within bounds of size and time; no redirect is followed.

In: an address.  Out: its bytes, when they came by our clock and by the server's. FailureError: it could not be had.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from tuiadvisor import __version__
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.importers.serving.page import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMES: Final = ("http", "https")
ANSWER_S: Final = 10.0  # of one wait for the server; Prometheus' own limit for a scrape
WHOLE_S: Final = 30.0  # of the whole page, however slowly it drips
CHUNK: Final = 64 << 10
# Not OpenMetrics, which old servers write wrongly; not compressed, so that the limit is that of what is parsed.
HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": f"tuiadvisor/{__version__}",
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came. at_s: our clock that never jumps; served_s: Unix time, the server's own where it says it."""

    address: str
    raw: bytes
    at_s: float
    served_s: float


def is_address(word: str) -> bool:
    """Whether it is meant as one, rather than as a file."""
    return "://" in word


def checked_address(word: str) -> str:
    """The page's address; a server without a path has its page at /metrics. TuiadvisorError: nothing to ask."""
    try:
        parts = urlsplit(word)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise TuiadvisorError(f"{word}: no address ({error}); write http://HOST:PORT/metrics") from None
    if parts.scheme.lower() not in SCHEMES:
        raise TuiadvisorError(f"{word}: only http and https are read; save the page and name the file")
    if not host or not word.isascii() or not word.isprintable() or " " in word:
        raise TuiadvisorError(f"{word}: no address; write http://HOST:PORT/metrics")
    if parts.username is not None:
        raise TuiadvisorError("an address must hold no password: save the page with curl and name the file")
    path = parts.path if parts.path not in {"", "/"} else "/metrics"
    return urlunsplit((parts.scheme.lower(), parts.netloc, path, parts.query, ""))


def fetch(address: str, clock: Callable[[], float] = time.monotonic) -> Fetched:
    """The page. FailureError: no answer; TuiadvisorError: an answer that is no page."""
    opener = OpenerDirector()
    # Without a handler of redirects and without one for files.
    for handler in (ProxyHandler, HTTPHandler, HTTPSHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor):
        opener.add_handler(handler())
    try:
        with opener.open(Request(address, headers=HEADERS), timeout=ANSWER_S) as answer:  # noqa: S310 - checked
            served_s = _served_s(answer.headers.get("Date"))
            if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise TuiadvisorError(f"{address}: the page came compressed; save it with curl --compressed")
            return Fetched(address, _read(answer, address, clock), clock(), served_s)
    except HTTPError as error:
        raise TuiadvisorError(_status(address, error)) from None
    except URLError as error:
        raise FailureError(
            f"{address}: {_reason(error.reason)}; is the server up, and its port right?"
        ) from None
    except TimeoutError:
        raise FailureError(f"{address}: no answer within {ANSWER_S:.0f} s") from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise FailureError(f"{address}: no page came ({type(error).__name__})") from None


def _read(answer: IO[bytes], address: str, clock: Callable[[], float]) -> bytes:
    """All of it, or a refusal at the limit."""
    parts, size, until_s = [], 0, clock() + WHOLE_S
    read = getattr(answer, "read1", answer.read)  # what has come, not a whole chunk of a slow drip
    while part := read(CHUNK):
        size += len(part)
        if size > MAX_BYTES:
            raise TuiadvisorError(f"{address}: larger than {MAX_BYTES >> 20} MiB; name one server's own page")
        if clock() > until_s:
            raise FailureError(f"{address}: the page did not come within {WHOLE_S:.0f} s")
        parts.append(part)
    return b"".join(parts)


def _status(address: str, error: HTTPError) -> str:
    to = error.headers.get("Location", "") if error.headers else ""
    error.close()
    if to:
        return (
            f"{address}: redirects to {to[:200]!r}, which is not followed; name that address if it is right"
        )
    return f"{address}: the server answers {error.code}; name the page of its metrics, usually /metrics"


def _reason(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {ANSWER_S:.0f} s"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason)[:200]


def _served_s(date: str | None) -> float:
    try:
        return parsedate_to_datetime(date or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return time.time()
