"""A leaderboard: phones vote for contestants, and every 20,000 votes the one with the fewest is out.

    tidemill run examples/leaderboard.py

It is S-Store's example (Meehan et al., VLDB 2015, §4.1) with one transaction for each of its procedures: a vote is
checked, counted, and moves its contestant up; if it is the 20,000th since the last time, the least contestant leaves,
and the phones that voted for him may vote again. All of this is one nested transaction, so a board never shows a vote
that half happened.

The rank of every contestant is kept from vote to vote, so that no step looks at all of them: the one who gains
a vote changes places with the first of those who had as many. The keys that this takes are read from rows.
"""

import datasets
import tidemill as tm

CONTESTANTS = 25
RECENT = 100  # So many votes make the trend.
ROUND = 20_000  # So many votes, and one contestant is out.

app = tm.App("leaderboard")
out = datasets.out("leaderboard")


class Vote(tm.Event):
    """A phone votes for a contestant."""

    phone: int
    contestant: int


class Phone(tm.Row):
    """For whom a phone has voted."""

    number: int = tm.key()
    contestant: int | None


class Contestant(tm.Row):
    """The number of votes that somebody has, in all and among the last 100, and his rank: 0 is the first."""

    id: int = tm.key()
    votes: int = 0
    next: int = 1  # One vote more.
    trend: int = 0
    rank: int
    is_in: bool = True


class Place(tm.Row):
    """Who has a rank."""

    rank: int = tm.key()
    contestant: int


class Level(tm.Row):
    """The contestants with so many votes: their first rank, and how many they are."""

    votes: int = tm.key()
    first: int = 0
    count: int = 0


class Recent(tm.Row):
    """One of the last 100 votes."""

    slot: int = tm.key()
    contestant: int | None


class Show(tm.Row):
    """The show as a whole: the votes that were counted, and the rank of the last one who is in."""

    id: int = tm.key()
    votes: int = 0
    last: int = CONTESTANTS - 1


def the_show(_):
    return 0


phones = app.table(Phone)
contestants = app.table(Contestant, rows=[{"id": i, "rank": i} for i in range(CONTESTANTS)])
places = app.table(Place, rows=[{"rank": i, "contestant": i} for i in range(CONTESTANTS)])
levels = app.table(Level, rows=[{"votes": 0, "count": CONTESTANTS}])
recent = app.table(Recent, "recent")
shows = app.table(Show, rows=[{"id": 0}])
votes = app.source(Vote, tm.csv(datasets.votes()))


@app.transaction(votes)
def validate(
    ev,
    phone=phones.row("phone", create=True),
    before=contestants.read("phone.contestant"),
    who=contestants.read("contestant"),
    show=shows.row(the_show),
):
    tm.require(who.is_in, "out of the show")
    if before.exists:
        tm.require(not before.is_in, "has voted")
    phone.contestant = ev.contestant
    show.votes += 1
    return {"contestant": ev.contestant, "number": show.votes}


@app.transaction(validate.committed, nested=True)
def count(
    ev,
    slot=recent.row(lambda e: e.number % RECENT, create=True),
    gone=contestants.row("slot.contestant"),
    who=contestants.row("contestant"),
):
    if gone.exists:
        gone.trend -= 1
    who.trend += 1
    slot.contestant = ev.contestant


@app.transaction(count.committed, nested=True)
def rank(
    ev,
    who=contestants.row("contestant"),
    level=levels.row("who.votes"),
    above=levels.row("who.next", create=True),
    top=places.row("level.first"),
    other=contestants.row("top.contestant"),
    own=places.row("who.rank"),
):
    own.contestant = other.id
    other.rank = who.rank
    who.rank = level.first
    top.contestant = who.id
    if above.count == 0:
        above.first = level.first
    above.count += 1
    level.first += 1
    level.count -= 1
    who.votes += 1
    who.next += 1


@app.transaction(rank.committed.filter(lambda e: e.number % ROUND == 0), nested=True)
def eliminate(
    ev,
    show=shows.row(the_show),
    last=places.read("show.last"),
    who=contestants.row("last.contestant"),
    level=levels.row("who.votes"),
):
    who.is_in = False
    level.count -= 1
    show.last -= 1
    return {"number": ev.number, "contestant": who.id, "votes": who.votes}


app.sink(validate.aborted, tm.jsonl(out / "refused.jsonl"))
app.sink(eliminate.committed, tm.jsonl(out / "eliminated.jsonl"))
