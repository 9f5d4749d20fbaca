//! A run's summary for people.

use crate::job::source_streams;
use crate::log::TARGET;
use crate::text::{count, counted, rate, seconds, time};
use std::fmt::Write;
use tidemill_model::Type;
use tidemill_plan::{Origin, Owner, Program, Stream, StreamId, StreamPart, Transaction, TransactionPart, unread_late};
use tidemill_runtime::{DurabilitySummary, SourceSummary, Summary};
use tracing::info;

/// Logs the end of a run.
pub fn log_end(summary: &Summary) {
    let Summary { events, epochs, seconds, stopped, .. } = *summary;
    info!(target: TARGET, application = summary.application, events, epochs, seconds, stopped, "the run has ended");
}

/// The fewest late events of which is warned, and of how many events one is then late.
const LATE_MIN: u64 = 10;
const LATE_SHARE: u64 = 100;

/// Warnings of sources of which many events were late, and nothing reads them.
pub fn late_warnings(summary: &Summary, program: &Program) -> Vec<String> {
    let streams = program.streams.iter_enumerated().filter(|(_, s)| matches!(s.origin, Origin::Source { .. }));
    let warning = |(source, (id, _)): (&SourceSummary, (StreamId, &Stream))| {
        let (late, of) = (source.late, source.events + source.late);
        let are_many = late >= LATE_MIN && late * LATE_SHARE > of;
        let unread = unread_late(program, id).filter(|_| are_many)?;
        let (late, of, name) = (count(late), counted(of, "event"), &source.name);
        Some(format!(
            "{late} of {of} of source '{name}' were late, and nothing reads '{unread}': read it, or allow more lateness"
        ))
    };
    summary.sources.iter().zip(streams).filter_map(warning).collect()
}

/// Returns the summary as text. `scheduling`: also how epochs were scheduled.
pub fn readable(summary: &Summary, program: &Program, scheduling: bool) -> String {
    let mut text = format!(
        "{}: {} in {}, {}\n",
        summary.application,
        counted(summary.events, "event"),
        seconds(summary.seconds),
        rate(summary.events_per_second)
    );
    for source in &summary.sources {
        let _ = writeln!(text, "  source {}: {}", source.name, source_counts(source));
        if let Some(waits) = &source.waits {
            let _ = writeln!(text, "    {waits}");
        }
    }
    for transaction in &summary.transactions {
        let name = &transaction.name;
        let of = program.transactions.iter().find(|of| of.name == *name);
        if of.is_some_and(Transaction::is_hidden) && transaction.aborted == 0 {
            continue;
        }
        let (committed, aborted) = (count(transaction.committed), count(transaction.aborted));
        let owner = of.and_then(|of| of.owner).map(|owner| (owner.part, &program.operators[owner.operator].name));
        let _ = match owner {
            Some((TransactionPart::Early, window)) => {
                writeln!(text, "  window {window}: {committed} early, {aborted} of them failed")
            }
            Some((TransactionPart::Function, window)) => {
                writeln!(text, "  window {window}: {committed} closed, {aborted} failed")
            }
            _ => writeln!(text, "  transaction {name}: {committed} committed, {aborted} aborted"),
        };
        for (reason, events) in &transaction.reasons {
            let _ = writeln!(text, "    {} {reason}", count(*events));
        }
    }
    for failed in &summary.failed {
        let _ = writeln!(text, "  stream {}: {} failed", failed.stream, count(failed.events));
    }
    for left_out in &summary.left_out {
        let times = count(left_out.times);
        let of = program.streams.iter().find(|stream| stream.name == left_out.stream);
        let _ = match of.and_then(|stream| stream.owner) {
            Some(Owner { operator, part: StreamPart::Boundaries }) => {
                let window = &program.operators[operator].name;
                writeln!(text, "  window {window}: {times} closes without events left out, in long gaps")
            }
            _ => writeln!(text, "  stream {}: {times} ticks left out, in long gaps", left_out.stream),
        };
    }
    let latency = &summary.latency;
    let _ = writeln!(
        text,
        "  {}, latency p50 {}, p99 {}",
        counted(summary.epochs, "epoch"),
        seconds(latency.p50_ms / 1e3),
        seconds(latency.p99_ms / 1e3)
    );
    for policy in summary.policies.iter().filter(|_| scheduling) {
        let (epochs, access) = (counted(policy.epochs, "epoch"), seconds(policy.access_seconds));
        let group = policy.group.as_ref().map_or(String::new(), |group| format!(" for {group}"));
        let workers = match policy.workers {
            0 | 1 => String::new(),
            workers => format!(" on {}", counted(workers, "worker")),
        };
        let _ = write!(text, "    {epochs} as {}{workers}{group}, {access} of access: {}", policy.policy, policy.why);
        if policy.redone > 0 {
            let _ = write!(text, "; {} run again after an abort", counted(policy.redone, "transaction"));
        }
        text.push('\n');
    }
    if let Some(durability) = &summary.durability {
        state(&mut text, durability);
    }
    if summary.stopped {
        stops(&mut text, summary, program);
    }
    text
}

