//! The cost of the log: runs with and without a state, in turn.

use super::{DurableBench, EVENTS, filled, open, run_timed, source};
use crate::median::median;
use crate::workloads::ledger;
use arrow_array::RecordBatch;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tidemill_connect::{source_options, standard_connectors};
use tidemill_io::Source;
use tidemill_runtime::{DurabilityOptions, Proving};

/// Syncs that are measured of each kind, one after the other, before those of the other kind; and how often.
const BLOCK: usize = 40;
const ROUNDS: usize = 50;
/// Events of a batch whose compression is taken for that of the input.
const COMPRESSED: usize = 1 << 16;

/// Measures the disk: syncs of little and of much; and, in turn, what a sync of a few records takes at the end of a file that
/// grows with them, and within one that has zeros there, as the log has.
pub fn disk(folder: &Path) {
    let path = folder.join("disk");
    let per_second = |bytes: usize| {
        let mut file = File::create(&path).expect("a file that can be made");
        let noise = noise(bytes);
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
    for bytes in [400, 1 << 10, 4 << 10] {
        let [grows, filled] = placed(&path, bytes);
        println!(
            "  a sync of {bytes} bytes, median of {}: {grows:.0} us where the file grows, {filled:.0} us on zeros",
            ROUNDS * BLOCK
        );
    }
    std::fs::remove_file(path).expect("our own file");
}

/// Returns bytes that no disk compresses.
fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}

/// Returns the median microseconds of a write with its sync at the end of a file, and within zeros.
fn placed(path: &Path, bytes: usize) -> [f64; 2] {
    let (noise, ends) = (noise(bytes), bytes * ROUNDS * BLOCK);
    let files = [path.with_extension("grows"), path.with_extension("filled")];
    let opened = files.each_ref().map(|path| File::create(path).expect("a file that can be made"));
    for at in (0..ends).step_by(4 << 10) {
        opened[1].write_all_at(&[0; 4 << 10], at as u64).expect("room");
    }
    opened[1].sync_all().expect("a sync");
    let mut taken = [Vec::new(), Vec::new()];
    for place in 0..ROUNDS {
        for (file, taken) in opened.iter().zip(&mut taken) {
            for at in (place * BLOCK..(place + 1) * BLOCK).map(|at| at * bytes) {
                let start = Instant::now();
                file.write_all_at(&noise, at as u64).expect("room");
                file.sync_data().expect("a sync");
                taken.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    files.iter().for_each(|path| std::fs::remove_file(path).expect("our own file"));
    taken.map(|taken| median(&taken))
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
