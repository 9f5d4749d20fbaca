//! The log of a run: a line for each event of `tracing`, as text or as a JSON object, on standard error.
//!
//! The log is the default subscriber of `tracing` on the threads that speak of the run: that of the command, and that of the
//! run's watcher ([`crate::watch`]). It has no spans. A thread of its own writes the lines, and nobody waits for it. A process that has a subscriber of its own has these events, too.

use crate::log_writer::{Around, LogWriter};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use std::io::{Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidemill_connect::time_text;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber, level_filters::LevelFilter};

/// The longest that one waits for the log to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The target of events that are for people who run an application.
pub const TARGET: &str = "tidemill";

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Time, level, message, fields.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The least level of what is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures that end the run.
    Error,
    /// Conditions that need attention.
    Warn,
    /// Events of a run as a whole.
    Info,
    /// Everything.
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> LevelFilter {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        }
    }
}

/// A subscriber of `tracing` that writes lines.
pub struct Log {
    format: LogFormat,
    level: LevelFilter,
    /// The id of the run, which each line has.
    run: String,
    /// A flag: whether notes and warnings of the command are lines of the log.
    takes_notes: bool,
    writer: LogWriter,
    /// Lines for which there was no room, and which nobody was told of.
    left_out: AtomicU64,
    /// The bar that a line must not be written into.
    bar: Arc<Mutex<Option<ProgressBar>>>,
}

impl Log {
    /// Returns a log on standard error. `takes_notes`: whether notes and warnings of the command are lines of it, too;
    /// so they are in JSON, with its errors.
    pub fn to_stderr(format: LogFormat, level: LevelFilter, takes_notes: bool) -> Log {
        Log::to(Box::new(stderr()), format, level, takes_notes)
    }

    fn to(out: Box<dyn Write + Send>, format: LogFormat, level: LevelFilter, takes_notes: bool) -> Log {
        let bar: Arc<Mutex<Option<ProgressBar>>> = Arc::default();
        let shown = bar.clone();
        let around: Around = Box::new(move |write| {
            let bar = shown.lock().clone();
            match bar {
                Some(bar) => bar.suspend(write),
                None => write(),
            }
        });
        Log {
            format,
            level,
            run: run_id(SystemTime::now(), std::process::id()),
            takes_notes: takes_notes || format == LogFormat::Json,
            writer: LogWriter::start(out, around),
            left_out: AtomicU64::new(0),
            bar,
        }
    }

    /// Waits until what was logged is written, but not for long: perhaps nobody takes it.
    pub fn flush(&self) {
        self.writer.flush(FLUSH_MAX);
    }

    /// Has a line written, after a word on those that were left out before.
    fn write(&self, line: String) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 && !self.writer.write(self.word_on(left_out)) {
            self.left_out.fetch_add(left_out, Ordering::Relaxed);
        }
        if !self.writer.write(line) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn word_on(&self, left_out: u64) -> String {
        let fields = Fields {
            message: "lines of the log were left out, since nobody took them in time".into(),
            others: vec![("lines".into(), left_out.into())],
        };
        self.formatted(fields, Level::WARN, now())
    }

    fn line(&self, event: &Event<'_>, time: i64) -> String {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.formatted(fields, *event.metadata().level(), time)
    }

    fn formatted(&self, fields: Fields, level: Level, time: i64) -> String {
        let (time, level) = (time_text(time), level_word(level));
        match self.format {
            LogFormat::Json => {
                let mut line = Map::new();
                line.insert("time".into(), time.into());
                line.insert("level".into(), level.into());
                line.insert("message".into(), fields.message.into());
                line.insert("run".into(), self.run.clone().into());
                line.extend(fields.others);
                Value::Object(line).to_string() + "\n"
            }
            LogFormat::Text => {
                let mut line = format!("{time} {level:<5} {}", one_line(&fields.message));
                for (name, value) in &fields.others {
                    let _ = write!(line, " {name}={}", shown(value));
                }
                let _ = writeln!(line, " run={}", self.run);
                line
            }
        }
    }
}

