"""Both protocols of the server under inputs that are made by changing others: those that are answered in a new way are
kept, and changed again. So the search goes on from what it has reached, as if it saw which code ran.

The server is a process of its own. It must not panic, must frame what it answers, and must serve others meanwhile.
"""

import io
import itertools
import os
import random
import re
import select
import signal
import socket
import struct
import time
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from test_postgres import EXECUTE, SYNC, bind, message, parse, startup
from test_server import BANK, started

import tidemill as tm

TURNS = int(os.environ.get("TIDEMILL_SERVER_INPUTS", "1500"))
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 8, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 2**20, 2**31 - 1, 2**31, 2**32 - 1]
WORDS = [
    b"\0",
    b"'",
    b'"',
    b"$1",
    b"$65535",
    b"::int8[]",
    b"(",
    b")",
    b";",
    b"--",
    b"/*",
    b"\\",
    b"\xff",
    b"%",
    b"\r\n",
]


def changed(rng, kept):
    """One of the kept inputs, with a few changes. An input is a list of pieces, such as messages."""
    pieces = list(rng.choice(kept))
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5])):
        at = rng.randrange(len(pieces))
        piece = bytearray(pieces[at])
        where = rng.randrange(len(piece)) if piece else 0
        kind = rng.randrange(10)
        if kind == 0:
            pieces.insert(at, bytes(piece))
        elif kind == 1 and len(pieces) > 1:
            del pieces[at]
        elif kind == 2:
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(rng.choice(kept)))
        elif kind == 3:
            other = rng.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            if kind == 4:
                piece[where : where + 1] = bytes([rng.randrange(256)])
            elif kind == 5:
                del piece[where : where + rng.choice([1, 2, 4, 20])]
            elif kind == 6:
                piece[where:where] = rng.choice(WORDS) * rng.choice([1, 1, 1, 50, 3000])
            elif kind == 7:
                piece[where : where + 4] = struct.pack("!I", rng.choice(NUMBERS))
            elif kind == 8:
                piece[where : where + 2] = struct.pack("!H", rng.choice(NUMBERS) & 0xFFFF)
            else:
                of = rng.choice(rng.choice(kept))
                piece[where:where] = of[rng.randrange(len(of) + 1) :]
            pieces[at] = bytes(piece)
    return pieces[:40]


STREAM = b"text/event-stream"


def answered(address, content, patience):
    """All that comes for these bytes, to the end of the connection. Says that nothing follows when something has come, or
    after ``patience`` seconds: over HTTP requests are given up then. A stream of events may go on: it is left."""
    parts = []
    with socket.create_connection(address, timeout=20) as one:
        try:
            one.sendall(content)
            select.select([one], [], [], patience)
            one.shutdown(socket.SHUT_WR)
        except OSError:
            # It was closed on the way. What was said before may still be there.
            pass
        try:
            while (part := one.recv(1 << 16)) and STREAM not in part:
                parts.append(part)
        except ConnectionResetError:
            pass
    return b"".join(parts)


TAGS = b"1234CDEGIKNRSTVZAnstvWH"
"""The types of messages that a server of PostgreSQL sends."""


def seen_in_messages(said):
    """The tags of messages and the codes of errors, each once in a row."""
    seen, at = [], 0
    while at < len(said):
        if not seen and said[at : at + 1] == b"N" and said[at + 1 : at + 2] in (b"", b"N", b"R", b"E"):
            at += 1  # There is no encryption.
            continue
        if at + 5 > len(said):
            break  # Cut by the end of the connection.
        tag, length = said[at : at + 1], struct.unpack("!I", said[at + 1 : at + 5])[0]
        assert tag in TAGS and 4 <= length < 1 << 28, said[at : at + 40]
        body = said[at + 5 : at + 1 + length]
        if tag == b"E":
            code = re.search(rb"\0C([0-9A-Z]{5})\0", b"\0" + body)
            assert code, body
            tag += code[1]
        if not seen or seen[-1] != tag:
            seen.append(tag)
        at += 1 + length
    return tuple(seen)


def seen_in_responses(said):
    """The status of each response, and what is said to be wrong, without names and numbers."""
    seen = []
    while said:
        head, found, said = said.partition(b"\r\n\r\n")
        if not found:
            break
        status = re.match(rb"HTTP/1\.[01] (\d{3}) ", head)
        assert status, head[:100]
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        body, said = (said[: int(length[1])], said[int(length[1]) :]) if length else (said, b"")
        wrong = re.search(rb'"error":\s*"([^"]*)', body)
        seen.append((status[1], re.sub(rb"[^a-z ]", b"", wrong[1])[:24] if wrong else b""))
    return tuple(seen[:3])


