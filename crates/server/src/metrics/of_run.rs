//! The counts of a run: events, transactions, stages, sinks, the log, checkpoints, tables.

use super::{Labels, Metric, by, counter, gauge, histogram, one, quantity};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use tidemill_model::Type;
use tidemill_plan::{Program, Stream};
use tidemill_runtime::{GateVitals, Incident, KeyVitals, SourceSummary, Stage, Summary, Vitals, Watched};

/// Returns the counts so far; none before the run has begun. `summary`: what the session says of it, if there is one.
pub fn counted(watched: &Watched, summary: Option<Summary>) -> Vec<Metric> {
    let (Some(program), Some(vitals), Some(summary)) =
        (watched.program(), watched.vitals(), summary.or_else(|| watched.summary()))
    else {
        return Vec::new();
    };
    let mut all = of_summary(&summary);
    all.extend(of_sources(program, &vitals.gate()));
    all.extend(of_sinks(program, vitals));
    all.extend(of_state(watched, vitals));
    all.extend(of_keys(program, &vitals.keys));
    all.extend(of_tables(watched, program));
    let stages = Stage::ALL.iter().map(|&stage| (by("stage", stage.word()), vitals.stage(stage).read())).collect();
    let incident = |of: fn((u64, u64)) -> u64| {
        Incident::ALL.iter().map(|&kind| (by("incident", kind.word()), of(vitals.incidents.of(kind)))).collect()
    };
    all.extend([
        histogram("tidemill_stage_seconds", "How long epochs are in each stage.", stages),
        histogram("tidemill_event_latency_seconds", "From arrival to release.", one(vitals.latency.read())),
        counter("tidemill_incidents_total", "What the log has warned of, by kind.", incident(|(begun, _)| begun)),
        gauge(
            "tidemill_incidents_open",
            "What the log has warned of and is not over.",
            incident(|(_, lasting)| lasting),
        ),
    ]);
    // The gate is asked to measure now, so that the next request gets fresh numbers.
    vitals.ask_gate();
    all
}

fn of_summary(summary: &Summary) -> Vec<Metric> {
    let by_source = |count: fn(&SourceSummary) -> u64| {
        summary.sources.iter().map(|source| (by("source", &source.name), count(source))).collect()
    };
    let outcomes = summary.transactions.iter().flat_map(|t| {
        let of = |outcome: &str, n: u64| (vec![("transaction", t.name.clone()), ("outcome", outcome.into())], n);
        [of("committed", t.committed), of("aborted", t.aborted)]
    });
    let reasons = summary.transactions.iter().flat_map(|t| {
        let of = |(reason, n): &(String, u64)| (vec![("transaction", t.name.clone()), ("reason", reason.clone())], *n);
        t.reasons.iter().map(of)
    });
    let failed = summary.failed.iter().map(|failed| (by("stream", &failed.stream), failed.events)).collect();
    let latency = &summary.latency;
    let quantiles = [("0.5", latency.p50_ms), ("0.95", latency.p95_ms), ("0.99", latency.p99_ms)];
    let quantiles = quantiles.map(|(quantile, ms)| (by("quantile", quantile), ms / 1e3));
    vec![
        counter("tidemill_epochs_total", "Epochs released.", one(summary.epochs)),
        counter("tidemill_events_total", "Events that passed, by source.", by_source(|s| s.events)),
        counter("tidemill_late_events_total", "Late events, by source.", by_source(|s| s.late)),
        counter("tidemill_bad_records_total", "Records that could not be decoded, by source.", by_source(|s| s.bad)),
        gauge("tidemill_held_events", "Events that wait for others, by source.", by_source(|s| s.held)),
        counter("tidemill_transactions_total", "Transactions, by outcome.", outcomes.collect()),
        counter("tidemill_aborts_total", "Aborts, by reason.", reasons.collect()),
        counter("tidemill_failed_events_total", "Events for which a filter or map failed, by stream.", failed),
        quantity("tidemill_latency_seconds", "From arrival to release, since the start.", quantiles.into()),
    ]
}

/// Returns the watermark and the lag of each split, where its time is one of the day.
fn of_sources(program: &Program, gate: &GateVitals) -> Vec<Metric> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let streams: Vec<&Stream> = program.sources().collect();
    let (mut marks, mut lags) = (Vec::new(), Vec::new());
    for (number, split) in gate.splits.iter().enumerate().filter(|(_, split)| !split.mark.ended) {
        let stream = streams[split.mark.source];
        if !has_time_of_day(stream) {
            continue;
        }
        let name = split.name.clone().unwrap_or_else(|| number.to_string());
        let labels = || -> Labels { vec![("source", stream.name.clone()), ("split", name.clone())] };
        marks.extend(split.mark.low.map(|low| (labels(), low as f64 / 1e6)));
        lags.extend(split.mark.shown.map(|shown| (labels(), now - shown as f64 / 1e6)));
    }
    vec![
        quantity("tidemill_watermark_seconds", "The time below which nothing punctual comes, since 1970.", marks),
        quantity("tidemill_lag_seconds", "The newest event time, behind the clock.", lags),
    ]
}

fn has_time_of_day(stream: &Stream) -> bool {
    let field = stream.own_time().and_then(|field| stream.schema.fields[field].scalar_type());
    field.is_some_and(|field| field.ty == Type::Time)
}

