"""OTLP: what a collector receives is what the metrics page shows; one that is slow or gone holds up nobody."""

from __future__ import annotations

import gzip
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from patience import wait_until
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.outlets.outlets import Outlets, Wishes
from tuiadvisor.outlets.page import registry_of
from tuiadvisor.views.run_view import RunView

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tuiadvisor.outlets.otlp import name_of

Key = tuple[str, tuple[tuple[str, str], ...]]


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent, decoded; `code` is its answer."""

    daemon_threads = True

    def __init__(self) -> None:
        self.code = 200
        self.heard: list[tuple[str, str, ExportMetricsServiceRequest]] = []  # path, authorization, what
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        request = ExportMetricsServiceRequest.FromString(body)
        self.server.heard.append((self.path, self.headers.get("Authorization", ""), request))
        self.server.hold.wait(60)
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.hold.set()
        collector.shutdown()
        collector.server_close()
        thread.join()


@pytest.fixture(scope="module")
def view() -> RunView:
    """A run with a straggler."""
    return final_view(Job(num_ranks=4).with_faults(Fault("backward", (2,), 8 * MS)))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of whoever runs the tests."""
    import os

    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


def on_the_page(view: RunView) -> dict[Key, float]:
    """Names and units as OTLP has them."""
    text = generate_latest(registry_of(lambda: view, "1")).decode()
    return {
        ("".join(name_of(family.name)), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_info")
    }


def received(request: ExportMetricsServiceRequest) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            assert scope.scope.name == "tuiadvisor"
            for metric in scope.metrics:
                data = metric.sum if metric.HasField("sum") else metric.gauge
                for point in data.data_points:
                    labels = sorted((one.key, one.value.string_value) for one in point.attributes)
                    found[metric.name + metric.unit, tuple(labels)] = point.as_double
    return found


@pytest.mark.slow
def test_a_collector_receives_what_the_page_shows(view: RunView, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a-word")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "cluster=east")
        with Outlets(Wishes(otlp=True)) as outlets:
            outlets.follow(lambda: view)
            wait_until(lambda: len(collector.heard) >= 2, "a second export")
        assert outlets.said == []
    path, word, request = collector.heard[-1]
    assert (path, word) == ("/v1/metrics", "Bearer a-word")
    told = received(request)
    shown = on_the_page(view)
    assert len(shown) > 50
    assert {key: value for key, value in told.items() if not key[0].endswith("_info")} == {
        (name.removesuffix("_total"), labels): value for (name, labels), value in shown.items()
    }
    assert not any(name.startswith("tuiadvisor.mfu") for name, _ in told)  # unknown is absent, not zero
    attributes = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
    assert (attributes["service.name"], attributes["cluster"]) == ("tuiadvisor", "east")
    sums = {
        metric.name
        for metric in request.resource_metrics[0].scope_metrics[0].metrics
        if metric.HasField("sum") and metric.sum.is_monotonic
    }
    assert sums == {"tuiadvisor.events_dropped", "tuiadvisor.frames_lost", "tuiadvisor.frames_bad"}


@pytest.mark.slow
def test_nothing_is_sent_before_there_is_something(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with Outlets(Wishes(otlp=True)) as outlets:
            outlets.follow(lambda: None)
        assert (outlets.said, collector.heard) == ([], [])


@pytest.mark.slow
def test_a_collector_that_refuses_or_hangs_is_said_once_and_holds_up_nobody(
    view: RunView, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import tuiadvisor.outlets.otlp as module

    monkeypatch.setattr(module, "LAST_S", 0.2)
    with collecting() as collector:
        secret = f"http://name:a-secret-word@127.0.0.1:{collector.server_address[1]}/a-secret-path"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", secret)
        collector.code = 400
        with caplog.at_level(logging.DEBUG), Outlets(Wishes(otlp=True)) as outlets:
            outlets.follow(lambda: view)
            wait_until(lambda: collector.heard, "an export")
        (line,) = outlets.said
        assert line.startswith("--otlp http://127.0.0.1: not sent (")
        collector.hold.clear()
        heard = len(collector.heard)
        with Outlets(Wishes(otlp=True)) as outlets:
            outlets.follow(lambda: view)
            wait_until(lambda: len(collector.heard) > heard, "an export that hangs")
        assert outlets.said == ["--otlp http://127.0.0.1: not sent (1x)"]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("urllib3.")]
    assert not any("a-secret" in message for message in ours)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "file:///etc/passwd", "is no URL of a collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "is no URL of a collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:port", "is no URL of a collector"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is spoken"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "often", "is no number of milliseconds"),
    ],
)
def test_variables_that_cannot_be_meant_are_one_line(
    name: str, value: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(TuiadvisorError, match=line):
        Outlets(Wishes(otlp=True))


def test_without_opentelemetry_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tuiadvisor.outlets.otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics.export", None)
    with pytest.raises(TuiadvisorError, match=r"pip install 'tuiadvisor\[otlp\]'"):
        Outlets(Wishes(otlp=True))
