//! The engine on simulated storage that fails at any call, against the reference interpreter.
//!
//! A trial runs a random history to its end through lives that end early: the power goes before or
//! behind a call, a call fails, with or without having been applied, a sync drops what it should have
//! kept. In the end tables and outputs are those of the reference, byte by byte; between the lives
//! nothing stands under a final name that is not whole.
//!
//! Beside that: [`full_logging`] looks for what transactions gave in the log; [`log`] has the log alone through many lives, [`store`] the runs of rows, [`damage`] turns bits over in a state directory, [`kills`] ends real processes, and [`power`] cuts the power of a real file system.
//!
//! `TIDEMILL_CRASHES` sets how many crashes there must have been, `TIDEMILL_SEED` the first seed.

mod child;
mod commands;
mod damage;
mod every_call;
mod full;
mod full_logging;
mod kills;
mod log;
mod oom;
mod power;
mod source;
mod store;
#[allow(dead_code, reason = "it also runs histories without crashes")]
#[path = "../../../runtime/tests/support/mod.rs"]
mod support;
mod trial;
mod weak;

use std::env::var;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::{Subject, with_all_sinks};
use tidemill_durability::{Bug, Planted};
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, Logging};
use tidemill_sim::SimStorage;
use trial::{Expected, Setting, run};

/// Trials per plan and data: compiling and interpreting cost more than running.
const DATA_PER_PLAN: u64 = 4;
const TRIALS_PER_DATA: u64 = 25;
/// Before a bug is given up on.
const PLANS_FOR_A_BUG: u64 = 120;
/// The trials of a plan that take longer hang.
const HANGS_SECONDS: u64 = 20;
/// A trial that takes longer hangs.
const TRIAL_SECONDS_MAX: u64 = 60;

fn number(name: &str, default: u64) -> u64 {
    var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {text}")))
}

#[derive(Default)]
struct Totals {
    trials: AtomicU64,
    crashes: AtomicU64,
    in_recovery: AtomicU64,
    stops: AtomicU64,
    /// By thread: the seed it is at, and since when.
    running: [AtomicU64; 2],
}

/// All trials of a plan, with a bug and lies about syncs, if any. What is wrong, with its seed.
fn plan_trials(seed: u64, planted: Planted, lies: &[&str], totals: &Totals, thread: usize) -> Result<(), String> {
    let plan = random_plan(seed, PlanSize::Small);
    let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
    let logging = if seed.is_multiple_of(3) { Logging::Full } else { Logging::Border };
    let engine = Engine::with_logging(program.clone(), logging);
    let mut engine = engine.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    for data in 0..DATA_PER_PLAN {
        let data_seed = seed * 1_000 + data;
        let (preload, sources) = random_data(&program, data_seed, DataShape::random(data_seed));
        let expected = Expected::new(Subject::new(History { plan: plan.clone(), preload, sources }));
        for trial in 0..TRIALS_PER_DATA {
            let trial_seed = data_seed * 1_000 + trial;
            totals.running[thread].store(trial_seed, Ordering::Relaxed);
            let setting = Setting::random(trial_seed, planted);
            let lie = |storage: &SimStorage| lies.iter().for_each(|end| storage.lie_about(end));
            let (kept, outcome) = run(&expected, engine, setting, lie);
            engine = kept;
            let outcome = outcome.map_err(|wrong| format!("plan seed {seed}, trial seed {trial_seed}: {wrong}"))?;
            totals.trials.fetch_add(1, Ordering::Relaxed);
            totals.crashes.fetch_add(outcome.crashes, Ordering::Relaxed);
            totals.in_recovery.fetch_add(outcome.in_recovery, Ordering::Relaxed);
            totals.stops.fetch_add(outcome.stops, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Whether some trial notices a bug: by what is wrong in the end, by a panic, or because it has none.
fn is_found(what: String, planted: Planted, lies: &'static [&str]) -> Result<(), String> {
    let totals = Arc::new(Totals::default());
    let (said, heard) = std::sync::mpsc::channel();
    let trials = totals.clone();
    std::thread::spawn(move || {
        for seed in 1..=PLANS_FOR_A_BUG {
            let found = std::panic::catch_unwind(|| plan_trials(seed, planted, lies, &trials, 0).err());
            if said.send(!matches!(found, Ok(None))).is_err() {
                return;
            }
        }
    });
    for _ in 1..=PLANS_FOR_A_BUG {
        if heard.recv_timeout(Duration::from_secs(HANGS_SECONDS)).unwrap_or(true) {
            return Ok(());
        }
    }
    Err(format!("{what} was not found in {} trials", totals.trials.load(Ordering::Relaxed)))
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        Bug::CheckpointInPlace,
        Bug::CheckpointUnsynced,
        Bug::CheckpointForgetsHeld,
        Bug::CheckpointForgetsTimes,
        Bug::CheckpointRemovesFirst,
        Bug::SnapshotSavesNothing,
        Bug::SnapshotForgetsChanges,
        Bug::SnapshotMixesGenerations,
        Bug::SnapshotForgetsFailed,
        Bug::TruncatesFirst,
        Bug::ColdIsAbsent,
        Bug::EvictsDirty,
        Bug::EvictsCopied,
        Bug::CheckpointForgetsSpills,
        Bug::SpillsUnsynced,
        Bug::CheckpointHidesSpills,
        Bug::ReleasesUnsynced,
        Bug::ReplayRepeats,
        Bug::ReplayCutsAnew,
        Bug::ReplayReleasesAgain,
        Bug::ReplayForgetsTaken,
    ];
    let missed: Vec<String> =
        bugs.iter().filter_map(|&bug| is_found(format!("{bug:?}"), Planted::new(bug), &[]).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn syncs_that_are_left_out_are_found() {
    const LIES: [&[&str]; 7] =
        [&[".new"], &[".rows"], &["state"], &["log"], &["checkpoint"], &["out"], &["tidemill-part"]];
    let missed: Vec<String> =
        LIES.iter().filter_map(|lies| is_found(format!("{lies:?}"), Planted::default(), lies).err()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn random_crashes() {
    let (wanted, first) = (number("TIDEMILL_CRASHES", 1_000), number("TIDEMILL_SEED", 1));
    let totals = Totals::default();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let totals = &totals;
            scope.spawn(move || {
                let mut seed = first + thread as u64;
                while totals.crashes.load(Ordering::Relaxed) < wanted {
                    plan_trials(seed, Planted::default(), &[], totals, thread)
                        .unwrap_or_else(|wrong| panic!("{wrong}"));
                    seed += 2;
                }
                totals.running[thread].store(u64::MAX, Ordering::Relaxed);
            });
        }
        scope.spawn(|| watch(&totals));
    });
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (trials, crashes, again) = (count(&totals.trials), count(&totals.crashes), count(&totals.in_recovery));
    let stops = count(&totals.stops);
    println!("{crashes} crashes and {stops} stops in {trials} trials, {again} after another, from seed {first}");
}

/// Ends the tests when a trial hangs, with its seed.
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
