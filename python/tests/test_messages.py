"""Messages of both protocols that are repeated, nested, cut and made huge: none ends the server, stops it or stays.

``test_server_fuzz.py`` changes what it has found to be answered in new ways. Here each message, each length and count in it,
each head, body, chunk, line and key has its turn: a number gives the same case each time. ``TIDEMILL_MESSAGES`` says how many
cases of each protocol are tried, ``TIDEMILL_MESSAGES_FROM`` which is the first.
"""

import json
import os
import random
import select
import socket
import struct
import time

import pytest
from server_process import ANSWER_SECONDS, Messages, add_user, least, message, running, startup, until
from test_server_fuzz import arrow_stream, seen_in_messages, seen_in_responses

CASES = int(os.environ.get("TIDEMILL_MESSAGES", "0"))
FROM = int(os.environ.get("TIDEMILL_MESSAGES_FROM", "0"))
SAMPLE_SECONDS = 12
"""Without a number, as many cases of a protocol are tried as this time allows."""
CASE_SECONDS = 40
"""Within which all is answered that a case asks."""
TIMES_MAX = 10_000
RESIDENT_MAX = 600
"""MiB of the server."""
BYTES_MAX = 1 << 20
WRONG_LENGTHS = [0, 1, 3, 4, 5, 2**16, 2**20, 2**20 + 1, 2**31 - 1, 2**31, 2**32 - 1]
WRONG_COUNTS = [0, 1, 2, 3, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF]


def times(rng):
    """Draws how often something is repeated: now and then as often as is tried at all."""
    return TIMES_MAX if rng.random() < 0.3 else round(TIMES_MAX ** rng.random())


def exchange(one, content, patience=None):
    """Sends these bytes and reads meanwhile, to the end of the connection. ``patience``: how long it is waited after all is
    sent until the sending side is closed. None where what is sent ends the connection."""
    one.setblocking(False)
    said, rest, is_closed = bytearray(), memoryview(content), False
    deadline, quiet = time.monotonic() + CASE_SECONDS, None
    while True:
        assert time.monotonic() < deadline, f"after {CASE_SECONDS} s it goes on"
        readable, writable, _ = select.select([one], [one] if rest else [], [], 0.02)
        try:
            if readable:
                part = one.recv(1 << 18)
                if not part:
                    return bytes(said)
                said += part
                quiet = None
            if writable:
                rest = rest[one.send(rest[: 1 << 18]) :]
        except ConnectionError:
            # It was closed on the way.
            return bytes(said)
        if not rest and not is_closed and patience is not None:
            quiet = quiet or time.monotonic()
            if time.monotonic() >= quiet + patience:
                is_closed = True
                try:
                    one.shutdown(socket.SHUT_WR)
                except OSError:
                    return bytes(said)


# The protocol of PostgreSQL. A case gives the bytes after the greeting, and how often Z is said at least, if that is known.

PARSE = message(b"P", b"s\0SELECT * FROM deposit($1, $2)\0\0\2" + struct.pack("!II", 25, 20))
BIND = message(b"B", b"p\0s\0" + struct.pack("!HHHHI1sIQ", 2, 0, 1, 2, 1, b"a", 8, 1) + struct.pack("!HH", 1, 1))
DESCRIBE = message(b"D", b"Pp\0")
EXECUTE = message(b"E", b"p\0\0\0\0\0")
CLOSE = message(b"C", b"Pp\0") + message(b"C", b"Ss\0")
SYNC = message(b"S")
END = message(b"X")
READ = message(b"Q", b"SELECT * FROM accounts WHERE id = 'a'\0")
EACH = [
    PARSE,
    BIND,
    DESCRIBE,
    message(b"D", b"Ss\0"),
    EXECUTE,
    message(b"E", b"p\0\0\0\0\1"),
    message(b"C", b"Pp\0"),
    message(b"C", b"Ss\0"),
    message(b"H"),
    SYNC,
    READ,
    message(b"Q", b"CALL deposit('a', 1)\0"),
    message(b"Q", b"\0"),
    message(b"d", b"x"),
    message(b"c"),
    message(b"f", b"why\0"),
    message(b"p", b"secret\0"),
    message(b"F", struct.pack("!IHHHH", 1, 0, 0, 0, 0)),
]
"""Each message that a client may send, and two that it may not."""
CONVERSATION = PARSE + BIND + DESCRIBE + EXECUTE + CLOSE + SYNC


