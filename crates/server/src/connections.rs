//! The open connections of a protocol, and which of them makes way when all places are taken.
//!
//! 1. While there is a place, whoever connects gets it.
//! 2. Without one, a user or an address that has less than its part gets the place of one that has more than its part: of
//!    those that do nothing the connection that has been silent for longest, else one that has been at something for longer
//!    than a connection may be silent. The part is the number of places divided by those who have any.
//! 3. Of its own connections, too, the one that has been silent for longest makes way, but only if that was longer than a
//!    connection may be silent, or if nothing was ever asked on it. Otherwise the new one is refused.
//!
//! A client who connects where users are asked who they are is an address at first, which gets no other's place. But a few more
//! may come in until they have said who they are, and the oldest of these makes way for the next. Then the rules above hold
//! for the user.
//!
//! # Invariant
//!
//! The connections that are not about to close are at most the limit, and [`GUESTS_MAX`] more that have not said who they
//! are.

use crate::shares::Who;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The connections beyond the limit whose clients have not said yet who they are.
pub const GUESTS_MAX: usize = 32;

/// The time that a connection has for its first request before it makes way for another one of the same client.
const NEW_MAX: Duration = Duration::from_secs(2);

/// The open connections of a protocol.
pub struct Connections {
    limit: usize,
    /// A flag: whether clients authenticate themselves as users.
    has_users: bool,
    /// The time for which a connection may be silent.
    silence_max: Duration,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The number of connections so far.
    count: u64,
    /// The open connections, by number, so from the oldest to the newest.
    all: BTreeMap<u64, Entry>,
    guests: usize,
    /// The number of connections of each client that is no guest.
    by: HashMap<Who, usize>,
}

struct Entry {
    who: Who,
    is_guest: bool,
    /// A flag: whether no request has come on the connection yet.
    is_new: bool,
    /// A flag: whether a request of the connection is being answered.
    is_busy: bool,
    /// The time at which the connection became busy or idle.
    since: Instant,
    makes_way: Arc<Notify>,
}

/// The client whose connection is closed to make room for a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// One of a client which has more than its part.
    Greedy,
    /// One of the client which connects.
    Own,
}

/// A connection that has a place, until it is dropped.
pub struct Place {
    of: Arc<Connections>,
    number: u64,
    makes_way: Arc<Notify>,
}

impl Connections {
    /// Makes this number of places.
    pub fn new(limit: usize, has_users: bool, silence_max: Duration) -> Arc<Connections> {
        Arc::new(Connections { limit, has_users, silence_max, open: Mutex::default() })
    }

    /// Returns the number of places.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of connections that have a place, or are to say who they are.
    pub fn taken(&self) -> usize {
        self.open.lock().all.len()
    }

    /// Gives a new connection a place; none if there is none for it.
    pub fn enter(self: &Arc<Self>, who: Who) -> Option<Place> {
        let mut open = self.open.lock();
        let now = Instant::now();
        // An address is no user: what users have it does not get before somebody has said who it is.
        let has_room = if self.has_users { self.has_room(&open) } else { self.make_room(&mut open, &who, now) };
        let is_guest = !has_room;
        if is_guest {
            if !self.has_users || self.limit == 0 {
                return None;
            }
            if open.guests >= GUESTS_MAX {
                let oldest = open.all.iter().find(|(_, entry)| entry.is_guest).map(|(number, _)| *number);
                open.end(oldest.expect("there are guests"));
            }
        }
        open.count += 1;
        let (number, makes_way) = (open.count, Arc::new(Notify::new()));
        open.put(
            number,
            Entry { who, is_guest, is_new: true, is_busy: false, since: now, makes_way: makes_way.clone() },
        );
        Some(Place { of: self.clone(), number, makes_way })
    }

    fn has_room(&self, open: &Open) -> bool {
        open.all.len() - open.guests < self.limit
    }

    /// Returns whether there is a place for one, which another may have left for it.
    fn make_room(&self, open: &mut Open, who: &Who, now: Instant) -> bool {
        if self.has_room(open) {
            return true;
        }
        let victim = self.victim(open, who, now);
        victim.into_iter().for_each(|number| open.end(number));
        victim.is_some()
    }

