//! Places and bytes that all who ask share, each up to its part.
//!
//! One who asks is a user or, where nobody is asked who he is, an address ([`Who`]). While there is room, everybody may
//! take it, also one alone all of it. Once there is none, one that has less than its part still gets some: the part is the
//! whole divided by the number of those who have any. So nobody is locked out by what others hold, and nothing has to be
//! kept free for those who may come.
//!
//! # Invariant
//!
//! All take together at most twice the limit, and no more than the limit while one alone takes. What one has is
//! counted once, over both protocols, and given back once.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_durability::{Bug, Planted};

/// Seconds after which one who got no place may ask again.
pub const RETRY_SECONDS: u64 = 1;
/// The bits of an address of IPv6 that tell one network from another. Each machine of a network has the others.
const NETWORK_BITS: u32 = 64;

/// One who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    User(Arc<str>),
    /// An IPv4 address, or the network of an IPv6 address.
    Address(IpAddr),
}

impl Who {
    /// Returns the client of an address, as long as it has not said who it is.
    pub fn at(address: IpAddr) -> Who {
        Who::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS);
                IpAddr::V6(network.into())
            }
            v4 => v4,
        })
    }
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Postgres,
}

/// One who asks, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub who: Who,
    pub by: Protocol,
}

impl Client {
    /// Returns a client that uses HTTP.
    pub fn http(who: Who) -> Client {
        Client { who, by: Protocol::Http }
    }

    /// Returns a client that uses the protocol of PostgreSQL.
    pub fn postgres(who: Who) -> Client {
        Client { who, by: Protocol::Postgres }
    }
}

/// A resource that clients share, up to a limit.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Whole>);

#[derive(Debug)]
struct Whole {
    limit: usize,
    /// A flag: whether one that has nothing gets what it asks for, however much it is.
    is_first_free: bool,
    taken: Mutex<Taken>,
    planted: Planted,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// The amount that each client has, if it has something.
    by: HashMap<Who, usize>,
}

/// An amount of a resource that a client holds, until it is dropped.
#[derive(Debug)]
pub struct Share {
    of: Arc<Whole>,
    client: Client,
    amount: usize,
}

impl Shares {
    /// Makes a resource of `limit` places.
    pub fn places(limit: usize, planted: Planted) -> Shares {
        Shares::new(limit, false, planted)
    }

    /// Makes a resource of `limit` bytes. A client that has none gets as many as it asks for, so that nothing is too
    /// large for ever.
    pub fn bytes(limit: usize, planted: Planted) -> Shares {
        Shares::new(limit, true, planted)
    }

    fn new(limit: usize, is_first_free: bool, planted: Planted) -> Shares {
        Shares(Arc::new(Whole { limit, is_first_free, taken: Mutex::default(), planted }))
    }

    /// Takes a place; none if there is none for this one.
    pub fn take(&self, client: &Client) -> Option<Share> {
        self.take_some(client, 1)
    }

    /// Takes an amount; none if there is not as much left for this client.
    pub fn take_some(&self, client: &Client, amount: usize) -> Option<Share> {
        let mut share = self.nothing(client);
        share.grow(amount).then_some(share)
    }

    /// Takes nothing yet.
    pub fn nothing(&self, client: &Client) -> Share {
        Share { of: self.0.clone(), client: client.clone(), amount: 0 }
    }

    /// Returns the amount that all clients have taken together.
    pub fn taken(&self) -> usize {
        self.0.taken.lock().all
    }
}

impl Share {
    /// Takes more by an amount. Returns false, and changes nothing, if there is not as much left.
    pub fn grow(&mut self, more: usize) -> bool {
        let Whole { limit, is_first_free, taken, planted } = &*self.of;
        let mut taken = taken.lock();
        let own = taken.by.get(&self.client.who).copied();
        let others = taken.by.len() - usize::from(own.is_some());
        let own = own.unwrap_or(0);
        let part = (limit / (others + 1)).max((*limit).min(1));
        let has_room = taken.all.saturating_add(more) <= *limit;
        let has_part = own.saturating_add(more) <= part && taken.all.saturating_add(more) <= limit.saturating_mul(2);
        let is_first = *is_first_free && *limit > 0 && own == 0;
        let is_unbound = planted.is(Bug::LimitOfOneProtocol) && self.client.by == Protocol::Postgres;
        if !(has_room || has_part || is_first || is_unbound) {
            return false;
        }
        let counted = if planted.is(Bug::ShareCountsTwice) { 2 * more } else { more };
        self.amount += counted;
        taken.all += counted;
        if counted > 0 {
            *taken.by.entry(self.client.who.clone()).or_default() += counted;
        }
        true
    }

