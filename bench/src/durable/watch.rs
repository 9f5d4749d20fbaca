//! Samples of the results that are released, over time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_runtime::Control;

/// Watches what is released while a checkpoint is taken: from when it was due until the manifest changes.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<(Duration, u64, bool)>>,
}

impl Watch {
    /// Watches a run whose checkpoint is due after this many events.
    pub fn start(control: Arc<Control>, manifest: PathBuf, due: u64) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = stop.clone();
        let watch = move || {
            let (start, mut samples) = (Instant::now(), Vec::new());
            let written = || std::fs::metadata(&manifest).and_then(|m| m.modified()).ok();
            let (mut before, mut done) = (None, false);
            while !ends.load(Ordering::Relaxed) {
                let events = control.events.load(Ordering::Relaxed);
                if events >= due && before.is_none() {
                    before = written();
                }
                done |= before.is_some() && before != written();
                samples.push((start.elapsed(), events, before.is_some() && !done));
                std::thread::sleep(Duration::from_micros(500));
            }
            samples
        };
        Watch { stop, thread: std::thread::spawn(watch) }
    }

    /// Prints what it saw.
    pub fn report(self) {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.thread.join().expect("it only looks");
        let moved = |during: bool| {
            let (mut last, mut gaps, mut time, mut events) = (samples[0], Vec::new(), Duration::ZERO, 0);
            for pair in samples.windows(2).filter(|pair| pair[1].1 > 0) {
                if pair[1].2 == during && pair[0].2 == during && pair[0].1 > 0 {
                    time += pair[1].0 - pair[0].0;
                    events += pair[1].1 - pair[0].1;
                }
                if pair[1].1 > pair[0].1 {
                    if last.2 == during && last.1 > 0 {
                        gaps.push(pair[1].0 - last.0);
                    }
                    last = pair[1];
                }
            }
            gaps.sort();
            (events as f64 / time.as_secs_f64() / 1e6, time.as_secs_f64(), gaps)
        };
        for (name, during) in [("without a checkpoint", false), ("during a checkpoint", true)] {
            let (rate, seconds, gaps) = moved(during);
            let at = |share: f64| gaps.get((gaps.len() as f64 * share) as usize).copied().unwrap_or_default();
            println!(
                "  {name}: {rate:.2} million events/s over {seconds:.2} s; nothing released for {:.1} ms (median), \
                 {:.1} ms (99th percentile), {:.1} ms at the most",
                at(0.5).as_secs_f64() * 1e3,
                at(0.99).as_secs_f64() * 1e3,
                gaps.last().copied().unwrap_or_default().as_secs_f64() * 1e3,
            );
        }
    }
}