def length_is_wrong(rng):
    one = rng.choice(EACH)
    right = len(one) - 1
    length = rng.choice([*WRONG_LENGTHS, right - 1, right + 1, right * 2])
    return one[:1] + struct.pack("!I", length & 0xFFFFFFFF) + one[5:] + rng.choice([b"", SYNC, SYNC * 1000]), None


def count_is_wrong(rng):
    """A number within a message, of two or four bytes."""
    one = rng.choice([PARSE, BIND, EXECUTE, *EACH])
    body = bytearray(one[5:])
    form, numbers = rng.choice([("!H", WRONG_COUNTS), ("!I", WRONG_LENGTHS)])
    size = struct.calcsize(form)
    if len(body) >= size:
        at = rng.randrange(len(body) - size + 1)
        body[at : at + size] = struct.pack(form, rng.choice(numbers))
    return (PARSE if one is BIND else b"") + message(one[:1], bytes(body)) + SYNC, None


def message_repeated(rng):
    one = rng.choice(EACH)
    before = rng.choice([b"", PARSE + BIND])
    return before + one * times(rng) + SYNC, None


def conversation_repeated(rng):
    count = min(times(rng), 1_000)
    return CONVERSATION * count, count


def reads_repeated(rng):
    count = min(times(rng), 1_000)
    return READ * count, count


def syncs_repeated(rng):
    count = times(rng)
    return SYNC * count, count


def names_differ(rng):
    """Statements and portals that are kept, each under its own name."""
    made = []
    for number in range(min(times(rng), 5_000)):
        name = b"s%d" % number
        made.append(message(b"P", name + b"\0SELECT * FROM deposit('a', 1)\0\0\0"))
        if rng.random() < 0.5:
            made.append(message(b"B", b"p%d\0" % number + name + b"\0\0\0\0\0\0\0"))
    return b"".join(made) + SYNC, None


def cut(rng):
    whole = rng.choice([CONVERSATION, READ, *EACH]) if rng.random() < 0.5 else b"".join(rng.choices(EACH, k=4))
    return whole[: rng.randrange(len(whole) + 1)], None


