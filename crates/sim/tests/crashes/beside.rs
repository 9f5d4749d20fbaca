//! A state that is verified while a run goes on with it, on threads: the reader meets each checkpoint, each new segment
//! and each file that is removed between any two of its calls.
//!
//! What a reader was told is durable is there after a power cut. Damage is reported while a run holds the state, too.

use crate::number;
use crate::support::{Subject, with_all_sinks};
use crate::trial::{Drive, Expected, START, Setting, Whole, new_machine, process, records_again};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidemill_audit::{AuditError, Verified, verify};
use tidemill_durability::{Planted, StateDirectory, StateError, Storage, read_all};
use tidemill_histories::{DataShape, History, PlanSize, Random, random_data, random_plan};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, EpochSize, Sync};
use tidemill_sim::{Fault, SimStorage};

/// The number of a history's records: a run takes longer than a reader.
const EVENTS: usize = 600;

/// Returns a view of the state, verified from its newest checkpoint or from the savepoint at its beginning; none while
/// there is no state.
fn look(
    history: &History,
    machine: &SimStorage,
    setting: &Setting,
    from: Option<&str>,
) -> Result<Option<Verified>, AuditError> {
    match StateDirectory::view(Arc::new(machine.clone()), Path::new("state")) {
        Ok(view) => verify(&view, from, &records_again(history, setting)).map(Some),
        Err(StateError::Refused(why)) if why.starts_with("there is no state") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns a history with an engine for it.
fn a_history(seed: u64) -> (History, Engine) {
    let plan = random_plan(seed, PlanSize::Small);
    let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
    let shape = DataShape::random(seed);
    let (preload, sources) = random_data(&program, seed, DataShape { events_max: EVENTS, ..shape });
    (History { plan, preload, sources }, Engine::new(program).expect("random plans compile"))
}

/// Seeds whose runs begin with a savepoint and take checkpoints.
fn seeds() -> impl Iterator<Item = u64> {
    let first = number("TIDEMILL_SEED", 1);
    let count = number("TIDEMILL_THREAD_CRASHES", 300) / 10;
    (first..).filter(|seed| seed.is_multiple_of(4) && !seed.is_multiple_of(3)).take(count.clamp(5, 300) as usize)
}

fn is_weak(seed: u64) -> bool {
    seed.is_multiple_of(8)
}

fn setting_of(seed: u64) -> Setting {
    // With rare syncs much of the log is not durable when the power goes.
    let sync = if is_weak(seed) { Sync::Every(Duration::from_millis(20)) } else { Sync::Epoch };
    Setting { epoch: EpochSize::Events(3), drive: Drive::Threads, sync, ..Setting::random(seed, Planted::default()) }
}

/// Counts of what the readers of all runs have seen.
#[derive(Debug, Default)]
struct Seen {
    views: u64,
    beside: u64,
    epochs: u64,
    crashes: u64,
}

fn has_no_savepoint(error: &AuditError) -> bool {
    matches!(error, AuditError::State(StateError::Refused(why)) if why.contains("has no savepoint"))
}

/// Verifies a state until its run has ended; the last epoch that was said to be durable.
fn watch(history: &History, machine: &SimStorage, setting: &Setting, is_over: &AtomicBool, seen: &mut Seen) -> u64 {
    let mut through = 0;
    let mut turn = 0;
    while !is_over.load(Ordering::Acquire) {
        turn += 1;
        match look(history, machine, setting, (turn % 3 > 0).then_some(START)) {
            Ok(Some(verified)) => {
                through = through.max(verified.through);
                seen.views += 1;
                seen.beside += u64::from(verified.in_use_by.is_some());
                seen.epochs += verified.through - verified.from;
            }
            Ok(None) => {}
            Err(_) if machine.is_off() => break,
            // The savepoint is made just after the state has begun.
            Err(error) if has_no_savepoint(&error) => {}
            Err(error) => panic!("seed {}: {error}", setting.seed),
        }
    }
    through
}

#[test]
fn a_state_is_verified_beside_the_run() {
    let mut seen = Seen::default();
    for seed in seeds() {
        let (history, engine) = a_history(seed);
        let (setting, machine, is_over) = (setting_of(seed), new_machine(seed), AtomicBool::new(false));
        let mut random = Random::new(seed);
        if random.chance(50) {
            // The reader makes calls, too, so it is anywhere in the run.
            machine.fail(200 + random.below(4_000), Fault::CutBefore);
        }
        let expected = Expected::new(Subject::new(history));
        let history = &expected.subject.history;
        let (through, ended) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let ended = process(history, &engine, &(Arc::new(machine.clone()) as _), &setting);
                is_over.store(true, Ordering::Release);
                ended.is_ok()
            });
            let through = watch(history, &machine, &setting, &is_over, &mut seen);
            (through, writer.join().expect("no panic"))
        });
        machine.heal();
        if machine.is_off() || !ended {
            seen.crashes += 1;
            machine.cut_power();
            let after = match look(history, &machine, &setting, Some(START)) {
                // The power was cut before the savepoint was made.
                Err(error) if has_no_savepoint(&error) => look(history, &machine, &setting, None),
                after => after,
            };
            let after = after.expect("it is whole").map_or(0, |verified| verified.through);
            assert!(through <= after, "seed {seed}: epoch {through} was durable, and the log ends with {after}");
            if is_weak(seed) {
                // Results that were released and lost are released again.
                continue;
            }
            let engine = engine.with_empty_tables();
            process(history, &engine, &(Arc::new(machine.clone()) as _), &setting).expect("no fault");
            assert_eq!(expected.wrong_tables(&engine), None, "seed {seed}");
        }
        let wrong = expected.wrong_outputs(|path| read_all(&machine, path), Whole::There);
        assert_eq!(wrong, None, "seed {seed}: the reader has disturbed the run");
    }
    println!("{seen:?}");
    assert!(seen.beside > 0 && seen.epochs > 0, "{seen:?}");
}

