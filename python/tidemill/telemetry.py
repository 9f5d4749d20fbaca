"""The metrics of a server, sent by OpenTelemetry (docs/server.md)."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from ._engine import NativeMetrics
from .errors import RunError

__all__ = ["Telemetry"]

END_MAX_MS = 5_000
"""The longest that the last counts may take at the end, in milliseconds."""
TOGETHER_SECONDS = 0.01
"""Metrics that are asked for within this time have the counts of one moment."""


class Telemetry:
    """Sends the counts of a server until ``stop`` is called, by a thread of OpenTelemetry's SDK.

    Where to, how often and as whom is said by the environment's variables of OpenTelemetry, such as
    ``OTEL_EXPORTER_OTLP_ENDPOINT``. Raises ``RunError`` where the SDK is not installed.
    """

    def __init__(self, metrics: NativeMetrics, name: str) -> None:
        try:
            sdk = importlib.import_module("opentelemetry.sdk.metrics")
            export = importlib.import_module("opentelemetry.sdk.metrics.export")
            resources = importlib.import_module("opentelemetry.sdk.resources")
            otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        except ImportError:
            raise RunError("telemetry needs OpenTelemetry's SDK: pip install 'tidemill[telemetry]'") from None
        # The environment's description of the service takes precedence.
        environment = resources.OTELResourceDetector().detect()
        resource = resources.Resource.create({"service.name": name}).merge(environment)
        reader = export.PeriodicExportingMetricReader(otlp.OTLPMetricExporter())
        self._provider = sdk.MeterProvider([reader], resource)
        meter = self._provider.get_meter("tidemill")
        counts = _Counts(metrics)
        for metric, kind, text, _ in metrics.now():
            observed = meter.create_observable_counter if kind == "counter" else meter.create_observable_gauge
            own, unit = _named(metric)
            observed(own, [_observer(counts, metric)], unit, text)

    def stop(self) -> None:
        """Sends the last counts, and ends."""
        self._provider.shutdown(timeout_millis=END_MAX_MS)


def _named(name: str) -> tuple[str, str]:
    """OpenTelemetry's name of a metric of Prometheus, and its unit."""
    unit = "s" if "_seconds" in name and not name.endswith("_count") else "1"
    return name.removesuffix("_total").replace("_seconds", "").replace("tidemill_", "tidemill.", 1), unit


class _Counts:
    """The counts of all metrics, read once for those that are asked for together."""

    def __init__(self, metrics: NativeMetrics) -> None:
        self._metrics = metrics
        self._read: float | None = None
        self._counts: dict[str, list[tuple[dict[str, str], float]]] = {}

    def of(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The counts of a metric by its labels, with their values."""
        now = time.monotonic()
        if self._read is None or now - self._read > TOGETHER_SECONDS:
            self._read, self._counts = now, {metric: counts for metric, _, _, counts in self._metrics.now()}
        return self._counts.get(name, [])


def _observer(counts: _Counts, name: str) -> Callable[[object], Iterable[Any]]:
    """Returns a function that gives the counts of one metric."""
    observation = importlib.import_module("opentelemetry.metrics").Observation

    def observe(_: object) -> Iterable[Any]:
        return [observation(value, labels) for labels, value in counts.of(name)]

    return observe
