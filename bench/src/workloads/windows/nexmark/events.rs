//! The events of NEXMark: of 50 one is a new person, three are new auctions, and 46 are bids, in this order; those of the
//! thesis' queries have other shares. One stream holds all three, as in github.com/nexmark/nexmark, each with its own columns
//! and zeros in those of the others.
//!
//! Hot keys, proportions and prices are those of Apache Beam's generator: half of the bids are on the hot auction, which is
//! the first of the last hundred; three of four are by a hot bidder, and as many auctions by a hot seller. The others are on
//! one of the last `groups` auctions, and by one of the last 10 · `groups` persons. Ids that have not come yet, of which
//! Beam's generator has some, are never drawn. So a row that an event looks up is there before it, if it ever is.

use super::super::query::Shape;
use crate::workloads::columns::{column, event_batch, ints};
use arrow_array::RecordBatch;
use tidemill_model::Type;
use tidemill_plan::build::{PlanBuilder, event, named};
use tidemill_plan::{Plan, StreamRef};
use tidemill_random::Random;

/// The columns.
pub const AT: usize = 0;
pub const KIND: usize = 1;
/// The columns of persons and auctions.
pub const ID: usize = 2;
pub const NAME: usize = 3;
pub const CITY: usize = 4;
pub const STATE: usize = 5;
pub const SELLER: usize = 6;
pub const CATEGORY: usize = 7;
pub const RESERVE: usize = 8;
pub const EXPIRES: usize = 9;
pub const ITEM: usize = 10;
/// The columns of bids.
pub const AUCTION: usize = 11;
pub const BIDDER: usize = 12;
pub const PRICE: usize = 13;
pub const CHANNEL: usize = 14;

const NAMES: [&str; 15] = [
    "at", "kind", "id", "name", "city", "state", "seller", "category", "reserve", "expires", "item", "auction",
    "bidder", "price", "channel",
];

/// The kinds.
pub const PERSON: i64 = 0;
pub const AUCTIONED: i64 = 1;
pub const BID: i64 = 2;

/// The number of events of each kind that come one after the other.
#[derive(Clone, Copy)]
pub struct Mix {
    /// New persons, at least 1.
    pub persons: usize,
    /// New auctions.
    pub auctions: usize,
    /// Bids.
    pub bids: usize,
}

/// The mix of the thesis' NB8: four auctions for each seller.
pub const FOUR_AUCTIONS: Mix = Mix { persons: 1, auctions: 4, bids: 0 };
/// The mix of the thesis' NB11: four bids for each person.
pub const FOUR_BIDS: Mix = Mix { persons: 1, auctions: 0, bids: 4 };
/// The mix of NEXMark.
pub const NEXMARK: Mix = Mix { persons: 1, auctions: 3, bids: 46 };

impl Mix {
    fn all(self) -> usize {
        self.persons + self.auctions + self.bids
    }

    /// Returns the last person and the last auction that came up to an event, counted from 0, that event included; −1
    /// of none.
    fn last(self, number: usize) -> [i64; 2] {
        let (rounds, place) = (number / self.all(), number % self.all());
        let auctions = (place + 1).saturating_sub(self.persons).min(self.auctions);
        let persons = (place + 1).min(self.persons);
        [(rounds * self.persons + persons) as i64 - 1, (rounds * self.auctions + auctions) as i64 - 1]
    }
}

/// The first id of persons and of auctions.
const FIRST_ID: i64 = 1000;
/// The least category of five.
pub const FIRST_CATEGORY: i64 = 10;
const CATEGORIES: u64 = 5;
const CITIES: u64 = 10;
/// Arizona, California, Idaho, Oregon, Washington, Wyoming.
const STATES: u64 = 6;
/// The states of which q3 asks: Oregon, Idaho, California.
pub const LOCAL: [i64; 3] = [3, 2, 1];
/// The number of auctions or persons of which the first is hot.
const HOT: i64 = 100;
const PERSONS_PER_GROUP: i64 = 10;
const HOT_CHANNELS: u64 = 4;
const CHANNELS: u64 = 10_000;

/// Returns a plan with the events, and the streams of those kinds that a query asks for: `people`, `auctions`, `bids`.
pub fn plan(name: &str, kinds: &[i64]) -> PlanBuilder {
    let plan = PlanBuilder::new(name).source("events", |s| {
        NAMES[1..].iter().fold(s.event_time(NAMES[0], Type::Int), |s, name| s.field(*name, Type::Int))
    });
    kinds.iter().fold(plan, |plan, &kind| {
        let StreamRef::Named(name) = stream(kind) else { unreachable!("it has a name") };
        plan.filter(name, named("events"), event("kind").eq(kind))
    })
}

/// Returns the stream of a kind.
pub fn stream(kind: i64) -> StreamRef {
    named(["people", "auctions", "bids"][kind as usize])
}

