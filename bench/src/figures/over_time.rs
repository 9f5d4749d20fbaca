//! The quantities that change as a run goes on: throughput and latency epoch by epoch, and the memory of a process of
//! its own.

use crate::memory::resident;
use crate::run::{self, Again, Arrival};
use crate::session::{Session, Way, scheduling_name};
use crate::workloads::ledger::{self, KeySpread, Shape};
use crate::workloads::{Knobs, Workload};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, EpochSize, Options, Scheduling, Scheme};

/// Events of a run whose memory is watched.
pub const MEMORY_EVENTS: usize = 1_500_000;
/// Events of an epoch there.
const MEMORY_EPOCHS: [usize; 3] = [1_024, 10_240, 81_920];
const MEMORY_ROWS: u64 = 200_000;
const SAMPLE: Duration = Duration::from_millis(5);

/// The columns of [`epochs`].
pub const EPOCHS: &str = "scheduling,load,epoch,finished_s,waited_s,took_s,events,transactions,aborted,policy,workers,accessor,access_s,decide_s,expected_s,reason";

/// A line per epoch: its number, when it was finished, how long its oldest event waited for it to be opened and how long
/// it took from then, its events, policy and number of workers, the worker that accessed it, the time of its access
/// without the sampling prefix, the time of the decision, and the expected time. `open`: repeats this with events arriving at these shares of the rate that was
/// reached, under these options.
pub fn epochs(
    workload: Workload,
    knobs: Knobs,
    ways: &[Way],
    open: (&[f64], &dyn Fn(Way) -> Options),
    out: &mut dyn Write,
) {
    let mut session = Session::new(workload, knobs);
    session.run_loop();
    session.warm_up(ways[0]);
    let (loads, options) = open;
    for &way in ways {
        let (closed, records) = session.run_recorded(way);
        write_epochs(way, None, records, out);
        for &load in loads {
            let arrival = Arrival::PerSecond(load * closed.summary.events_per_second);
            write_epochs(way, Some(load), session.run_with(way, options(way), arrival).1, out);
        }
    }
}

fn write_epochs(way: Way, load: Option<f64>, records: Vec<RecordBatch>, out: &mut dyn Write) {
    let name = scheduling_name(way.scheduling);
    let load = load.map_or(String::new(), |load| load.to_string());
    for batch in records {
        let column = |name: &str| batch.column_by_name(name).expect("a column of records");
        let ints = |name: &str| column(name).as_primitive::<Int64Type>().values();
        let text = |name: &str| column(name).as_string::<i32>();
        let (policies, reasons) = (text("policy"), text("reason"));
        let expected = column("expected_ns").as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            let [epoch, events, transactions, aborted, workers, accessor] =
                ["epoch", "events", "transactions", "aborted", "workers", "accessor"].map(|name| ints(name)[row]);
            let [finished, arrived, opened, access, decide] =
                ["finished_ns", "arrived_ns", "opened_ns", "measured_ns", "decide_ns"]
                    .map(|name| ints(name)[row] as f64 / 1e9);
            let (waited, took) = ((opened - arrived).max(0.0), finished - opened);
            let (policy, reason) = (policies.value(row), reasons.value(row).replace('"', "'"));
            let expected = expected.is_valid(row).then(|| format!("{:.6}", expected.value(row) / 1e9));
            let expected = expected.unwrap_or_default();
            writeln!(
                out,
                "\"{name}\",{load},{epoch},{finished:.6},{waited:.6},{took:.6},{events},{transactions},{aborted},\"{policy}\",{workers},{accessor},{access:.6},{decide:.6},{expected},\"{reason}\""
            )
            .expect("a file");
        }
    }
}

/// A line per sample: policy, events of an epoch, seconds, MiB; each run in a process of its own.
pub fn memory(ways: &[Way], events: usize, out: &mut dyn Write) {
    writeln!(out, "scheduling,epoch,seconds,mib").expect("a file");
    let program = std::env::current_exe().expect("this program");
    for way in ways {
        for epoch in MEMORY_EPOCHS {
            let name = scheduling_name(way.scheduling);
            let arguments = ["figures", "--events", &events.to_string(), "--memory-of", &name, &epoch.to_string()];
            let ran = Command::new(&program).args(arguments).output().expect("this program runs");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            out.write_all(&ran.stdout).expect("a file");
        }
    }
}

/// Runs Streaming Ledger and prints what this process holds beyond what it held before.
pub fn print_memory(name: &str, epoch: usize, events: usize) {
    let scheme = name.parse::<Scheme>().ok().map(Scheduling::Baseline);
    let scheduling = scheme.unwrap_or_else(|| name.parse().unwrap_or_else(|e| panic!("{e}")));
    let keys = KeySpread::Sequence;
    let shape = Shape { rows: MEMORY_ROWS, theta: 0.2, events: 1 << 16, doomed: 0.01, work: 0, keys };
    let batch = ledger::events(shape, 42);
    let engine = Engine::new(analyze(&ledger::plan(0)).expect("a valid plan")).expect("a plan that compiles");
    let before = resident();
    for table in engine.program().tables.keys() {
        let columns = &engine.program().tables[table].columns;
        let schema = tidemill_model::Schema::scalars(columns.iter().map(|c| (c.name.as_str(), c.ty)));
        ledger::initial_rows(MEMORY_ROWS, keys, &schema)
            .for_each(|b| engine.preload(table, &b).expect("distinct keys"));
    }
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let mib = resident().saturating_sub(before) as f64 / f64::from(1 << 20);
                println!("\"{name}\",{epoch},{:.3},{mib:.1}", start.elapsed().as_secs_f64());
                std::thread::sleep(SAMPLE);
            }
        });
        let options = Options { workers: 2, scheduling, epoch: EpochSize::Events(epoch), ..Options::default() };
        run::run_counted(&engine, Box::new(Again::new(batch, events)), options);
        is_over.store(true, Ordering::Relaxed);
    });
}
