//! The machine as it is: its clock and its threads.

use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use tidemill_runtime::{Environment, Joined};

/// Clock and threads of the operating system.
pub struct System {
    start: Instant,
    parallelism: usize,
}

impl System {
    /// Starts the clock.
    pub fn new() -> Self {
        System { start: Instant::now(), parallelism: std::thread::available_parallelism().map_or(1, usize::from) }
    }
}

impl Default for System {
    fn default() -> Self {
        System::new()
    }
}

impl Environment for System {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        let thread = Builder::new().name(format!("tidemill {name}")).spawn(body);
        Box::new(Thread(thread.expect("the system gives a thread")))
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// As many workers as processors stay where they are; fewer are left to the system.
    fn settle(&self, worker: usize, workers: usize) {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        if workers > 1 && cores.len() == workers {
            core_affinity::set_for_current(cores[worker]);
        }
    }
}

struct Thread(JoinHandle<()>);

impl Joined for Thread {
    fn join(self: Box<Self>) -> Result<(), String> {
        self.0.join().map_err(|panic| match panic.downcast_ref::<String>() {
            Some(message) => message.clone(),
            None => panic.downcast_ref::<&str>().map_or("a thread panicked".into(), |m| (*m).to_owned()),
        })
    }
}
