//! The steps of one transaction: what it read, required, wrote and emitted, or why it aborted. The reference
//! interpreter runs it again on the state that it found.

use crate::chain::head_of;
use crate::error::AuditError;
use crate::position::{At, EventPosition};
use crate::walk::{OpenSource, Untaken, Walk, WhyUntaken, is_named, recorded_program, source_streams};
use std::fmt::Write;
use tidemill_connect::time_text;
use tidemill_durability::StateDirectory;
use tidemill_model::{FieldType, Schema, Type, Value, format_decimal};
use tidemill_plan::{Column, Origin, Program, RoleId, Stream, Table, Transaction, expression_text};
use tidemill_reference::{NextEvent, Step, TransactionTrace, window_text};

/// Returns the transactions of the events at a position, as text. Searches the log after the newest checkpoint first,
/// then after each savepoint that keeps its log, from the newest to the oldest.
pub fn show(directory: &StateDirectory, position: &EventPosition, open: OpenSource<'_>) -> Result<String, AuditError> {
    let mut starts = vec![None];
    let mut savepoints = directory.savepoints()?;
    savepoints.sort_by_key(|savepoint| std::cmp::Reverse(savepoint.manifest.checkpoint.epoch));
    starts.extend(savepoints.into_iter().filter(|savepoint| directory.has_log_after(savepoint)).map(Some));
    let mut searched = Vec::new();
    for start in &starts {
        let from = start.as_ref().map(|savepoint| directory.open_savepoint(savepoint)).transpose()?;
        let program = recorded_program(from.as_ref().unwrap_or(directory))?;
        let (text, epochs) = search(directory, from.as_ref(), &program, position, open)?;
        if !text.is_empty() {
            return Ok(text);
        }
        searched.push(format!("{} to {}", epochs.0 + 1, epochs.1));
    }
    let position = position_text(&recorded_program(directory)?, position);
    let in_use =
        directory.writer().map(|writer| format!(", by what was known to be durable: it is in use by {writer}"));
    Err(AuditError::Unknown(format!(
        "{position} is not in the log, which was searched in the epochs {}{}; a savepoint keeps the log after it",
        searched.join(", then "),
        in_use.unwrap_or_default()
    )))
}

/// Returns the text about the events at a position, which is empty where there are none, and the epochs searched: after
/// the first, up to the second.
fn search(
    directory: &StateDirectory,
    from: Option<&StateDirectory>,
    program: &Program,
    position: &EventPosition,
    open: OpenSource<'_>,
) -> Result<(String, (u64, u64)), AuditError> {
    let (source, split) = source_of(program, position)?;
    if matches!(position.at, At::Time(_)) && time_type(program, source).is_none() {
        let name = &position.source;
        let text = format!("the events of '{name}' have no event time; give the number of one, such as {name}:17");
        return Err(AuditError::Unknown(text));
    }
    let mut walk = Walk::begin(directory, from, program, open)?;
    let first = walk.epoch;
    // Events after a change of the program are not this program's.
    let own = from.and_then(StateDirectory::manifest).map(|manifest| manifest.changes.len());
    let end = own.and_then(|own| directory.manifest().and_then(|manifest| manifest.changes.get(own).copied()));
    let (mut text, mut last) = (String::new(), None);
    let mut wanted = wanted_splits(&walk, position, source, split)?;
    let field = source_streams(program).nth(source).and_then(|stream| stream.event_time);
    let time_of = |event: &[Value]| field.and_then(|field| event[field].word());
    while end != Some(walk.epoch) {
        let (mut untaken, before) = (Vec::new(), text.len());
        let found = walk.next_epoch(&mut |event| {
            let is_it = match position.at {
                At::Offset(wanted) => wanted == event.offset,
                At::Time(time) => time_of(&event.event) == Some(time),
            };
            if event.source == source && is_it {
                untaken.push(event);
            }
        })?;
        let Some(epoch) = found else { break };
        wanted = wanted_splits(&walk, position, source, split)?;
        let is_wanted = |split: usize| wanted.as_ref().is_none_or(|wanted| wanted.contains(&split));
        for event in untaken.into_iter().filter(|event| is_wanted(event.split)) {
            text.push_str(&untaken_text(program, &event, &walk.origin(source, event.split)));
        }
        while let Some(mut next) = walk.next_event() {
            walk.reference.fill(&mut next);
            let is_it = next.position.source as usize == source
                && is_wanted(next.split)
                && match position.at {
                    At::Offset(offset) => next.is_known && next.position.offset == offset,
                    At::Time(time) => time_of(&next.event) == Some(time),
                };
            if is_it {
                text.push_str(&event_text(
                    program,
                    &next,
                    &walk.origin(source, next.split),
                    (epoch.number, walk.reference.anchored()),
                ));
                let traces = walk.reference.process_traced(next);
                if traces.is_empty() {
                    text.push_str("it reached no transaction\n");
                }
                traces.iter().for_each(|trace| trace_text(&mut text, program, trace));
            } else {
                walk.reference.process(next);
            }
        }
        program.streams.keys().for_each(|stream| drop(walk.reference.take_output(stream)));
        if text.len() > before {
            last = Some(epoch.number);
        }
        if matches!(position.at, At::Offset(_)) && !text.is_empty() {
            break;
        }
    }
    if let Some(head) = last.map_or(Ok(None), |last| head_of(directory, from, last))? {
        let _ = writeln!(text, "head of the chain of proof after this epoch: {head}");
    }
    match split.filter(|_| wanted.is_some_and(|wanted| wanted.is_empty())) {
        Some(split) => Err(AuditError::Unknown(unknown_split(&walk, source, split))),
        None => Ok((text, (first, walk.epoch))),
    }
}