GREETING = startup(user="ada")
CANCEL = [struct.pack("!IIII", 16, 80877102, 1, 2)]
"""It has no answer."""
CONVERSATIONS = [
    [GREETING, message(b"Q", b"CALL deposit('ada', 10)\0")],
    [GREETING, parse(b"SELECT * FROM deposit($1, $2)"), message(b"D", b"S\0"), bind(b"ada", b"1"), EXECUTE, SYNC],
    [GREETING, parse(b"SELECT $1::text[]", b"a"), message(b"C", b"Sa\0"), bind(b'{"a",NULL}'), EXECUTE, SYNC],
    [GREETING, message(b"Q", b"BEGIN; SELECT * FROM accounts WHERE id = 'ada'; SAVEPOINT a; ROLLBACK TO a; COMMIT\0")],
    [GREETING, message(b"Q", b'LISTEN "deposit.committed"; UNLISTEN *; SHOW ALL; SET a TO b\0')],
    [GREETING, message(b"Q", b"select oid, typname from pg_type where oid = any(array[20, 25])\0")],
    [GREETING, message(b"Q", b"select coalesce(max(balance), -1.5e3) from accounts -- it\0"), message(b"X")],
    [struct.pack("!II", 8, 80877103), GREETING, message(b"F", b"\0" * 12), message(b"d", b"x"), message(b"H")],
    CANCEL,
]


CLICKS = """
class Click(tm.Event):
    account: str
    times: int

clicks = app.source(Click)

@app.transaction(clicks)
def click(ev, a=accounts.row("account", create=True)):
    a.balance += ev.times
"""


def arrow_stream():
    events = pa.table({"account": ["ada", "eve"], "times": [1, 2]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, events.schema) as writer:
        writer.write_table(events)
    return out.getvalue()


def request(method, path, body=b"", *headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


REQUESTS = [
    [request("POST", "/call/deposit", b'{"account": "ada", "amount": 1}')],
    [request("POST", "/call/deposit", b'{"account": "a\\u00e9", "amount": 1e0}', "Idempotency-Key: a")],
    [request("POST", "/call/deposit", b'{"account": "ada"}') * 2, request("GET", "/health")],
    [request("GET", "/tables/accounts?limit=3"), request("GET", "/tables/accounts/ada")],
    [request("POST", "/query", b"select * from accounts", "Accept: application/vnd.apache.arrow.stream")],
    [request("GET", "/streams/deposit.committed", b"", "Last-Event-ID: 1.2", "Connection: close")],
    [request("GET", "/metrics", b"", "Accept-Encoding: gzip"), request("GET", "/")],
    [request("POST", "/stream/clicks", b'{"account": "ada", "times": 1}\n{"account": "eve", "times": 2}')],
    [request("POST", "/stream/clicks", arrow_stream(), "Content-Type: application/vnd.apache.arrow.stream")],
    [b"POST /call/deposit HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\n{}}\r\n", b"0\r\n\r\n"],
]


@pytest.mark.parametrize("protocol", ["postgresql", "http"])
def test_inputs_that_were_changed_harm_nobody(tmp_path, protocol):
    begins, seen_in = (CONVERSATIONS, seen_in_messages) if protocol == "postgresql" else (REQUESTS, seen_in_responses)
    rng = random.Random(TURNS)
    with started(tmp_path, "--state", "state", program=BANK + CLICKS) as (process, line):
        places = {what: urlsplit(re.search(rf"{what}://\S+", line)[0]) for what in ("http", "postgresql")}
        place, url = places[protocol], places["http"].geturl()
        kept, ways, calls = [], set(), 0
        with tm.connect(url, timeout=20) as witness:
            for turn in itertools.count():
                # A slow machine answers fewer of them in time, so it takes more.
                if turn >= TURNS and (len(ways) > len(begins) + 5 or turn >= 10 * TURNS):
                    break
                pieces = begins[turn] if turn < len(begins) else changed(rng, kept)
                patience = 0 if protocol == "postgresql" else 10 if turn < len(begins) else 0.01
                said = answered((place.hostname, place.port), b"".join(pieces), patience)
                way = seen_in(said)
                assert way or turn >= len(begins) or pieces == CANCEL, pieces
                if way not in ways:
                    ways.add(way)
                    kept.append(pieces)
                if turn % 50 == 0:
                    calls += 1
                    assert witness.deposit(account="the witness", amount=1)["balance"] == calls
        # Messages that were half said may wait for more, but not for ever, and hold no memory.
        with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
            resident = int(re.search(r"VmRSS:\s*(\d+) kB", status.read())[1])
        assert resident < 600 << 10, f"{resident} KiB"
        started_at = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert "panicked" not in rest, rest
        assert time.monotonic() - started_at < 30
    assert len(ways) > len(begins) + 5, ways
