//! The memory that a whole run holds, beside the rows that live: the process's peak from before the tables are filled
//! to after the last epoch, with nothing else in the process.

use crate::run::{self, Again};
use crate::workloads::ledger::{self, KeySpread, Shape};
use tidemill_plan::analyze;
use tidemill_runtime::{Engine, Options};

/// Events of a batch that the source hands over again and again.
const BATCH: usize = 1 << 16;
/// Bytes of a row's values, key included.
const LIVE: u64 = 16;
/// The memory that may be held: a multiple of the live rows, and a constant for epochs in flight.
const ROWS_MAX: u64 = 3;
const EPOCHS_MAX: u64 = 256 << 20;

/// Measures a run of `events` events, one line per number of rows.
pub fn measure(rows: &[u64], keys: KeySpread, events: usize) {
    println!("{:>10} | {:>9} {:>9} {:>9} | memory, MiB", "rows", "live", "peak", "allowed");
    for &rows in rows {
        let mib = |bytes: u64| bytes >> 20;
        let (live, peak) = (rows * LIVE, peak_of(rows, keys, events));
        let allowed = ROWS_MAX * live + EPOCHS_MAX;
        let verdict = if peak <= allowed { "within" } else { "above" };
        println!("{rows:>10} | {:>9} {:>9} {:>9} | {verdict}", mib(live), mib(peak), mib(allowed));
    }
}

fn peak_of(rows: u64, keys: KeySpread, events: usize) -> u64 {
    let batch = ledger::events(Shape { rows, theta: 0.2, events: BATCH, doomed: 0.01, work: 0, keys }, 42);
    let before = resident();
    reset_peak();
    let engine = Engine::new(analyze(&ledger::plan(0)).expect("a valid plan")).expect("a plan that compiles");
    for table in engine.program().tables.keys() {
        let columns = &engine.program().tables[table].columns;
        let schema = tidemill_model::Schema::scalars(columns.iter().map(|c| (c.name.as_str(), c.ty)));
        ledger::initial_rows(rows, keys, &schema).for_each(|b| engine.preload(table, &b).expect("distinct keys"));
    }
    let (summary, _) = run::run_counted(&engine, Box::new(Again::new(batch, events)), Options::default());
    assert!(summary.events >= events as u64, "a run over all events");
    peak().saturating_sub(before)
}

/// Returns the bytes of the process in memory now.
pub fn resident() -> u64 {
    status("VmRSS:")
}

/// Returns the most that [`resident`] was since [`reset_peak`].
pub fn peak() -> u64 {
    status("VmHWM:")
}

/// Lets [`peak`] begin anew.
pub fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("a system that counts peaks");
}

fn status(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a system that counts memory");
    let found = status.lines().find_map(|l| l.strip_prefix(line)).expect("a line of the status");
    found.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}
