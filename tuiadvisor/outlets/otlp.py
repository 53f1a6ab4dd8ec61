"""The same metrics by OTLP over HTTP, to where OpenTelemetry's standard variables say.

Imports opentelemetry, which only `pip install "tuiadvisor[otlp]"` brings. A thread of its own sends: a collector that
is slow or gone holds up nobody. Headers may hold secrets and are shown nowhere, of a URL only scheme and host.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.log import Logger
from tuiadvisor.outlets.metrics import PREFIX

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Metric,
        MetricExportResult,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
except ImportError:
    raise TuiadvisorError("--otlp needs OpenTelemetry: pip install 'tuiadvisor[otlp]'") from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

logger: Final = Logger(__name__)
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"  # milliseconds
DEFAULT_ENDPOINT: Final = "http://localhost:4318"
DEFAULT_INTERVAL_MS: Final = 60_000.0
OURS: Final = "http/protobuf"
UNITS: Final = {"_seconds": "s", "_ratio": "1"}  # in OTLP a field of its own, at Prometheus the name's end
LOOK_S: Final = 0.2
LAST_S: Final = 5.0  # for the last figures when the session ends


class OtlpSender:
    """Sends what the registry holds, at the standard interval, from when there is something on."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        """TuiadvisorError where the variables name no receiver that can be reached this way."""
        self._registry, self._version = registry, version
        self._shown = _receiver()
        self._interval_s = _interval_s()
        _keep_off_the_terminal()
        try:
            self._exporter = OTLPMetricExporter()
        except (
            OSError,
            ValueError,
            TypeError,
            RuntimeError,
        ) as error:  # certificates, a compression that is none
            raise TuiadvisorError(
                f"--otlp {self._shown}: {type(error).__name__}; look at OTEL_EXPORTER_OTLP_*"
            ) from None
        self._start_ns = time.time_ns()
        self._resource = Resource.create({SERVICE_NAME: os.environ.get("OTEL_SERVICE_NAME") or "tuiadvisor"})
        self._num_failed = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tuiadvisor-otlp", daemon=True)
        self._thread.start()

    def close(self) -> list[str]:
        """End, after the last figures or a few seconds; a line where something was not sent."""
        self._stopped.set()
        self._thread.join(LAST_S)
        is_late = self._thread.is_alive()
        self._exporter.shutdown()  # ends what it still tries
        failed = self._num_failed + is_late
        return [f"--otlp {self._shown}: not sent ({failed}x)"] if failed else []

    def _run(self) -> None:
        due_s = 0.0
        is_last = False
        while not is_last:
            is_last = self._stopped.wait(LOOK_S)
            if time.monotonic() < due_s and not is_last:
                continue
            metrics = list(metrics_of(self._registry.collect(), self._start_ns, time.time_ns()))
            if metrics:
                due_s = time.monotonic() + self._interval_s
                self._send(metrics)

    def _send(self, metrics: list[Metric]) -> None:
        scope = ScopeMetrics(InstrumentationScope("tuiadvisor", self._version), metrics, "")
        try:
            done = self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        except Exception:
            logger.exception("OTLP failed")
            done = MetricExportResult.FAILURE
        if done is not MetricExportResult.SUCCESS:
            self._num_failed += 1
            logger.warning("%s: the collector did not take the metrics", self._shown)


def check() -> None:
    """TuiadvisorError where the variables name no receiver that can be reached this way."""
    _receiver()
    _interval_s()


def metrics_of(families: Iterable[Family], start_ns: int, now_ns: int) -> Iterator[Metric]:
    """Families of the page as OTLP has them; their figures and labels are the same."""
    for family in families:
        points = [
            NumberDataPoint(dict(sample.labels), start_ns, now_ns, float(sample.value))
            for sample in family.samples
            if math.isfinite(sample.value)
        ]
        name, unit = name_of(f"{family.name}_info" if family.type == "info" else family.name)
        data: Any
        if family.type == "counter":
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(points)
        yield Metric(name, family.documentation, unit, data)


def name_of(name: str) -> tuple[str, str]:
    """(name, unit): tuiadvisor_step_median_seconds is tuiadvisor.step_median in s."""
    for ending, unit in UNITS.items():
        if name.endswith(ending):
            return name_of(name.removesuffix(ending))[0], unit
    return f"{PREFIX[:-1]}.{name.removeprefix(PREFIX)}", ""


def _receiver() -> str:
    """Scheme and host of where it goes."""
    for name in PROTOCOLS:
        said = os.environ.get(name, "")
        if said and said != OURS:
            raise TuiadvisorError(
                f"--otlp: {name} is {said[:40]}; only {OURS} is spoken here (port 4318 as a rule)"
            )
    name = next((name for name in ENDPOINTS if os.environ.get(name)), "")
    try:
        parts = urlsplit(os.environ.get(name) or DEFAULT_ENDPOINT)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise TuiadvisorError(f"--otlp: {name} is no URL of a collector; write https://HOST:4318")
    return f"{parts.scheme}://{parts.hostname}"


def _interval_s() -> float:
    try:
        interval_ms = float(os.environ.get(INTERVAL) or DEFAULT_INTERVAL_MS)
    except ValueError:
        interval_ms = 0.0
    if not 1 <= interval_ms <= 86_400_000:
        raise TuiadvisorError(f"--otlp: {INTERVAL} is no number of milliseconds; write 60000")
    return interval_ms / 1000


def _keep_off_the_terminal() -> None:
    """Its library warns by Python's log, which by default writes over the screens."""
    library = logging.getLogger("opentelemetry")
    library.addHandler(logging.NullHandler())
    library.propagate = False
