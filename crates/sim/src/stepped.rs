//! A run of the engine on one thread, its actors stepped in the order of a seed, over simulated time.

use crate::clock::SimulatedClock;
use crate::environment::panic_message;
use crate::stepper::{Stepped, Stepper, Stuck};
use crate::storage::SimStorage;
use crate::trace::Trace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tidemill_runtime::{ActorName, Bell, Environment, Joined, Progress, Run};

/// A run takes far fewer steps than this.
const STEPS_MAX: u64 = 10_000_000;

/// The machine of such a run: a simulated clock, and what would be threads done at once, where they are begun.
pub struct SteppedEnvironment {
    clock: Arc<SimulatedClock>,
    parallelism: usize,
}

impl SteppedEnvironment {
    /// Makes a machine with a number of processors, as far as the engine can see.
    pub fn new(clock: Arc<SimulatedClock>, parallelism: usize) -> SteppedEnvironment {
        SteppedEnvironment { clock, parallelism }
    }
}

impl Environment for SteppedEnvironment {
    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn spawn(&self, _: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        let ended = catch_unwind(AssertUnwindSafe(body));
        Box::new(Ended(ended.map_err(|panic| panic_message(&*panic))))
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }

    fn wait(&self, _: &Bell, _: Option<u64>) {
        unreachable!("actors that are stepped do not block")
    }
}

/// An actor that has ended, which would have been a thread.
struct Ended(Result<(), String>);

impl Joined for Ended {
    fn join(self: Box<Self>) -> Result<(), String> {
        self.0
    }
}

/// Steps a run until it is over, in the order of a seed. Its environment must be a [`SteppedEnvironment`] over this
/// clock, and its storage this one.
pub fn step_through(
    run: &mut Run,
    seed: u64,
    clock: &Arc<SimulatedClock>,
    storage: &SimStorage,
) -> Result<Trace, Box<Stuck>> {
    let actors = run.actors();
    let mut stepped = SteppedRun { run, actors, storage };
    Stepper::new(seed, clock.clone(), STEPS_MAX).run(&mut stepped)
}

struct SteppedRun<'a> {
    run: &'a mut Run,
    actors: Vec<ActorName>,
    storage: &'a SimStorage,
}

impl Stepped for SteppedRun<'_> {
    fn names(&self) -> Vec<String> {
        self.actors.iter().map(|actor| format!("{actor:?}")).collect()
    }

    fn step(&mut self, actor: usize) -> Progress {
        self.run.step(self.actors[actor])
    }

    fn is_over(&self) -> bool {
        self.run.is_over()
    }

    fn calls(&self) -> usize {
        self.storage.call_count()
    }
}