fn source_counts(source: &SourceSummary) -> String {
    let mut text = counted(source.events, "event");
    for (number, what) in [(source.late, "late"), (source.bad, "bad")] {
        if number > 0 {
            let _ = write!(text, ", {} {what}", count(number));
        }
    }
    if source.ended_before {
        text.push_str("; it had ended for good before");
    }
    text
}

/// Returns a text that says for what the held events of a source wait, and what releases them.
pub fn waits(source: &SourceSummary, stream: &Stream) -> Option<String> {
    let by = source.held_by.as_deref()?;
    let ty = stream.event_time.and_then(|field| stream.schema.fields[field].scalar_type()).map_or(Type::Int, |t| t.ty);
    let held = counted(source.held, "event");
    let may_come = match (source.held_until, source.held_from) {
        (Some(until), Some(from)) => {
            format!("{held} held, up to {}: {by} may still have an event from {} on", time(until, ty), time(from, ty))
        }
        (Some(until), None) => format!("{held} held, up to {}: {by} has had no event yet", time(until, ty)),
        (None, _) => format!("{held} held: it takes turns with {by}, which has had no more"),
    };
    Some(format!("{may_come}; more events of {by} release them, or --final (final=True)"))
}

/// Appends the lines about a durable run's state.
fn state(text: &mut String, durability: &DurabilitySummary) {
    let _ = writeln!(text, "  state: epoch {}, {} bytes logged", count(durability.epoch), count(durability.log_bytes));
    if let Some(memory) = durability.memory {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let _ = writeln!(
            text,
            "  memory: at most {} of {} MiB, {} read, {} evicted, {} of them written",
            mib(memory.peak),
            mib(memory.limit),
            counted(memory.fetched, "row"),
            count(memory.evicted),
            count(memory.spilled)
        );
    }
    if let Some(every) = durability.sync_seconds {
        let every = seconds(every);
        let _ = writeln!(text, "  results were released before they were durable: a sync every {every}");
    }
    if durability.is_behind {
        text.push_str(
            "  there was no room for a last checkpoint: the next run replays the log after the checkpoint before\n",
        );
    }
    if durability.lost_epochs > 0 {
        let _ = writeln!(
            text,
            "  lost: {} had been released before they were durable; input that can be read again was taken again, and its \
             results may be there twice",
            counted(durability.lost_epochs, "epoch")
        );
    }
    if durability.replayed_epochs > 0 {
        let (epochs, events) =
            (counted(durability.replayed_epochs, "epoch"), counted(durability.replayed_events, "event"));
        let _ =
            writeln!(text, "  recovered: {epochs} with {events} replayed in {}", seconds(durability.recovery_seconds));
    }
}

/// Writes where each source stands after an interruption.
fn stops(text: &mut String, summary: &Summary, program: &Program) {
    text.push_str("stopped before the end; the last epoch is whole and all sinks are closed\n");
    for (source, stream) in summary.sources.iter().zip(source_streams(program)) {
        let _ = write!(text, "  source {} stopped after {}", source.name, counted(source.events, "event"));
        if let (Some(last), Some(field)) = (source.last_time, stream.event_time) {
            let ty = stream.schema.fields[field].scalar_type().map_or(Type::Int, |t| t.ty);
            let _ = write!(text, ", at {}", time(last, ty));
        }
        if source.held > 0 && source.waits.is_none() {
            let _ = write!(text, "; {} more were read but not processed", count(source.held));
        }
        text.push('\n');
    }
}
