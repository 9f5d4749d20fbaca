"""Traces of calls, sent by OTLP to a collector of its own messages (``opentelemetry-proto``): identities, parents, names and
times of spans, what a client says of its trace, and collectors that are away or do nothing."""

import http.client
import json
import runpy
import signal
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from server_process import BANK
from test_server import command

import tidemill as tm

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
KEPT = f"00-{TRACE}-{PARENT}-01"
DROPPED = f"00-{TRACE}-{PARENT}-00"
PARTS = ["gate", "access", "log", "reply"]
"""The parts of a call of a server with a state, in their order."""


@contextmanager
def collector(status=200, rejected=0):
    """Takes the spans that are sent to it: a list that grows."""
    spans, requests = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, self.headers["Content-Type"], request))
            for of_resource in request.resource_spans:
                spans.extend(span for scope in of_resource.scope_spans for span in scope.spans)
            response = ExportTraceServiceResponse()
            response.partial_success.rejected_spans = rejected
            body = response.SerializeToString()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", spans, requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def bank(tmp_path):
    """The application."""
    (tmp_path / "bank.py").write_text(BANK)
    return runpy.run_path(tmp_path / "bank.py")["app"]


@contextmanager
def served(tmp_path, *options, **serving):
    """The bank with a state; its URL, that of PostgreSQL, and a function that waits for the end."""
    with bank(tmp_path).start(state=tmp_path / "state") as mill, mill.serve(*options, **serving) as server:
        yield server


def post(url, path, body, **headers):
    """Sends a request: the status and the text of its response."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def attributes(span):
    """The attributes of a span by name."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def counted(url, name, **labels):
    """A count of ``/metrics``."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    key = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
    return next(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(key + " "))


def check(spans, parts=PARTS):
    """Checks the spans of one call: the first is the call's, its parts follow one another and fill it. Gives the first."""
    whole, *rest = spans
    assert whole.kind == Span.SPAN_KIND_SERVER and len(whole.span_id) == 8 and len(whole.trace_id) == 16
    assert [span.name for span in rest] == parts
    at = whole.start_time_unix_nano
    for span in rest:
        assert span.kind == Span.SPAN_KIND_INTERNAL
        assert (span.trace_id, span.parent_span_id) == (whole.trace_id, whole.span_id)
        assert span.start_time_unix_nano == at <= span.end_time_unix_nano
        at = span.end_time_unix_nano
    assert at == whole.end_time_unix_nano or not parts
    assert len({span.span_id for span in spans}) == len(spans)
    return whole


def by_call(spans):
    """The spans of each call, the call's own first."""
    calls = {}
    for span in spans:
        calls.setdefault(span.span_id if span.kind == Span.SPAN_KIND_SERVER else span.parent_span_id, []).append(span)
    return list(calls.values())


def test_a_call_over_http_is_a_child_of_its_clients_span(tmp_path):
    with collector() as (url, spans, requests):
        with served(tmp_path, traces=url) as server:
            before = time.time_ns()
            headers = {"traceparent": KEPT, "tracestate": "a=1"}
            assert post(server.url, "/call/deposit", '{"account":"ada","amount":5}', **headers)[0] == 200
            after = time.time_ns()
        [path, kind, request] = requests[0]
        assert (path, kind) == ("/v1/traces", "application/x-protobuf")
        resource = attributes(request.resource_spans[0].resource)
        assert resource["service.name"] == "bank"
        [call] = by_call(spans)
        whole = check(call)
        assert (whole.trace_id.hex(), whole.parent_span_id.hex(), whole.trace_state) == (TRACE, PARENT, "a=1")
        assert whole.name == "call deposit"
        # The clock of the machine may be set by milliseconds meanwhile.
        assert before - 10**8 <= whole.start_time_unix_nano <= whole.end_time_unix_nano <= after + 10**8
        said = attributes(whole)
        assert said["tidemill.outcome"] == "committed" and said["tidemill.epoch"] >= 1
        assert said["network.protocol.name"] == "http" and said["tidemill.procedure"] == "deposit"
        assert whole.status.code == Status.STATUS_CODE_UNSET