/// Returns the source of a position, and the split that it names. The name of a source may have a slash, too.
fn source_of<'a>(program: &Program, position: &'a EventPosition) -> Result<(usize, Option<&'a str>), AuditError> {
    let numbered = |name: &str| source_streams(program).position(|stream| stream.name == name);
    let split = position.split.as_deref();
    let whole = split.and_then(|split| numbered(&format!("{}/{split}", position.source)));
    let source = whole.map(|source| (source, None)).or_else(|| Some((numbered(&position.source)?, split)));
    source.ok_or_else(|| {
        let names: Vec<&str> = source_streams(program).map(|stream| stream.name.as_str()).collect();
        AuditError::Unknown(format!("there is no source '{}'; sources: {}", position.source, names.join(", ")))
    })
}

/// Returns the splits of a source that a position means; none for all.
fn wanted_splits(
    walk: &Walk<'_>,
    position: &EventPosition,
    source: usize,
    split: Option<&str>,
) -> Result<Option<Vec<usize>>, AuditError> {
    let names = walk.names(source);
    let Some(split) = split else {
        if matches!(position.at, At::Offset(_)) && names.len() > 1 {
            let (name, count) = (&position.source, names.len());
            let first = walk.origin(source, 0);
            return Err(AuditError::Unknown(format!(
                "source '{name}' has {count} splits, and each counts its own events; name one, such as {first}:17"
            )));
        }
        return Ok(None);
    };
    let named = names.iter().enumerate().filter(|(_, name)| is_named(name, split));
    let named: Vec<usize> = named.map(|(number, _)| number).collect();
    match &named[..] {
        [first, second, ..] => Err(AuditError::Unknown(format!(
            "'{split}' is the end of several names of splits, such as {} and {}; give more of it",
            names[*first], names[*second]
        ))),
        _ => Ok(Some(named)),
    }
}

/// Returns the message for a split that a source does not have.
fn unknown_split(walk: &Walk<'_>, source: usize, split: &str) -> String {
    const NAMED_MAX: usize = 8;
    let names = walk.names(source);
    let name = &source_streams(walk.program()).nth(source).expect("it was looked up").name;
    let more = if names.len() > NAMED_MAX { ", ..." } else { "" };
    match names.len() {
        0 => format!("source '{name}' has no splits; give {name}:17"),
        _ => format!(
            "source '{name}' has no split '{split}'; splits: {}{more}",
            names[..names.len().min(NAMED_MAX)].join(", ")
        ),
    }
}

/// Returns the type of a source's event times.
fn time_type(program: &Program, source: usize) -> Option<Type> {
    let stream = source_streams(program).nth(source)?;
    stream.schema.fields[stream.event_time?].scalar_type().map(|ty| ty.ty)
}

