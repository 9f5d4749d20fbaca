//! A state ten times as large as the memory for it, against the same state in memory.

use super::{DurableBench, empty, filled, open, run_with, source};
use crate::median::median;
use crate::memory::{peak, reset_peak, resident};
use crate::workloads::ledger;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidemill_runtime::{Control, DurabilityOptions, Options};

/// The size of the state as a multiple of the limit.
const TIMES: usize = 10;

/// Makes a state with the ledger's rows; prints what they take in memory.
pub fn make(bench: &DurableBench, state: &Path) {
    let engine = filled(bench.larger_rows);
    let tables = engine.program().tables.keys();
    let bytes: usize =
        tables.map(|table| engine.table_stats(table)).map(|stats| stats.row_bytes + stats.index_bytes).sum();
    let batch = ledger::events(bench.shape(bench.larger_rows), 45);
    let durability = open(&engine, state, DurabilityOptions::default());
    // No event is taken: the source has not ended.
    let control = Arc::new(Control::default());
    control.stop();
    run_with(&engine, source(&batch, 1), Some(durability), &control, Options::default());
    println!("{bytes}");
}

/// Runs on a copy of a state, once with little memory and once with all; prints rates and memory.
pub fn measure(bench: &DurableBench) {
    let template = bench.fresh("larger");
    // In a process of its own, so that this one never had all rows before the runs that must not.
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["durable", "--larger-rows", &bench.larger_rows.to_string(), "--events", "1000", "--make"]);
    let made = command.arg(&template).output().expect("it starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bytes: usize = String::from_utf8_lossy(&made.stdout).trim().parse().expect("a number");
    let limit = bytes / TIMES;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "{} rows take {:.0} MiB in memory; the limit is {:.0}",
        bench.larger_rows,
        mib(bytes as u64),
        mib(limit as u64)
    );
    for &theta in &bench.larger_theta {
        // All of them made: where events came again, what they touch would be less than all rows.
        let shape = ledger::Shape { theta, events: bench.events, ..bench.shape(bench.larger_rows) };
        let batch = ledger::events(shape, 46);
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..bench.runs {
            for (which, memory) in [Some(limit), None].into_iter().enumerate() {
                let events = bench.events;
                let state = bench.fresh("copy");
                copy(&template, &state);
                let before = resident();
                reset_peak();
                let engine = empty();
                let durability = open(&engine, &state, DurabilityOptions::default());
                let options = Options { memory, ..Options::default() };
                let (summary, seconds) =
                    run_with(&engine, source(&batch, events), Some(durability), &Arc::default(), options);
                assert_eq!(summary.events, events as u64, "all of them");
                let durable = summary.durability.as_ref().expect("a durable run");
                if let Some(memory) = durable.memory.filter(|_| round == 0) {
                    let whole = peak().saturating_sub(before);
                    println!(
                        "  theta {theta}: rows and indexes took {:.1} MiB at the most ({:.2} x the limit), the run {:.0} MiB; \
                         {:.2} rows read an event, {} evicted, {} of them written, {} checkpoints",
                        mib(memory.peak),
                        memory.peak as f64 / limit as f64,
                        mib(whole),
                        memory.fetched as f64 / events as f64,
                        memory.evicted,
                        memory.spilled,
                        durable.checkpoints
                    );
                }
                rates[which].push(events as f64 / seconds);
            }
        }
        let [little, all] = rates.map(|rates| median(&rates) / 1e6);
        println!(
            "  theta {theta}: {little:.2} million events/s with the limit, {all:.2} without, ratio {:.2}",
            little / all
        );
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        if path.is_dir() { copy(&path, &to) } else { _ = std::fs::copy(&path, &to).expect("room") }
    }
}
