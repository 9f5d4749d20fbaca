//! Whose calls go to the engine next, where not all may go at once.
//!
//! The engine runs calls in the order in which it gets them, and what it has got nobody can take back. So of each client,
//! and of each procedure that it calls, the engine has only so many calls at a time that others do not wait for long: one
//! at first, and more as long as they are quick ([`Window`]). Calls beyond that wait here.
//!
//! 1. A call goes at once if its client has none that wait, and its window has room ([`Turns::may_go`]).
//! 2. Otherwise it waits in the line of its client: those of one connection in their order, and the connections in turns.
//! 3. When the engine has answered calls, the window of these grows if that was quick ([`Turns::answered`]). If it took
//!    long, the engine gets the calls of one client at a time from then on: so it is known whose calls take how long, and
//!    the window becomes as small as they are slow.
//! 4. The client that has used the engine least is the next ([`Turns::next`]). One that had no calls for a while begins
//!    where the others are: it has saved nothing up.
//! 5. One whose calls are heavy rests for as long as the last of them took, as long as there are others. Nothing can
//!    interrupt a call, so the others, who ask again only when they have their replies, would else wait for a heavy one with
//!    each of theirs.
//!
//! A client is a user or, where nobody is asked, an address. Calls that are quick pass as if there were no turns: their
//! windows grow to thousands within a few milliseconds.
//!
//! # Invariant
//!
//! The calls of a connection go in the order in which they were made. The engine has calls while any wait, unless these are
//! of one who rests, for [`REST_MAX`] at most: so each goes after a while.

use crate::shares::{Client, Who};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest answer time at which a window may still grow.
const QUICK: Duration = Duration::from_millis(20);
/// The answer time that counts as very quick.
const VERY_QUICK: Duration = Duration::from_millis(5);
/// The answer time that counts as slow if it is also [`SLOWER`] times the least one, which is the disk's.
const SLOW: Duration = Duration::from_millis(150);
const SLOWER: u32 = 3;
/// The answer time to which a window that was slow is shrunk.
const WANTED: Duration = Duration::from_millis(50);
/// The longest time for which a client's calls rest.
const REST_MAX: Duration = Duration::from_secs(1);
/// The time after a slow answer during which the engine gets the calls of one client at a time; also the time for which
/// a client counts as present after its last call.
const CAREFUL: Duration = Duration::from_secs(1);
/// The time without calls after which a window begins anew.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// The most calls of a window.
const WINDOW_MAX: usize = 1 << 20;
/// The number of clients from which on those that have no calls are forgotten.
const CLIENTS_KEPT: usize = 1_024;

/// The place of a client's next call: the client, and the earlier calls that it may not overtake.
#[derive(Clone, Debug)]
pub struct Turn {
    pub client: Client,
    /// None for a call that stands alone.
    line: Option<Arc<Line>>,
}

/// The calls of one connection or request, which run in their order.
#[derive(Debug)]
struct Line {
    number: u64,
    /// The number of the batch that has the last of them; nothing may overtake it. Written with the batches locked.
    batch: AtomicU64,
}

impl Turn {
    /// Begins a line of calls that run in their order.
    pub fn first(client: Client) -> Turn {
        static LINES: AtomicU64 = AtomicU64::new(1);
        let number = LINES.fetch_add(1, Ordering::Relaxed);
        Turn { client, line: Some(Arc::new(Line { number, batch: AtomicU64::new(0) })) }
    }

    /// Returns the turn of a call which stands alone.
    pub fn single(client: Client) -> Turn {
        Turn { client, line: None }
    }

    /// Returns the number of the batch that has the last call; 0 if none has one.
    pub fn batch(&self) -> u64 {
        self.line.as_ref().map_or(0, |line| line.batch.load(Ordering::Relaxed))
    }

    /// Notes that the last call is in this batch.
    pub fn is_in(&self, batch: u64) {
        self.line.iter().for_each(|line| line.batch.store(batch, Ordering::Relaxed));
    }

    /// Returns the number of the connection or request whose calls run in their order; 0 for a call that stands alone.
    pub fn line(&self) -> u64 {
        self.line.as_ref().map_or(0, |line| line.number)
    }
}

/// The limit of the calls of one procedure that the engine may have of a client.
#[derive(Clone, Copy, Debug)]
struct Window {
    most: usize,
    /// The number of calls that the engine has.
    has: usize,
}

