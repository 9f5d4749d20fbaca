//! The machine as it is: its clock and its threads.

use crate::clock::SystemClock;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use tidemill_io::Clock;
use tidemill_runtime::{Environment, Joined, bind_to_node};

/// A time of day that is set by hand, for tests of applications: it stands still in between.
#[derive(Debug)]
pub struct SetTime {
    /// Microseconds since 1970.
    time: AtomicI64,
    /// Nanoseconds by which it went on.
    passed: AtomicU64,
}

impl SetTime {
    /// Begins at a time, microseconds since 1970.
    pub fn new(time: i64) -> SetTime {
        SetTime { time: AtomicI64::new(time), passed: AtomicU64::new(0) }
    }

    /// Goes on to a time. Nothing changes if it has come already.
    pub fn pass_until(&self, time: i64) {
        let before = self.time.fetch_max(time, Ordering::AcqRel);
        let nanoseconds = time.saturating_sub(before).max(0).unsigned_abs().saturating_mul(1_000);
        self.passed.fetch_add(nanoseconds, Ordering::AcqRel);
    }
}

/// Clock and threads of the operating system.
pub struct System {
    start: Instant,
    /// The time of day that a test has set, in place of the machine's.
    set: Option<Arc<SetTime>>,
    parallelism: usize,
    /// The memory nodes of each socket, by socket, a bit for each node.
    memory_nodes: OnceLock<HashMap<usize, u64>>,
}

impl System {
    /// Starts the clock.
    pub fn new() -> Self {
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        System { start: Instant::now(), set: None, parallelism, memory_nodes: OnceLock::new() }
    }

    /// Starts the clock; the time of day is the one that is set. What passes of it passes for all that waits, too.
    pub fn at(set: Arc<SetTime>) -> Self {
        System { set: Some(set), ..System::new() }
    }
}

impl Default for System {
    fn default() -> Self {
        System::new()
    }
}

impl Environment for System {
    fn now(&self) -> u64 {
        let passed = self.set.as_ref().map_or(0, |set| set.passed.load(Ordering::Acquire));
        (self.start.elapsed().as_nanos() as u64).saturating_add(passed)
    }

    fn unique(&self) -> u64 {
        crate::state::unique()
    }

    fn time(&self) -> Option<i64> {
        match &self.set {
            Some(set) => Some(set.time.load(Ordering::Acquire)),
            None => Some(SystemClock::new().time()),
        }
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> Box<dyn Joined> {
        let thread = Builder::new().name(format!("tidemill {name}")).spawn(body);
        Box::new(Thread(thread.expect("the system gives a thread")))
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }

    fn socket(&self, worker: usize, workers: usize) -> usize {
        core_of(worker, workers).map_or(0, |core| socket_of(core.id))
    }

    fn bind(&self, memory: Range<usize>, socket: usize) {
        let nodes = self.memory_nodes.get_or_init(memory_nodes);
        bind_to_node(memory, nodes.get(&socket).copied().unwrap_or_default());
    }

    fn settle(&self, worker: usize, workers: usize) {
        if let Some(core) = core_of(worker, workers) {
            core_affinity::set_for_current(core);
        }
    }
}

/// Returns the processor of a worker: as many workers as processors stay where they are; fewer are left to the system.
fn core_of(worker: usize, workers: usize) -> Option<core_affinity::CoreId> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    (workers > 1 && cores.len() == workers).then(|| cores[worker])
}

/// Returns the socket of a processor, as Linux says; elsewhere all are on one.
fn socket_of(processor: usize) -> usize {
    let file = format!("/sys/devices/system/cpu/cpu{processor}/topology/physical_package_id");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // Virtual machines may say −1.
    text.trim().parse().unwrap_or(0)
}

/// Returns the memory nodes of each socket's processors, by socket, a bit for each node, as Linux says; elsewhere
/// nothing is known.
fn memory_nodes() -> HashMap<usize, u64> {
    let mut nodes = HashMap::new();
    for core in core_affinity::get_core_ids().unwrap_or_default() {
        let folder = format!("/sys/devices/system/cpu/cpu{}", core.id);
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_prefix("node")?.parse::<u32>().ok().filter(|&node| node < u64::BITS);
        let of_core = files.filter_map(|file| number(file.file_name().to_str()?));
        *nodes.entry(socket_of(core.id)).or_default() |= of_core.fold(0, |nodes, node| nodes | 1 << node);
    }
    nodes
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