fn of_sinks(program: &Program, vitals: &Vitals) -> Vec<Metric> {
    let vitals = vitals.sinks();
    let sinks = || program.sinks.iter().map(|sink| by("sink", &sink.name)).zip(&*vitals);
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    vec![
        counter(
            "tidemill_sink_events_total",
            "Events written, by sink.",
            sinks().map(|(l, s)| (l, load(&s.events))).collect(),
        ),
        counter(
            "tidemill_sink_bytes_total",
            "Bytes written, by sinks that count them.",
            sinks().map(|(l, s)| (l, load(&s.bytes))).collect(),
        ),
        counter(
            "tidemill_sink_commits_total",
            "Commits, by sink.",
            sinks().map(|(l, s)| (l, load(&s.commits))).collect(),
        ),
        histogram(
            "tidemill_sink_call_seconds",
            "How long calls of a sink take.",
            sinks().map(|(l, s)| (l, s.calls.read())).collect(),
        ),
    ]
}

/// Returns the counts of log and checkpoints, of a run with a state.
fn of_state(watched: &Watched, vitals: &Vitals) -> Vec<Metric> {
    let Some(path) = watched.state() else { return Vec::new() };
    let (log, checkpoints) = (&vitals.log, &vitals.checkpoints);
    let since = match (checkpoints.at.load(Ordering::Relaxed), watched.now()) {
        (0, _) => watched.elapsed(),
        (at, now) => now.map(|now| now.saturating_sub(at)),
    };
    let (log_bytes, other_bytes) = sizes(&path);
    vec![
        counter(
            "tidemill_log_appended_bytes_total",
            "Bytes appended to the log.",
            one(log.bytes.load(Ordering::Relaxed)),
        ),
        gauge("tidemill_log_bytes", "Bytes of the log on the disk.", one(log_bytes)),
        histogram("tidemill_log_sync_seconds", "How long syncs of the log take.", one(log.syncs.read())),
        gauge("tidemill_checkpoint_bytes", "Bytes of checkpoints and savepoints on the disk.", one(other_bytes)),
        gauge(
            "tidemill_checkpoint_epoch",
            "The epoch of the newest checkpoint of this run.",
            one(checkpoints.epoch.load(Ordering::Relaxed)),
        ),
        quantity(
            "tidemill_checkpoint_age_seconds",
            "Since the newest checkpoint, or since the start.",
            one(since.unwrap_or(0) as f64 / 1e9),
        ),
        histogram("tidemill_checkpoint_seconds", "How long checkpoints take.", one(checkpoints.taken.read())),
        counter(
            "tidemill_checkpoints_without_room_total",
            "Checkpoints without room on the disk.",
            one(checkpoints.without_room.load(Ordering::Relaxed)),
        ),
    ]
}

/// Returns the metrics of the keys of calls; none where calls have no keys.
fn of_keys(program: &Program, keys: &KeyVitals) -> Vec<Metric> {
    if !program.sources().any(|source| source.remembers().is_some()) {
        return Vec::new();
    }
    let load = |count: &std::sync::atomic::AtomicU64| one(count.load(Ordering::Relaxed));
    vec![
        gauge("tidemill_keys_in_memory", "Keys of calls in memory.", load(&keys.in_memory)),
        gauge("tidemill_keys_on_disk", "Keys of calls in checkpoints.", load(&keys.on_disk)),
        gauge("tidemill_keys_disk_bytes", "Bytes of keys and answers in checkpoints.", load(&keys.disk_bytes)),
        gauge(
            "tidemill_keys_filter_bytes",
            "Bytes of filters and indexes of these, in memory.",
            load(&keys.filter_bytes),
        ),
        counter("tidemill_key_lookups_total", "Keys of calls that were looked up.", load(&keys.looked_up)),
        counter("tidemill_key_lookups_in_vain_total", "Those that were not there.", load(&keys.found_nothing)),
        counter(
            "tidemill_keys_refused_total",
            "Calls refused because too many keys are kept, or looked up.",
            load(&keys.refused),
        ),
    ]
}

fn of_tables(watched: &Watched, program: &Program) -> Vec<Metric> {
    let (mut bytes, mut rows, mut windows) = (Vec::new(), Vec::new(), Vec::new());
    for (id, table) in program.tables.iter_enumerated() {
        let Some(stats) = watched.table_stats(id) else { continue };
        bytes.push((by("table", &table.name), (stats.row_bytes + stats.index_bytes) as u64));
        if table.is_hidden {
            windows.push((by("window", &table.name), stats.slots as u64));
        } else {
            rows.push((by("table", &table.name), stats.slots as u64));
        }
    }
    vec![
        gauge("tidemill_table_bytes", "Bytes of rows and indexes in memory, by table.", bytes),
        gauge("tidemill_table_slots", "Slots of rows in memory, by table.", rows),
        gauge("tidemill_open_windows", "Groups of open windows in memory, by the table of their parts.", windows),
    ]
}

/// Returns the bytes of the log's files below a state, and of its other files.
fn sizes(path: &Path) -> (u64, u64) {
    let (mut log, mut others, mut folders) = (0, 0, vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) if is_of_log(&entry.path()) => log += metadata.len(),
                Ok(metadata) => others += metadata.len(),
                Err(_) => {}
            }
        }
    }
    (log, others)
}

fn is_of_log(path: &Path) -> bool {
    path.parent().and_then(Path::file_name).is_some_and(|folder| folder == "log")
}