/// The calls of one client.
struct Of<C> {
    /// The windows, by procedure.
    windows: Vec<Window>,
    /// The number of calls that the engine has, of all procedures.
    has: usize,
    /// The calls that wait, by line.
    lines: HashMap<u64, VecDeque<C>>,
    /// The lines in which some wait, in turns.
    turns: VecDeque<u64>,
    /// The time for which it has used the engine while answers are slow.
    used: Duration,
    /// The time until which its calls rest.
    rests: Option<Instant>,
    /// The time of its last call or answer.
    seen: Instant,
}

/// The order in which clients take turns. `C` is a call.
pub struct Turns<C> {
    procedures: usize,
    clients: HashMap<Who, Of<C>>,
    /// The number of calls that the engine has.
    has: usize,
    /// The number of calls that wait.
    waiting: usize,
    /// The time of the engine's last answer.
    answered: Option<Instant>,
    /// An estimate of the shortest time in which the engine answers a call.
    least: Duration,
    /// The time until which the engine gets the calls of one client at a time.
    careful: Option<Instant>,
}

/// A queued call, as far as its turn depends on it.
pub trait Queued {
    /// Returns its turn.
    fn turn(&self) -> &Turn;
    /// Returns the place of its procedure.
    fn procedure(&self) -> usize;
}

impl<C: Queued> Turns<C> {
    /// Makes turns for the calls of this number of procedures.
    pub fn new(procedures: usize) -> Turns<C> {
        Turns {
            procedures,
            clients: HashMap::new(),
            has: 0,
            waiting: 0,
            answered: None,
            least: Duration::MAX,
            careful: None,
        }
    }

