//! A run that is killed, and how long the next one takes until it is where that one was.

use super::{Durable, empty, filled, open, run, source};
use crate::workloads::ledger;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidemill_runtime::{Control, DurabilityOptions};

/// No checkpoint but the first and the last.
fn options() -> DurabilityOptions {
    DurabilityOptions { checkpoint_events: u64::MAX, checkpoint_log_bytes: u64::MAX, ..DurabilityOptions::default() }
}

/// A run on a state until it is killed; says how many events were released, again and again.
pub fn live(bench: &Durable, state: &Path) {
    let batch = ledger::events(bench.shape(bench.checkpoint_rows), 44);
    let engine = filled(bench.checkpoint_rows);
    let durability = open(&engine, state, options());
    let control = Arc::new(Control::default());
    let watched = control.clone();
    std::thread::spawn(move || {
        loop {
            println!("{}", watched.events.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    run(&engine, source(&batch, usize::MAX), Some(durability), &control);
}

/// Kills one after so many seconds of events, and goes on.
pub fn measure(bench: &Durable) {
    let state = bench.fresh("recovery");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["durable", "--theta", &bench.theta.to_string()]);
    command.args(["--events", &bench.events.to_string(), "--checkpoint-rows", &bench.checkpoint_rows.to_string()]);
    let mut child = command.arg("--live").arg(&state).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // Rows are filled in and first written before any event is released.
    let (mut began, mut released) = (None, 0u64);
    for line in lines {
        released = line.expect("a line").parse().expect("a number");
        if released > 0 && began.get_or_insert_with(Instant::now).elapsed().as_secs_f64() >= bench.seconds {
            break;
        }
    }
    let seconds = began.expect("events were released").elapsed().as_secs_f64();
    child.kill().expect("it runs");
    let _ = child.wait();
    let live = released as f64 / seconds;
    println!("killed after {seconds:.1} s: {released} events released, {:.2} million events/s", live / 1e6);

    let engine = empty();
    let durability = open(&engine, &state, options());
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
    let batch = ledger::events(bench.shape(bench.checkpoint_rows), 44);
    let summary = run(&engine, source(&batch, usize::MAX), Some(durability), &control);
    let (loaded, whole) = watch.join().expect("it only looks");
    let replayed = summary.durability.expect("a durable run").replayed_events;
    let rate = replayed as f64 / (whole - loaded);
    println!(
        "recovered in {whole:.2} s: {} rows loaded in {loaded:.2} s, {replayed} events replayed at {:.2} million/s, \
         {:.2} x the live rate",
        bench.checkpoint_rows,
        rate / 1e6,
        rate / live
    );
}