def huge(rng):
    size = rng.choice([BYTES_MAX - 100, BYTES_MAX - 4, BYTES_MAX, BYTES_MAX + 1, BYTES_MAX * 3])
    long = b"a" * (size - 60)
    made = [
        message(b"Q", b"SELECT '" + long + b"'\0"),
        message(b"Q", b"SELECT * FROM accounts WHERE id = '" + long[:-40] + b"'\0"),
        message(b"Q", b"SELECT " + b"\xc3\xa9" * (size // 2 - 40) + b"\0"),
        message(b"Q", b"LISTEN " + long + b"\0"),
        message(b"Q", b"SET a = '" + long + b"'\0"),
        message(b"Q", long),
        message(b"P", long + b"\0SELECT 1\0\0\0") + message(b"B", b"\0" + long + b"\0\0\0\0\0\0\0"),
        message(b"P", b"s\0SELECT " + b",".join(b"$%d" % place for place in range(1, 2_900)) + b"\0\0\0"),
        message(b"P", b"s\0SELECT $65535\0\0\0") + message(b"D", b"Ss\0"),
        message(b"P", b"s\0SELECT 1\0\xff\xff" + struct.pack("!I", 25) * 0xFFFF),
        PARSE + message(b"B", b"\0s\0\0\0" + struct.pack("!HI", 2, size - 60) + long + struct.pack("!I", 0) + b"\0\0"),
        PARSE + message(b"B", b"\0s\0\xff\xff" + b"\0\1" * 0xFFFF + b"\0\0\0\0"),
        PARSE + message(b"B", b"\0s\0\0\0\xff\xff" + b"\xff\xff\xff\xff" * 0xFFFF + b"\0\0"),
        PARSE + message(b"B", b"\0s\0\0\0\0\0\xff\xff" + b"\0\1" * 0xFFFF),
        message(b"D", b"S" + long + b"\0"),
        message(b"C", b"P" + long + b"\0"),
        message(b"d", long),
    ]
    return rng.choice(made) + SYNC, None


def nested(rng):
    """Values that are nested, and blocks within blocks."""
    depth = times(rng)
    opens, inside, closes = rng.choice(
        [
            (b"[", b"1", b"]"),
            (b'{"a":', b"1", b"}"),
            (b"{", b"1", b"}"),
            (b'{"', b"a", b'"}'),
            (b"(", b"", b")"),
            (b"", b"[" + b"1," * depth + b"1]", b""),
            (b"\\", b"x", b""),
        ]
    )
    value = opens * depth + inside + closes * depth
    if rng.random() < 0.2:
        value = value[: rng.randrange(len(value) + 1)]
    text, oid = rng.choice(
        [
            (b"SELECT * FROM many('a', $1)", 0),
            (b"SELECT $1::json", 114),
            (b"SELECT $1::text[]", 0),
            (b"SELECT 1 WHERE 'a' = any($1::text[])", 1009),
            (b"SELECT $1::jsonb", 0),
            (b"SELECT * FROM accounts WHERE id = $1", 25),
        ]
    )
    bound = message(b"B", b"\0\0" + struct.pack("!HHI", 0, 1, len(value)) + value + b"\0\0")
    parsed = message(b"P", b"\0" + text + b"\0\0\1" + struct.pack("!I", oid))
    return parsed + bound + message(b"E", b"\0\0\0\0\0") + SYNC, None


def array_in_binary(rng):
    """An array whose dimensions and lengths are not what they say."""
    number = lambda: rng.choice([0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1])
    head = struct.pack("!IIIII", *(rng.choice([known, number()]) for known in (1, 0, 25, 2, 1)))
    value = head + struct.pack("!I", number()) + b"a" + struct.pack("!I", 1) + b"b" * rng.choice([0, 1, 9])
    bound = message(b"B", b"\0\0" + struct.pack("!HHHI", 1, 1, 1, len(value)) + value + b"\0\0")
    parsed = message(b"P", b"\0SELECT 1 WHERE 'a' = any($1::text[])\0\0\1" + struct.pack("!I", 1009))
    return parsed + bound + message(b"E", b"\0\0\0\0\0") + SYNC, None


def words_repeated(rng):
    """Statements about the connection itself, many in a text and many texts."""
    word = rng.choice(
        [
            "BEGIN",
            "SAVEPOINT a",
            "SAVEPOINT a%d",
            "ROLLBACK TO a",
            "COMMIT",
            "LISTEN a%d",
            'LISTEN "deposit.committed"',
            'LISTEN "deposit.committed after 1.1"',
            "UNLISTEN *",
            "SET a%d = 1",
            "SHOW ALL",
            "DISCARD ALL",
            "PREPARE a%d AS SELECT 1",
            "DECLARE a%d CURSOR FOR SELECT 1",
            "SELECT * FROM accounts",
            "",
        ]
    )
    each = [word % number if "%d" in word else word for number in range(times(rng))]
    if rng.random() < 0.5:
        return message(b"Q", "; ".join(["BEGIN", *each]).encode() + b"\0"), None
    each = each[:1_000]
    return b"".join(message(b"Q", text.encode() + b"\0") for text in ["BEGIN", *each]), len(each)


POSTGRES = [
    length_is_wrong,
    count_is_wrong,
    message_repeated,
    conversation_repeated,
    reads_repeated,
    syncs_repeated,
    names_differ,
    cut,
    huge,
    nested,
    array_in_binary,
    words_repeated,
]


def before_the_greeting(rng):
    """Draws messages that come before it is known who asks. All of it is refused."""
    known = startup(user="ada", database="bank")
    asked = lambda code: struct.pack("!II", 8, code)
    proof = lambda text: message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(text)) + text)
    many = startup(**{f"a{number}": "b" for number in range(900)})
    made = [
        asked(80877103) * times(rng),
        asked(80877104) * times(rng),
        known * times(rng),
        known + message(b"p", b"a" * rng.choice([0, 1, 1000, BYTES_MAX, BYTES_MAX * 2])),
        known + proof(b"n,,n=,r=" + b"a" * times(rng)),
        known + proof(b"n,," + b"m=a," * times(rng) + b"n=,r=a"),
        known + proof(b"y,a=" + b"=2C" * times(rng) + b",n=,r=a"),
        known + proof(b"n,,n=,r=a") * times(rng),
        known + message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", rng.choice(WRONG_LENGTHS)) + b"n,,n=,r=a"),
        known + READ * times(rng),
        struct.pack("!I", rng.choice(WRONG_LENGTHS)) + known[4:],
        struct.pack("!IIII", 16, 80877102, 1, 2),
        struct.pack("!II", 8 + 5_000, 80877102) + b"a" * 5_000,
        many,
        startup(user="a" * 9_900),
        startup(user="ada", options="-c a=" * 1_000),
        struct.pack("!II", 8, rng.choice([2 << 16, 3 << 16, 0xFFFFFFFF, 0, 3 << 16 | 0xFFFF])),
        b"GET / HTTP/1.1\r\n\r\n" * times(rng),
        b"\x16\x03\x01\xff\xff" + b"\1" * times(rng),
        b"\xff" * times(rng),
    ]
    content = rng.choice(made)
    return content if rng.random() < 0.7 else content[: rng.randrange(len(content) + 1)]


