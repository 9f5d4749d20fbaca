"""The queries of ``tidemill-bench windows`` over a whole input, as one would write them for DuckDB and polars.

Each gives the columns and rows of ours, in any order. A query is missing where its results are those of a history and
not of a set: q18, q19 and ro say how each event changes a table, and in Linear Road a toll depends on what
other cars did before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

TUMBLING = "at // {length} * {length} + {length}"
BIDS = "FROM events WHERE kind = 2"
RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def ranked(aggregate: str, name: str) -> str:
    """An aggregate of all bids and of those of each rank of prices."""
    parts = [f"{aggregate} FILTER ({rank}) AS {name}_{number}" for number, rank in enumerate(RANKS, 1)]
    return ", ".join([f"{aggregate} AS {name}", *parts])


REPORT = ", ".join(
    [
        ranked("count(*)", "bids"),
        ranked("count(DISTINCT bidder)", "bidders"),
        ranked("count(DISTINCT auction)", "auctions"),
    ]
)
# The bid that wins an auction, of the auctions that are over before the last event.
WINNING = """
    SELECT a.id AS auction, a.item, a.seller, a.category, a.expires, b.bidder, b.price, b.at AS bid_at
    FROM (SELECT * FROM events WHERE kind = 1 AND expires < (SELECT max(at) FROM events)) a
    JOIN (SELECT *, row_number() OVER () AS number FROM events WHERE kind = 2) b
    ON a.id = b.auction AND b.at BETWEEN a.at AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.number) = 1
