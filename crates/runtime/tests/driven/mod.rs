//! No result depends on where epochs are cut or on the order in which actors step.

use super::support::{Drive, Subject, with_all_sinks};
use super::{configuration, number};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tidemill_histories::{DataShape, History, Random, adversarial, mixed_plan, random_data};
use tidemill_plan::analyze;
use tidemill_runtime::{Cut, Cutter, Engine, EpochSize, Gathering, Intake, Options, Passed, RunError, Taking};
use tidemill_sim::{SimStorage, SimulatedClock, SteppedEnvironment, step_through};

/// The time to wait for a source, nanoseconds.
const POLL: u64 = 1_000_000;
/// The maximum number of events of an epoch.
const EVENTS_MAX: usize = 9;
const DATA_PER_PLAN: u64 = 5;

/// Cuts at arbitrary places: after up to a number of events, or after exact numbers of events of each source.
struct Anywhere {
    random: Random,
    /// The counts, by source, of all exact cuts. Shared with the test.
    exact: Arc<Mutex<BTreeSet<Vec<usize>>>>,
}

impl Cutter for Anywhere {
    fn gather(&mut self, intake: &mut Intake<'_>) -> Result<Gathering, RunError> {
        let is_ready = intake.gate().ready(1) > 0;
        if let Some(source) = intake.gate().slowest().filter(|_| !is_ready || self.random.chance(80)) {
            return Ok(match intake.take(source)? {
                Taking::Something => Gathering::Took,
                Taking::Nothing => Gathering::Waits(intake.now() + POLL),
                Taking::Stopped => Gathering::Over,
            });
        }
        if !is_ready && !intake.gate().has_rejects() {
            return Ok(Gathering::Over);
        }
        let events = 1 + self.random.below(EVENTS_MAX);
        if self.random.chance(50) {
            return Ok(Gathering::Cut(Cut::Most(events)));
        }
        let Passed { counts, sent, due, due_through, .. } = intake.gate().choose(events);
        self.exact.lock().expect("no panic").insert(counts.clone());
        Ok(Gathering::Cut(Cut::Exactly(Passed::new(counts, sent, due, due_through))))
    }
}

/// Calls `each` with random subjects, their engines and configurations; `TIDEMILL_HISTORIES` determines how many.
fn each_random(mut each: impl FnMut(&Subject, Engine, (Options, usize), u64) -> Engine) {
    let plans = (number("TIDEMILL_HISTORIES", 2_000) / 500).clamp(4, 60);
    for seed in 1..=plans {
        let plan = mixed_plan(seed);
        let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
        let mut engine = Engine::new(program.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        for data_seed in seed * 1_000..seed * 1_000 + DATA_PER_PLAN {
            let (preload, sources) = random_data(&program, data_seed, DataShape::random(data_seed));
            let subject = Subject::new(History { plan: plan.clone(), preload, sources });
            let configuration = configuration(&mut Random::new(data_seed));
            engine = each(&subject, engine.with_empty_tables(), configuration, data_seed);
        }
    }
}

#[test]
fn cuts_cannot_be_seen() {
    let exact = Arc::new(Mutex::new(BTreeSet::new()));
    let drive = |seed| {
        let cutter: Box<dyn Cutter> = Box::new(Anywhere { random: Random::new(seed), exact: exact.clone() });
        Drive { cutter: Some(cutter), ..Drive::default() }
    };
    each_random(|subject, engine, (options, batch_size), seed| {
        let outcome = subject.run_driven(&engine, options, batch_size, drive(seed));
        assert_eq!(subject.difference(&outcome), None, "data seed {seed}, {options:?}, batches of {batch_size}");
        engine
    });
    for (name, history) in adversarial() {
        let subject = Subject::new(history);
        let engine = Engine::new(subject.program.clone()).expect(name);
        let outcome = subject.run_driven(&engine, Options { workers: 2, ..Options::default() }, 3, drive(7));
        assert_eq!(subject.difference(&outcome), None, "{name}");
    }
    assert!(exact.lock().expect("no panic").len() > 20, "exact cuts were made");
}

#[test]
fn steps_cannot_be_seen() {
    let mut traces = BTreeSet::new();
    each_random(|subject, mut engine, (options, batch_size), seed| {
        let mut hashes = Vec::new();
        for _ in 0..2 {
            engine = engine.with_empty_tables();
            let clock = Arc::new(SimulatedClock::default());
            let (hash, steps_clock) = (Arc::new(Mutex::new(0)), clock.clone());
            let kept = hash.clone();
            let steps = move |run: &mut tidemill_runtime::Run| {
                let trace = step_through(run, seed, &steps_clock, &SimStorage::new(0));
                *kept.lock().expect("no panic") = trace.unwrap_or_else(|stuck| panic!("{stuck}")).hash();
            };
            let environment = Some(Arc::new(SteppedEnvironment::new(clock, options.workers)) as _);
            let drive = Drive { steps: Some(Box::new(steps)), environment, ..Drive::default() };
            let epoch = if seed % 3 == 0 { EpochSize::Auto } else { options.epoch };
            let outcome = subject.run_driven(&engine, Options { epoch, ..options }, batch_size, drive);
            assert_eq!(subject.difference(&outcome), None, "data seed {seed}, {options:?}, batches of {batch_size}");
            hashes.push(*hash.lock().expect("no panic"));
        }
        assert_eq!(hashes[0], hashes[1], "data seed {seed}: the same seed takes the same steps");
        traces.insert(hashes[0]);
        engine
    });
    assert!(traces.len() > 10, "seeds take steps of their own: {}", traces.len());
}