def test_outcomes_of_many_calls(tmp_path):
    with collector() as (url, spans, _):
        with served(tmp_path, traces=url) as server:
            calls = [("ada", 5), ("ada", -1), ("bob", 7)]
            lines = [json.dumps({"call": "deposit", "fields": {"account": a, "amount": n}}) for a, n in calls]
            lines.append(json.dumps({"call": "deposit", "fields": {"account": "ada"}}))
            status, text = post(server.url, "/calls", "\n".join(lines), traceparent=KEPT)
            assert status == 200 and len(text.splitlines()) == 4
        first = [call[0] for call in by_call(spans)]
        outcomes = sorted((attributes(span).get("tidemill.outcome", ""), span.status.code) for span in first)
        # An abort is an outcome; a call that was not made has none, and no parts.
        assert outcomes == [("", Status.STATUS_CODE_ERROR), ("aborted", 0), ("committed", 0), ("committed", 0)]
        assert {span.parent_span_id.hex() for span in first} == {PARENT}
        for call in by_call(spans):
            check(call, PARTS if attributes(call[0]).get("tidemill.outcome") else [])


def test_a_call_that_is_made_again_has_the_epoch_of_the_first(tmp_path):
    with collector() as (url, spans, _):
        with served(tmp_path, traces=url) as server:
            key = {"Idempotency-Key": "once", "traceparent": KEPT}
            for _ in range(2):
                assert post(server.url, "/call/deposit", '{"account":"ada","amount":5}', **key)[0] == 200
            assert post(server.url, "/call/deposit", '{"account":"ada","amount":6}', **key)[0] == 422
        first, again, other = by_call(spans)
        check(first)
        assert attributes(check(again, ["gate", "reply"]))["tidemill.epoch"] == attributes(first[0])["tidemill.epoch"]
        assert attributes(other[0])["tidemill.outcome"] == "refused"
        assert other[0].status.code == Status.STATUS_CODE_ERROR


def test_clients_of_postgresql_say_their_span_by_a_comment_or_their_name(tmp_path):
    with collector() as (url, spans, _):
        with (
            served(tmp_path, traces=url) as server,
            psycopg.connect(server.postgres_url, autocommit=True) as connection,
        ):
            comment = f"/*route='%2Fpay',traceparent='{KEPT}',tracestate='a%3D1'*/"
            escaped = comment.replace("%", "%%")
            # In the simple protocol, with parameters in the extended one, and as a prepared statement.
            connection.execute(f"select * from deposit(account => 'ada', amount => 1) {comment}".encode())
            connection.execute(
                f"select * from deposit(account => %s, amount => %s) {escaped}", ("ada", 2), prepare=True
            )
            connection.execute("select * from deposit(account => %s, amount => %s)", ("ada", 3))
            other = KEPT.replace(PARENT, "00000000000000aa")
            connection.execute(f"set application_name = 'till {other}'")
            connection.execute("select * from deposit(account => %s, amount => %s)", ("ada", 4))
            # The comment counts before the name.
            connection.execute(f"select * from deposit(account => %s, amount => %s) {escaped}", ("ada", 5))
        first = [check(call) for call in by_call(spans)]
        assert [span.parent_span_id.hex() for span in first] == [PARENT, PARENT, "", "00000000000000aa", PARENT]
        assert [span.trace_state for span in first] == ["a=1", "a=1", "", "", "a=1"]
        assert {attributes(span)["network.protocol.name"] for span in first} == {"postgresql"}


def test_the_client_decides_else_the_share(tmp_path):
    with collector() as (url, spans, _):
        with served(tmp_path, traces=url, traces_share=0.25) as server:
            for _ in range(40):
                assert post(server.url, "/call/deposit", '{"account":"ada","amount":5}')[0] == 200
            for _ in range(3):
                post(server.url, "/call/deposit", '{"account":"ada","amount":5}', traceparent=DROPPED)
            post(server.url, "/call/deposit", '{"account":"ada","amount":5}', traceparent=KEPT)
            # One that is none counts as none.
            post(server.url, "/call/deposit", '{"account":"ada","amount":5}', traceparent="00-1-2-01")
        first = [check(call) for call in by_call(spans)]
        own = [span for span in first if span.parent_span_id.hex() != PARENT]
        assert len(first) - len(own) == 1
        assert 8 <= len(own) <= 13
        assert len({span.trace_id for span in own}) == len(own)


def test_the_client_passes_on_the_span_that_it_is_in(tmp_path):
    with collector() as (url, spans, _):
        with served(tmp_path, traces=url, traces_share=0) as server, tm.connect(server.url) as client:
            context = trace.set_span_in_context(
                trace.NonRecordingSpan(
                    trace.SpanContext(
                        int(TRACE, 16), int(PARENT, 16), True, trace.TraceFlags(1), trace.TraceState([("a", "1")])
                    )
                )
            )
            token = attach(context)
            try:
                client.call("deposit", account="ada", amount=5)
                client.call_all("deposit", [{"account": "ada", "amount": 5}])
            finally:
                detach(token)
            client.call("deposit", account="ada", amount=5)
        first = [check(call) for call in by_call(spans)]
        assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in first} == {(TRACE, PARENT)}
        # A line of many calls has no tracestate.
        assert [span.trace_state for span in first] == ["a=1", ""]


