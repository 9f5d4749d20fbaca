//! The machine as it is: its clock and its threads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use tidemill_runtime::{Environment, Joined, bind_to_node};

/// Clock and threads of the operating system.
pub struct System {
    start: Instant,
    parallelism: usize,
    /// By socket: its memory nodes, a bit each.
    memory_nodes: OnceLock<HashMap<usize, u64>>,
}

impl System {
    /// Starts the clock.
    pub fn new() -> Self {
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        System { start: Instant::now(), parallelism, memory_nodes: OnceLock::new() }
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

/// The processor of a worker: as many workers as processors stay where they are; fewer are left to the system.
fn core_of(worker: usize, workers: usize) -> Option<core_affinity::CoreId> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    (workers > 1 && cores.len() == workers).then(|| cores[worker])
}

/// The socket of a processor, as Linux says; elsewhere all are on one.
fn socket_of(processor: usize) -> usize {
    let file = format!("/sys/devices/system/cpu/cpu{processor}/topology/physical_package_id");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // Virtual machines may say −1.
    text.trim().parse().unwrap_or(0)
}

/// By socket: the memory nodes of its processors, a bit each, as Linux says; elsewhere nothing is known.
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
