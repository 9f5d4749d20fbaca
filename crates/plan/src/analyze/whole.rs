//! The checks of the plan as a whole: before anything is typed, and once everything is.

use super::fault::{Checked, Fault};
use crate::limits::LIMIT_MAX;
use crate::{Delivery, OriginDef, PLAN_VERSION, Plan, PlanError, Program, StreamDef, StreamRef, TransactionDef};
use tidemill_model::{Schema, SourceId, Type, Value};

/// Checks the version, the names, and the sources' times.
pub(super) fn check(plan: &Plan, errors: &mut Vec<PlanError>) {
    if plan.version > PLAN_VERSION {
        let fault = Fault::new(format!("its version is {}, this is version {PLAN_VERSION}", plan.version))
            .hint("run it with a newer tidemill");
        errors.push(fault.of("plan", &plan.name));
        return;
    }
    check_names("table", plan.tables.iter().map(|t| t.name.as_str()), errors);
    check_names("stream", plan.streams.iter().map(|s| s.name.as_str()), errors);
    check_names("transaction", plan.transactions.iter().map(|t| t.name.as_str()), errors);
    check_names("sink", plan.sinks.iter().map(|s| s.name.as_str()), errors);
    check_names("earlier table", plan.tables.iter().filter_map(|t| t.was.as_deref()), errors);
    check_names("retired source", plan.retired.iter().map(String::as_str), errors);
    for name in plan.retired.iter().filter(|name| plan.streams.iter().any(|stream| stream.name == **name)) {
        let fault = Fault::new("it is retired, and declared").hint("take one of them away");
        errors.push(fault.of("stream", name));
    }
    check_times(plan, errors);
    for (what, limit) in [("steps", plan.limits.steps), ("bytes of memory", plan.limits.memory)] {
        if !(1..=LIMIT_MAX).contains(&limit) {
            let fault = Fault::new(format!("its limit is {limit} {what}")).hint(format!("give 1 to {LIMIT_MAX}"));
            errors.push(fault.of("plan", &plan.name));
        }
    }
}

fn check_names<'a>(kind: &str, names: impl Iterator<Item = &'a str>, errors: &mut Vec<PlanError>) {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if name.is_empty() {
            errors.push(Fault::new("it has no name").of(kind, name));
        } else if seen.contains(&name) {
            errors.push(Fault::new("another has this name").hint(format!("rename one {kind}")).of(kind, name));
        }
        seen.push(name);
    }
}

/// Positions compare across sources, so their times must be of one kind. A source without event time may stand beside
/// sources with one: its events can be sent, and then have anchored positions. Ticks are times, and so stand beside times.
fn check_times(plan: &Plan, errors: &mut Vec<PlanError>) {
    let clocks: Vec<Clock<'_>> = plan.streams.iter().filter_map(Clock::of).collect();
    let has_timed = clocks.iter().any(|clock| clock.brings == Brings::Events && clock.kind.is_some());
    for clock in clocks.iter().filter(|clock| clock.brings == Brings::Anchored && !has_timed) {
        let fault = Fault::new("its events get the time of their position, but no source brings times")
            .hint("declare a source with an event time before it, as app.clock(\"1s\") is, or leave their time out");
        errors.push(fault.of("stream", clock.name));
    }
    let mut first: Option<&Clock<'_>> = None;
    for clock in &clocks {
        if clock.kind.is_none() && has_timed {
            continue;
        }
        match first {
            None => first = Some(clock),
            Some(first) if first.kind == clock.kind => {}
            Some(first) => {
                let other = format!("{} '{}' has {}", first.what(), first.name, first.told());
                let hint = match (first.kind, clock.kind) {
                    (Some(_), Some(_)) => "declare all event times in one unit",
                    _ => "declare the event time of a source",
                };
                let fault = Fault::new(format!("it has {}, but {other}", clock.told())).hint(hint);
                errors.push(fault.of("stream", clock.name));
            }
        }
    }
}

/// A stream that brings time into the program, or counts.
struct Clock<'p> {
    name: &'p str,
    brings: Brings,
    /// `Time` or `Int`; none of a source without event time.
    kind: Option<Type>,
}

/// The items that a stream with times brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Brings {
    /// Events, whose times move the program's.
    Events,
    /// Events that get the time of their position.
    Anchored,
    Ticks,
}

impl Clock<'_> {
    fn of(stream: &StreamDef) -> Option<Clock<'_>> {
        let (brings, kind) = match &stream.origin {
            OriginDef::Source { schema, event_time, anchored, .. } => {
                let kind = event_time.as_deref().map(|f| time_kind(schema, f));
                (if *anchored { Brings::Anchored } else { Brings::Events }, kind)
            }
            OriginDef::Every { period: Value::Int(_), .. } => (Brings::Ticks, Some(Type::Int)),
            OriginDef::Every { .. } => (Brings::Ticks, Some(Type::Time)),
            OriginDef::Filter { .. } | OriginDef::Map { .. } | OriginDef::Batch { .. } => return None,
        };
        Some(Clock { name: &stream.name, brings, kind })
    }

    fn what(&self) -> &'static str {
        if self.brings == Brings::Ticks { "the ticks" } else { "source" }
    }

    fn told(&self) -> &'static str {
        match self.kind {
            None => "no event time",
            Some(Type::Int) => "an event time that is an int",
            Some(_) => "an event time",
        }
    }
}

fn time_kind(schema: &Schema, field: &str) -> Type {
    let field = schema.index_of(field).and_then(|i| schema.fields[i].scalar_type());
    if field.is_some_and(|field| field.ty == Type::Int) { Type::Int } else { Type::Time }
}

/// Returns the number of a source, where that stream is one.
pub(super) fn source_id(plan: &Plan, index: usize) -> Option<SourceId> {
    let is_source = |i: &usize| matches!(plan.streams[*i].origin, OriginDef::Source { .. });
    is_source(&index).then(|| (0..index).filter(is_source).count() as SourceId)
}

/// Refuses an input that is named twice.
pub(super) fn check_inputs(def: &TransactionDef) -> Checked<()> {
    for (i, input) in def.inputs.iter().enumerate() {
        if def.inputs[..i].contains(input) {
            let StreamRef::Named(name) = input else { return Err(Fault::new("it takes one stream as input twice")) };
            return Err(Fault::new(format!("it takes '{name}' as input twice")));
        }
    }
    Ok(())
}

/// Deliveries of the roots, and which transactions cascade.
pub(super) fn connect(program: &mut Program) {
    for (transaction, def) in program.transactions.iter_enumerated() {
        for (input, &stream) in def.inputs.iter().enumerate() {
            let root = program.streams[stream].root;
            program.streams[root].deliveries.push(Delivery { transaction, input });
        }
    }
    for transaction in &mut program.transactions {
        let emits = transaction.emits.iter().map(|e| e.stream);
        let mut outputs = emits.chain([transaction.committed.stream, transaction.aborted]);
        transaction.cascades = outputs.any(|o| !program.streams[o].deliveries.is_empty());
    }
}