    /// Returns the connection that makes way for a new one of this client.
    fn victim(&self, open: &Open, who: &Who, now: Instant) -> Option<u64> {
        let own = open.by.get(who).copied().unwrap_or(0);
        let sharers = open.by.len() + usize::from(own == 0);
        let part = (self.limit / sharers.max(1)).max(1);
        if own < part {
            let mut greedy: Vec<_> = open.by.iter().filter(|(_, count)| **count > part).collect();
            greedy.sort_by(|(a, many), (b, more)| more.cmp(many).then_with(|| a.cmp(b)));
            let found = greedy.iter().find_map(|(other, _)| self.longest(open, other, Whose::Greedy, now));
            if found.is_some() {
                return found;
            }
        }
        self.longest(open, who, Whose::Own, now)
    }

    /// Returns the connection of a client that has been silent for longest; without one, the one that has been at something
    /// for longest, if that is longer than a connection may be silent. Of its own, only one that has been silent for longer.
    fn longest(&self, open: &Open, who: &Who, whose: Whose, now: Instant) -> Option<u64> {
        let oldest = |is_busy: bool, least: &dyn Fn(&Entry) -> Duration| {
            let own = open.all.iter().filter(|(_, entry)| !entry.is_guest && entry.who == *who);
            let is_long = |entry: &Entry| now.saturating_duration_since(entry.since) >= least(entry);
            let may = own.filter(|(_, entry)| entry.is_busy == is_busy && is_long(entry));
            may.min_by_key(|(number, entry)| (entry.since, **number)).map(|(number, _)| *number)
        };
        let long = |entry: &Entry| if entry.is_new { NEW_MAX.min(self.silence_max) } else { self.silence_max };
        match whose {
            Whose::Greedy => oldest(false, &|_| Duration::ZERO).or_else(|| oldest(true, &|_| self.silence_max)),
            Whose::Own => oldest(false, &long),
        }
    }
}

impl Open {
    fn put(&mut self, number: u64, entry: Entry) {
        match entry.is_guest {
            true => self.guests += 1,
            false => *self.by.entry(entry.who.clone()).or_default() += 1,
        }
        self.all.insert(number, entry);
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.all.remove(&number)?;
        if entry.is_guest {
            self.guests -= 1;
        } else if let Some(count) = self.by.get_mut(&entry.who) {
            *count -= 1;
            if *count == 0 {
                self.by.remove(&entry.who);
            }
        }
        Some(entry)
    }

    /// Tells a connection to make way. It has no place any more.
    fn end(&mut self, number: u64) {
        let entry = self.remove(number).expect("it has a place");
        entry.makes_way.notify_one();
    }
}

impl Place {
    /// Notes that the client has said who it is, or that it is another one. False if there is no place for that one.
    pub fn belongs_to(&self, who: &Who) -> bool {
        let mut open = self.of.open.lock();
        let Some(entry) = open.all.get(&self.number) else { return false };
        if !entry.is_guest && entry.who == *who {
            return true;
        }
        let entry = open.remove(self.number).expect("it is there");
        let has_room = self.of.make_room(&mut open, who, Instant::now());
        if has_room {
            open.put(self.number, Entry { who: who.clone(), is_guest: false, ..entry });
        }
        has_room
    }

    /// Marks the connection as busy with a request from now on.
    pub fn is_busy(&self) {
        self.mark(true);
    }

    /// Marks the connection as idle from now on.
    pub fn is_silent(&self) {
        self.mark(false);
    }

    fn mark(&self, is_busy: bool) {
        if let Some(entry) = self.of.open.lock().all.get_mut(&self.number) {
            (entry.is_new, entry.is_busy, entry.since) = (false, is_busy, Instant::now());
        }
    }

    /// Waits until the connection is to be closed, to make room for another one.
    pub async fn makes_way(&self) {
        self.makes_way.notified().await;
    }

    /// Waits for something, unless it is to make way before.
    pub async fn or_makes_way<T>(&self, waited: impl Future<Output = T>) -> Option<T> {
        let (mut waited, mut makes_way) = (pin!(waited), pin!(self.makes_way()));
        poll_fn(|cx| match waited.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => makes_way.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.open.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const LONG: Duration = Duration::from_secs(3_600);

    fn at(last: u8) -> Who {
        Who::at(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)))
    }

    fn user(name: &str) -> Who {
        Who::User(name.into())
    }

    fn makes_way(place: &Place) -> bool {
        !place.of.open.lock().all.contains_key(&place.number)
    }

    fn enter(connections: &Arc<Connections>, who: &Who, count: usize) -> Vec<Place> {
        let asked = |place: Place| {
            place.is_silent();
            place
        };
        (0..count).map_while(|_| connections.enter(who.clone()).map(asked)).collect()
    }

