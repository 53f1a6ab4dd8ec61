"""A metrics page over http: read once and whole, or refused in one line that says what to do."""

from __future__ import annotations

import http.server
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.importers.serving import fetch as module
from tuiadvisor.importers.serving.fetch import checked_address, fetch, is_address

PAGE = b"vllm:num_requests_running 7\n"
NOON = "Sun, 06 Nov 1994 08:49:37 GMT"
Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


def told(status: int, body: bytes = PAGE, **headers: str) -> Answer:
    """An answer of this status with these headers alone; their names with _ for -."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response_only(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], str]]:
    """Serves one answer; the page's address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    opened = []

    def serve(answer: Answer) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None:
                pass

        serving = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        opened.append((serving, thread))
        return f"http://127.0.0.1:{serving.server_port}/metrics"

    yield serve
    for serving, thread in opened:
        serving.shutdown()
        thread.join()
        serving.server_close()


@pytest.mark.parametrize(
    ("word", "address"),
    [
        ("http://host:8000", "http://host:8000/metrics"),
        ("HTTPS://host/", "https://host/metrics"),
        ("http://[::1]:9/own?name=x#part", "http://[::1]:9/own?name=x"),
    ],
)
def test_an_address_without_a_path_means_the_metrics(word: str, address: str) -> None:
    assert is_address(word)
    assert address == checked_address(word)


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("http://host:port/", "no address .*write http://HOST:PORT/metrics"),
        ("http://[::1/", "no address"),
        ("http:///metrics", "no address; write"),
        ("http://ho st/", "no address; write"),
        ("http://host/\x1b[2J", "no address; write"),
        ("http://höst/", "no address; write"),
        ("file:///etc/passwd", "only http and https are read"),
        ("ftp://host/page", "only http and https are read"),
    ],
)
def test_what_is_no_address_of_a_page_is_refused(word: str, why: str) -> None:
    with pytest.raises(TuiadvisorError, match=why):
        checked_address(word)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(TuiadvisorError, match="save the page with curl") as refused:
        checked_address("http://me:secret@host/metrics")
    assert "secret" not in str(refused.value)


def test_a_page_comes_whole_with_the_servers_own_time(server: Callable[[Answer], str]) -> None:
    """Two readings are compared by the server's clock, where it tells it."""
    address = server(told(200, PAGE * 10_000, Date=NOON))
    found = fetch(address, clock=lambda: 5.0)
    assert (address, PAGE * 10_000, 5.0) == (found.address, found.raw, found.at_s)
    assert 784111777.0 == found.served_s


@pytest.mark.parametrize("date", [None, "yesterday", "Sun, 99 Nov 99999 08:49:37 GMT"])
def test_a_server_that_tells_no_time_has_ours(server: Callable[[Answer], str], date: str | None) -> None:
    began_s = time.time()
    found = fetch(server(told(200, **({} if date is None else {"Date": date}))))
    assert began_s <= found.served_s <= time.time()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (told(404), "the server answers 404; name the page of its metrics"),
        (told(503), "the server answers 503"),
        (
            told(302, Location="file:///etc/passwd"),
            "redirects to 'file:///etc/passwd', which is not followed",
        ),
        (told(301, Location="http://127.0.0.1:1/" + "x" * 999), r"redirects to '[^']{200}', which is not"),
        (told(200, Content_Encoding="gzip"), "came compressed; save it with curl --compressed"),
    ],
)
def test_an_answer_that_is_no_page_is_one_line(
    server: Callable[[Answer], str], answer: Answer, why: str
) -> None:
    """No redirect is followed, into a file least of all."""
    with pytest.raises(TuiadvisorError, match=why) as refused:
        fetch(server(answer))
    assert "\n" not in str(refused.value)


def test_a_page_without_end_is_left(server: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 2 << 20)
    with pytest.raises(TuiadvisorError, match="larger than 2 MiB; name one server's own page"):
        fetch(server(told(200, PAGE * 100_000)))


def test_a_page_that_drips_is_left_after_its_time(server: Callable[[Answer], str]) -> None:
    """Each wait is short, all of them together are not: by a clock of the test, ten seconds a look."""
    now_s = iter(range(0, 10_000, 10))
    with pytest.raises(FailureError, match="did not come within 30 s"):
        fetch(server(told(200, PAGE * 100_000)), clock=lambda: float(next(now_s)))


def test_a_server_that_keeps_silent_is_left(
    server: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its headers, and amid its page."""
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    over = threading.Event()

    def silent(_: http.server.BaseHTTPRequestHandler) -> None:
        over.wait()

    def amid(handler: http.server.BaseHTTPRequestHandler) -> None:
        told(200, Content_Length="9999")(handler)
        over.wait()

    try:
        for answer in (silent, amid):
            with pytest.raises(FailureError, match="no answer within 0 s"):
                fetch(server(answer))
    finally:
        over.set()


def test_where_nobody_listens_the_port_is_asked_about() -> None:
    with socket.socket() as bound:  # not listening, and nobody else gets the port meanwhile
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(
            FailureError, match=re.escape("Connection refused; is the server up, and its port")
        ):
            fetch(f"http://127.0.0.1:{bound.getsockname()[1]}/metrics")


def test_what_speaks_no_http_is_one_line() -> None:
    """A port of another program."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(FailureError, match=r"no page came \(BadStatusLine\)|RemoteDisconnected"):
            fetch(f"http://127.0.0.1:{other.getsockname()[1]}/metrics")
        thread.join()
