"""Each production of SQL, repeated and nested, against a server: no statement of any shape ends it, stops it or stays.

``TIDEMILL_STATEMENTS`` says how many statements are tried, ``TIDEMILL_STATEMENTS_FROM`` which seed is the first.
"""

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing

import pytest
import sql_grammar
from server_process import (
    ANSWER_SECONDS,
    WAIT_SECONDS,
    Messages,
    add_user,
    least,
    lives,
    message,
    resident,
    running,
    until,
)

STATEMENTS = int(os.environ.get("TIDEMILL_STATEMENTS", "0"))
FROM = int(os.environ.get("TIDEMILL_STATEMENTS_FROM", "0"))
SAMPLE_SECONDS = 25
"""Without a number, as many are tried as this time allows: some alone, and some that are mixed."""
QUERY_SECONDS = 1
ANSWERED_SECONDS = 60
"""Within which a statement is answered: it may wait for the queries of the others, each of which may have to be ended."""
MANY = 10
LEFT_SECONDS = 3
"""The time for which the answer to a text of many statements is waited for, seconds."""
RESIDENT_MAX = 700
"""MiB of the server, which has parsed long statements on threads of their own."""
HELPER_MAX = 900
"""MiB of a process that answers queries: what it may take of --query-memory-max, and what it begins with."""

NO_STATEMENT = (
    "57P01",  # The server ends.
    "57P03",  # The run is over.
    "XX000",  # A fault.
)


@pytest.fixture
def server(tmp_path):
    secrets = {"ada": add_user(tmp_path, "ada", "--admin"), "none": add_user(tmp_path, "none")}
    options = ("--state", "state", "--users", "users.json", "--query-seconds-max", str(QUERY_SECONDS))
    with running(tmp_path, *options) as server:
        yield server, secrets


def over_http(server, secret, text, is_refused=False):
    """The status of a query."""
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        return [server.ask("POST", "/query", text.encode("utf-8", "replace"), headers, ANSWERED_SECONDS)[0]]
    except ConnectionError:
        # One who is refused is not heard out.
        assert is_refused
        return [403]


def simple(server, user, secret, text):
    """Those of a text run one after the other: of many the answer is not waited for to the end."""
    is_one = text.count(";") < MANY
    with Messages(server.postgres, user, secret, ANSWERED_SECONDS if is_one else LEFT_SECONDS) as one:
        one.send(message(b"Q", text.encode("utf-8", "replace") + b"\0"))
        try:
            tags, codes = one.answers()
        except TimeoutError:
            assert not is_one
            return []
    assert tags[-1:] == b"Z" or "54000" in codes, (tags[-20:], codes)
    return codes


def extended(server, user, secret, text):
    """Parsed, described, bound to nothing, and run."""
    sent = [
        message(b"P", b"\0" + text.encode("utf-8", "replace") + b"\0\0\0"),
        message(b"D", b"S\0"),
        message(b"B", b"\0\0\0\0\0\0\0\0"),
        message(b"D", b"P\0"),
        message(b"E", b"\0\0\0\0\0"),
        message(b"S"),
    ]
    with Messages(server.postgres, user, secret, ANSWERED_SECONDS) as one:
        one.send(b"".join(sent))
        tags, codes = one.answers()
    assert tags[-1:] == b"Z" or "54000" in codes, (tags[-20:], codes)
    return codes


def say(server, secrets, made, witness):
    """Gives a statement to the server in all ways, with calls beside."""
    short = made.postgres.replace("\0", "")
    ways = [
        (over_http, secrets["ada"], made.http),
        (over_http, secrets["none"], made.http, True),
        *((way, user, secrets[user], short) for way in (simple, extended) for user in ("none", "ada")),
    ]
    with ThreadPoolExecutor(len(ways)) as beside:
        asked = [beside.submit(way, server, *rest) for way, *rest in ways]
        while wait(asked, 0.05).not_done:
            witness()
    for number, one in enumerate(asked):
        for code in one.result():
            assert code not in (500, 503, *NO_STATEMENT) or (code == 503 and number == 0), (ways[number][:2], code)


def seeds():
    """Yields the seeds of the sample: those of productions alone, evenly spread, in turns with those that mix them."""
    if STATEMENTS:
        yield from range(FROM, FROM + STATEMENTS)
        return
    alone = len(sql_grammar.STEPS)
    end = time.monotonic() + SAMPLE_SECONDS
    for turn in range(1_000_000):
        yield from (turn * 13 % alone, alone + turn)
        if time.monotonic() > end:
            return


