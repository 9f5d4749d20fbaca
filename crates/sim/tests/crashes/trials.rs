//! Random trials by number, and what they share: a plan that was compiled, data that was interpreted.

use crate::support::{Subject, with_all_sinks};
use crate::trial::{Drive, Expected, Outcome, Setting, Traces, new_machine, run};
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tidemill_durability::Planted;
use tidemill_histories::{DataShape, History, PlanSize, random_data, random_plan};
use tidemill_plan::{Plan, analyze};
use tidemill_runtime::{Engine, Logging};
use tidemill_sim::{Trace, panic_message};

/// Trials per plan and data: compiling and interpreting cost more than running.
const DATA_PER_PLAN: u64 = 4;
const TRIALS_PER_DATA: u64 = 25;

/// A trial, by the numbers that all of it follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub plan: u64,
    pub data: u64,
    pub trial: u64,
}

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plan seed {}, trial seed {}", self.plan, self.trial)
    }
}

impl At {
    /// Returns all trials of a plan.
    pub fn of_plan(plan: u64) -> impl Iterator<Item = At> {
        let data = plan * 1_000..plan * 1_000 + DATA_PER_PLAN;
        data.flat_map(move |data| {
            (data * 1_000..data * 1_000 + TRIALS_PER_DATA).map(move |trial| At { plan, data, trial })
        })
    }
}

/// The bugs of a trial, made on purpose.
#[derive(Clone, Copy, Default)]
pub struct Wrongs {
    pub planted: Planted,
    /// Syncs of files and directories whose paths end like one of these do nothing.
    pub lies: &'static [&'static str],
}

/// Trials, one after another. What the last ones were made of is kept for the next.
#[derive(Default)]
pub struct Trials {
    /// A flag: whether each actor of the engine has a thread of its own. Otherwise one thread steps them all, and a
    /// trial does the same each time.
    on_threads: bool,
    traces: Traces,
    plan: Option<(u64, Plan)>,
    engine: Option<Engine>,
    expected: Option<(u64, Expected)>,
}

impl Trials {
    /// Trials on threads.
    pub fn on_threads() -> Trials {
        Trials { on_threads: true, ..Trials::default() }
    }

    /// Returns the hashes of the steps of the last trial's processes.
    pub fn steps(&self) -> Vec<u64> {
        self.traces.lock().iter().map(Trace::hash).collect()
    }

    /// Runs a trial; the error says in words what is wrong with it. A panic is one of the things that can be.
    pub fn run(&mut self, at: At, wrongs: Wrongs) -> Result<Outcome, String> {
        self.prepare(at);
        let engine = self.engine.take().expect("one was made for this plan");
        let (_, expected) = self.expected.as_ref().expect("it was made for this data");
        self.traces = Traces::default();
        let machine = new_machine(at.trial);
        wrongs.lies.iter().for_each(|end| machine.lie_about(end));
        let drive = match self.on_threads {
            true => Drive::Threads,
            false => Drive::Steps(machine.clone(), self.traces.clone()),
        };
        let setting = Setting { drive, ..Setting::random(at.trial, wrongs.planted) };
        match catch_unwind(AssertUnwindSafe(|| run(expected, engine, setting, &machine))) {
            Ok((engine, outcome)) => {
                self.engine = Some(engine);
                outcome
            }
            Err(panic) => {
                // The engine went with it.
                *self = Trials { on_threads: self.on_threads, traces: self.traces.clone(), ..Trials::default() };
                Err(format!("panic: {}", panic_message(&*panic)))
            }
        }
    }

    fn prepare(&mut self, at: At) {
        if self.plan.as_ref().is_none_or(|(seed, _)| *seed != at.plan) {
            let plan = random_plan(at.plan, PlanSize::Small);
            let program = analyze(&with_all_sinks(&plan)).expect("random plans are valid");
            let logging = if at.plan.is_multiple_of(3) { Logging::Full } else { Logging::Border };
            let engine = Engine::with_logging(program, logging);
            self.engine = Some(engine.unwrap_or_else(|e| panic!("plan seed {}: {e}", at.plan)));
            (self.plan, self.expected) = (Some((at.plan, plan)), None);
        }
        if self.expected.as_ref().is_none_or(|(seed, _)| *seed != at.data) {
            let (_, plan) = self.plan.as_ref().expect("it was made above");
            let program = self.engine.as_ref().expect("it was made above").program();
            let (preload, sources) = random_data(program, at.data, DataShape::random(at.data));
            let history = History { plan: plan.clone(), preload, sources };
            self.expected = Some((at.data, Expected::new(Subject::new(history))));
        }
    }
}