/// Returns a position as people write it: with a time in the source's unit.
fn position_text(program: &Program, position: &EventPosition) -> String {
    let source = source_streams(program).position(|stream| stream.name == position.source);
    match (&position.at, source.and_then(|source| time_type(program, source))) {
        (At::Time(time), Some(Type::Time)) => format!("{}@{}", position.source, time_text(*time)),
        _ => position.to_string(),
    }
}

/// Returns a difference of event times of the type.
fn span_text(span: i64, ty: Type) -> String {
    if ty == Type::Time { format!("{} s", span as f64 / 1e6) } else { span.to_string() }
}

fn untaken_text(program: &Program, Untaken { source, offset, event, why, .. }: &Untaken, origin: &str) -> String {
    let stream = source_streams(program).nth(*source).expect("it was looked up");
    let why = match why {
        WhyUntaken::Late => format!("came too late{}", why_late(stream, origin)),
        WhyUntaken::Bad(reason) => format!("is a bad record: {reason}"),
    };
    format!("{origin}:{offset} {why}\n  {}\n", fields_text(&stream.schema, event))
}

/// Returns the reason why an event of a source is late.
fn why_late(stream: &Stream, origin: &str) -> String {
    let Origin::Source { lateness, .. } = stream.origin else { unreachable!("a source's stream") };
    let Some(field) = stream.event_time.map(|field| &stream.schema.fields[field]) else { return String::new() };
    let whose = if origin == stream.name { "the source" } else { "the split" };
    let span = span_text(lateness.abs(), field.scalar_type().map_or(Type::Int, |ty| ty.ty));
    let how = if lateness < 0 { format!("less than {span} after") } else { format!("more than {span} before") };
    format!(": its {} is {how} the greatest that {whose} had shown", field.name)
}

/// Returns the time at which an event of a source stands that has none of its own, with its type, where sources have times.
fn anchored_time(program: &Program, stream: &Stream, anchor: Option<i64>) -> Option<(i64, Type)> {
    let is_without = matches!(stream.origin, Origin::Source { .. }) && stream.event_time.is_none();
    let timed = program.sources().find_map(|other| Some(&other.schema.fields[other.event_time?]));
    let ty = timed.and_then(|field| field.scalar_type()).filter(|_| is_without)?.ty;
    Some((anchor?, ty))
}

/// Returns the text about an event, which is of this epoch. Events that are sent stand at this time.
fn event_text(program: &Program, next: &NextEvent, origin: &str, (epoch, anchor): (u64, Option<i64>)) -> String {
    let stream = &program.streams[next.root];
    let mut text = origin.to_owned();
    if next.is_known {
        let _ = write!(text, ":{}", next.position.offset);
    }
    if let Some(field) = stream.event_time {
        let ty = stream.schema.fields[field].scalar_type().map_or(Type::Int, |ty| ty.ty);
        let _ = write!(text, " at {}", value_text(&next.event[field], ty));
    } else if let Some((time, ty)) = anchored_time(program, stream, anchor) {
        let _ = write!(text, " at {}", value_text(&Value::from_word(ty, time), ty));
    }
    let _ = write!(text, ", in epoch {epoch}");
    let stream = match stream.origin {
        Origin::LateRoot(source) => {
            let source = &program.streams[source];
            let _ = write!(text, ", where it stands, as it came too late{}", why_late(source, origin));
            source
        }
        _ => stream,
    };
    let _ = writeln!(text, "\n  {}", fields_text(&stream.schema, &next.event));
    text
}

fn trace_text(text: &mut String, program: &Program, trace: &TransactionTrace) {
    let transaction = &program.transactions[trace.transaction];
    let _ = match (trace.aborted, trace.undone_with) {
        (None, Some(root)) => {
            let root = &program.transactions[root].name;
            writeln!(text, "transaction {}: undone, as {root} aborted, in which it is nested", transaction.name)
        }
        (None, None) => writeln!(text, "transaction {}: committed", transaction.name),
        (Some(reason), _) => {
            let reason = &transaction.reasons[reason as usize];
            writeln!(text, "transaction {}: aborted, and nothing of it was done: {reason}", transaction.name)
        }
    };
    let _ = writeln!(text, "  on {}", fields_text(&transaction.schema, &trace.event));
    for step in &trace.steps {
        let _ = writeln!(text, "  {}", step_text(program, transaction, step));
    }
}

