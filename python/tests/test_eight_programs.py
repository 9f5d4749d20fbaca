"""Eight programs with windows and joins, each with inputs that are small enough to work the outputs out by hand."""

from datetime import datetime, timedelta, timezone

import tidemill as tm


def at(seconds):
    return datetime(2024, 5, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)


def events(names, *rows):
    """Events whose first field is a number of seconds."""
    return [dict(zip(["at", *names.split()], [at(seconds), *rest], strict=True)) for seconds, *rest in rows]


def seconds(row):
    """A row's values, times as seconds."""
    values = row.values()
    return tuple(int((v - at(0)).total_seconds()) if isinstance(v, datetime) else v for v in values)


def rows(collected):
    return [seconds(row) for row in collected.to_pylist()]


class View(tm.Event):
    at: tm.Time = tm.event_time()
    ad: str


class Ad(tm.Row):
    ad: str = tm.key()
    campaign: str = ""


def test_1_views_of_campaigns():
    app = tm.App("ysb")
    ads = app.table(Ad, rows=[{"ad": "a", "campaign": "x"}, {"ad": "b", "campaign": "y"}, {"ad": "c", "campaign": "x"}])
    views = app.source(View)
    tagged = views.map(lambda e, ad: {"at": e.at, "campaign": ad.campaign}, ad=ads.read("ad"))

    @app.window(tagged, by="campaign", over=tm.tumbling("10s"))
    def per_campaign(w):
        return {"at": w.end, "campaign": w.campaign, "views": w.count()}

    closed = app.collect(per_campaign.closed)
    app.run({views: events("ad", (0, "b"), (3, "a"), (9, "c"), (10, "a"), (31, "b"))})
    assert rows(closed) == [(10, "y", 1), (10, "x", 2), (20, "x", 1), (40, "y", 1)]


class Report(tm.Event):
    at: tm.Time = tm.event_time()
    road: int
    seg: int
    car: int
    speed: float


class Crossing(tm.Event):
    at: tm.Time = tm.event_time()
    road: int
    seg: int
    car: int


class Segment(tm.Row):
    road: int = tm.key()
    seg: int = tm.key()
    speed: float = 100.0
    cars: int = 0


class Account(tm.Row):
    car: int = tm.key()
    balance: int = 0


def test_2_tolls():
    app = tm.App("roads")
    segments, accounts = app.table(Segment), app.table(Account)
    reports, crossings = app.source(Report), app.source(Crossing)

    @app.window(reports, by=("road", "seg"), over=tm.sliding("5m", every="1m"))
    def traffic(w):
        return {"at": w.end, "road": w.road, "seg": w.seg, "speed": w.speed.mean(), "cars": w.car.distinct()}

    @app.transaction(traffic.closed)
    def publish(ev, s=segments.row("road", "seg", create=True)):
        s.speed = ev.speed
        s.cars = ev.cars

    @app.transaction(crossings)
    def toll(ev, s=segments.read("road", "seg", default=True), a=accounts.row("car", create=True)):
        if s.speed < 40.0 and s.cars > 50:
            a.balance -= 2 * (s.cars - 50) * (s.cars - 50)

    # 53 cars at 30 report in the first minute, one of them twice.
    reported = events("road seg car speed", *[(1, 0, 7, car, 30.0) for car in range(53)], (30, 0, 7, 5, 30.0))
    # At 59 nothing has closed; at 60 there are 53 cars: 2 * 3 * 3. Who pays nothing gets no row. From 360 on the window is empty, and has no result
    # that would change the segment.
    crossed = events("road seg car", (59, 0, 7, 1), (60, 0, 7, 2), (61, 0, 8, 3), (400, 0, 7, 4))
    app.run({reports: reported, crossings: crossed})
    assert {row["car"]: row["balance"] for row in accounts.to_pylist()} == {2: -18, 4: -18}
    assert [(row["seg"], row["speed"], row["cars"]) for row in segments.to_pylist()] == [(7, 30.0, 53)]


class Bid(tm.Event):
    at: tm.Time = tm.event_time()
    auction: int
    bidder: int
    price: float


BIDS = events(
    "auction bidder price",
    (0, 1, 8, 5.0),
    (1, 2, 9, 7.0),
    (3, 1, 9, 7.0),
    (13, 2, 8, 1.0),
)


def test_3_hot_items():
    app = tm.App("q5")
    bids = app.source(Bid)

    @app.window(bids, by="auction", over=tm.sliding("10s", every="2s"))
    def heat(w):
        return {"at": w.end, "auction": w.auction, "bids": w.count()}

    hot = heat.closed.top(1, by="bids", per="at", ties=True)

    closed, top = app.collect(heat.closed), app.collect(hot)
    app.run({bids: BIDS})
    assert rows(top) == [
        *[(2, 1, 1), (2, 2, 1)],
        *[(end, 1, 2) for end in (4, 6, 8, 10)],
        (12, 1, 1),
        *[(end, 2, 1) for end in (14, 16, 18, 20, 22)],
    ]
    # In [-2, 8) the auction 1 was first, in [2, 12) only it is left, in [4, 14) only the last bid.
    assert rows(closed) == [
        *[(2, 1, 1), (2, 2, 1)],
        *[(end, *rest) for end in (4, 6, 8, 10) for rest in ((1, 2), (2, 1))],
        (12, 1, 1),
        *[(end, 2, 1) for end in (14, 16, 18, 20, 22)],
    ]


