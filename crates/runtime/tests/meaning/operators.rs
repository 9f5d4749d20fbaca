//! Operators by definition: the results of each, of all events that it was ever given.

use super::aggregates::result;
use super::declared::{Bound, Does, Event, Feed, Over, Windows};
use super::law::{Law, Mistake};
use crate::over::calendar;
use std::collections::BTreeSet;
use tidemill_plan::JoinHow;

/// Everything that an operator was given.
#[derive(Default)]
pub struct State {
    pub seen: Vec<Seen>,
    /// Times at which results may complete.
    pub due: BTreeSet<i64>,
}

/// An event that an operator was given.
#[derive(Clone)]
pub struct Seen {
    /// The time of its position.
    pub time: i64,
    /// The side of a join.
    side: usize,
    pub event: Event,
    /// The start and the end of each window that the event is in.
    windows: Vec<(i64, i64)>,
    /// A flag: whether the event is a first one, which passes.
    passed: bool,
}

/// A group: its key, and its events.
type Group<'s> = (Option<i64>, Vec<&'s Seen>);

/// A window of a group: its bounds, the key, and its events.
type Window<'s> = ((i64, i64), Option<i64>, Vec<&'s Seen>);

impl Law<'_> {
    /// Gives an event to an operator; returns what it emits at once.
    pub(super) fn take(&mut self, number: usize, side: usize, event: Event, root: Feed) -> Vec<(Feed, Event)> {
        let (now, does) = (self.now, &self.declared.nodes[number].does);
        let mut seen = Seen { time: now, side, event, windows: Vec::new(), passed: false };
        if !matches!(root, Feed::Source(_)) {
            let kind = self.declared.kind(number);
            self.count(&format!("{kind} of {}", if matches!(root, Feed::Late(_)) { "late" } else { "emissions" }));
        }
        let mut due = Vec::new();
        let emitted = match does {
            Does::Over(over) => {
                seen.windows = windows_of(&over.windows, now);
                due = self.ends(over, &seen);
                self.states[number].seen.push(seen);
                self.full(number, over)
            }
            Does::Top { .. } => {
                due.push(now);
                self.states[number].seen.push(seen);
                Vec::new()
            }
            Does::First { within, by_key } => {
                let repeats = self.mistake == Some(Mistake::RepeatsRepeat);
                let is_alike = |other: &&Seen| !by_key || other.event.key == seen.event.key;
                let mut before = self.states[number].seen.iter().filter(is_alike);
                seen.passed = !before.any(|other| (other.passed || repeats) && other.time > now - within);
                let given = Vec::from_iter(seen.passed.then(|| (Feed::Given(number), seen.event.clone())));
                self.states[number].seen.push(seen);
                given
            }
            Does::Join { bound, how } => {
                let late = i64::from(self.mistake == Some(Mistake::UnmatchedLate));
                due.extend(waits(*how, side).then(|| last(*bound, now) + late));
                let pairs = self.pairs(number, *bound, *how, &seen);
                self.states[number].seen.push(seen);
                pairs
            }
            _ => unreachable!("it is no operator"),
        };
        emitted.iter().for_each(|_| self.count(self.declared.kind(number)));
        due.retain(|&time| time >= now);
        self.states[number].due.extend(due);
        emitted
    }

    /// Returns the times at which results of a window can be due that an event makes.
    fn ends(&self, over: &Over, seen: &Seen) -> Vec<i64> {
        let later = i64::from(self.mistake == Some(Mistake::ClosesAtEnd));
        let within = i64::from(self.mistake == Some(Mistake::GapIsWithin));
        if let Windows::Session { gap } = over.windows {
            return vec![seen.time + gap - 1 + within + later];
        }
        let mut due: Vec<i64> = seen.windows.iter().map(|(_, end)| end - 1 + later).collect();
        if let Some(early) = over.early {
            let from = seen.windows.iter().map(|(_, end)| end - distance(&over.windows));
            due.extend(from.flat_map(|from| (1..=distance(&over.windows) / early).map(move |k| from + k * early - 1)));
        }
        due
    }

    /// Returns the close of a window by count that an event fills.
    fn full(&mut self, number: usize, over: &Over) -> Vec<(Feed, Event)> {
        let Windows::Counting { count } = over.windows else { return Vec::new() };
        let seen = &self.states[number].seen;
        let last = seen.last().expect("one was given");
        let of_group = |other: &&Seen| !over.by_key || other.event.key == last.event.key;
        let events: Vec<&Seen> = seen.iter().filter(of_group).collect();
        if !events.len().is_multiple_of(count) {
            return Vec::new();
        }
        let events = &events[events.len() - count..];
        let given = result(over, (events[0].time, last.time), last.event.key, events);
        given.map(|event| (Feed::Completed(number), event)).into_iter().collect()
    }

    /// Closes the windows by count that are not full, behind everything else.
    pub(super) fn close_counts(&mut self) {
        for (number, node) in self.declared.nodes.iter().enumerate() {
            let Does::Over(over @ Over { windows: Windows::Counting { count }, .. }) = &node.does else { continue };
            let seen = std::mem::take(&mut self.states[number].seen);
            let rest = groups(over.by_key, seen.iter()).into_iter().filter_map(|(key, events)| {
                let open = events.len() % count;
                let events = &events[events.len() - open..];
                (open > 0).then(|| (key, events.to_vec()))
            });
            let mut rest: Vec<Group<'_>> = rest.collect();
            rest.sort_by_key(|(_, events)| seen.iter().position(|of| std::ptr::eq(of, events[0])));
            for (key, events) in rest {
                let bounds = (events[0].time, events[events.len() - 1].time);
                if let Some(event) = result(over, bounds, key, &events) {
                    self.count("counting, not full");
                    self.process_new(Feed::Given(number), event);
                }
            }
        }
    }

    /// Returns the results of an operator that complete with the instant at hand.
    pub(super) fn results(&mut self, number: usize) -> Vec<(Feed, Event)> {
        let given = |event| (Feed::Given(number), event);
        let results: Vec<(Feed, Event)> = match &self.declared.nodes[number].does {
            Does::Over(over) => self.closes(number, over),
            Does::Top { count, ties, by_key } => {
                self.top(number, *count, *ties, *by_key).into_iter().map(given).collect()
            }
            Does::Join { bound, how } => self.unmatched(number, *bound, *how).into_iter().map(given).collect(),
            other => unreachable!("{other:?} has no results of an instant"),
        };
        let kind = self.declared.kind(number);
        for (feed, _) in &results {
            match (feed, kind) {
                (Feed::Early(_), _) => self.count(&format!("{kind}, early")),
                (_, "join within" | "join over windows") => self.count(&format!("{kind}, unmatched")),
                _ => self.count(kind),
            }
        }
        results
    }

    fn closes(&mut self, number: usize, over: &Over) -> Vec<(Feed, Event)> {
        let end = self.now + i64::from(self.mistake != Some(Mistake::ClosesAtEnd));
        if let Windows::Session { gap } = over.windows {
            return self.sessions(number, over, gap, end);
        }
        let mut given = Vec::new();
        if let Some(early) = over.early {
            let distance = distance(&over.windows);
            let at_close = self.mistake == Some(Mistake::EarlyAtClose);
            let is_early = |&(_, close): &(i64, i64)| {
                let before = end - (close - distance);
                before > 0 && before % early == 0 && (end < close || at_close && end == close)
            };
            for (bounds, key, events) in self.windows_where(number, over, is_early) {
                given.extend(result(over, bounds, key, &events).map(|event| (Feed::Early(number), event)));
            }
        }
        let closing = self.windows_where(number, over, |&(_, close)| close == end);
        let keys: Vec<Option<i64>> = closing.iter().map(|(_, key, _)| *key).collect();
        let results = closing.into_iter().filter_map(|(bounds, key, events)| result(over, bounds, key, &events));
        let mut closes: Vec<_> = results.map(|event| (Feed::Given(number), event)).collect();
        let empty = self.empty(number, over, end, &keys);
        let with_events = closes.len();
        closes.extend(empty);
        if self.mistake == Some(Mistake::EmptyFirst) {
            closes.rotate_left(with_events);
        }
        given.extend(closes);
        given
    }

    /// Returns the windows that are as asked, with their groups in order.
    fn windows_where(&self, number: usize, over: &Over, fits: impl Fn(&(i64, i64)) -> bool) -> Vec<Window<'_>> {
        let seen = &self.states[number].seen;
        let bounds: BTreeSet<(i64, i64)> =
            seen.iter().flat_map(|s| s.windows.iter().copied()).filter(|b| fits(b)).collect();
        let of = |bounds: (i64, i64)| {
            let mut groups = groups(over.by_key, seen.iter().filter(|seen| seen.windows.contains(&bounds)));
            match self.mistake {
                Some(Mistake::GroupsByKey) => groups.sort_by_key(|(key, _)| *key),
                Some(Mistake::GroupsByFirstEver) => {
                    groups.sort_by_key(|(key, _)| seen.iter().position(|s| s.event.key == *key))
                }
                _ => {}
            }
            groups.into_iter().map(move |(key, events)| (bounds, key, events))
        };
        bounds.into_iter().flat_map(of).collect()
    }

    /// Returns the results of the rows of a table that are no groups with events.
    fn empty(&mut self, number: usize, over: &Over, end: i64, keys: &[Option<i64>]) -> Vec<(Feed, Event)> {
        let (Some(table), Some((least, horizon)), Some((length, every, origin))) =
            (over.rows, self.shown, grid(&over.windows))
        else {
            return Vec::new();
        };
        let start = end - length;
        if (end - origin).rem_euclid(every) != 0 || start <= least || start > horizon {
            return Vec::new();
        }
        let rest: Vec<i64> = self.tables[table].keys().copied().filter(|&key| !keys.contains(&Some(key))).collect();
        let of = |key| Some((Feed::Given(number), result(over, (start, end), Some(key), &[])?));
        let empty: Vec<_> = rest.into_iter().filter_map(of).collect();
        empty.iter().for_each(|_| self.count("window without events"));
        empty
    }

    /// Notes when windows close that have results for the rows of a table.
    pub(super) fn open_rows(&mut self) {
        let Some((least, horizon)) = self.shown else { return };
        for (node, state) in self.declared.nodes.iter().zip(&mut self.states) {
            let Does::Over(over) = &node.does else { continue };
            let Some((length, every, origin)) = grid(&over.windows).filter(|_| over.rows.is_some()) else { continue };
            let mut start = (least - origin).div_euclid(every) * every + origin + every;
            let later = i64::from(self.mistake == Some(Mistake::ClosesAtEnd));
            while start <= horizon {
                state.due.insert(start + length - 1 + later);
                start += every;
            }
        }
    }

    fn sessions(&self, number: usize, over: &Over, gap: i64, end: i64) -> Vec<(Feed, Event)> {
        let seen = &self.states[number].seen;
        let within = i64::from(self.mistake == Some(Mistake::GapIsWithin));
        let mut closed: Vec<Group<'_>> = Vec::new();
        for (key, events) in groups(over.by_key, seen.iter()) {
            let mut session: Vec<&Seen> = Vec::new();
            for event in events {
                if session.last().is_some_and(|last| event.time - last.time >= gap + within) {
                    session.clear();
                }
                session.push(event);
            }
            if session.last().is_some_and(|last| last.time + gap + within == end) {
                closed.push((key, session));
            }
        }
        match self.mistake {
            Some(Mistake::GroupsByKey) => closed.sort_by_key(|(key, _)| *key),
            Some(Mistake::GroupsByFirstEver) => {}
            _ => closed.sort_by_key(|(_, events)| seen.iter().position(|of| std::ptr::eq(of, events[0]))),
        }
        let of =
            |(key, events): Group<'_>| Some((Feed::Given(number), result(over, (events[0].time, end), key, &events)?));
        closed.into_iter().filter_map(of).collect()
    }

    fn top(&self, number: usize, count: usize, ties: bool, by_key: bool) -> Vec<Event> {
        let of_instant = self.states[number].seen.iter().filter(|seen| seen.time == self.now);
        let mut top = Vec::new();
        for (_, mut events) in groups(by_key, of_instant) {
            if self.mistake == Some(Mistake::LastOfEquals) {
                events.reverse();
            }
            let rank = |seen: &Seen| seen.event.value.unwrap_or(0);
            events.sort_by_key(|seen| -rank(seen));
            let last = events.get(count - 1).map(|seen| rank(seen));
            let taken = events.iter().enumerate().filter(|(at, seen)| *at < count || ties && Some(rank(seen)) == last);
            top.extend(taken.map(|(_, seen)| seen.event.clone()));
        }
        top
    }

    /// Returns whether two events are a pair.
    fn meet(&self, bound: Bound, a: &Seen, b: &Seen) -> bool {
        let extra = i64::from(self.mistake == Some(Mistake::WithinIsReached));
        let near = match bound {
            Bound::Within(length) => (a.time - b.time).abs() < length + extra,
            Bound::Over { length, origin } => {
                (a.time - origin).div_euclid(length) == (b.time - origin).div_euclid(length)
            }
        };
        near && a.side != b.side && a.event.key.is_some() && a.event.key == b.event.key
    }

    fn pairs(&self, number: usize, bound: Bound, how: JoinHow, seen: &Seen) -> Vec<(Feed, Event)> {
        if how == JoinHow::Anti {
            return Vec::new();
        }
        let partners = self.states[number].seen.iter().filter(|other| self.meet(bound, other, seen));
        let pair = |other: &Seen| {
            let (left, right) = if seen.side == 0 { (seen, other) } else { (other, seen) };
            (Feed::Completed(number), joined(Some(&left.event), Some(&right.event)))
        };
        partners.map(pair).collect()
    }

    fn unmatched(&self, number: usize, bound: Bound, how: JoinHow) -> Vec<Event> {
        let seen = &self.states[number].seen;
        let late = i64::from(self.mistake == Some(Mistake::UnmatchedLate));
        let alone = seen.iter().filter(|one| {
            waits(how, one.side)
                && last(bound, one.time) + late == self.now
                && !seen.iter().any(|other| self.meet(bound, one, other))
        });
        let side = |one: &Seen| match (one.side, how) {
            (_, JoinHow::Anti) => Event::made(one.event.key, one.event.value, one.event.number),
            (0, _) => joined(Some(&one.event), None),
            _ => joined(None, Some(&one.event)),
        };
        // Keys in the order of their first event that is alone.
        groups(true, alone).iter().flat_map(|(_, events)| events.iter().map(|one| side(one))).collect()
    }
}

