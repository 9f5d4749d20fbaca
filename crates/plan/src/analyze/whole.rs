//! What concerns the plan as a whole: before anything is typed, and once everything is.

use super::fault::{Checked, Fault};
use crate::limits::LIMIT_MAX;
use crate::{Delivery, OriginDef, PLAN_VERSION, Plan, PlanError, Program, StreamRef, TransactionDef};
use tidemill_model::{Schema, SourceId, Value};

/// The version, names, and the sources' times.
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

/// Positions compare across sources, so their times must be of one kind.
fn check_times(plan: &Plan, errors: &mut Vec<PlanError>) {
    let mut first: Option<(&str, &str, &'static str)> = None;
    for stream in &plan.streams {
        let kind = match &stream.origin {
            OriginDef::Source { schema, event_time, .. } => time_kind(schema, event_time.as_deref()),
            OriginDef::Every { period: Value::Int(_), .. } => "an event time that is an int",
            OriginDef::Every { .. } => "an event time",
            OriginDef::Filter { .. } | OriginDef::Map { .. } => continue,
        };
        let what = if matches!(stream.origin, OriginDef::Every { .. }) { "the ticks" } else { "source" };
        match first {
            None => first = Some((what, &stream.name, kind)),
            Some((.., known)) if known == kind => {}
            Some((what, other, known)) => {
                let fault = Fault::new(format!("it has {kind}, but {what} '{other}' has {known}"))
                    .hint("declare the event time of every source, in one unit, or of none");
                errors.push(fault.of("stream", &stream.name));
            }
        }
    }
}

fn time_kind(schema: &Schema, event_time: Option<&str>) -> &'static str {
    use tidemill_model::Type;
    let Some(name) = event_time else { return "no event time" };
    let field = schema.index_of(name).and_then(|i| schema.fields[i].scalar_type());
    match field.map(|f| f.ty) {
        Some(Type::Int) => "an event time that is an int",
        _ => "an event time",
    }
}

/// The number of a source, where that stream is one.
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
