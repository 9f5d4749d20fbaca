//! A run that is killed, and how long the next one takes until it is where that one was.

use super::{DurableBench, empty, open, run, source};
use crate::workloads::ledger;
use arrow_array::RecordBatch;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidemill_runtime::{Control, DurabilityOptions, Engine};

/// No checkpoint but the first and the last.
fn options() -> DurabilityOptions {
    DurabilityOptions { checkpoint_events: u64::MAX, checkpoint_log_bytes: u64::MAX, ..DurabilityOptions::default() }
}

/// A run on a state until it is killed; says how many events were released, again and again.
pub fn live(engine: &Engine, batch: &RecordBatch, state: &Path) {
    let durability = open(engine, state, options());
    let control = Arc::new(Control::default());
    let watched = control.clone();
    std::thread::spawn(move || {
        loop {
            println!("{}", watched.events.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    run(engine, source(batch, usize::MAX), Some(durability), &control);
}

/// Starts one as a process and kills it when it has run for long enough: how many events it released, and in how many
/// seconds.
pub fn killed(live: &mut Command, is_enough: impl Fn(f64, u64) -> bool) -> (u64, f64) {
    let mut child = live.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // Rows are filled in and first written before any event is released.
    let (mut began, mut released) = (None, 0u64);
    for line in lines {
        released = line.expect("a line").parse().expect("a number");
        if released > 0 && is_enough(began.get_or_insert_with(Instant::now).elapsed().as_secs_f64(), released) {
            break;
        }
    }
    let seconds = began.expect("events were released").elapsed().as_secs_f64();
    child.kill().expect("it runs");
    let _ = child.wait();
    (released, seconds)
}

/// The time and work of a recovery after a kill.
pub struct Recovered {
    /// Seconds until rows were loaded, and until everything was replayed.
    pub loaded: f64,
    pub whole: f64,
    /// Events that were replayed.
    pub events: u64,
}

/// Goes on with a state until it is where an earlier run was.
pub fn recover(engine: &Engine, batch: &RecordBatch, state: &Path) -> Recovered {
    let durability = open(engine, state, options());
    let control = Arc::new(Control::default());
    let start = Instant::now();
    let watched = control.clone();
    let watch = std::thread::spawn(move || {
        let progress = &watched.recovery;
        let mut loaded = None;
        while !progress.done.load(Ordering::Relaxed) {
            if loaded.is_none() && progress.log_bytes_in_all.load(Ordering::Relaxed) > 0 {
                loaded = Some(start.elapsed().as_secs_f64());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        watched.stop();
        (loaded.unwrap_or_default(), start.elapsed().as_secs_f64())
    });
    let summary = run(engine, source(batch, usize::MAX), Some(durability), &control);
    let (loaded, whole) = watch.join().expect("it only looks");
    let replayed = summary.durability.expect("a durable run").replayed_events;
    Recovered { loaded, whole, events: replayed }
}

/// Kills a run after this number of seconds of events, and goes on.
pub fn measure(bench: &DurableBench) {
    let state = bench.fresh("recovery");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["durable", "--theta", &bench.theta.to_string()]);
    command.args(["--events", &bench.events.to_string(), "--checkpoint-rows", &bench.checkpoint_rows.to_string()]);
    let (released, seconds) = killed(command.arg("--live").arg(&state), |seconds, _| seconds >= bench.seconds);
    let live = released as f64 / seconds;
    println!("killed after {seconds:.1} s: {released} events released, {:.2} million events/s", live / 1e6);
    let batch = ledger::events(bench.shape(bench.checkpoint_rows), 44);
    let Recovered { loaded, whole, events } = recover(&empty(), &batch, &state);
    let rate = events as f64 / (whole - loaded);
    println!(
        "recovered in {whole:.2} s: {} rows loaded in {loaded:.2} s, {events} events replayed at {:.2} million/s, \
         {:.2} x the live rate",
        bench.checkpoint_rows,
        rate / 1e6,
        rate / live
    );
}
