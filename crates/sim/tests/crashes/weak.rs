//! The weaker mode: results are released before they are durable. A process that ends loses nothing; a power cut loses
//! what was not synced, which the next run reports, and the state continues from before that.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, new_machine, process};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_durability::{Planted, Storage, read_all};
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, EpochSize, Sync};
use tidemill_sim::{Fault, SimStorage};

const TRIALS: u64 = 60;

/// Returns a history of some size, as a trial that never syncs its log by itself.
fn trial(seed: u64) -> Option<(Expected, Engine, Setting)> {
    let plan = random_plan(seed, PlanSize::Small);
    let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
    let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
    if sources.iter().map(Vec::len).sum::<usize>() < 20 {
        return None;
    }
    let engine = Engine::new(program).expect("random plans compile");
    let expected = Expected::new(Subject::new(History { plan, preload, sources }));
    let setting = Setting {
        epoch: EpochSize::Events(3),
        sync: Sync::Every(Duration::from_secs(3600)),
        records: false,
        memory: None,
        // No checkpoints while epochs run, and no waiting for commits.
        seed: seed * 3,
        commit_age_max: Duration::ZERO,
        ..Setting::random(seed * 3, Planted::default())
    };
    Some((expected, engine, setting))
}

/// Runs until a fault, then to the end: the epochs that were lost, after `ends` has ended the first life.
fn lost(seed: u64, ends: fn(&SimStorage)) -> Option<u64> {
    let (expected, mut engine, setting) = trial(seed)?;
    let machine = new_machine(seed);
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let whole = new_machine(seed);
    let whole_storage: Arc<dyn Storage> = Arc::new(whole.clone());
    process(&expected.subject.history, &engine, &whole_storage, &setting).expect("no fault");
    engine = engine.with_empty_tables();
    machine.fail(whole.call_count() * 2 / 3, Fault::CutBefore);
    let ended = process(&expected.subject.history, &engine, &storage, &setting);
    ends(&machine);
    machine.heal();
    engine = engine.with_empty_tables();
    let summary = process(&expected.subject.history, &engine, &storage, &setting);
    let summary = summary.unwrap_or_else(|error| panic!("seed {seed}: {error}, after {:?}", ended.is_err()));
    assert_eq!(expected.wrong_tables(&engine), None, "seed {seed}: the state is that of the whole input");
    let lost = summary.durability.expect("a durable run").lost_epochs;
    if lost == 0 {
        let wrong = expected.wrong_outputs(|path| read_all(&machine, path), crate::trial::Whole::There);
        assert_eq!(wrong, None, "seed {seed}: nothing was lost");
    } else {
        let missing = expected.missing_lines(|path: &Path| read_all(&machine, path));
        assert_eq!(missing, None, "seed {seed}: each result is there, some of them twice");
    }
    Some(lost)
}

#[test]
fn a_power_cut_loses_what_was_not_synced_and_says_so() {
    let lost: u64 = (1..=TRIALS).filter_map(|seed| lost(seed, SimStorage::cut_power)).sum();
    assert!(lost > 0, "some were released before they were durable");
}

#[test]
fn the_end_of_a_process_loses_nothing() {
    let lost: u64 = (1..=TRIALS).filter_map(|seed| lost(seed, SimStorage::kill)).sum();
    assert_eq!(lost, 0);
}