/// Returns a price: between 1 and 1,000,000 in hundredths, its logarithm uniform.
fn price(random: &mut Random) -> i64 {
    (10f64.powf(random.unit() * 6.0) * 100.0).round() as i64
}

/// Returns one of the last `count` numbers, up to the last one.
fn recent(random: &mut Random, last: i64, count: i64) -> i64 {
    let first = (last - count).max(0);
    first + random.below((last - first + 1) as u64) as i64
}

/// Makes the events of NEXMark.
pub fn events(plan: &Plan, shape: &Shape) -> RecordBatch {
    mixed_events(plan, shape, NEXMARK)
}

/// Returns events of these shares. Where there are no auctions, all bids are on one that never came.
pub fn mixed_events(plan: &Plan, shape: &Shape, mix: Mix) -> RecordBatch {
    let mut random = Random::new(42);
    let groups = shape.groups as i64;
    let mut columns: Vec<Vec<i64>> = NAMES.iter().map(|_| Vec::with_capacity(shape.events)).collect();
    // Until so many later auctions have come, an auction is open on average.
    let open_for = (shape.at(shape.groups as usize * mix.all() / mix.auctions.max(1)) * 2).max(1) as u64;
    for number in 0..shape.events {
        let [person, auction] = mix.last(number);
        let mut row = [0; NAMES.len()];
        row[AT] = shape.at(number);
        let place = number % mix.all();
        if place < mix.persons {
            row[KIND] = PERSON;
            row[ID] = FIRST_ID + person;
            row[NAME] = random.below(99) as i64;
            row[CITY] = random.below(CITIES) as i64;
            row[STATE] = random.below(STATES) as i64;
        } else if place < mix.persons + mix.auctions {
            row[KIND] = AUCTIONED;
            row[ID] = FIRST_ID + auction;
            let is_hot = random.below(4) > 0;
            let seller =
                if is_hot { person / HOT * HOT } else { recent(&mut random, person, PERSONS_PER_GROUP * groups) };
            row[SELLER] = FIRST_ID + seller;
            row[CATEGORY] = FIRST_CATEGORY + random.below(CATEGORIES) as i64;
            row[RESERVE] = price(&mut random) + price(&mut random);
            row[EXPIRES] = row[AT] + 1 + random.below(open_for) as i64;
            row[ITEM] = random.bits() as i64;
        } else {
            row[KIND] = BID;
            let is_hot = random.below(2) > 0;
            let auction = auction.max(0);
            row[AUCTION] = FIRST_ID + if is_hot { auction / HOT * HOT } else { recent(&mut random, auction, groups) };
            // The second of a hundred, so that hot bidders are not hot sellers.
            let is_hot = random.below(4) > 0;
            let hot = (person / HOT * HOT + 1).min(person);
            row[BIDDER] = FIRST_ID + if is_hot { hot } else { recent(&mut random, person, PERSONS_PER_GROUP * groups) };
            row[PRICE] = price(&mut random);
            let is_hot = random.below(2) > 0;
            row[CHANNEL] =
                if is_hot { random.below(HOT_CHANNELS) } else { HOT_CHANNELS + random.below(CHANNELS) } as i64;
        }
        row.into_iter().zip(&mut columns).for_each(|(value, column)| column.push(value));
    }
    event_batch(plan, columns.into_iter().map(ints).collect())
}

/// Columns of the events, for a loop.
pub fn of<const COUNT: usize>(events: &RecordBatch, numbers: [usize; COUNT]) -> [&[i64]; COUNT] {
    numbers.map(|number| column(events, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The proportions, and that a seller, a bidder and an auction come before those who name them.
    #[test]
    fn ids_are_named_after_they_came() {
        let shape = Shape { events: 5_000, groups: 20, theta: 0.0, rate: 1_000, length: 0, late: 0.0 };
        let plan = plan("all", &[]).build();
        let events = events(&plan, &shape);
        let [kind, id, seller, auction, bidder] = of(&events, [KIND, ID, SELLER, AUCTION, BIDDER]);
        let (mut people, mut auctions) = (FIRST_ID, FIRST_ID);
        let mut hot = 0;
        for at in 0..shape.events {
            match kind[at] {
                PERSON => {
                    assert_eq!(id[at], people);
                    people += 1;
                }
                AUCTIONED => {
                    assert_eq!(id[at], auctions);
                    auctions += 1;
                    assert!((FIRST_ID..people).contains(&seller[at]), "{at}");
                }
                _ => {
                    assert!((FIRST_ID..auctions).contains(&auction[at]), "{at}");
                    assert!((FIRST_ID..people).contains(&bidder[at]), "{at}");
                    hot += usize::from(auction[at] == FIRST_ID + (auctions - FIRST_ID - 1) / HOT * HOT);
                }
            }
        }
        assert_eq!((people - FIRST_ID, auctions - FIRST_ID), (100, 300));
        assert!((2_200..2_600).contains(&hot), "{hot} of 4,600 bids are on the hot auction");
    }
}