def test_4_the_highest_bid_is_the_first_of_equals():
    app = tm.App("q7")
    bids = app.source(Bid)

    @app.window(bids, over=tm.tumbling("10s"))
    def highest(w):
        best = w.argmax("price")
        return {"at": w.end, "auction": best.auction, "price": best.price}

    closed = app.collect(highest.closed)
    app.run({bids: BIDS})
    assert rows(closed) == [(10, 2, 7.0), (20, 2, 1.0)]


class Person(tm.Event):
    at: tm.Time = tm.event_time()
    id: int
    name: str


class Auction(tm.Event):
    at: tm.Time = tm.event_time()
    seller: int


def test_5_new_sellers():
    app = tm.App("q8")
    people, auctions = app.source(Person, name="people"), app.source(Auction)

    @app.join(people, auctions, on=("id", "seller"), over=tm.tumbling("10s"))
    def sellers(p, a):
        return {"at": a.at, "id": p.id, "name": p.name}

    joined = app.collect(sellers.joined)
    data = {
        people: events("id name", (1, 1, "ada"), (8, 2, "bob"), (12, 3, "eve")),
        auctions: events("seller", (0, 1), (5, 1), (11, 2), (13, 3)),
    }
    app.run(data)
    assert rows(joined) == [(0, 1, "ada"), (5, 1, "ada"), (13, 3, "eve")]


def test_6_sessions():
    app = tm.App("q11")
    bids = app.source(Bid)

    @app.window(bids, by="bidder", over=tm.session("10s"))
    def visits(w):
        return {"bidder": w.bidder, "start": w.start, "end": w.end, "bids": w.count()}

    closed = app.collect(visits.closed)
    app.run({bids: BIDS})
    # 13 is beyond 0 + 10.
    assert rows(closed) == [(8, 0, 10, 1), (9, 1, 13, 2), (8, 13, 23, 1)]


class Quote(tm.Event):
    at: tm.Time = tm.event_time()
    pair: str
    price: float


class Order(tm.Event):
    at: tm.Time = tm.event_time()
    id: int
    pair: str
    amount: float


class Rate(tm.Row):
    pair: str = tm.key()
    price: float = 0.0


def test_7_orders_at_the_price_of_their_time():
    app = tm.App("rates")
    rates = app.table(Rate)
    quotes, orders = app.source(Quote), app.source(Order)

    @app.transaction(quotes)
    def quote(ev, r=rates.row("pair", create=True)):
        r.price = ev.price

    priced = orders.map(lambda e, r: {"at": e.at, "id": e.id, "value": e.amount * r.price}, r=rates.read("pair"))
    found, failed = app.collect(priced), app.collect(priced.failed)
    data = {
        quotes: events("pair price", (1, "eur", 2.0), (5, "eur", 3.0)),
        orders: events(
            "id pair amount", (0, 1, "eur", 1.0), (1, 2, "eur", 1.0), (4, 3, "eur", 2.0), (5, 4, "eur", 2.0)
        ),
    }
    app.run(data)
    # At one time quotes come first, as they were declared first. Before the first quote there is no row.
    assert rows(found) == [(1, 2, 2.0), (4, 3, 4.0), (5, 4, 6.0)]
    assert [row["id"] for row in failed.to_pylist()] == [1]


class Click(tm.Event):
    at: tm.Time = tm.event_time()
    page: str


def test_8_late_events_and_early_results(tmp_path):
    header = "at,page\n"
    clicks_text = "".join(f"2024-05-01T{time}Z,{page}\n" for time, page in CLICKS)
    (tmp_path / "clicks.csv").write_text(header + clicks_text)
    app = tm.App("clicks")
    clicks = app.source(Click, tm.csv(tmp_path / "clicks.csv"), lateness="5s", idle="30s")

    @app.window(clicks, by="page", over=tm.tumbling("1h", early="1m"))
    def hourly(w):
        return {"at": w.end, "page": w.page, "clicks": w.count()}

    app.sink(clicks.late, tm.jsonl(tmp_path / "late.jsonl"))
    closed, early = app.collect(hourly.closed), app.collect(hourly.early)
    app.run()
    # 58:50 is punctual after 58:55, 58:40 is not. The results of 58:00 and 59:00 are early, that of 60:00 is the close.
    assert rows(closed) == [(3600, "a", 2), (3600, "b", 1), (7200, "a", 1)]
    first, second = rows(early)[:3], rows(early)[3:]
    assert first == [(3600, "a", 1), (3600, "a", 2), (3600, "b", 1)]
    assert second == [(7200, "a", 1)] * 59
    assert (tmp_path / "late.jsonl").read_text().count("\n") == 1


CLICKS = [("00:57:30", "a"), ("00:58:55", "a"), ("00:58:50", "b"), ("00:58:40", "c"), ("01:00:00", "a")]