    /// Returns the number of calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    fn is_careful(&self, now: Instant) -> bool {
        self.careful.is_some_and(|until| now < until)
    }

    /// Returns the calls of a client, which has some now.
    fn of(&mut self, who: &Who, now: Instant) -> &mut Of<C> {
        if self.clients.len() >= CLIENTS_KEPT && !self.clients.contains_key(who) {
            self.clients.retain(|_, of| !of.is_idle() || now.saturating_duration_since(of.seen) < FORGOTTEN);
        }
        let active = self.clients.values().filter(|of| !of.is_idle());
        let least = active.map(|of| of.used).min().unwrap_or_default();
        let first = vec![Window { most: 1, has: 0 }; self.procedures];
        let of = self.clients.entry(who.clone()).or_insert_with(|| Of {
            windows: first.clone(),
            has: 0,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            used: least,
            rests: None,
            seen: now,
        });
        if of.is_idle() {
            of.used = of.used.max(least);
            if now.saturating_duration_since(of.seen) >= FORGOTTEN {
                of.windows = first;
            }
        }
        of.seen = now;
        of
    }

    /// Returns whether a call may go at once; then it counts as one that the engine has.
    pub fn may_go(&mut self, turn: &Turn, procedure: usize, now: Instant) -> bool {
        if self.is_careful(now) {
            return false;
        }
        let of = self.of(&turn.client.who, now);
        let window = &mut of.windows[procedure];
        if !of.turns.is_empty() || window.has >= window.most || of.rests.is_some_and(|until| now < until) {
            return false;
        }
        window.has += 1;
        of.has += 1;
        self.has += 1;
        true
    }

    /// Adds a call that waits for its turn.
    pub fn wait(&mut self, call: C, now: Instant) {
        let (who, line) = (call.turn().client.who.clone(), call.turn().line());
        let of = self.of(&who, now);
        let calls = of.lines.entry(line).or_default();
        if calls.is_empty() {
            of.turns.push_back(line);
        }
        calls.push_back(call);
        self.waiting += 1;
    }

    /// Returns the calls whose turn it is, of one client; they count as ones that the engine has. None if no more may go
    /// before others are answered, or before a rest is over.
    pub fn next(&mut self, now: Instant) -> Vec<C> {
        if self.waiting == 0 || (self.is_careful(now) && self.has > 0) {
            return Vec::new();
        }
        let rests = |of: &Of<C>| of.rests.is_some_and(|until| now < until);
        let may = self.clients.iter().filter(|(_, of)| !rests(of) && of.first().is_some());
        let least = may.min_by_key(|(who, of)| (of.used, Reverse(of.seen), (*who).clone())).map(|(who, _)| who.clone());
        let Some(who) = least else { return Vec::new() };
        let of = self.clients.get_mut(&who).expect("it is there");
        of.seen = now;
        let calls = of.take();
        self.waiting -= calls.len();
        self.has += calls.len();
        calls
    }

    /// Takes back a call that counted as one that the engine has: it was wrong, or the run is over.
    pub fn gone(&mut self, who: &Who, procedure: usize) {
        self.has -= 1;
        let of = self.clients.get_mut(who).expect("it has a call");
        of.has -= 1;
        of.windows[procedure].has -= 1;
    }

    /// Takes note that the engine has answered calls of a procedure that were sent together at this time, with the
    /// number of each client's.
    pub fn answered(&mut self, procedure: usize, of: &[(Who, usize)], sent: Instant, now: Instant) {
        let begun = self.answered.map_or(sent, |before| before.max(sent));
        let took = now.saturating_duration_since(begun);
        self.answered = Some(now);
        let all: usize = of.iter().map(|(_, calls)| calls).sum();
        let is_alone = self.has == all && of.len() == 1;
        let is_slow = took > SLOW && self.least.checked_mul(SLOWER).is_some_and(|least| took > least);
        let is_heavy = took > QUICK
            && all.try_into().is_ok_and(|all| took / all > VERY_QUICK)
            && self.least.checked_mul(SLOWER).is_some_and(|least| took > least);
        let is_quick = took <= QUICK || self.least.checked_mul(3).is_some_and(|least| took * 2 <= least);
        // The least answer time grows slowly by itself: a disk that was quick long ago may be so no more.
        self.least = took.min(self.least.saturating_add(self.least / 64)).max(Duration::from_micros(1));
        if is_slow || is_heavy {
            self.careful = Some(now + CAREFUL);
        }
        let is_there = |of: &Of<C>| !of.is_idle() || now.saturating_duration_since(of.seen) < CAREFUL;
        let rests = is_heavy && is_alone && {
            let (only, _) = &of[0];
            self.clients.iter().any(|(who, of)| who != only && is_there(of))
        };
        for (who, calls) in of {
            (0..*calls).for_each(|_| self.gone(who, procedure));
            let of = self.clients.get_mut(who).expect("it had calls");
            of.seen = now;
            if is_alone {
                of.used += took;
            }
            of.rests = rests.then(|| now + took.min(REST_MAX));
            let window = &mut of.windows[procedure];
            if is_quick {
                let by = if took <= VERY_QUICK { 4 } else { 2 };
                window.most = window.most.max(calls.saturating_mul(by).min(WINDOW_MAX));
            } else if is_slow && is_alone {
                let fitting = *calls as f64 * WANTED.as_secs_f64() / took.as_secs_f64();
                window.most = window.most.min((fitting as usize).max(1));
            }
        }
    }
}

impl<C: Queued> Of<C> {
    fn is_idle(&self) -> bool {
        self.has == 0 && self.turns.is_empty()
    }

    /// Returns the first line, in turns, whose first call may go.
    fn first(&self) -> Option<usize> {
        self.turns.iter().position(|line| {
            let window = &self.windows[self.lines[line][0].procedure()];
            window.has < window.most
        })
    }

