"""The metrics of a server, sent by OpenTelemetry to a collector of its own messages."""

import gzip
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from test_server import BANK, call, command

import tidemill as tm


@contextmanager
def collector(status=200):
    """Collects metrics that are sent to it: the last value by service, name and labels."""
    came = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            coding = self.headers.get("Content-Encoding")
            body = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(coding, bytes)(body)
            came.append((self.path, self.headers.get("Authorization"), ExportMetricsServiceRequest.FromString(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def values(came):
    """The last values by name and labels, with the kind and the unit of each name, and the services."""
    last, kinds, services = {}, {}, set()
    for _, _, request in came:
        for of_resource in request.resource_metrics:
            services |= {a.value.string_value for a in of_resource.resource.attributes if a.key == "service.name"}
            for metric in (m for scope in of_resource.scope_metrics for m in scope.metrics):
                kind = metric.WhichOneof("data")
                points = getattr(metric, kind).data_points
                kinds[metric.name] = kind, kind == "sum" and metric.sum.is_monotonic, metric.unit
                for point in points:
                    labels = frozenset((a.key, a.value.string_value) for a in point.attributes)
                    last[metric.name, labels] = point.as_double
    return last, kinds, services


def check(came):
    last, kinds, services = values(came)
    assert {path for path, _, _ in came} == {"/v1/metrics"}
    assert services == {"bank"}
    none = frozenset()
    assert last["tidemill.calls", none] == 3
    assert last["tidemill.calls_in_flight", none] == 0
    assert last["tidemill.events", frozenset({("source", "deposits")})] == 3
    committed = frozenset({("transaction", "deposit"), ("outcome", "committed")})
    assert last["tidemill.transactions", committed] == 2
    refused = frozenset({("transaction", "deposit"), ("reason", "amount must be positive")})
    assert last["tidemill.aborts", refused] == 1
    assert last["tidemill.latency", frozenset({("quantile", "0.99")})] > 0
    assert kinds["tidemill.calls"] == ("sum", True, "1")
    assert kinds["tidemill.calls_in_flight"] == ("gauge", False, "1")
    assert kinds["tidemill.latency"] == ("gauge", False, "s")
    assert not any(name.endswith(("_total", "_seconds")) for name in kinds)


def test_an_embedded_server_sends_its_counts(module, monkeypatch):
    app = module(BANK, prelude="").app
    with collector() as (url, came):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
        with app.start(workers=1) as mill, mill.serve(telemetry=True) as server:
            for amount in (1, 2, 0):
                call(server.url, "deposit", account="ada", amount=amount)
    check(came)
    assert {who for _, who, _ in came} == {"Bearer x"}


def test_the_command_sends_its_counts_meanwhile_and_at_the_end(tmp_path, monkeypatch):
    with collector() as (url, came):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        with command(tmp_path, "--telemetry") as (process, server):
            for amount in (1, 2, 0):
                call(server, "deposit", account="ada", amount=amount)
            until = time.monotonic() + 30
            while not came and time.monotonic() < until:
                time.sleep(0.01)
            meanwhile = len(came)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    check(came)
    assert 0 < meanwhile < len(came)


def test_without_a_collector_the_server_serves_and_ends(tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        with command(tmp_path, "--telemetry") as (process, server):
            assert call(server, "deposit", account="ada", amount=1)[0] == 200
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "export" in said and "1 committed" in said, said


def test_without_the_sdk_telemetry_is_refused(module, tmp_path, monkeypatch):
    app = module(BANK, prelude="").app
    with app.start(workers=1) as mill, monkeypatch.context() as patch:
        patch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
        with pytest.raises(tm.RunError, match=r"pip install 'tidemill\[telemetry\]'"):
            mill.serve(telemetry=True)
    (tmp_path / "bank.py").write_text(BANK, encoding="utf-8")
    (tmp_path / "opentelemetry.py").touch()
    arguments = [sys.executable, "-m", "tidemill", "serve", "bank.py", "--port", "0", "--telemetry"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error: telemetry needs OpenTelemetry's SDK: pip install 'tidemill[telemetry]'\n" in done.stderr


@pytest.mark.parametrize(
    "environment", [{"OTEL_SERVICE_NAME": "shop"}, {"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop"}]
)
def test_the_environment_names_the_service(module, monkeypatch, environment):
    app = module(BANK, prelude="").app
    with collector() as (url, came):
        for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **environment}.items():
            monkeypatch.setenv(name, value)
        with app.start(workers=1) as mill, mill.serve(telemetry=True):
            pass
    assert values(came)[2] == {"shop"}
