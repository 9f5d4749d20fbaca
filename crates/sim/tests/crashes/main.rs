//! The engine on simulated storage that fails at any call, against the reference interpreter.
//!
//! A trial runs a random history to its end through several processes that end early: the power is cut before or after
//! a call, a call fails with or without effect, a sync drops what it should have made durable. In the end tables and
//! outputs are those of the reference, byte by byte; between the processes every file under a final name is whole.
//!
//! [`planted`] shows that these trials find bugs. [`full_logging`] looks for the results of transactions in the log;
//! [`log`] runs the log alone through many crashes, [`store`] the runs of rows; [`damage`] flips bits of a state
//! directory; [`beside`] verifies a state while a run goes on with it; [`kills`] ends real processes; [`power`] cuts the power of a real file system.
//!
//! Most trials step the engine on one thread, in an order that the seed draws ([`tidemill_sim::step_through`]): a failing
//! trial fails again, step for step ([`replays`] shows it). Some run it on threads.
//!
//! `TIDEMILL_CRASHES` sets how many crashes there must have been on one thread, `TIDEMILL_THREAD_CRASHES` on threads,
//! `TIDEMILL_SECONDS` after how many seconds no plan begins any more, `TIDEMILL_SEED` the first seed.

mod beside;
mod child;
mod commands;
mod damage;
mod every_call;
mod full;
mod full_logging;
mod kills;
mod log;
mod oom;
mod planted;
mod power;
mod replays;
#[path = "../search/mod.rs"]
mod search;
mod source;
mod store;
#[allow(dead_code, reason = "it also runs histories without crashes")]
#[path = "../../../runtime/tests/support/mod.rs"]
mod support;
mod trial;
mod trials;
mod weak;

use std::collections::BTreeMap;
use std::env::var;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_runtime::Policy;
use trials::{At, Trials, Wrongs};

/// A trial that takes longer hangs.
const TRIAL_SECONDS_MAX: u64 = 240;

fn number(name: &str, default: u64) -> u64 {
    var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {text}")))
}

#[derive(Default)]
struct Totals {
    trials: AtomicU64,
    crashes: AtomicU64,
    in_recovery: AtomicU64,
    stops: AtomicU64,
    /// The number of epochs that several workers accessed, by policy.
    shared: Mutex<BTreeMap<String, u64>>,
    /// The seed of each thread's current trial, by thread.
    running: [AtomicU64; 2],
}

/// All trials of a plan.
fn plan_trials(plan: u64, trials: &mut Trials, totals: &Totals, thread: usize) {
    for at in At::of_plan(plan) {
        totals.running[thread].store(at.trial, Ordering::Relaxed);
        let outcome = trials.run(at, Wrongs::default()).unwrap_or_else(|wrong| panic!("{at}: {wrong}"));
        totals.trials.fetch_add(1, Ordering::Relaxed);
        totals.crashes.fetch_add(outcome.crashes, Ordering::Relaxed);
        totals.in_recovery.fetch_add(outcome.in_recovery, Ordering::Relaxed);
        totals.stops.fetch_add(outcome.stops, Ordering::Relaxed);
        let mut shared = totals.shared.lock().expect("nobody panicked");
        outcome.shared.into_iter().for_each(|(policy, epochs)| *shared.entry(policy).or_default() += epochs);
    }
}

#[test]
fn random_crashes() {
    crashes(number("TIDEMILL_CRASHES", 1_000), 1_000, Trials::default);
}

#[test]
fn random_crashes_on_threads() {
    crashes(number("TIDEMILL_THREAD_CRASHES", 300), 200, Trials::on_threads);
}

/// Returns the policies that share work and under which no epoch was accessed by several workers.
fn missing(shared: &BTreeMap<String, u64>) -> Vec<String> {
    let is_shared = |policy: &Policy| policy.in_ways_to_share().iter().any(|way| shared.contains_key(&way.to_string()));
    let parallel = Policy::all().into_iter().filter(|policy| *policy != Policy::EPOCH);
    parallel.filter(|policy| !is_shared(policy)).map(|policy| policy.to_string()).collect()
}

/// Runs trials until `wanted` processes have crashed, or the time is up and `least` have; and on until several workers have
/// accessed epochs under each policy that shares work. Fewer than `least` are asked for to see some trials again.
fn crashes(wanted: u64, least: u64, trials: fn() -> Trials) {
    let first = number("TIDEMILL_SEED", 1);
    let (totals, start, seconds) = (Totals::default(), Instant::now(), number("TIDEMILL_SECONDS", u64::MAX));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let totals = &totals;
            scope.spawn(move || {
                let _over = Over(&totals.running[thread]);
                let (mut plan, mut trials) = (first + thread as u64, trials());
                let goes_on = || {
                    let crashes = totals.crashes.load(Ordering::Relaxed);
                    let has_time = crashes < least || start.elapsed().as_secs() < seconds;
                    let is_missing = || !missing(&totals.shared.lock().expect("nobody panicked")).is_empty();
                    crashes < wanted && has_time || wanted >= least && crashes < 20 * wanted && is_missing()
                };
                while goes_on() {
                    plan_trials(plan, &mut trials, totals, thread);
                    plan += 2;
                }
            });
        }
        scope.spawn(|| watch(&totals));
    });
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (trials, crashes, again) = (count(&totals.trials), count(&totals.crashes), count(&totals.in_recovery));
    let stops = count(&totals.stops);
    let shared = totals.shared.into_inner().expect("nobody panicked");
    println!(
        "{crashes} crashes and {stops} stops in {trials} trials, {again} after another, from seed {first}; {} epochs \
         with several workers, under {} policies",
        shared.values().sum::<u64>(),
        shared.len()
    );
    let missing = missing(&shared);
    assert!(missing.is_empty() || wanted < least, "{crashes} crashes leave out {missing:?}");
}

/// Says that a thread runs no more trials, also when it panics: a trial that fails does not hang.
struct Over<'a>(&'a AtomicU64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

/// Aborts the tests when a trial hangs, and prints its seed.
fn watch(totals: &Totals) {
    let at = || totals.running.each_ref().map(|seed| seed.load(Ordering::Relaxed));
    let (mut last, mut seconds) = (at(), [0; 2]);
    while at() != [u64::MAX; 2] {
        std::thread::sleep(Duration::from_secs(1));
        for (thread, seed) in at().into_iter().enumerate() {
            let hangs = seed == last[thread] && seed != u64::MAX;
            seconds[thread] = if hangs { seconds[thread] + 1 } else { 0 };
            last[thread] = seed;
            if seconds[thread] > TRIAL_SECONDS_MAX {
                println!("trial seed {seed} hangs");
                std::process::abort();
            }
        }
    }
}