    /// Takes as many calls of one procedure as its window has room for, the lines in turns.
    fn take(&mut self) -> Vec<C> {
        let mut calls = Vec::new();
        let Some(first) = self.first() else { return calls };
        self.turns.rotate_left(first);
        let procedure = self.lines[&self.turns[0]][0].procedure();
        let window = &mut self.windows[procedure];
        let mut passed = 0;
        while window.has < window.most && passed < self.turns.len() {
            let line = self.turns.pop_front().expect("some are left");
            let waiting = self.lines.get_mut(&line).expect("it has calls");
            if waiting[0].procedure() == procedure {
                calls.push(waiting.pop_front().expect("it has calls"));
                window.has += 1;
                passed = 0;
            } else {
                passed += 1;
            }
            if waiting.is_empty() {
                self.lines.remove(&line);
            } else {
                self.turns.push_back(line);
            }
        }
        self.has += calls.len();
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Call(Turn, usize, u32);

    impl Queued for Call {
        fn turn(&self) -> &Turn {
            &self.0
        }

        fn procedure(&self) -> usize {
            self.1
        }
    }

    fn client(name: &str) -> Client {
        Client::http(Who::User(name.into()))
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// An engine that runs what it gets, message by message, and a clock.
    struct Engine {
        turns: Turns<Call>,
        now: Instant,
        begun: Instant,
        /// The time that each message takes in addition to its calls.
        latency: Duration,
        /// The messages under way: the calls, and the time at which they were sent.
        sent: VecDeque<(Vec<Call>, Instant)>,
        /// The calls that ran, each with the time at which it was answered.
        ran: Vec<(Call, Duration)>,
    }

    impl Engine {
        fn new() -> Engine {
            let now = Instant::now();
            Engine { turns: Turns::new(2), now, begun: now, latency: ms(1), sent: VecDeque::new(), ran: Vec::new() }
        }

        fn make(&mut self, turn: &Turn, procedure: usize, number: u32) {
            let call = Call(turn.clone(), procedure, number);
            if self.turns.may_go(turn, procedure, self.now) {
                self.sent.push_back((vec![call], self.now));
            } else {
                self.turns.wait(call, self.now);
            }
        }

        fn pump(&mut self) {
            loop {
                let calls = self.turns.next(self.now);
                if calls.is_empty() {
                    return;
                }
                self.sent.push_back((calls, self.now));
            }
        }

        /// Runs one message: `of` says how long each call takes. False if there is none.
        fn step(&mut self, of: impl Fn(&Call) -> Duration) -> bool {
            self.pump();
            while self.sent.is_empty() && self.turns.waiting() > 0 {
                self.now += ms(1);
                self.pump();
            }
            let Some((calls, sent)) = self.sent.pop_front() else { return false };
            self.now += self.latency + calls.iter().map(&of).sum::<Duration>();
            let mut by: Vec<(Who, usize)> = Vec::new();
            for call in &calls {
                let who = &call.0.client.who;
                match by.iter_mut().find(|(other, _)| other == who) {
                    Some((_, count)) => *count += 1,
                    None => by.push((who.clone(), 1)),
                }
            }
            self.turns.answered(calls[0].1, &by, sent, self.now);
            let at = self.now - self.begun;
            self.ran.extend(calls.into_iter().map(|call| (call, at)));
            true
        }

        fn when(&self, name: &str) -> Vec<Duration> {
            let of = self.ran.iter().filter(|(call, _)| call.0.client == client(name));
            of.map(|(_, at)| *at).collect()
        }
    }

    /// The first procedure takes long, the second one does not.
    fn cost(call: &Call) -> Duration {
        if call.1 == 0 { ms(275) } else { Duration::from_micros(5) }
    }

    #[test]
    fn heavy_calls_of_one_let_another_in_between() {
        let mut engine = Engine::new();
        let (heavy, light) = (Turn::first(client("ada")), Turn::single(client("bob")));
        (0..12).for_each(|number| engine.make(&heavy, 0, number));
        engine.step(cost);
        engine.make(&light, 1, 0);
        while engine.step(cost) {}
        assert!(engine.when("bob")[0] <= ms(3 * 276 + 2), "{:?}", engine.when("bob"));
        assert_eq!(engine.when("ada").len(), 12);
    }

    #[test]
    fn one_whose_calls_are_heavy_leaves_the_engine_to_others_for_half_of_the_time() {
        let mut engine = Engine::new();
        let (heavy, light) = (Turn::first(client("ada")), Turn::single(client("bob")));
        let (mut number, mut due, mut answered) = (0, engine.now, true);
        // Bob makes a call 50 ms after the one before, or when that is answered. Ada always has some.
        while engine.now - engine.begun < ms(10_000) {
            while engine.turns.waiting() < 10 {
                engine.make(&heavy, 0, number);
                number += 1;
            }
            if answered && due <= engine.now {
                (due, answered) = (engine.now + ms(50), false);
                engine.make(&light, 1, 0);
            }
            engine.pump();
            if engine.sent.is_empty() {
                engine.now += ms(1);
                continue;
            }
            let before = engine.when("bob").len();
            engine.step(|call| if call.1 == 0 { ms(50) } else { Duration::from_micros(5) });
            answered |= engine.when("bob").len() > before;
        }
        // Alone there were 200 of each.
        let (light, heavy) = (engine.when("bob").len(), engine.when("ada").len());
        assert!(light >= 150 && (75..=125).contains(&heavy), "{light} {heavy}");
    }

    #[test]
    fn one_alone_never_rests() {
        let mut engine = Engine::new();
        let ada = Turn::first(client("ada"));
        (0..20).for_each(|number| engine.make(&ada, 0, number));
        while engine.step(cost) {}
        assert!(engine.now - engine.begun <= 20 * ms(276));
    }

    #[test]
    fn so_it_is_for_one_whose_calls_were_quick_before() {
        let mut engine = Engine::new();
        let ada = Turn::first(client("ada"));
        for round in 0..20 {
            (0..500).for_each(|number| engine.make(&ada, 1, round * 500 + number));
            while engine.step(cost) {}
        }
        (0..12).for_each(|number| engine.make(&ada, 0, number));
        engine.step(cost);
        let (before, bob) = (engine.now - engine.begun, Turn::single(client("bob")));
        engine.make(&bob, 1, 0);
        while engine.step(cost) {}
        assert!(engine.when("bob")[0] - before <= ms(2 * 276 + 2));
    }

    #[test]
    fn quick_calls_soon_go_all_at_once() {
        let mut engine = Engine::new();
        let ada = Turn::first(client("ada"));
        for round in 0..8 {
            (0..1_000).for_each(|number| engine.make(&ada, 1, round * 1_000 + number));
            while engine.step(cost) {}
        }
        (0..1_000).for_each(|number| engine.make(&ada, 1, number));
        assert_eq!(engine.turns.waiting(), 0);
        // It took hardly longer than it would have without turns.
        assert!(engine.when("ada")[999] < ms(60), "{:?}", engine.when("ada")[999]);
    }

    #[test]
    fn the_engine_is_shared_by_time() {
        let mut engine = Engine::new();
        let (ada, bob) = (Turn::first(client("ada")), Turn::first(client("bob")));
        (0..40).for_each(|number| engine.make(&ada, 0, number));
        (0..100_000).for_each(|number| engine.make(&bob, 1, number));
        // Half of a few seconds is much for calls that are quick.
        while engine.now - engine.begun < ms(5_000) && engine.step(cost) {}
        let (heavy, light) = (engine.when("ada").len(), engine.when("bob").len());
        assert!(heavy >= 5 && light >= 50_000, "{heavy} {light}");
        while engine.step(cost) {}
        assert_eq!((engine.when("ada").len(), engine.when("bob").len()), (40, 100_000));
    }

    #[test]
    fn a_slow_disk_does_not_make_windows_small() {
        let mut engine = Engine::new();
        engine.latency = ms(400);
        let ada = Turn::first(client("ada"));
        for round in 0..3 {
            (0..1_000).for_each(|number| engine.make(&ada, 1, round * 1_000 + number));
            while engine.step(cost) {}
        }
        assert!(engine.turns.clients[&ada.client.who].windows[1].most >= 500);
    }

    #[test]
    fn calls_of_a_line_run_in_their_order() {
        let mut engine = Engine::new();
        let mut lines: Vec<(Turn, u32)> = (0..6).map(|_| (Turn::first(client("ada")), 0)).collect();
        lines.extend((0..3).map(|_| (Turn::first(client("bob")), 0)));
        let mut seed = 5u64;
        for _ in 0..3_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (seed >> 33) as usize;
            let count = lines.len();
            let (line, number) = &mut lines[random % count];
            *number += 1;
            let (line, number) = (line.clone(), *number);
            engine.make(&line, random / 9 % 2, number);
            if random.is_multiple_of(3) {
                engine.step(|call| if call.2 % 7 == 0 { ms(200) } else { ms(1) });
            }
        }
        while engine.step(cost) {}
        assert_eq!((engine.ran.len(), engine.turns.waiting(), engine.turns.has), (3_000, 0, 0));
        for (line, _) in &lines {
            let ran: Vec<u32> =
                engine.ran.iter().filter(|(call, _)| call.0.line() == line.line()).map(|(call, _)| call.2).collect();
            assert!(ran.is_sorted(), "{ran:?}");
        }
    }
}
