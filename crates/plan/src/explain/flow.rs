//! The flow graph: where each stream comes from and where it goes.

use super::expression::Names;
use crate::{Ahead, BatchSize, OperatorKind, Origin, OutputField, Program, StreamId, StreamPart, TransactionPart};
use std::fmt::Write;
use tidemill_model::Type;

/// Appends the description of a stream, if there is something to say about it.
pub(super) fn stream(text: &mut String, program: &Program, id: StreamId) {
    let stream = &program.streams[id];
    let mut targets = readers(program, id);
    let sinks = program.sinks.iter().filter(|s| s.stream == id);
    targets.extend(sinks.map(|s| format!("sink {}", s.name)));
    let quiet = program.late_of(id).is_some() || matches!(stream.origin, Origin::Bad(_) | Origin::Failed(_));
    if quiet && targets.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {}", head(program, id));
    for target in targets {
        let _ = writeln!(text, "    -> {target}");
    }
}

/// Returns the parts of a program that take their events from a stream.
pub(super) fn readers(program: &Program, id: StreamId) -> Vec<String> {
    let mut readers = Vec::new();
    for stream in &program.streams {
        let part = stream.owner.map(|owner| (owner.part, &program.operators[owner.operator]));
        match stream.origin {
            Origin::Map { .. } if let Some((StreamPart::Left | StreamPart::Right, join)) = part => {
                let reader = format!("join {}", join.name);
                if join.inputs.contains(&id) && !readers.contains(&reader) {
                    readers.push(reader);
                }
            }
            _ if part.is_some_and(|(part, _)| !part.is_shown()) => {}
            // Late events are no map to users.
            Origin::Map { input, .. } if matches!(program.streams[input].origin, Origin::LateRoot(_)) => {}
            Origin::Filter { input, .. } if input == id => readers.push(format!("filter {}", stream.name)),
            Origin::Map { input, .. } if input == id => readers.push(format!("map {}", stream.name)),
            Origin::Batch(of) if of.source == id => readers.push(format!("batches {}", stream.name)),
            _ => {}
        }
    }
    readers.extend(program.transactions.iter().filter_map(|transaction| {
        let operator = transaction.owner.map(|owner| (owner.part, &program.operators[owner.operator]));
        let (kind, name, inputs) = match operator {
            None => ("transaction", &transaction.name, &transaction.inputs),
            Some((TransactionPart::Pass, operator)) => ("transaction", &operator.name, &operator.inputs),
            Some((TransactionPart::Add, operator)) if !matches!(operator.kind, OperatorKind::Join { .. }) => {
                ("window", &operator.name, &operator.inputs)
            }
            Some(_) => return None,
        };
        inputs.contains(&id).then(|| format!("{kind} {name}"))
    }));
    readers
}

fn head(program: &Program, id: StreamId) -> String {
    let stream = &program.streams[id];
    let (name, schema) = (&stream.name, &stream.schema);
    match &stream.origin {
        Origin::Source { lateness, ahead, .. } => {
            let time = match stream.event_time {
                Some(field) if stream.is_anchored() => {
                    format!("{} is the time of its position", schema.fields[field].name)
                }
                Some(field) => time(&schema.fields[field], *lateness),
                None => "in order of arrival".into(),
            };
            let keys = || format!("at most {} keys", stream.keys_max());
            let keeps =
                stream.remembers().map(|time| format!(", answers kept for {} s, {}", time as f64 / 1e6, keys()));
            let ahead = match ahead {
                Ahead::ByInput => String::new(),
                Ahead::Unbounded => ", however far ahead of the clock".into(),
                Ahead::Most(most) => format!(", at most {} ahead of the clock", span(Type::Time, *most)),
            };
            format!("source {name} {{{schema}}}, {time}{ahead}{}", keeps.unwrap_or_default())
        }
        Origin::Map { .. } if program.late_of(id).is_some() => {
            format!("{name} {{{schema}}}, each at the greatest time or mark before it")
        }
        Origin::Batch(of) => {
            let source = &program.streams[of.source].name;
            let which = match of.size {
                BatchSize::Count(1) => format!("each event of {source}, directly behind it"),
                BatchSize::Count(size) => format!("{size} events of {source}, directly behind the last of them"),
                BatchSize::Time { every, .. } => {
                    let time = schema.fields.last().and_then(|end| end.scalar_type()).map_or(Type::Int, |end| end.ty);
                    format!("the events of {source} in {}", span(time, every))
                }
            };
            format!("batches {name} {{{schema}}}: {which}")
        }
        Origin::Filter { input, predicate, .. } => {
            let names = Names::event(&program.streams[*input].schema);
            format!("filter {name} of {}: {}", program.streams[*input].name, names.expression(predicate))
        }
        Origin::Map { input, fields, .. } => {
            let names = Names::event(&program.streams[*input].schema);
            let fields = schema.fields.iter().zip(fields).map(|(field, value)| match value {
                OutputField::Value(value) => format!("{} = {}", field.name, names.expression(value)),
                OutputField::List(list) => {
                    format!("{} = ev.{}", field.name, program.streams[*input].schema.fields[*list].name)
                }
            });
            let fields: Vec<String> = fields.collect();
            format!("map {name} of {}: {}", program.streams[*input].name, fields.join(", "))
        }
        _ => format!("{name} {{{schema}}}"),
    }
}

fn time(field: &tidemill_model::Field, lateness: i64) -> String {
    let by = span(field.scalar_type().map_or(Type::Int, |of| of.ty), lateness.saturating_abs());
    match lateness {
        ..0 => format!("by event time {}, at least {by} apart", field.name),
        _ => format!("by event time {}, at most {by} late", field.name),
    }
}

/// Returns a length of event time of this type.
fn span(time: Type, length: i64) -> String {
    match time {
        Type::Time => format!("{} s", length as f64 / 1e6),
        _ => length.to_string(),
    }
}
