//! Full logging: what was released is in the log by what each transaction gave, wherever the power goes.

use crate::search::Search;
use crate::support::{Subject, with_all_sinks};
use crate::trial::{Expected, Setting, new_machine, open_sinks, process};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_durability::{Bug, Planted, StateDirectory, Storage};
use tidemill_histories::{DataShape, History as Subjects, PlanSize, random_data, random_plan};
use tidemill_io::Recovered;
use tidemill_plan::{Program, analyze};
use tidemill_runtime::{Engine, EpochSize, History, Logging, RunError};
use tidemill_sim::{Fault, SimStorage};

const PLANS: u64 = 12;
const CUTS: usize = 25;
/// The seed of a setting where records of sources are logged and checkpoints are rare.
const SETTING: u64 = 67;

/// Returns an epoch that a sink has committed and that is neither in the checkpoint nor, by what came of it, in the
/// log.
fn unrecorded(program: &Program, machine: &SimStorage) -> Option<u64> {
    let storage: Arc<dyn Storage> = Arc::new(machine.clone());
    let Ok(directory) = StateDirectory::open_as_it_is(storage.clone(), Path::new("state"), "a reader") else {
        // The power went before there was a state.
        return None;
    };
    let sinks = open_sinks(program, &storage, &directory).expect("no fault");
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

/// A plan with its data, and how many calls its run makes.
struct Scene {
    program: Program,
    expected: Expected,
    calls: usize,
}

impl Scene {
    /// Makes the scene of a seed; none if there are no transactions.
    fn new(seed: u64) -> Option<Scene> {
        let plan = random_plan(seed, PlanSize::Small);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        if program.transactions.is_empty() {
            return None;
        }
        let (preload, sources) = random_data(&program, seed, DataShape::random(seed));
        let expected = Expected::new(Subject::new(Subjects { plan, preload, sources }));
        let whole = new_machine(seed);
        let mut scene = Scene { program, expected, calls: 0 };
        scene.run(&whole, Planted::default()).expect("no fault");
        scene.calls = whole.call_count();
        Some(scene)
    }

    fn run(&self, machine: &SimStorage, planted: Planted) -> Result<(), RunError> {
        let engine = Engine::with_logging(self.program.clone(), Logging::Full).expect("random plans compile");
        let epoch = EpochSize::Events(2);
        let setting = Setting { epoch, commit_age_max: Duration::ZERO, ..Setting::random(SETTING, planted) };
        let storage: Arc<dyn Storage> = Arc::new(machine.clone());
        process(&self.expected.subject.history, &engine, &storage, &setting).map(drop)
    }

    /// Runs until the power ends. Returns what is wrong then.
    fn cut(&self, seed: u64, cut: usize, planted: Planted) -> Result<(), String> {
        let machine = new_machine(seed * 1_000 + cut as u64);
        machine.fail(self.calls * cut / CUTS, Fault::CutBefore);
        // It ends with the power, or just before.
        let _ = self.run(&machine, planted);
        machine.cut_power();
        machine.heal();
        match unrecorded(&self.program, &machine) {
            None => Ok(()),
            Some(epoch) => Err(format!("epoch {epoch} was released and is not in the log")),
        }
    }
}

#[test]
fn what_is_released_is_recorded() {
    for seed in 1..=PLANS {
        let Some(scene) = Scene::new(seed) else { continue };
        for cut in 0..CUTS {
            assert_eq!(scene.cut(seed, cut, Planted::default()), Ok(()), "seed {seed}, cut {cut}");
        }
    }
}

#[test]
fn a_release_before_its_record_is_found() {
    let bug = Planted::new(Bug::ReleasesUnrecorded);
    let mut search = Search::new(bug, &["was released and is not in the log"]);
    let found = (1..=PLANS).any(|seed| {
        Scene::new(seed).is_some_and(|scene| {
            let run = |cut, planted| scene.cut(seed, cut, planted);
            (0..CUTS).any(|cut| search.finds((seed, cut), run(cut, bug), || run(cut, Planted::default())))
        })
    });
    assert!(found, "{}", search.missed());
}
