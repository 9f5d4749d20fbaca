//! Real threads, and a clock that moves each time it is read.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tidemill_histories::Random;
use tidemill_runtime::{Bell, Environment, Joined};

/// The longest time that a wait takes by the system's clock.
const MOMENT: Duration = Duration::from_millis(100);

/// A simulated clock, real threads, and any number of processors.
pub struct SimEnvironment {
    now: AtomicU64,
    step_max: u64,
    parallelism: usize,
}

impl SimEnvironment {
    /// Makes an environment; some seeds have clocks that creep, others clocks that leap.
    pub fn new(seed: u64, parallelism: usize) -> SimEnvironment {
        let step_max = 1 << Random::new(seed).below(24);
        SimEnvironment { now: AtomicU64::new(0), step_max, parallelism }
    }
}

impl Environment for SimEnvironment {
    /// Returns the time; the step of the clock is a function of the time that it showed last.
    fn now(&self) -> u64 {
        let step = |now: u64| now + 1 + Random::new(now).bits() % self.step_max;
        // The closure returns `Some` for every input.
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(step(now))).unwrap_or_default()
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        let thread = std::thread::Builder::new().name(format!("simulated {name}")).spawn(body);
        Box::new(Thread(thread.expect("the system gives a thread")))
    }

    /// After a moment in which nothing has rung, the time that is waited for has come.
    fn wait(&self, bell: &Bell, until: Option<u64>) {
        let moment = until.map(|until| Duration::from_nanos(until.saturating_sub(self.now())).min(MOMENT));
        if !bell.wait(moment)
            && let Some(until) = until
        {
            self.now.fetch_max(until, Ordering::Relaxed);
        }
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }
}

struct Thread(JoinHandle<()>);

impl Joined for Thread {
    fn join(self: Box<Self>) -> Result<(), String> {
        self.0.join().map_err(|panic| panic_message(&*panic))
    }
}

/// Returns the text of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<String>() {
        Some(message) => message.clone(),
        None => panic.downcast_ref::<&str>().map_or("a thread panicked".into(), |message| (*message).to_owned()),
    }
}