/// Calls a function with the log of this thread, if it has one of ours. Returns the function's result.
pub fn with_log<T>(look: impl FnOnce(&Log) -> T) -> Option<T> {
    let mut look = Some(look);
    tracing::dispatcher::get_default(|dispatch: &Dispatch| {
        let log: &Log = dispatch.downcast_ref()?;
        look.take().map(|look| look(log))
    })
}

/// Returns whether notes and warnings of the command are lines of the log.
pub fn takes_notes() -> bool {
    with_log(|log| log.takes_notes).unwrap_or(false)
}

/// Returns whether all that the command says is JSON.
pub fn is_json() -> bool {
    with_log(|log| log.format == LogFormat::Json).unwrap_or(false)
}

/// Waits until what was logged is written, so that what is said next stands after it.
pub fn flush() {
    with_log(Log::flush);
}

/// Has lines not written into a bar, as long as there is one.
pub fn spare(bar: Option<&ProgressBar>) {
    with_log(|log| *log.bar.lock() = bar.cloned());
}

/// Returns the time of the day, microseconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}

/// Returns an id for a run that others hardly have.
fn run_id(now: SystemTime, process: u32) -> String {
    let nanoseconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mixed = (nanoseconds ^ u64::from(process).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:012x}", mixed >> 16)
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// Returns a text without line breaks, so that a line of the log is one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join(" ")
}

/// Returns a value of a field, with quotes where it would not be one word.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if is_word(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=')
}

/// The message and the fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name.into(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with(TARGET) && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.write(self.line(event, now()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Bytes that a test reads.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that are logged meanwhile.
    pub fn logged(format: LogFormat, level: LevelFilter, work: impl FnOnce()) -> Vec<String> {
        let written = Written::default();
        let log = Log { run: "7".into(), ..Log::to(Box::new(written.clone()), format, level, true) };
        let dispatch = Dispatch::new(log);
        tracing::dispatcher::with_default(&dispatch, || {
            work();
            flush();
        });
        let text = String::from_utf8(written.0.lock().clone()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    fn say() {
        tracing::info!(target: TARGET, sink = "out put", seconds = 1.5, epoch = 7_u64, "it is slow,\nvery");
        tracing::debug!(target: TARGET, "not heard");
        tracing::info!(target: "others", "not ours");
    }

    #[test]
    fn a_line_of_text() {
        let lines = logged(LogFormat::Text, LevelFilter::INFO, say);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let (time, rest) = lines[0].split_once(' ').expect("a time first");
        assert!(time.ends_with('Z') && time.starts_with("20"), "{time}");
        assert_eq!(rest, r#"info  it is slow, very sink="out put" seconds=1.5 epoch=7 run=7"#);
    }

    #[test]
    fn a_line_of_json() {
        let lines = logged(LogFormat::Json, LevelFilter::INFO, say);
        let line: Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!((&line["level"], &line["message"]), (&"info".into(), &"it is slow,\nvery".into()));
        assert_eq!((&line["sink"], &line["seconds"], &line["epoch"]), (&"out put".into(), &1.5.into(), &7.into()));
        assert_eq!(line["run"], "7");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')));
    }

    #[test]
    fn levels() {
        let of = |level: LogLevel| {
            let lines = logged(LogFormat::Text, level.into(), || {
                tracing::error!(target: TARGET, "e");
                tracing::warn!(target: TARGET, "w");
                tracing::info!(target: TARGET, "i");
                tracing::debug!(target: TARGET, "d");
            });
            lines.len()
        };
        let levels = [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];
        assert_eq!(levels.map(of), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn runs_have_ids_of_their_own() {
        let now = SystemTime::now();
        assert_ne!(run_id(now, 1), run_id(now, 2));
        assert_eq!(run_id(now, 1).len(), 12);
    }
}