/// Returns the result of a join's function for its sides.
fn joined(left: Option<&Event>, right: Option<&Event>) -> Event {
    let number = |side: Option<&Event>| side.map_or(0, |event| event.number);
    Event::made(left.and_then(|event| event.key), right.and_then(|event| event.value), number(left) * 3 + number(right))
}

/// Returns whether an event without a partner goes out.
fn waits(how: JoinHow, side: usize) -> bool {
    match how {
        JoinHow::Inner => false,
        JoinHow::Left | JoinHow::Anti => side == 0,
        JoinHow::Outer => true,
    }
}

/// Returns the last instant at which a partner can come.
fn last(bound: Bound, time: i64) -> i64 {
    match bound {
        Bound::Within(length) => time + length - 1,
        Bound::Over { length, origin } => (time - origin).div_euclid(length) * length + origin + length - 1,
    }
}

/// Returns events by key, in the order of the first event of each.
fn groups<'s>(by_key: bool, events: impl Iterator<Item = &'s Seen>) -> Vec<Group<'s>> {
    let mut groups: Vec<Group<'s>> = Vec::new();
    for seen in events {
        let key = seen.event.key.filter(|_| by_key);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, events)) => events.push(seen),
            None => groups.push((key, vec![seen])),
        }
    }
    groups
}

/// Returns length, distance and origin of windows that are a grid.
fn grid(windows: &Windows) -> Option<(i64, i64, i64)> {
    match *windows {
        Windows::Tumbling { length, origin } => Some((length, length, origin)),
        Windows::Sliding { length, every, origin } => Some((length, every, origin)),
        _ => None,
    }
}

/// Returns the distance of the ends of a grid's windows.
fn distance(windows: &Windows) -> i64 {
    grid(windows).expect("others have no early results").1
}

/// Returns start and end of the windows that hold a time.
fn windows_of(windows: &Windows, time: i64) -> Vec<(i64, i64)> {
    if let Windows::Calendar(periods) = windows {
        let (end, start) = calendar::period(periods, time);
        return vec![(start, end)];
    }
    let Some((length, every, origin)) = grid(windows) else { return Vec::new() };
    let newest = (time - origin).div_euclid(every) * every + origin;
    let starts = (0..length / every).map(|back| newest - back * every);
    starts.map(|start| (start, start + length)).collect()
}