def test_no_statement_ends_or_stops_the_server(server):
    server, secrets = server
    helpers = len(server.query_processes())
    calls, slowest, tried, took = 0, 0.0, 0, []

    def witness():
        nonlocal calls
        calls += 1
        begun = time.monotonic()
        status, reply = server.call("deposit", {"account": "the witness", "amount": 1}, Authorization=token)
        took.append(time.monotonic() - begun)
        assert (status, reply["committed"]["balance"]) == (200, calls)

    def waited(made):
        """Returns the time of the slowest call beside a statement."""
        took.clear()
        say(server, secrets, made, witness)
        witness()
        return max(took)

    def query():
        """Returns whether a query over a table is answered: the process of one that took too much has been replaced."""
        sql = b"select count(*) as c from accounts"
        return server.ask("POST", "/query", sql, {"Authorization": token})[0] == 200

    token = f"Bearer {secrets['ada']}"
    # Each of the ways, and the processes, have been there once.
    say(server, secrets, sql_grammar.statement(0), witness)
    descriptors = server.descriptors()
    for seed in seeds():
        made = sql_grammar.statement(seed)
        try:
            # A statement that holds up others does so each time.
            beside = least(lambda made=made: waited(made), ANSWER_SECONDS)
            assert beside < ANSWER_SECONDS, f"a call took {beside:.1f} s"
            slowest = max(slowest, beside)
            until(query)
            assert server.is_well(), server.ask("GET", "/health")
            assert server.resident() < RESIDENT_MAX, f"{server.resident()} MiB"
            large = [size for number in server.query_processes() if (size := _resident(number)) > HELPER_MAX]
            assert not large, f"{large} MiB"
        except BaseException as error:
            code = server.process.poll()
            state = "goes on" if code is None else f"has ended with {code}: {server.said()[-1000:]}"
            shown = f"{made.of}\n{made.postgres[:300]}\n{made.http[:300]}"
            raise AssertionError(f"statement {seed} ({error!r}); the server {state}\n{shown}") from error
        tried += 1
    # All connections are closed, and each process that was ended has been replaced by one.
    until(lambda: server.descriptors() <= descriptors + 8)
    until(lambda: len(server.query_processes()) <= helpers)
    print(f"{tried} statements, {calls} calls, the slowest {slowest * 1000:.0f} ms, {server.resident()} MiB")
    server.check_end()


def _resident(number):
    try:
        return resident(number)
    except OSError:
        return 0  # It has ended meanwhile.


def test_the_grammar_repeats_all_that_it_has():
    """Each production is in a statement, and statements are as long as the limits allow."""
    alone = [sql_grammar.statement(seed) for seed in range(len(sql_grammar.STEPS))]
    assert len(alone) > 500
    for made in alone:
        assert made.http and len(made.http.encode()) <= sql_grammar.BYTES_MAX + 1000, made.of
    full = [made for made in alone if len(made.http.encode()) > sql_grammar.BYTES_MAX * 0.9]
    assert len(full) > len(alone) * 0.6
    assert sql_grammar.statement(777) == sql_grammar.statement(777)
    mixed = [sql_grammar.statement(seed) for seed in range(len(alone), len(alone) + 500)]
    assert sum(":" in made.of and " expr:" in made.of for made in mixed) > 50


def test_a_server_that_falls_is_noticed(server):
    """The control: a statement after whose end the server does not answer is said to be it."""
    server, secrets = server
    say(server, secrets, sql_grammar.statement(1), lambda: None)
    server.process.kill()
    server.process.wait()
    with pytest.raises((OSError, AssertionError)):
        say(server, secrets, sql_grammar.statement(1), lambda: None)


UNENDING = [
    "select count(*) from range(100000000) a, range(100000) b",
    "select " + "list_transform([1], lambda x: " * 600 + "1" + ")" * 600,
    "select levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "select 1 from accounts" + " cross join accounts" * 900,
    "select sum(length(repeat('a', 200000000))) from range(50)",
]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_beside_them(tmp_path, number):
    """However long they would go on, and however many wait."""
    options = ("--state", "state", "--drain-seconds-max", "1", "--query-seconds-max", "600")
    with running(tmp_path, *options) as server, ExitStack() as asking:
        assert server.call("deposit", {"account": "ada", "amount": 1})[0] == 200
        assert server.ask("POST", "/query", "select 1 as one")[0] == 200
        helpers = server.query_processes()
        for text in UNENDING * 2:
            content = text.encode()
            head = f"POST /query HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
            over_http = asking.enter_context(closing(socket.create_connection(server.http, 20)))
            over_http.sendall(head.encode() + content)
            one = asking.enter_context(closing(Messages(server.postgres)))
            one.send(message(b"Q", content + b"\0"))
        time.sleep(0.5)
        begun = time.monotonic()
        code = server.end(number, WAIT_SECONDS)
        took = time.monotonic() - begun
        assert code == 0, f"{code} after {took:.1f} s: {server.said()}"
        until(lambda: not any(lives(helper) for helper in helpers))
