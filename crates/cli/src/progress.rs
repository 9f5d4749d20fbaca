//! The progress bar, on standard error where that is a terminal.

use crate::log::spare;
use crate::text::{count, rate};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidemill_io::{SourceProgress, Unit};
use tidemill_runtime::Control;

/// Steps of the bar from empty to full.
const STEPS: u64 = 10_000;

/// The rate that is shown is that of the last second or so.
const RATE_SPAN: Duration = Duration::from_secs(1);

/// A bar that goes away when it is dropped.
pub struct Progress {
    bar: ProgressBar,
    units: Vec<Unit>,
    since: Instant,
    /// Events at `since`.
    before: u64,
    rate: f64,
}

impl Progress {
    /// Makes a bar over sources that count in `units`, if standard error is a terminal.
    pub fn new(units: &[Unit]) -> Option<Progress> {
        if !stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::no_length();
        bar.set_style(style("{spinner} {msg}"));
        spare(Some(&bar));
        Some(Progress { bar, units: units.to_vec(), since: Instant::now(), before: 0, rate: 0.0 })
    }

    /// Shows how far a run has come.
    pub fn update(&mut self, control: &Control) {
        let recovery = &control.recovery;
        let state = recovery.loading().map(|state| (state, "rows loaded"));
        if let Some(((done, in_all), what)) = state.or_else(|| Some((recovery.replaying()?, "events replayed"))) {
            self.show(done as f64 / in_all.max(1) as f64);
            self.bar.set_message(recovering(done, in_all, what));
            self.since = Instant::now();
            return self.bar.tick();
        }
        let (events, epochs) = (control.events.load(Ordering::Relaxed), control.epochs.load(Ordering::Relaxed));
        let elapsed = self.since.elapsed();
        if elapsed >= RATE_SPAN || self.rate == 0.0 {
            self.rate = (events - self.before) as f64 / elapsed.as_secs_f64().max(1e-3);
        }
        if elapsed >= RATE_SPAN {
            (self.since, self.before) = (Instant::now(), events);
        }
        let sources = control.progress.lock().clone();
        if let Some(fraction) = fraction(&sources) {
            self.show(fraction);
        }
        let bytes = read(&sources, &self.units).map_or(String::new(), |bytes| format!("{bytes}, "));
        if let Some(shortage) = control.shortage() {
            self.bar.set_message(format!("{shortage}, at {} events", count(events)));
            self.bar.tick();
            return;
        }
        self.bar.set_message(format!("{bytes}{} events, {}, {epochs} epochs", count(events), rate(self.rate)));
        self.bar.tick();
    }
}

impl Progress {
    fn show(&mut self, fraction: f64) {
        if self.bar.length().is_none() {
            self.bar.set_length(STEPS);
            self.bar.set_style(style("{bar:30} {percent}% {msg}"));
        }
        self.bar.set_position((fraction * STEPS as f64) as u64);
    }
}

/// Returns a text that says how far a run has come in going on after an earlier one.
fn recovering(done: u64, in_all: u64, what: &str) -> String {
    format!("recovering: {} of {} {what}", count(done), count(in_all))
}

impl Drop for Progress {
    fn drop(&mut self) {
        spare(None);
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template that indicatif knows")
}

/// Returns the share of all sources' input that is done, if all know their end.
fn fraction(sources: &[SourceProgress]) -> Option<f64> {
    let of = |source: &SourceProgress| match source.total {
        Some(0) => Some(1.0),
        total => total.map(|total| source.done as f64 / total as f64),
    };
    let sum: f64 = sources.iter().map(of).sum::<Option<f64>>()?;
    (!sources.is_empty()).then(|| (sum / sources.len() as f64).clamp(0.0, 1.0))
}

/// Returns the bytes read of bytes in all, of the sources that count in bytes.
fn read(sources: &[SourceProgress], units: &[Unit]) -> Option<String> {
    let files = || sources.iter().zip(units).filter(|(_, unit)| **unit == Unit::Bytes).map(|(source, _)| source);
    files().next()?;
    let done = HumanBytes(files().map(|source| source.done).sum());
    Some(match files().map(|source| source.total).sum::<Option<u64>>() {
        Some(total) => format!("{done} of {}", HumanBytes(total)),
        None => done.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery() {
        let control = Control::default();
        let progress = &control.recovery;
        assert_eq!((progress.loading(), progress.replaying()), (None, None));
        progress.rows_in_all.store(5_000_000, Ordering::Relaxed);
        progress.rows.store(1_000, Ordering::Relaxed);
        assert_eq!(progress.loading(), Some((1_000, 5_000_000)));
        progress.rows.store(5_000_000, Ordering::Relaxed);
        progress.log_bytes_in_all.store(1_000, Ordering::Relaxed);
        progress.log_bytes.store(10, Ordering::Relaxed);
        progress.events.store(300, Ordering::Relaxed);
        assert_eq!((progress.loading(), progress.replaying()), (None, Some((300, 30_000))));
        progress.done.store(true, Ordering::Relaxed);
        assert_eq!(progress.replaying(), None);
        assert_eq!(recovering(300, 30_000, "events replayed"), "recovering: 300 of 30,000 events replayed");
    }

    #[test]
    fn fractions() {
        let of = |sources: &[(u64, Option<u64>)]| {
            fraction(&sources.iter().map(|&(done, total)| SourceProgress { done, total }).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, Some(4)), (0, Some(0))]), Some(0.625));
        assert_eq!(of(&[(1, Some(4)), (3, None)]), None);
        assert_eq!(of(&[(5, Some(4))]), Some(1.0));
    }

    #[test]
    fn bytes() {
        let sources = [SourceProgress { done: 1024, total: Some(2048) }, SourceProgress { done: 7, total: None }];
        assert_eq!(read(&sources, &[Unit::Bytes, Unit::Events]).as_deref(), Some("1.00 KiB of 2.00 KiB"));
        assert_eq!(read(&sources, &[Unit::Bytes, Unit::Bytes]).as_deref(), Some("1.01 KiB"));
        assert_eq!(read(&sources, &[Unit::Events, Unit::Events]), None);
    }
}
