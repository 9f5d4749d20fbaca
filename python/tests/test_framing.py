"""Lengths of requests: one that is said in two ways, or in none that HTTP knows, is refused, and nothing after it is taken
for another request."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from test_server import BANK, ask

import tidemill as tm

BODY = b'{"account":"ada","amount":1}'
PIECES = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LENGTH = b"Content-Length: %d" % len(BODY)
CLOSE = b"Connection: close"


@pytest.fixture
def app(module):
    return module(BANK.replace("app.requests(Deposit)", "app.requests(Deposit, remember='1h')"), prelude="").app


def said(url, headers, body):
    """All that the server says until it closes the connection."""
    place, text = urlsplit(url), b""
    with socket.create_connection((place.hostname, place.port), timeout=20) as client:
        lines = [b"POST /call/deposit HTTP/1.1", b"Host: localhost", *headers]
        client.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        while part := client.recv(1 << 16):
            text += part
    return text


WRONG = [
    ([LENGTH, b"Content-Length: 0"], BODY),
    ([b"Content-Length: +%d" % len(BODY)], BODY),
    ([b"Content-Length: -1"], BODY),
    ([b"Content-Length: 0x1c"], BODY),
    ([b"Content-Length: 28, 0"], BODY),
    ([b"Transfer-Encoding: xchunked"], PIECES),
    ([b"Transfer-Encoding : chunked"], PIECES),
    ([b"Transfer-Encoding: chunked"], b"FFFFFFFFFFFFFFFFF\r\n" + BODY),
    ([b"X: a\r\n b", LENGTH], BODY),
]


@pytest.mark.parametrize(("headers", "body"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_length_that_is_none_is_refused(app, headers, body):
    with app.start(workers=1) as mill, mill.serve() as server:
        answer = said(server.url, headers, body)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.count(b"HTTP/1.1 ") == 1
        assert len(mill.table("accounts")) == 0
        # A request with the right length is answered.
        assert said(server.url, [LENGTH, CLOSE], BODY).startswith(b"HTTP/1.1 200 ")
        assert said(server.url, [b"Transfer-Encoding: chunked", CLOSE], PIECES).startswith(b"HTTP/1.1 200 ")
        assert mill.row("accounts", "ada")["balance"] == 2


def test_no_request_is_hidden_in_another(app):
    hidden = b"GET /tables/accounts HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with app.start(workers=1) as mill, mill.serve() as server:
        answer = said(server.url, [LENGTH, b"Transfer-Encoding: chunked"], PIECES + hidden)
        assert answer.count(b"HTTP/1.1 ") == 1, answer


def test_calls_with_one_key_at_once_have_one_answer(app):
    def deposit(_):
        return ask(server.url, "/call/deposit", BODY, headers={"Idempotency-Key": "one"})[2]

    with app.start(workers=2) as mill, mill.serve() as server:
        with ThreadPoolExecutor(20) as callers:
            answers = set(callers.map(deposit, range(60)))
        assert [json.loads(answer)["committed"] for answer in answers] == [{"account": "ada", "balance": 1}]
        with tm.connect(server.url) as client:
            assert client.row("accounts", "ada") == {"id": "ada", "balance": 1}
