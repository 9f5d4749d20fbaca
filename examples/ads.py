"""Ads: how often each campaign was seen, in windows of ten seconds, and what it has left to pay for it.

    tidemill run examples/ads.py

The windows count views per campaign. A window that closes is an event: it charges the budget of its
campaign, all of the window or nothing. A campaign that cannot pay for a window is stopped, before the
next window of any campaign is charged. Views that come more than two seconds late are in no window: each
is charged by itself, where it stands in the order, as long as its campaign can pay. The count is that of
the Yahoo! streaming benchmark (Chintapalli et al., 2016), with the campaign in the event in place of a
join.
"""

import datasets
import tidemill as tm

app = tm.App("ads")
out = datasets.out("ads")


class Campaign(tm.Row):
    """The price of a view and the rest of the budget, in cents."""

    id: str = tm.key()
    price: int
    left: int
    stopped: bool = False


class Showing(tm.Event):
    """A user's reaction to an ad: ``view``, ``click`` or ``purchase``."""

    at: tm.Time = tm.event_time()
    campaign: str
    kind: str


campaigns = app.table(Campaign, rows=tm.csv(datasets.campaigns()))
showings = app.source(Showing, tm.csv(datasets.ads()), lateness="2s")


@app.window(showings.filter(lambda e: e.kind == "view"), by="campaign", over=tm.tumbling("10s"))
def count(w):
    return {"at": w.end, "campaign": w.campaign, "views": w.count()}


@app.transaction(count.closed)
def charge(ev, campaign=campaigns.row("campaign")):
    tm.require(not campaign.stopped, "stopped")
    tm.require(campaign.left >= ev.views * campaign.price, "budget spent")
    campaign.left -= ev.views * campaign.price
    return {"at": ev.at, "campaign": ev.campaign, "views": ev.views, "left": campaign.left}


@app.transaction(charge.aborted.filter(lambda e: e.reason == "budget spent"))
def stop(ev, campaign=campaigns.row("campaign")):
    campaign.stopped = True
    return {"at": ev.at, "campaign": ev.campaign, "left": campaign.left}


@app.transaction(showings.late.filter(lambda e: e.kind == "view"))
def correct(ev, campaign=campaigns.row("campaign")):
    tm.require(not campaign.stopped, "stopped")
    tm.require(campaign.left >= campaign.price, "budget spent")
    campaign.left -= campaign.price
    return {"at": ev.at, "campaign": ev.campaign, "left": campaign.left}


app.sink(count.closed, tm.jsonl(out / "views.jsonl"))
app.sink(charge.committed, tm.jsonl(out / "charged.jsonl"))
app.sink(charge.aborted, tm.jsonl(out / "unpaid.jsonl"))
app.sink(stop.committed, tm.jsonl(out / "stopped.jsonl"))
app.sink(correct.committed, tm.jsonl(out / "corrected.jsonl"))
app.sink(showings.late, tm.jsonl(out / "late.jsonl"))