fn step_text(program: &Program, transaction: &Transaction, step: &Step) -> String {
    let table = |role: &RoleId| &program.tables[transaction.roles[*role].table];
    let column = |role: &RoleId, column: usize| {
        let column = &table(role).columns[column];
        (format!("{}.{}", transaction.roles[*role].name, column.name), column)
    };
    let row = |role: &RoleId, key: Option<&[Value]>| match key {
        Some(key) => format!("{} {}", table(role).name, key_text(table(role), key)),
        None => format!("no row of {}, as the key is None", table(role).name),
    };
    match step {
        Step::Read { role, key, exists, column: c, value } => {
            let (name, column) = column(role, *c);
            let row = row(role, key.as_deref());
            let absent = if *exists || key.is_none() { "" } else { ", which is not there" };
            match value {
                Some(value) => format!("read {name} = {} of {row}{absent}", cell_text(value, column)),
                None => format!("could not read {name} of {row}{absent}"),
            }
        }
        Step::Looked { role, key, exists } => {
            let name = &transaction.roles[*role].name;
            let is = if *exists { "is" } else { "is not" };
            format!("asked whether {name} exists: {} {is} there", row(role, key.as_deref()))
        }
        Step::Required { condition, held, .. } => {
            let condition = expression_text(program, transaction, condition);
            let held = match held {
                Some(true) => "which held",
                Some(false) => "which did not hold",
                None => "which could not be evaluated",
            };
            format!("required {condition}, {held}")
        }
        Step::Wrote { role, key, column: c, value } => {
            let (name, column) = column(role, *c);
            format!("wrote {name} = {} of {}", cell_text(value, column), row(role, Some(key)))
        }
        Step::Inserted { role, row } => {
            let table = table(role);
            format!("inserted {} into {}: {}", transaction.roles[*role].name, table.name, row_text(table, row))
        }
        Step::Deleted { role, key } => format!("deleted {}", row(role, Some(key))),
        Step::Emitted { stream, event } => {
            let stream = &program.streams[*stream];
            format!("emitted on {}: {}", stream.name, fields_text(&stream.schema, event))
        }
    }
}

fn key_text(table: &Table, key: &[Value]) -> String {
    let values = table.key.iter().zip(key).map(|(&c, value)| value_text(value, table.columns[c].ty.ty));
    values.collect::<Vec<_>>().join(", ")
}

/// Returns a row, column by column.
pub fn row_text(table: &Table, row: &[Value]) -> String {
    let cells = table.columns.iter().zip(row).map(|(c, value)| format!("{} = {}", c.name, cell_text(value, c)));
    cells.collect::<Vec<_>>().join(", ")
}

/// Returns the value of a column; a windowed column's is bytes, of which it is said what they hold.
fn cell_text(value: &Value, column: &Column) -> String {
    match (&column.window, value) {
        (Some(window), Value::Bytes(bytes)) => window_text(window, bytes, &|value| value_text(value, window.value)),
        _ => value_text(value, column.ty.ty),
    }
}

fn fields_text(schema: &Schema, event: &[Value]) -> String {
    let field = |(field, value): (&tidemill_model::Field, &Value)| {
        let value = match &field.ty {
            FieldType::Scalar(ty) => value_text(value, ty.ty),
            FieldType::List(item) => match value {
                Value::List(elements) => {
                    let columns = item.columns();
                    let element = |element: &Vec<Value>| {
                        let cells = columns.iter().zip(element).map(|((_, ty), value)| value_text(value, ty.ty));
                        cells.collect::<Vec<_>>().join(" ")
                    };
                    format!("[{}]", elements.iter().map(element).collect::<Vec<_>>().join(", "))
                }
                other => other.to_string(),
            },
        };
        format!("{} = {value}", field.name)
    };
    schema.fields.iter().zip(event).map(field).collect::<Vec<_>>().join(", ")
}

fn value_text(value: &Value, ty: Type) -> String {
    match (value, ty) {
        (Value::Decimal(unscaled), Type::Decimal { scale, .. }) => format_decimal(*unscaled, scale),
        (Value::Time(micros), _) => time_text(*micros),
        (other, _) => other.to_string(),
    }
}