def test_without_a_state_there_is_no_log(tmp_path):
    with collector() as (url, spans, _):
        with bank(tmp_path).start() as mill, mill.serve(traces=url + "/own/path") as server:
            assert post(server.url, "/call/deposit", '{"account":"ada","amount":5}')[0] == 200
        check(spans, ["gate", "access", "reply"])


def test_a_reply_that_does_not_wait_for_the_disk_has_no_log(tmp_path):
    with collector() as (url, spans, requests):
        with served(tmp_path, traces=url + "/own/path") as server:
            assert post(server.url, "/call/deposit?durable=false", '{"account":"ada","amount":5}')[0] == 200
        check(spans, ["gate", "access", "reply"])
        assert requests[0][0] == "/own/path"


@pytest.mark.parametrize("kind", ["nobody", "refuses", "rejects", "silent"])
def test_a_collector_that_takes_nothing_stops_no_call_and_is_counted(tmp_path, kind):
    quiet = socket.create_server(("127.0.0.1", 0))
    port = quiet.getsockname()[1]
    if kind == "nobody":
        quiet.close()
    with collector(503 if kind == "refuses" else 200, 5 if kind == "rejects" else 0) as (url, _, _requests):
        away = f"http://127.0.0.1:{port}" if kind in ("nobody", "silent") else url
        with served(tmp_path, traces=away) as server:
            times = []
            for _ in range(20):
                begun = time.monotonic()
                assert post(server.url, "/call/deposit", '{"account":"ada","amount":5}')[0] == 200
                times.append(time.monotonic() - begun)
            if kind != "silent":
                until = time.monotonic() + 60
                while counted(server.url, "tidemill_trace_spans_lost_total", reason="collector") == 0:
                    assert time.monotonic() < until
                    time.sleep(0.05)
                assert counted(server.url, "tidemill_trace_spans_lost_total", reason="queue") == 0
            stopping = time.monotonic()
        # The end waits for two seconds at most; a loaded machine takes longer for everything else.
        assert time.monotonic() - stopping < 30
        assert min(times) < 1
    quiet.close()


def test_a_queue_that_is_full_loses_spans_and_no_call(tmp_path):
    quiet = socket.create_server(("127.0.0.1", 0))
    with served(tmp_path, traces=f"http://127.0.0.1:{quiet.getsockname()[1]}", calls_max=20_000) as server:
        line = json.dumps({"call": "deposit", "fields": {"account": "ada", "amount": 1}})
        status, text = post(server.url, "/calls", "\n".join([line] * 12_000))
        assert status == 200 and text.count('"committed"') == 12_000
        lost = counted(server.url, "tidemill_trace_spans_lost_total", reason="queue")
        # 4,096 calls wait, and 512 are under way.
        assert lost > 0 and lost % 5 == 0
        assert counted(server.url, "tidemill_trace_spans_sent_total") == 0
    quiet.close()


def test_the_command_sends_them_and_takes_the_url_from_its_environment(tmp_path, monkeypatch):
    with collector() as (url, spans, _):
        monkeypatch.setenv("TIDEMILL_TRACES", url)
        with command(tmp_path, "--traces-share", "0", program=BANK) as (process, at):
            assert post(at, "/call/deposit", '{"account":"ada","amount":5}', traceparent=KEPT)[0] == 200
            assert post(at, "/call/deposit", '{"account":"ada","amount":5}')[0] == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        [call] = by_call(spans)
        assert check(call, ["gate", "access", "reply"]).parent_span_id.hex() == PARENT


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"traces": "https://127.0.0.1:4318"}, "no TLS is spoken to a collector"),
        ({"traces": "127.0.0.1:4318"}, "no URL for traces"),
        ({"traces": "http://"}, "no URL for traces"),
        ({"traces": "http://me:secret@127.0.0.1:4318"}, "nobody is named to a collector"),
        ({"traces": "http://127.0.0.1:4318", "traces_share": 1.5}, "1.5 is no share"),
        ({"traces": "http://127.0.0.1:4318", "traces_share": float("nan")}, "NaN is no share"),
    ],
)
def test_what_is_no_collector_is_refused(tmp_path, options, why):
    with bank(tmp_path).start() as mill, pytest.raises(tm.RunError, match=why):
        mill.serve(**options)
