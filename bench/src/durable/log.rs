//! The cost of the log: runs with and without a state, in turn.

use super::{DurableBench, EVENTS, filled, open, run_timed, source};
use crate::median::median;
use crate::workloads::ledger;
use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tidemill_connect::{source_options, standard_connectors};
use tidemill_io::Source;
use tidemill_runtime::{DurabilityOptions, Proving};

/// Events of a batch whose compression is taken for that of the input.
const COMPRESSED: usize = 1 << 16;

/// Measures the disk: syncs of little and of much.
pub fn disk(folder: &Path) {
    let path = folder.join("disk");
    let per_second = |bytes: usize| {
        let mut file = std::fs::File::create(&path).expect("a file that can be made");
        // Some disks compress, so the bytes are noise.
        let noise: Vec<u8> = (0..bytes).map(|i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect();
        let (start, mut syncs) = (Instant::now(), 0.0);
        while start.elapsed().as_secs_f64() < 1.0 {
            file.write_all(&noise).expect("room");
            file.sync_data().expect("a sync");
            syncs += 1.0;
        }
        syncs / start.elapsed().as_secs_f64()
    };
    let (little, much) = (per_second(4 << 10), per_second(1 << 20));
    println!("disk: {little:.0} syncs/s of 4 KiB, {much:.0} of 1 MiB");
    std::fs::remove_file(path).expect("our own file");
}

/// Measures the log by value, with events from memory; then by offset, with events from a CSV file.
pub fn measure(bench: &DurableBench) {
    let batch = ledger::events(bench.shape(bench.rows), 42);
    let events = bench.events;
    let bytes = compare(bench, "by value", events, &|| source(&batch, events));
    let compressed = compressed_bytes(&batch) / EVENTS.min(events) as f64;
    println!("  the input is {compressed:.1} bytes an event in Arrow IPC with LZ4: {:.2} x", bytes / compressed);
    let path = bench.folder.join("events.csv").to_string_lossy().into_owned();
    let connectors = standard_connectors();
    let spec = serde_json::from_value(serde_json::json!({ "kind": "csv", "path": path })).expect("a spec");
    let mut sink = connectors.sink(&spec).expect("csv").open(&ledger::event_schema(), None).expect("a sink");
    sink.write(&batch).expect("written");
    sink.finish().expect("finished");
    let spec = serde_json::from_value(serde_json::json!({ "kind": "csv", "paths": [path] })).expect("a spec");
    let file = connectors.source(&spec).expect("csv");
    let from_file = || file.open(&ledger::event_schema(), &source_options()).expect("a source");
    compare(bench, "by offset, from CSV", batch.num_rows(), &from_file);
}

/// Prints the rates and their ratio; the bytes logged for each event.
fn compare(bench: &DurableBench, name: &str, events: usize, source: &dyn Fn() -> Box<dyn Source>) -> f64 {
    let (mut plain, mut durable, mut whole, mut logged) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut unproven = Vec::new();
    for _ in 0..bench.runs {
        plain.push(run_timed(&filled(bench.rows), source(), None, &Arc::default()).1);
        let engine = filled(bench.rows);
        let options = DurabilityOptions { proof: Proving::Off, ..DurabilityOptions::default() };
        let durability = open(&engine, &bench.fresh("log"), options);
        unproven.push(run_timed(&engine, source(), Some(durability), &Arc::default()).1);
        let engine = filled(bench.rows);
        let durability = open(&engine, &bench.fresh("log"), DurabilityOptions::default());
        let (summary, seconds) = run_timed(&engine, source(), Some(durability), &Arc::default());
        durable.push(seconds);
        whole.push(summary.seconds);
        logged = summary.durability.expect("a durable run").log_bytes;
    }
    let rate = |seconds: &[f64]| events as f64 / median(seconds) / 1e6;
    let (a, b, bytes) = (rate(&plain), rate(&durable), logged as f64 / events as f64);
    println!("{name}: {a:.2} million events/s without state, {b:.2} with, ratio {:.2}", b / a);
    println!("  {bytes:.2} bytes logged an event, {:.0} MB/s", bytes * b);
    let c = rate(&unproven);
    println!("  {c:.2} million events/s without the chain of proof, which leaves {:.3} of the rate", b / c);
    let rest = median(&whole) - median(&durable);
    println!("  {rest:.2} s to open the state and to leave it, both with a checkpoint of all rows");
    bytes
}

fn compressed_bytes(batch: &RecordBatch) -> f64 {
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
    let options = options.expect("LZ4 is compiled in");
    let mut writer =
        StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).expect("a stream in memory");
    for from in (0..batch.num_rows()).step_by(COMPRESSED) {
        writer.write(&batch.slice(from, COMPRESSED.min(batch.num_rows() - from))).expect("written");
    }
    writer.into_inner().expect("written").len() as f64
}