# HTTP. A case gives the bytes, and the number of responses of the status 200 at least, if that is known.


class Requests:
    """Requests of a user."""

    def __init__(self, secret):
        self.known = [b"Host: localhost", f"Authorization: Bearer {secret}".encode()]

    def head(self, line, *more):
        return b"\r\n".join([line + b" HTTP/1.1", *self.known, *more]) + b"\r\n\r\n"

    def __call__(self, line, body=b"", *more):
        length = [b"Content-Length: %d" % len(body)] if line.startswith(b"POST") else []
        return self.head(line, *length, *more) + body

    def last(self):
        """A request after which the connection is closed."""
        return self(b"GET /health", b"", b"Connection: close")


def one_call(number=0):
    return b'{"call": "deposit", "fields": {"account": "a", "amount": 1}}\n'


def requests_repeated(rng, ask):
    count = min(times(rng), 1_000)
    one = rng.choice(
        [
            ask(b"GET /health"),
            ask(b"GET /"),
            ask(b"GET /tables/accounts/a%20witness"),
            ask(b"GET /tables/accounts"),
            ask(b"POST /call/deposit", b'{"account": "a", "amount": 1}'),
            ask(b"POST /stream/clicks", b'{"account": "a", "times": 1}'),
        ]
    )
    if one.startswith(b"POST"):
        # Those of one connection are made one after the other, each when the one before is on the disk.
        count = min(count, 300)
    return one * count + ask.last(), None if b"witness" in one else count


def head_is_huge(rng, ask):
    count = times(rng)
    made = [
        ask(b"GET /" + b"a" * count),
        ask(b"GET /" + b"a/" * count),
        ask(b"GET /tables/accounts" + b"/a" * count),
        ask(b"GET /tables/accounts/" + b"%61" * count),
        ask(b"GET /tables/accounts/" + b"%" * count),
        ask(b"GET /tables/accounts?" + b"limit=1&" * count),
        ask(b"GET /tables/accounts?limit=" + b"9" * count),
        ask(b"GET /health", b"", *[b"X-%d: a" % number for number in range(count)]),
        ask(b"GET /health", b"", *[b"X: a"] * count),
        ask(b"GET /health", b"", b"X: " + b"a" * count * 10),
        ask(b"GET /health", b"", b"X" * count * 10 + b": a"),
        ask(b"GET /health", b"", b"Host: localhost"),
        ask(b"GET /health", b"", b"Authorization: Bearer " + b"a" * count),
        ask(b"GET /health", b"", b"Authorization: Basic " + b"YTo" * count),
        ask(b"GET /health", b"", b"Accept-Encoding: " + b"gzip, " * count),
        ask(b"GET /tables/accounts", b"", b"Accept: " + b"a/b;q=0.1, " * count),
        ask(b"GET /streams/deposit.committed", b"", b"Last-Event-ID: " + b"9" * count),
        ask(b"POST /call/deposit", b"{}", b"Idempotency-Key: " + b"a" * count),
        ask(b"POST /call/deposit", b"{}", *[b"Idempotency-Key: a"] * count),
        ask(b"POST /call/deposit", b"{}", b"Content-Type: " + b"a" * count),
        ask(b"POST /call/" + b"deposit" * count, b"{}"),
        ask(b"GET" * count + b" /"),
        b"\r\n" * count + ask.last(),
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b" folded\r\n" * count + b"\r\n",
        b"GET /health HTTP/" + b"1" * count + b"\r\n\r\n",
        b"\0" * count,
    ]
    return rng.choice(made), None


