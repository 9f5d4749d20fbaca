"""Pushes with a key, which may be made again: each is taken once, also across kills, and from the disk."""

import socket
import threading
import time

import pytest
from server_process import until
from test_operate import metrics
from test_server import command

import tidemill as tm

CLICKS = """
import tidemill as tm

class Count(tm.Row):
    page: str = tm.key()
    clicks: int = 0

class Click(tm.Event):
    at: tm.Time = tm.event_time()
    page: str

class View(tm.Event):
    page: str

class Reset(tm.Event):
    page: str

app = tm.App("clicks")
counts = app.table(Count)
clicks = app.source(Click, lateness="1h", name="clicks", ahead=None, remember="1h", keys=5_000)
views = app.source(View, name="views")
resets = app.requests(Reset, "resets", remember="1h")

@app.transaction(clicks)
def click(ev, c=counts.row("page", create=True)):
    c.clicks += 1

@app.transaction(views)
def view(ev, c=counts.row("page", create=True)):
    c.clicks += 1

@app.transaction(resets)
def reset(ev, c=counts.row("page", create=True)):
    c.clicks = 0
    return {"page": c.page}
"""

FEW = ("--no-postgres", "--state", "state", "--keys-in-memory", "20")


def click(page, minute=0):
    return {"at": f"2026-01-01T00:{minute % 60:02}:00Z", "page": page}


def later(client):
    """Lets all clicks of the first hours pass."""
    client.push("clicks", [{"at": "2026-01-02T00:00:00Z", "page": "later"}])


def test_a_push_with_a_key_is_taken_once(tmp_path):
    with command(tmp_path, "--no-postgres", program=CLICKS) as (_, url), tm.connect(url) as client:
        events = [click("a", minute) for minute in range(3)]
        first = client.push("clicks", events, idempotency_key="one")
        assert [client.push("clicks", events, idempotency_key="one") for _ in range(3)] == [first] * 3
        assert client.push("clicks", events, idempotency_key="two") > first
        for other in (events[:2], events[::-1]):
            with pytest.raises(tm.IdempotencyError, match="had other arguments"):
                client.push("clicks", other, idempotency_key="one")
        later(client)
        assert client.row("counts", "a")["clicks"] == 6
        assert client.push("clicks", events, idempotency_key="one") == first


def test_keys_are_refused_where_none_are_kept(tmp_path):
    with command(tmp_path, "--no-postgres", program=CLICKS) as (_, url), tm.connect(url) as client:
        with pytest.raises(tm.IdempotencyError, match=r"app\.source\(\.\.\., remember="):
            client.push("views", [{"page": "a"}], idempotency_key="one")
        with pytest.raises(tm.IdempotencyError, match="are those of its calls"):
            client.push("resets", [{"page": "a"}], idempotency_key="one")
        with pytest.raises(tm.IdempotencyError, match="a key of 600 bytes"):
            client.push("clicks", [click("a")], idempotency_key="k" * 600)
        assert client.push("clicks", [], idempotency_key="none") >= 0
        assert client.row("counts", "a") is None
    with pytest.raises(tm.PlanError, match="a source that is read has no keys"):
        tm.App("read").source(Click, tm.jsonl("clicks.jsonl"), remember="1h")


class Click(tm.Event):
    page: str


def test_a_connection_that_the_server_has_closed_is_made_anew(tmp_path):
    with command(tmp_path, "--no-postgres", program=CLICKS) as (_, url), tm.connect(url) as client:
        first = client.push("views", [{"page": "a"}])
        ((_, kept),) = client._free
        kept.sock.shutdown(socket.SHUT_RDWR)
        assert client.push("views", [{"page": "a"}]) > first
    with tm.connect("http://127.0.0.1:9") as client, pytest.raises(tm.RunError, match="no answer from"):
        client.row("counts", "a")


def test_pushes_are_taken_once_across_kills(tmp_path):
    lives, count = 4, 3
    done, place, lock = {}, {}, threading.Lock()
    next_push, ends = [0], threading.Event()
    deadline = time.monotonic() + 180

    def pusher():
        while not ends.is_set():
            with lock:
                number = next_push[0]
                next_push[0] += 1
            events = [click(f"{number % 5}", number + k) for k in range(1 + number % 4)]
            while number not in done and time.monotonic() < deadline:
                try:
                    with tm.connect(place["url"], timeout=5) as client:
                        done[number] = client.push("clicks", events, idempotency_key=f"{number}")
                except tm.RunError:
                    time.sleep(0.05)

    threads = [threading.Thread(target=pusher) for _ in range(count)]
    for life in range(lives):
        with command(tmp_path, *FEW, program=CLICKS) as (process, url):
            place["url"] = url
            before = len(done)
            if life == 0:
                [thread.start() for thread in threads]
            until(lambda before=before: len(done) > before + 15, 60)
            if life + 1 < lives:
                process.kill()
                process.wait(10)
                continue
            ends.set()
            [thread.join() for thread in threads]
            assert sorted(done) == list(range(next_push[0]))
            with tm.connect(url) as client:
                for number, epoch in done.items():
                    events = [click(f"{number % 5}", number + k) for k in range(1 + number % 4)]
                    assert client.push("clicks", events, idempotency_key=f"{number}") == epoch
                later(client)
                for page in range(5):
                    taken = sum(1 + number % 4 for number in done if number % 5 == page)
                    assert (client.row("counts", f"{page}") or {"clicks": 0})["clicks"] == taken
            assert metrics(url).one("tidemill_key_lookups_total") > 0
    assert len(done) > 50