    /// Returns the amount.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Gives some of the amount back.
    pub fn shrink(&mut self, less: usize) {
        assert!(less <= self.amount, "only what is there is given back");
        if less == 0 {
            return;
        }
        self.amount -= less;
        let mut taken = self.of.taken.lock();
        taken.all -= less;
        let own = taken.by.get_mut(&self.client.who).expect("it has something");
        *own -= less;
        if *own == 0 {
            taken.by.remove(&self.client.who);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Client {
        Client::http(Who::User(name.into()))
    }

    fn places(limit: usize) -> Shares {
        Shares::places(limit, Planted::default())
    }

    /// Takes as many places as there are for one, by both protocols in turns.
    fn all(shares: &Shares, Client { who, .. }: &Client) -> Vec<Share> {
        let turns = [Client::http(who.clone()), Client::postgres(who.clone())].into_iter().cycle();
        turns.map_while(|client| shares.take(&client)).take(1_000).collect()
    }

    #[test]
    fn one_alone_has_all_places() {
        let shares = places(10);
        let (ada, bob) = (user("ada"), user("bob"));
        let mut taken = all(&shares, &ada);
        assert_eq!((taken.len(), shares.taken()), (10, 10));
        taken.pop();
        assert_eq!(shares.taken(), 9);
        assert!(shares.take(&bob).is_some());
        drop(taken);
        assert_eq!((shares.taken(), all(&shares, &bob).len()), (0, 10));
    }

    #[test]
    fn nobody_is_locked_out_and_nobody_gets_more_than_its_part_then() {
        let shares = places(12);
        let _ada = all(&shares, &user("ada"));
        let bob = all(&shares, &user("bob"));
        assert_eq!(bob.len(), 6);
        let eve = all(&shares, &user("eve"));
        assert_eq!(eve.len(), 4);
        // However many they are, the whole has an end.
        let names: Vec<String> = (0..100).map(|number| format!("u{number}")).collect();
        let others: Vec<Vec<Share>> = names.iter().map(|name| all(&shares, &user(name))).collect();
        assert!(others[0].len() == 2 && shares.taken() == 24);
        assert!(shares.take(&user("ada")).is_none() && shares.take(&user("bob")).is_none());
    }

    #[test]
    fn where_there_are_no_places_nobody_gets_one() {
        assert!(places(0).take(&user("ada")).is_none());
        assert!(Shares::bytes(0, Planted::default()).take_some(&user("ada"), 1).is_none());
    }

    #[test]
    fn the_first_may_be_larger_than_all() {
        let shares = Shares::bytes(100, Planted::default());
        let ada = shares.take_some(&user("ada"), 500).expect("she has none");
        assert!(shares.take_some(&user("ada"), 1).is_none());
        let mut bob = shares.take_some(&user("bob"), 10).expect("he has none");
        assert!(!bob.grow(1) && bob.amount() == 10);
        drop(ada);
        assert!(bob.grow(90) && !bob.grow(1) && shares.taken() == 100);
    }

    #[test]
    fn a_network_of_ipv6_is_one() {
        let at = |text: &str| Who::at(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:3"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }

    /// Returns whether each gets what it should, whatever the protocol.
    fn is_shared(planted: Planted) -> bool {
        let shares = Shares::places(10, planted);
        let ada = all(&shares, &user("ada"));
        let bob = all(&shares, &user("bob"));
        ada.len() == 10 && bob.len() == 5 && shares.taken() == 15
    }

    #[test]
    fn planted_bugs_of_shares_are_found() {
        assert!(is_shared(Planted::default()));
        assert!(!is_shared(Planted::new(Bug::LimitOfOneProtocol)));
        assert!(!is_shared(Planted::new(Bug::ShareCountsTwice)));
    }
}