    #[test]
    fn one_address_alone_has_all_places() {
        let connections = Connections::new(4, false, LONG);
        let mut places = enter(&connections, &at(1), 10);
        assert_eq!(places.len(), 4);
        places.pop();
        assert_eq!(enter(&connections, &at(1), 10).len(), 1);
    }

    #[test]
    fn another_address_gets_its_part_of_silent_connections() {
        let connections = Connections::new(4, false, LONG);
        let places = enter(&connections, &at(1), 4);
        places[0].is_busy();
        places[1].is_silent();
        let others = enter(&connections, &at(2), 10);
        assert_eq!(others.len(), 2);
        // The ones that have been silent for longest.
        let left: Vec<bool> = places.iter().map(makes_way).collect();
        assert_eq!(left, [false, false, true, true]);
        assert!(!others.iter().any(makes_way));
    }

    #[test]
    fn what_is_at_something_stays_unless_it_is_at_it_for_long() {
        for (silence_max, given) in [(LONG, 0), (Duration::ZERO, 2)] {
            let connections = Connections::new(4, false, silence_max);
            let places = enter(&connections, &at(1), 4);
            places.iter().for_each(Place::is_busy);
            assert_eq!(enter(&connections, &at(2), 2).len(), given, "{silence_max:?}");
        }
    }

    #[test]
    fn a_client_takes_the_place_of_its_own_only_after_a_long_silence() {
        let connections = Connections::new(2, false, Duration::ZERO);
        let places = enter(&connections, &at(1), 2);
        let third = connections.enter(at(1)).expect("one makes way");
        assert!(makes_way(&places[0]) && !makes_way(&places[1]) && !makes_way(&third));
        places[1].is_busy();
        third.is_busy();
        assert!(connections.enter(at(1)).is_none());
    }

    #[test]
    fn one_on_which_nothing_was_asked_makes_way_soon() {
        let connections = Connections::new(2, false, LONG);
        let (asked, new) = (connections.enter(at(1)).expect("a place"), connections.enter(at(1)).expect("a place"));
        asked.is_silent();
        let longest = |later| {
            let open = connections.open.lock();
            connections.longest(&open, &at(1), Whose::Own, Instant::now() + later)
        };
        assert_eq!((longest(Duration::ZERO), longest(NEW_MAX)), (None, Some(new.number)));
        new.is_silent();
        assert_eq!((longest(NEW_MAX), longest(2 * LONG)), (None, Some(asked.number)));
    }

    #[test]
    fn idle_clients_do_not_lock_a_user_out() {
        let connections = Connections::new(100, true, LONG);
        let idle = enter(&connections, &at(1), 2_000);
        // The last ones have displaced each other.
        assert_eq!(idle.iter().filter(|place| !makes_way(place)).count(), 100 + GUESTS_MAX);
        let ada = connections.enter(at(1)).expect("to say who she is");
        assert!(ada.belongs_to(&user("ada")) && !makes_way(&ada));
        assert_eq!(connections.open.lock().by[&user("ada")], 1);
        // An address, also another one, gets nothing of what a user has.
        let connections = Connections::new(2, true, LONG);
        let users = enter(&connections, &at(1), 2);
        assert!(users.iter().all(|place| place.belongs_to(&user("ada"))));
        let others = enter(&connections, &at(2), 5);
        assert!(others.len() == 5 && !users.iter().any(makes_way));
    }

    #[test]
    fn a_user_has_no_more_than_its_part() {
        let connections = Connections::new(100, true, LONG);
        let _idle = enter(&connections, &at(1), 100);
        let ada = connections.enter(at(1)).expect("to say who she is");
        assert!(ada.belongs_to(&user("ada")));
        let rest = enter(&connections, &at(1), 60);
        let let_in = rest.iter().filter(|place| place.belongs_to(&user("ada"))).count();
        assert!(let_in + 1 >= 50 - GUESTS_MAX && let_in < 50, "{let_in}");
    }

    #[test]
    fn a_connection_that_changes_its_user_is_counted_once() {
        let connections = Connections::new(4, true, LONG);
        let place = connections.enter(at(1)).expect("there is room");
        for name in ["ada", "bob", "ada", "ada"] {
            assert!(place.belongs_to(&user(name)));
            assert_eq!(connections.open.lock().by, HashMap::from([(user(name), 1)]));
        }
        drop(place);
        assert!(connections.open.lock().by.is_empty() && connections.open.lock().all.is_empty());
    }
}