def length_of_a_body_is_wrong(rng, ask):
    said = rng.choice(
        [b"-1", b"+5", b"0x5", b"", b"5 5", b"5, 5", b"5, 6", b"1" * 400, b"18446744073709551616", b"99999999"]
    )
    more = rng.choice([[], [b"Content-Length: 5"], [b"Transfer-Encoding: chunked"], [b"Expect: 100-continue"]])
    body = rng.choice([b"", b"12345", b"5\r\n12345\r\n0\r\n\r\n"])
    return ask.head(b"POST /call/deposit", b"Content-Length: " + said, *more) + body + ask.last(), None


def chunks(rng, ask):
    """Bodies in parts, rightly and wrongly."""
    path = rng.choice([b"POST /calls", b"POST /call/deposit", b"POST /query", b"POST /stream/clicks", b"GET /health"])
    count = times(rng)
    part = rng.choice(
        [
            b"1\r\n \r\n" * count,
            b"1;" + b"a=b;" * count + b"\r\n \r\n",
            b"%x\r\n" % len(one_call()) + one_call() + b"\r\n",
            (b"%x\r\n" % len(one_call()) + one_call() + b"\r\n") * min(count, 3_000),
            b"f" * min(count, 100) + b"\r\n",
            b"ffffffffffffffff\r\n",
            b"-1\r\n",
            b"\r\n",
            b"0x1\r\n \r\n",
            b"1\n \n",
            b"10\r\nshort\r\n",
            b"0" * count + b"1\r\n \r\n",
            b"%x\r\n" % (BYTES_MAX * 2) + b" " * BYTES_MAX * 2 + b"\r\n",
        ]
    )
    end = rng.choice([b"0\r\n\r\n", b"", b"0\r\n" + b"A: b\r\n" * count + b"\r\n", b"0\r\nContent-Length: 9\r\n\r\n"])
    coding = rng.choice([b"chunked", b"chunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"a"])
    return ask.head(path, b"Transfer-Encoding: " + coding) + part + end + ask.last(), None


def body_is_nested(rng, ask):
    """JSON that is deep, wide, long or cut."""
    depth = times(rng) * rng.choice([1, 20])
    value = rng.choice(
        [
            b"[" * depth + b"]" * depth,
            b'{"a":' * depth + b"1" + b"}" * depth,
            b"[" * depth,
            b'[{"a":' * depth,
            b"[" + b"1," * depth + b"1]",
            b"{" + b",".join(b'"a%d":1' % number for number in range(depth // 2)) + b"}",
            b"{" + b'"a":1,' * (depth // 2) + b'"a":1}',
            b"9" * depth,
            b"-0." + b"0" * depth + b"1",
            b"1e" + b"9" * depth,
            b'"' + b"\\u0000" * (depth // 2) + b'"',
            b'"' + b"\\ud800" * (depth // 2) + b'"',
            b'"' + b"\xed\xa0\x80" * (depth // 2) + b'"',
            b" " * depth,
            b'"' + b"a" * depth,
        ]
    )[: BYTES_MAX - 200]
    path, body = rng.choice(
        [
            (b"POST /call/deposit", value),
            (b"POST /call/deposit", b'{"account": "a", "amount": ' + value + b"}"),
            (b"POST /call/deposit", b'{"account": ' + value + b', "amount": 1}'),
            (b"POST /call/many", b'{"account": "a", "amounts": ' + value + b"}"),
            (b"POST /stream/clicks", b'{"account": "a", "times": ' + value + b"}"),
            (b"POST /stream/clicks", value),
            (b"POST /calls", b'{"call": "deposit", "fields": ' + value + b"}"),
            (b"POST /calls", b'{"call": "many", "fields": {"account": "a", "amounts": ' + value + b"}}"),
            (b"POST /query", b'{"sql": "select ?", "parameters": ' + value + b"}"),
            (b"POST /query", b'{"sql": "select ?", "parameters": [' + value + b"]}"),
        ]
    )
    if rng.random() < 0.3:
        body = body[: rng.randrange(len(body) + 1)]
    return ask(path, body, b"Content-Type: application/json") + ask.last(), None


def lines_of_calls(rng, ask):
    count = min(times(rng), 5_000)
    line = rng.choice(
        [
            one_call(),
            b"\n",
            b"{}\n",
            b'{"call": "none", "fields": {}}\n',
            b'{"call": "deposit", "fields": {}, "fields": {}}\n',
            b'{"call": "deposit", "fields": {"account": "a", "amount": 1}, "idempotency_key": "a"}\n',
            b'{"call": "deposit", "fields": {"account": "a", "amount": 1}, "durable": false}\n',
            b'{"call": "deposit", "fields": {"account": "a", "amount": 0}}\n',
            b"\xff\n",
            b"a",
            b"[" * 100 + b"\n",
        ]
    )
    body = (line * count)[: BYTES_MAX - 10]
    form = rng.randrange(3)
    if form == 0:
        return ask(b"POST /calls", body) + ask.last(), None
    if form == 1:
        body = body[: rng.randrange(len(body) + 1)]
        return ask(b"POST /calls", body) + ask.last(), None
    parts, at = [], 0
    while at < len(body) and len(parts) < 2_000:
        size = rng.choice([1, 7, 60, 5_000])
        parts.append(b"%x\r\n" % len(body[at : at + size]) + body[at : at + size] + b"\r\n")
        at += size
    return ask.head(b"POST /calls", b"Transfer-Encoding: chunked") + b"".join(parts) + b"0\r\n\r\n" + ask.last(), None


def arrow_is_wrong(rng, ask):
    stream = bytearray(arrow_stream())
    kind = rng.randrange(4)
    if kind == 0:
        del stream[rng.randrange(len(stream)) :]
    elif kind == 1:
        at = rng.randrange(len(stream) - 4)
        stream[at : at + 4] = struct.pack("<I", rng.choice(WRONG_LENGTHS))
    elif kind == 2:
        at = rng.randrange(len(stream) - 8)
        stream[at : at + 8] = struct.pack("<Q", rng.choice([0, 2**31, 2**32, 2**62, 2**63, 2**64 - 1]))
    else:
        stream = (stream * min(times(rng), 1_000))[: BYTES_MAX - 10]
    kind = b"Content-Type: application/vnd.apache.arrow.stream"
    return ask(b"POST /stream/clicks", bytes(stream), kind) + ask.last(), None


def request_cut(rng, ask):
    whole = rng.choice(
        [
            ask(b"POST /call/deposit", b'{"account": "a", "amount": 1}', b"Idempotency-Key: a"),
            ask(b"POST /query", b"select * from accounts", b"Accept: application/vnd.apache.arrow.stream"),
            ask(b"GET /streams/deposit.committed", b"", b"Last-Event-ID: 1.2"),
            ask(b"POST /calls", one_call() * 3),
            ask(b"GET /metrics", b"", b"Accept-Encoding: gzip"),
        ]
    )
    return whole[: rng.randrange(len(whole))], None


def keys_differ(rng, ask):
    count = min(times(rng), 2_000)
    made = [
        ask(b"POST /call/deposit", b'{"account": "a", "amount": 1}', b"Idempotency-Key: %d.%d" % (number, count))
        for number in range(count)
    ]
    return b"".join(made) + ask.last(), None


HTTP = [
    requests_repeated,
    head_is_huge,
    length_of_a_body_is_wrong,
    chunks,
    body_is_nested,
    lines_of_calls,
    arrow_is_wrong,
    request_cut,
    keys_differ,
]


@pytest.fixture
def server(tmp_path):
    secret = add_user(tmp_path, "ada", "--admin")
    options = ("--state", "state", "--users", "users.json", "--query-seconds-max", "1", "--silence-seconds-max", "5")
    with running(tmp_path, *options) as server:
        yield server, secret


def over_postgres(server, secret, number):
    """Says the case of a number to the server."""
    rng = random.Random(number)
    family = POSTGRES[number % len(POSTGRES)]
    if rng.random() < 0.15:
        with socket.create_connection(server.postgres, timeout=CASE_SECONDS) as one:
            said = exchange(one, before_the_greeting(rng), 0.0)
        # The question for TLS is answered with one letter each time.
        seen = seen_in_messages(b"N" + said.lstrip(b"N"))
        assert b"Z" not in seen, seen
        return
    content, count = family(rng)
    with Messages(server.postgres, "ada", secret, CASE_SECONDS) as one:
        if rng.random() < 0.1:
            # Said, and gone without a word.
            one.socket.setblocking(False)
            try:
                one.socket.send(content)
            except OSError:
                pass
            return
        said = exchange(one.socket, content + (END if rng.random() < 0.7 else b""), 0.0)
    assert seen_in_messages(said) or len(content) < 100 or count is None
    if count is not None:
        assert said.count(b"Z\0\0\0\5") >= count, f"{said.count(b'Z' + bytes([0, 0, 0, 5]))} of {count} are answered"


def over_http(server, secret, number):
    rng = random.Random(number)
    content, count = HTTP[number % len(HTTP)](rng, Requests(secret))
    with socket.create_connection(server.http, timeout=CASE_SECONDS) as one:
        # A request that is half said or follows a stream is given up soon; one that is answered closes its connection.
        said = exchange(one, content, 0.05 if count is None else None)
    if b"text/event-stream" not in said and b"chunked" not in said.lower():
        seen_in_responses(said)
    if count is not None:
        assert said.count(b"HTTP/1.1 200 ") == count + 1, f"{said.count(b'HTTP/1.1 200 ')} of {count} are answered"


def numbers():
    if CASES:
        yield from range(FROM, FROM + CASES)
        return
    end, number = time.monotonic() + SAMPLE_SECONDS, 0
    while time.monotonic() < end:
        yield number
        number += 1


@pytest.mark.parametrize("say", [over_postgres, over_http])
def test_no_message_ends_or_stops_the_server(server, say):
    server, secret = server
    families = POSTGRES if say is over_postgres else HTTP
    token, calls, slowest = f"Bearer {secret}", 0, 0.0
    # All ways have been there once.
    for number in range(len(families)):
        say(server, secret, number)
    descriptors = server.descriptors()

    def waited(number):
        """Returns the time of a call after a case."""
        nonlocal calls
        say(server, secret, number)
        begun, calls = time.monotonic(), calls + 1
        status, reply = server.call("deposit", {"account": "the witness", "amount": 1}, Authorization=token)
        took = time.monotonic() - begun
        assert (status, reply.get("committed", {}).get("balance")) == (200, calls), reply
        return took

    for number in numbers():
        try:
            # A case that holds up others does so each time.
            took = least(lambda number=number: waited(number), ANSWER_SECONDS)
            assert took < ANSWER_SECONDS, f"a call took {took:.1f} s"
            slowest = max(slowest, took)
            assert server.is_well(), server.ask("GET", "/health")
            assert server.resident() < RESIDENT_MAX, f"{server.resident()} MiB"
        except BaseException as error:
            code = server.process.poll()
            state = "goes on" if code is None else f"has ended with {code}: {server.said()[-1000:]}"
            name = families[number % len(families)].__name__
            raise AssertionError(f"case {number}, {name} ({error!r}); the server {state}") from error
    until(lambda: server.descriptors() <= descriptors + 8)
    print(f"{calls} cases, the slowest call {slowest * 1000:.0f} ms, {server.resident()} MiB")
    server.check_end()


def test_each_case_has_a_turn():
    """The control: cases differ, and a number gives the same one again."""
    ask = Requests("secret")
    for families, more in ((POSTGRES, ()), (HTTP, (ask,))):
        for family in families:
            made = [family(random.Random(number), *more)[0] for number in range(8)]
            assert len(set(made)) > 1, family.__name__
            assert made == [family(random.Random(number), *more)[0] for number in range(8)], family.__name__


def test_what_was_said_is_counted(server):
    """The control: an answer that is missing is noticed."""
    server, secret = server
    with Messages(server.postgres, "ada", secret) as one:
        said = exchange(one.socket, CONVERSATION * 10 + END)
    assert said.count(b"Z\0\0\0\5") == 10
    assert json.loads(server.ask("GET", "/tables/accounts/a", headers={"Authorization": f"Bearer {secret}"})[1]) == {
        "id": "a",
        "balance": 10,
    }
