"""A real page served by a real process: read once, read twice, and every answer that is no page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from patience import PATIENCE_S

TUIADVISOR = [sys.executable, "-m", "tuiadvisor"]
ROOT = Path(__file__).parents[2]
# Each reading of /metrics is followed by 40 more requests: 10 of them slow. So a second page holds exactly these.
SERVER = """
import sys, threading, time
from wsgiref.simple_server import WSGIRequestHandler, make_server
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass

registry = CollectorRegistry()
Gauge("process_start_time_seconds", "x", registry=registry).set(time.time() - 100)
names = ("engine", "model_name")
of = ("0", "real/model")
ttft = Histogram("vllm:time_to_first_token_seconds", "x", names, registry=registry, buckets=(0.1, 0.25, 0.5, 1.0, 2.5))
e2e = Histogram("vllm:e2e_request_latency_seconds", "x", names, registry=registry, buckets=(0.3, 0.5, 1.0, 5.0))
running = Gauge("vllm:num_requests_running", "x", names, registry=registry)
waiting = Gauge("vllm:num_requests_waiting", "x", names, registry=registry)
kv = Gauge("vllm:kv_cache_usage_perc", "x", names, registry=registry)
preemptions = Counter("vllm:num_preemptions", "x", names, registry=registry)
page = make_wsgi_app(registry)

def work(first=0.05):
    for number in range(40):
        slow = number < 10
        ttft.labels(*of).observe(2.0 if slow else first)
        e2e.labels(*of).observe(4.0 if slow else 0.4)
    preemptions.labels(*of).inc(2)

def answer(environ, start):
    path = environ["PATH_INFO"]
    if path == "/metrics":
        body = b"".join(page(environ, start))
        work()
        return [body]
    if path == "/moved":
        start("302 Found", [("Location", "file:///etc/passwd")])
        return [b""]
    if path == "/html":
        start("200 OK", [("Content-Type", "text/html")])
        return [b"<html><body>a dashboard</body></html>"]
    if path == "/large":
        start("200 OK", [("Content-Type", "text/plain")])
        return (b"vllm:x 1\\n" * 20000 for _ in range(100))
    if path == "/zipped":
        start("200 OK", [("Content-Encoding", "gzip")])
        return [b"x"]
    if path == "/other":
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"node_load1 0.3\\n"]
    start("404 Not Found", [])
    return [b""]

running.labels(*of).set(7)
waiting.labels(*of).set(1)
kv.labels(*of).set(0.25)
work()
with make_server("127.0.0.1", 0, answer, handler_class=Quiet) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""


@pytest.fixture(name="address")
def _address() -> Iterator[str]:
    """The base address of a process that serves its metrics."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port.isdigit(), "the server did not come up"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def read(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as users give it, past any proxy of this machine."""
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [*TUIADVISOR, "import", "serving", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**environ, "PYTHONPATH": str(ROOT)},
        cwd=cwd,
        check=False,
    )


def test_one_page_counts_since_the_server_started(address: str) -> None:
    """Its own clock and its start give the rate; a path is not needed."""
    done = read(address, "--json", "--ttft-slo", "500ms")
    assert 0 == done.returncode, done.stderr
    document = json.loads(done.stdout)
    found = document["serving"]
    assert (40, 7, 1, 0.25, 2) == tuple(
        found[name] for name in ("ttft_num", "running", "waiting", "kv_cache_usage", "preemptions")
    )
    assert "since_start" == document["window"]["kind"]
    # It says that it began 100 s before it was started; the page's date is in whole seconds.
    assert 99 <= document["window"]["seconds"] <= 100 + PATIENCE_S
    assert found["goodput_rps"] == pytest.approx(30 / document["window"]["seconds"])
    assert 0.75 == found["goodput_share"]
    assert found["ttft_slo_met"] is False
    assert "tune" == found["decision"]


def test_two_pages_count_what_came_between_them(address: str) -> None:
    """Forty requests, whatever was before; progress is said while it waits."""
    done = read(f"{address}/metrics", "--every", "1", "--json", "--ttft-slo", "500ms", "--e2e-slo", "3s")
    assert 0 == done.returncode, done.stderr
    assert "the second page in 1 s" in done.stderr
    document = json.loads(done.stdout)
    found, seconds = document["serving"], document["window"]["seconds"]
    assert "interval" == document["window"]["kind"]
    assert seconds >= 1.0
    assert (40, 40, 2) == (found["ttft_num"], found["e2e_num"], found["preemptions"])
    low, high = found["goodput_rps_bounds"]
    # The bounds come by another division: equal to the last digit only by chance.
    assert low * (1 - 1e-9) <= 30 / seconds <= high * (1 + 1e-9)
    assert found["ttft_p99_bounds_s"][0] == 1.0


def test_the_saved_report_is_of_what_was_served(address: str, tmp_path: Path) -> None:
    done = read(address, "-o", "page.html", cwd=tmp_path)
    assert 0 == done.returncode, done.stderr
    assert "real/model" in done.stdout
    assert "real/model" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("path", "code", "says"),
    [
        ("/moved", 2, "redirects to 'file:///etc/passwd', which is not followed"),
        ("/html", 2, "no line of a metrics page"),
        ("/large", 2, "larger than 8 MiB"),
        ("/zipped", 2, "came compressed"),
        ("/none", 2, "the server answers 404"),
    ],
)
def test_an_answer_that_is_no_page_is_one_line(address: str, path: str, code: int, says: str) -> None:
    done = read(f"{address}{path}")
    assert code == done.returncode
    assert says in done.stderr
    assert 1 == done.stderr.count("\n")
    assert not done.stdout


def test_another_exporters_page_is_unknown(address: str) -> None:
    """A page without these metrics is no mistake."""
    done = read(f"{address}/other", "--every", "3600")
    assert 0 == done.returncode
    assert "no metric of a known server" in done.stdout


def test_nobody_there_is_a_failure(tmp_path: Path) -> None:
    """The port was free a moment ago."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        # Bound and not listening: whoever connects is refused, and nobody else gets the port meanwhile.
        done = read(f"http://127.0.0.1:{port}/metrics")
    assert 1 == done.returncode
    assert "is the server up" in done.stderr
    assert 1 == done.stderr.count("\n")
