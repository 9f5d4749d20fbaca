//! Full logging: what was released is in the log by what each transaction gave, wherever the power goes.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, new_machine, open_sinks, process};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_durability::{Bug, Planted, StateDirectory, Storage};
use tidemill_histories::{DataShape, History as Subjects, PlanSize, random_data, random_plan};
use tidemill_plan::{Program, analyze};
use tidemill_runtime::{Engine, EpochSize, History, Logging, Recovered};
use tidemill_sim::{Fault, SimStorage};

const PLANS: u64 = 12;
const CUTS: usize = 25;
/// The seed of a setting where records of sources are logged and checkpoints are rare.
const SETTING: u64 = 67;

/// An epoch that a sink has committed and that is neither in the checkpoint nor, by what came of it, in the log.
fn unrecorded(program: &Program, machine: &SimStorage) -> Option<u64> {
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let Ok(directory) = StateDirectory::open_as_it_is(storage.clone(), Path::new("state"), "a reader") else {
        // The power went before there was a state.
        return None;
    };
    let sinks = open_sinks(program, &storage, &directory.owner(), Planted::default()).expect("no fault");
    let released = sinks.into_iter().filter_map(|mut sink| match sink.recover().expect("no fault") {
        Recovered::Through(epoch) => epoch,
        Recovered::Forgets => unreachable!("files keep a record"),
    });
    let released = released.max().unwrap_or(0);
    let (start, mut history) = History::open(&directory, None, program, &mut |_| Ok(None)).expect("it is whole");
    let mut recorded = Vec::new();
    while let Some(epoch) = history.next_epoch().expect("it reads") {
        recorded.extend(epoch.digests);
    }
    recorded.extend(history.noted().expect("it reads"));
    let is_recorded = |epoch: &u64| {
        recorded.iter().any(|(of, digest)| of == epoch && digest.committed.len() == program.transactions.len())
    };
    (start.epoch + 1..=released).find(|epoch| !is_recorded(epoch))
}

/// The first thing wrong of many runs that the power ends.
fn trials(planted: Planted) -> Option<String> {
    (1..=PLANS).find_map(|seed| {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        if program.transactions.is_empty() {
            return None;
        }
        let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
        let fresh = || Engine::with_logging(program.clone(), Logging::Full).expect("random plans compile");
        let expected = Expected::new(Subject::new(Subjects { plan, preload, sources }));
        let epoch = EpochSize::Events(2);
        let setting = Setting { epoch, commit_age_max: Duration::ZERO, ..Setting::random(SETTING, planted) };
        let whole = new_machine(seed);
        let history = &expected.subject.history;
        let run = |engine: &Engine, machine: &SimStorage| {
            process(history, engine, &(Arc::new(machine.clone()) as Arc<dyn Storage>), &setting)
        };
        run(&fresh(), &whole).expect("no fault");
        (0..CUTS).find_map(|cut| {
            let machine = new_machine(seed * 1_000 + cut as u64);
            machine.fail(whole.call_count() * cut / CUTS, Fault::CutBefore);
            let _ = run(&fresh(), &machine);
            machine.cut_power();
            machine.heal();
            let lost = unrecorded(&program, &machine);
            lost.map(|epoch| format!("seed {seed}, cut {cut}: epoch {epoch} was released and is not in the log"))
        })
    })
}

#[test]
fn what_is_released_is_recorded() {
    assert_eq!(trials(Planted::default()), None);
}

#[test]
fn a_release_before_its_record_is_found() {
    assert!(trials(Planted::new(Bug::ReleasesUnrecorded)).is_some());
}