/// Returns a run of a seed that has ended, and what a reader finds after it; none where there is little to verify.
fn ended(seed: u64) -> Option<(History, SimStorage, Setting, Verified)> {
    let (history, engine) = a_history(seed);
    let (setting, machine) = (Setting { memory: None, ..setting_of(seed) }, new_machine(seed));
    process(&history, &engine, &(Arc::new(machine.clone()) as _), &setting).expect("no fault");
    let sound = look(&history, &machine, &setting, Some(START)).expect("it is whole").expect("it is there");
    (sound.tables_compared && sound.through > 10).then_some((history, machine, setting, sound))
}

#[test]
fn damage_is_reported_while_a_run_holds_the_state() {
    let (history, machine, setting, sound) = seeds().find_map(ended).expect("some run has epochs to verify");
    let is_held = |path: &Path| path.starts_with("state/log") || path.starts_with("state/checkpoint");
    let files: Vec<_> = machine.files().into_iter().filter(|(path, _)| is_held(path)).collect();
    let last =
        files.iter().map(|(path, _)| path).rfind(|path| path.starts_with("state/log")).expect("a segment").clone();
    let (mut found, mut random) = (0, Random::new(setting.seed));
    for (path, bytes) in files {
        for byte in [0, bytes.len() / 2, random.below(bytes.len()), bytes.len() - 1] {
            let damaged = machine.copy();
            let storage: Arc<dyn Storage> = Arc::new(damaged.clone());
            let _run = StateDirectory::open_as_it_is(storage, Path::new("state"), "a run").expect("nobody holds it");
            damaged.flip(&path, byte, 3);
            let verified = look(&history, &damaged, &setting, Some(START));
            match verified {
                Err(_) => found += 1,
                Ok(verified) => {
                    let verified = verified.expect("it is there");
                    assert_eq!(verified.in_use_by.as_deref(), Some("a run"));
                    // The end of the log may not be known to be durable; padding is in no check of a run's blocks.
                    let is_end = path == last && verified.through >= sound.from;
                    let is_padding = path.starts_with("state/checkpoint") && verified.tables == sound.tables;
                    assert!(is_end || is_padding, "byte {byte} of {}", path.display());
                }
            }
        }
    }
    assert!(found > 10, "{found} were reported");
}