"""
# A window over auctions in the order in which they close.
CLOSING = f"({WINNING}) w WINDOW closed AS (PARTITION BY {{key}} ORDER BY expires, auction ROWS {{rows}} PRECEDING)"


def sliding_counts(slices: int) -> str:
    """Bids by auction in windows of so many slices."""
    every = f"({{length}} // {slices})"
    return (
        f"WITH slices AS (SELECT at // {every} AS slice, auction, count(*) AS bids FROM events GROUP BY ALL) "
        f'SELECT (slice + 1 + later) * {every} AS "end", auction, sum(bids)::BIGINT AS bids '
        f"FROM slices, range({slices}) r(later) GROUP BY ALL"
    )


HOT_ITEMS = sliding_counts(5)

SQL: Mapping[str, str] = {
    "ysb": f'SELECT {TUMBLING} AS "end", campaign, count(*) AS views FROM events WHERE event_type = 0 GROUP BY ALL',
    "ysb-join": f'SELECT {TUMBLING} AS "end", campaign, count(*) AS views FROM events JOIN ads USING (ad) '
    "WHERE event_type = 0 GROUP BY ALL",
    "nyt": f'SELECT {TUMBLING} AS "end", region, count(*) AS rides, avg(fare) AS fare FROM events '
    "WHERE vendor = 1 AND distance > 5 GROUP BY ALL",
    "q0": f"SELECT auction, bidder, price, channel, at {BIDS}",
    "q1": f"SELECT auction, bidder, price::DOUBLE * 0.908::DOUBLE AS price, at {BIDS}",
    "q2": f"SELECT auction, price {BIDS} AND auction % 123 = 0",
    "q3": "SELECT a.id, p.name, p.city, p.state FROM (SELECT * FROM events WHERE kind = 1 AND category = 10) a "
    "JOIN (SELECT * FROM events WHERE kind = 0 AND state IN (1, 2, 3)) p ON a.seller = p.id",
    "q4": "SELECT category, avg(price) OVER closed AS price FROM " + CLOSING.format(key="category", rows="UNBOUNDED"),
    "q5-counts": HOT_ITEMS,
    "q5": f'SELECT * FROM ({HOT_ITEMS}) QUALIFY bids = max(bids) OVER (PARTITION BY "end")',
    "q6": "SELECT seller, avg(price) OVER closed AS price FROM " + CLOSING.format(key="seller", rows="9"),
    "q7": f'SELECT {TUMBLING} AS "end", max(price) AS price, arg_max(auction, price) AS auction '
    "FROM events GROUP BY ALL",
    "q8": "SELECT p.id, p.name, a.reserve FROM (SELECT * FROM events WHERE kind = 0) p "
    "JOIN (SELECT * FROM events WHERE kind = 1) a ON p.id = a.seller AND p.at // {length} = a.at // {length}",
    "q9": WINNING,
    "q11": "WITH begins AS (SELECT *, coalesce(at - lag(at) OVER w >= {length}, true) AS begins FROM events "
    "WINDOW w AS (PARTITION BY bidder ORDER BY at)), sessions AS (SELECT *, sum(begins::INT) OVER "
    "(PARTITION BY bidder ORDER BY at ROWS UNBOUNDED PRECEDING) AS session FROM begins) "
    'SELECT bidder, min(at) AS start, max(at) + {length} AS "end", count(*) AS bids FROM sessions '
    "GROUP BY bidder, session",
    "q13": "SELECT auction, bidder, price, at, value FROM events JOIN side ON auction % 10000 = key WHERE kind = 2",
    "q15": f"SELECT at // {{length}} * {{length}} AS day, {REPORT} {BIDS} GROUP BY ALL",
    "q16": f"SELECT channel, at // {{length}} * {{length}} AS day, max(at) // 60000 AS minute, "
    f"{REPORT} {BIDS} GROUP BY ALL",
    "q17": f"SELECT auction, at // {{length}} * {{length}} AS day, {ranked('count(*)', 'bids')}, min(price) AS least, "
    f"max(price) AS greatest, avg(price) AS mean, sum(price)::BIGINT AS sum {BIDS} GROUP BY ALL",
    "q20": "SELECT b.auction, b.bidder, b.price, b.channel, b.at, a.item, a.reserve, a.expires, a.seller, a.category "
    "FROM (SELECT * FROM events WHERE kind = 2) b "
    "JOIN (SELECT * FROM events WHERE kind = 1 AND category = 10) a ON b.auction = a.id",
    "nb7": f'SELECT {TUMBLING} AS "end", auction, max(price) AS price FROM events GROUP BY ALL',
    "nbq5": sliding_counts(6),
    "cm": f'SELECT {TUMBLING} AS "end", job, avg(cpu) AS cpu FROM events GROUP BY ALL',
}

Tables = Mapping[str, pl.LazyFrame]
KIND = pl.col("kind")
PRICE = pl.col("price")


def end(length: int) -> pl.Expr:
    """The end of an event's tumbling window."""
    return (pl.col("at") // length * length + length).alias("end")


def day(length: int) -> pl.Expr:
    """The start of it."""
    return (pl.col("at") // length * length).alias("day")


def in_ranks(name: str, value: pl.Expr | None) -> list[pl.Expr]:
    """Returns the number of bids, or of different values, in all and for each rank of prices."""
    ranks = [PRICE < 10_000, (PRICE >= 10_000) & (PRICE < 1_000_000), PRICE >= 1_000_000]
    if value is None:
        return [pl.len().alias(name), *(rank.sum().alias(f"{name}_{number}") for number, rank in enumerate(ranks, 1))]
    parts = [value.filter(rank).n_unique().alias(f"{name}_{number}") for number, rank in enumerate(ranks, 1)]
    return [value.n_unique().alias(name), *parts]


def report() -> list[pl.Expr]:
    """Returns the columns that q15 and q16 have in common."""
    different = [*in_ranks("bidders", pl.col("bidder")), *in_ranks("auctions", pl.col("auction"))]
    return [*in_ranks("bids", None), *different]


def bids(tables: Tables) -> pl.LazyFrame:
    return tables["events"].filter(KIND == 2)


def views(events: pl.LazyFrame, length: int) -> pl.LazyFrame:
    return events.group_by(end(length), "campaign").agg(views=pl.len())


def local_items(tables: Tables, length: int) -> pl.LazyFrame:
    events = tables["events"]
    people = events.filter((KIND == 0) & pl.col("state").is_in([1, 2, 3])).select("id", "name", "city", "state")
    auctions = events.filter((KIND == 1) & (pl.col("category") == 10)).select("id", "seller")
    joined = auctions.join(people, left_on="seller", right_on="id")
    return joined.select("id", "name", "city", "state")


def hot_items(tables: Tables, length: int, count: int = 5) -> pl.LazyFrame:
    every = length // count
    slices = tables["events"].group_by((pl.col("at") // every).alias("slice"), "auction").agg(bids=pl.len())
    later = pl.LazyFrame({"later": range(count)})
    ends = ((pl.col("slice") + pl.col("later") + 1) * every).alias("end")
    return slices.join(later, how="cross").group_by(ends, "auction").agg(pl.col("bids").sum())


def new_sellers(tables: Tables, length: int) -> pl.LazyFrame:
    events = tables["events"].with_columns(end(length))
    people, auctions = events.filter(KIND == 0), events.filter(KIND == 1)
    left, right = people.select("id", "name", "end"), auctions.select("seller", "reserve", "end")
    return left.join(right, left_on=["id", "end"], right_on=["seller", "end"]).select("id", "name", "reserve")


def sessions(tables: Tables, length: int) -> pl.LazyFrame:
    """The events are in the order of time, so groups are."""
    begins = (pl.col("at").diff().over("bidder") >= length).fill_null(True)
    groups = tables["events"].select("bidder", "at").with_columns(begins=begins)
    groups = groups.with_columns(session=pl.col("begins").cum_sum().over("bidder"))
    times = [pl.col("at").min().alias("start"), (pl.col("at").max() + length).alias("end"), pl.len().alias("bids")]
    return groups.group_by("bidder", "session").agg(times).drop("session")


def winning(tables: Tables, length: int) -> pl.LazyFrame:
    events = tables["events"]
    over = pl.col("expires") < pl.col("at").max()
    auctions = events.with_columns(over=over).filter((KIND == 1) & pl.col("over"))
    auctions = auctions.select("id", "item", "seller", "category", "expires", opens="at")
    offers = bids(tables).select("auction", "bidder", "price", bid_at="at").with_row_index("number")
    joined = offers.join(auctions, left_on="auction", right_on="id")
    joined = joined.filter(pl.col("bid_at").is_between(pl.col("opens"), pl.col("expires")))
    first = joined.sort(PRICE, "number", descending=[True, False]).group_by("auction", maintain_order=True).first()
    return first.select("auction", "item", "seller", "category", "expires", "bidder", "price", "bid_at")


def by_category(tables: Tables, length: int) -> pl.LazyFrame:
    closed = winning(tables, length).sort("expires", "auction")
    mean = PRICE.cum_sum().over("category") / PRICE.cum_count().over("category")
    return closed.select("category", price=mean)


def by_seller(tables: Tables, length: int) -> pl.LazyFrame:
    closed = winning(tables, length).sort("expires", "auction")
    return closed.select("seller", price=PRICE.rolling_mean(10, min_samples=1).over("seller"))


def side_input(tables: Tables, length: int) -> pl.LazyFrame:
    keyed = bids(tables).select("auction", "bidder", "price", "at", key=pl.col("auction") % 10_000)
    return keyed.join(tables["side"], on="key").drop("key")


def expanded(tables: Tables, length: int) -> pl.LazyFrame:
    auctions = tables["events"].filter((KIND == 1) & (pl.col("category") == 10))
    auctions = auctions.select("id", "item", "reserve", "expires", "seller", "category")
    given = bids(tables).select("auction", "bidder", "price", "channel", "at")
    return given.join(auctions, left_on="auction", right_on="id")


def prices() -> list[pl.Expr]:
    """Returns the aggregates of prices in q17."""
    return [
        PRICE.min().alias("least"),
        PRICE.max().alias("greatest"),
        PRICE.mean().alias("mean"),
        PRICE.sum().alias("sum"),
    ]


POLARS: Mapping[str, Callable[[Tables, int], pl.LazyFrame]] = {
    "ysb": lambda t, length: views(t["events"].filter(pl.col("event_type") == 0), length),
    "ysb-join": lambda t, length: views(
        t["events"].filter(pl.col("event_type") == 0).select("at", "ad").join(t["ads"], on="ad"), length
    ),
    "nyt": lambda t, length: (
        t["events"]
        .filter((pl.col("vendor") == 1) & (pl.col("distance") > 5))
        .group_by(end(length), "region")
        .agg(rides=pl.len(), fare=pl.col("fare").mean())
    ),
    "q0": lambda t, length: bids(t).select("auction", "bidder", "price", "channel", "at"),
    "q1": lambda t, length: bids(t).select("auction", "bidder", PRICE * 0.908, "at"),
    "q2": lambda t, length: bids(t).filter(pl.col("auction") % 123 == 0).select("auction", "price"),
    "q3": local_items,
    "q4": by_category,
    "q5-counts": hot_items,
    "q5": lambda t, length: hot_items(t, length).filter(pl.col("bids") == pl.col("bids").max().over("end")),
    "q6": by_seller,
    "q7": lambda t, length: (
        t["events"].group_by(end(length)).agg(PRICE.max(), auction=pl.col("auction").get(PRICE.arg_max()))
    ),
    "q8": new_sellers,
    "q9": winning,
    "q11": sessions,
    "q13": side_input,
    "q15": lambda t, length: bids(t).group_by(day(length)).agg(report()),
    "q16": lambda t, length: (
        bids(t).group_by("channel", day(length)).agg((pl.col("at").max() // 60_000).alias("minute"), *report())
    ),
    "q17": lambda t, length: bids(t).group_by("auction", day(length)).agg(*in_ranks("bids", None), *prices()),
    "q20": expanded,
    "nb7": lambda t, length: t["events"].group_by(end(length), "auction").agg(PRICE.max()),
    "nbq5": lambda t, length: hot_items(t, length, 6),
    "cm": lambda t, length: t["events"].group_by(end(length), "job").agg(pl.col("cpu").mean()),
}

# The query that a workload has with other knobs.
SAME = {"ysb-10m": "ysb", "nb8": "q8"}
# The columns in which results may differ: among equal prices rivals may take any.
ANY_OF_EQUALS = {"q7": ["auction"]}
