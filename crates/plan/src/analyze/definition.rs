//! The definitions of operators ([`Definition`]), as a plan declares them.
//!
//! The compared text has no places in source texts, no names that mean nothing (of filters and maps, of a function's parameters), and
//! what is declared in several ways in one form.

use super::cells::Kind;
use super::content::{self, content, expression, statements};
use super::over::{Lasting, Part};
use super::rewrite::placeless;
use crate::definitions::{Definition, DefinitionKind, DefinitionPart};
use crate::print::literal;
use crate::{
    BatchSizeDef, Expr, JoinHow, Operator, OperatorId, OperatorKind, OriginDef, OverDef, OwnDef, Periods, Plan, Record,
    StreamDef, StreamRef, TopDef, Unit,
};
use tidemill_model::civil::span_text;
use tidemill_model::{ColumnType, Schema, Type, Value};
use typed_index_collections::TiVec;

/// Returns the definition of a stream that an operator takes: its source, or what gives its events, and the filters and maps on the way.
pub(super) fn input(plan: &Plan, part: &str, of: &StreamRef) -> DefinitionPart {
    let (text, content) = chain(plan, of);
    DefinitionPart::new(part, text, &content)
}

fn chain(plan: &Plan, of: &StreamRef) -> (String, String) {
    let named = match of {
        StreamRef::Named(name) => plan.streams.iter().find(|stream| stream.name == *name),
        _ => None,
    };
    match named.map(|stream| &stream.origin) {
        Some(OriginDef::Filter { input, predicate }) => {
            let (text, content) = chain(plan, input);
            (format!("{text} where {}", placeless(predicate)), format!("{content}\nfilter {}", expression(predicate)))
        }
        Some(OriginDef::Map { input, record }) => {
            let (text, content) = chain(plan, input);
            (format!("{text} mapped to {}", fields_text(record)), format!("{content}\nmap {}", mapped(record)))
        }
        _ => (stream_text(of), content::content(of)),
    }
}

fn fields_text(record: &Record) -> String {
    let field = |(name, value): &(String, Expr)| format!("{name} = {}", placeless(value));
    record.fields.iter().map(field).collect::<Vec<_>>().join(", ")
}

fn mapped(record: &Record) -> String {
    let field = |(name, value): &(String, Expr)| format!("{name:?} {}", expression(value));
    let fields: Vec<String> = record.fields.iter().map(field).collect();
    format!("{} {} {}", fields.join(","), content(&record.schema), content(&record.event_time))
}

/// Returns the name of a stream in the form in which users write it.
fn stream_text(of: &StreamRef) -> String {
    match of {
        StreamRef::Named(name) => name.clone(),
        StreamRef::Committed(name) => format!("{name}.committed"),
        StreamRef::Aborted(name) => format!("{name}.aborted"),
        StreamRef::Emitted { transaction, name } => format!("{transaction}.emitted({name})"),
        StreamRef::Late(name) => format!("{name}.late"),
        StreamRef::Bad(name) => format!("{name}.bad"),
        StreamRef::Failed(name) => format!("{name}.failed"),
        StreamRef::Woken(name) => format!("{name}.woken"),
        StreamRef::Changes(name) => format!("{name}.changes"),
        StreamRef::Expired(name) => format!("{name}.expired"),
    }
}

fn span(units: i64, time: Option<Type>) -> String {
    if time == Some(Type::Time) { span_text(units) } else { units.to_string() }
}

fn windows(kind: Kind<'_>, time: Option<Type>) -> Vec<DefinitionPart> {
    let span = |units| span(units, time);
    let from = |origin: i64| if origin == 0 { String::new() } else { format!(" from {} on", span(origin)) };
    let text = match kind {
        Kind::Tumbling { length, origin } => format!("tumbling windows of {}{}", span(length), from(origin)),
        Kind::Sliding { length, every, origin } => {
            format!("sliding windows of {} each {}{}", span(length), span(every), from(origin))
        }
        Kind::Calendar(Periods { unit, zone }) => match *unit {
            Unit::Span { length, origin } => {
                format!("tumbling windows of {}{} in {}", span_text(length), from(origin), zone.name)
            }
            Unit::Months(count) => format!("tumbling windows of months({count}) in {}", zone.name),
        },
        Kind::Session { gap } => format!("sessions with gaps of {}", span(gap)),
        Kind::Counting { count } => format!("windows of {count} events"),
    };
    let content = format!("{} {time:?}", kind.due_column());
    let mut parts = vec![DefinitionPart::new("windows", text, &content)];
    if let Kind::Calendar(Periods { zone, .. }) = kind {
        parts.push(DefinitionPart::new("clock", format!("the clock of {}", zone.name), &content::content(zone)));
    }
    parts
}

/// Returns the definition of the group of an event. `is_named`: whether the declaration names the parts.
fn group(parts: &[Part], is_named: bool) -> DefinitionPart {
    let text = |part: &Part| match placeless(&part.value).to_string() {
        value if value == format!("ev.{}", part.name) => part.name.clone(),
        value if is_named => format!("{} = {value}", part.name),
        value => value,
    };
    let text: Vec<String> = parts.iter().map(text).collect();
    let content: Vec<String> =
        parts.iter().map(|part| format!("{:?} {} {}", part.name, part.ty, expression(&part.value))).collect();
    let text = if text.is_empty() { "one".into() } else { text.join(", ") };
    DefinitionPart::new("group", text, &content.join("\n"))
}

/// The parts from which the definition of a window, a top or first events is made.
pub(super) struct OverStream<'a> {
    pub plan: &'a Plan,
    pub name: &'a str,
    pub input: &'a StreamRef,
    pub over: &'a OverDef,
    pub kind: Kind<'a>,
    /// The type of event time.
    pub time: Option<Type>,
    pub parts: &'a [Part],
    /// The columns that a window keeps by its aggregates.
    pub keeps: Vec<DefinitionPart>,
    /// The fields of the input's events, and those of them that are passed on.
    pub schema: &'a Schema,
    pub lasting: Lasting,
}

/// Returns the definition of a window, a top or first events.
pub(super) fn over(of: OverStream<'_>) -> Definition {
    let OverStream { plan, name, input, over, kind, time, parts, mut keeps, schema, lasting } = of;
    let mut definition =
        vec![self::input(plan, "input", input), group(parts, over.top.is_none() && over.first.is_none())];
    let fields = &schema.fields[..lasting.width];
    let fields: Vec<String> = fields.iter().map(|field| format!("{}: {}", field.name, field.ty)).collect();
    let kind = match (&over.top, &over.first) {
        (Some(top), _) => {
            definition.push(ranked(top));
            definition.push(DefinitionPart::new("fields", fields.join(", "), &fields.join("\n")));
            keeps.clear();
            DefinitionKind::Top
        }
        (None, Some(within)) => {
            definition.push(DefinitionPart::new("time", short(within), &content(within)));
            keeps.clear();
            DefinitionKind::First
        }
        (None, None) => {
            definition.extend(windows(kind, time));
            let early = over.early.as_ref();
            let text = early.map_or("none".into(), |early| format!("each {}", short(early)));
            definition.push(DefinitionPart::new("early results", text, &content(&early)));
            let every = over.every.clone();
            let text = every.clone().map_or("none".into(), |table| format!("of table {table}"));
            definition.push(DefinitionPart::new(Definition::ROWS, text, &content(&every)));
            keeps.extend(over.own.iter().map(own));
            DefinitionKind::Window
        }
    };
    Definition { name: name.to_owned(), kind, parts: definition, keeps }
}

/// Returns a length in the form in which users write it.
fn short(value: &Value) -> String {
    match value {
        Value::Duration(units) => span_text(*units),
        other => literal(other),
    }
}

fn ranked(top: &TopDef) -> DefinitionPart {
    let TopDef { count, by, ties } = top;
    let with_ties = if *ties { " with ties" } else { "" };
    let text = format!("{count} by {}{with_ties}", placeless(by));
    DefinitionPart::new("places", text, &format!("{count} {ties} {}", expression(by)))
}

fn own(own: &OwnDef) -> DefinitionPart {
    let OwnDef { name, state, add, merge } = own;
    let merge = merge.as_ref().map(|merge| statements(merge));
    let content = format!("{} {} {merge:?}", content(state), statements(add));
    DefinitionPart::new(format!("{name}()"), format!("the aggregate {name}"), &content)
}

/// The parts from which the definition of a join is made.
pub(super) struct OfJoin<'a> {
    pub plan: &'a Plan,
    pub name: &'a str,
    pub inputs: [&'a StreamRef; 2],
    /// Pairs of values.
    pub on: &'a [(Expr, Expr)],
    /// The columns of the key.
    pub key: Vec<(String, Type)>,
    pub how: JoinHow,
    /// The reach of the join: as text, and the whole content.
    pub reach: (String, String),
    /// The fields that are kept, in order, by side.
    pub fields: [&'a [(String, ColumnType)]; 2],
}

/// Returns the definition of a join.
pub(super) fn join(of: OfJoin<'_>) -> Definition {
    let OfJoin { plan, name, inputs: [left, right], on, key, how, reach, fields } = of;
    let mut definition = vec![input(plan, "left side", left), input(plan, "right side", right)];
    let equal = |(left, right): &(Expr, Expr)| format!("{} == {}", placeless(left), placeless(right));
    let text = on.iter().map(equal).collect::<Vec<_>>().join(" and ");
    let pair = |(left, right): &(Expr, Expr)| format!("{} {}\n", expression(left), expression(right));
    let content: String = on.iter().map(pair).collect();
    definition.push(DefinitionPart::new("key", text, &format!("{content}{key:?}")));
    definition.push(DefinitionPart::new("reach", reach.0, &reach.1));
    let word = match how {
        JoinHow::Inner => "inner",
        JoinHow::Left => "left",
        JoinHow::Outer => "outer",
        JoinHow::Anti => "anti",
    };
    definition.push(DefinitionPart::new("kind", word, word));
    for (part, fields) in ["fields of the left", "fields of the right"].into_iter().zip(fields) {
        let fields: Vec<String> = fields.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let text = if fields.is_empty() { "none".into() } else { fields.join(", ") };
        definition.push(DefinitionPart::new(part, text, &fields.join("\n")));
    }
    Definition { name: name.to_owned(), kind: DefinitionKind::Join, parts: definition, keeps: Vec::new() }
}

/// Gives the operators of atomic batches and ticks their definitions.
pub(super) fn of_streams(plan: &Plan, operators: &mut TiVec<OperatorId, Operator>) {
    for operator in
        operators.iter_mut().filter(|of| matches!(of.kind, OperatorKind::Batch(_) | OperatorKind::Ticks { .. }))
    {
        let def = plan.streams.iter().find(|stream| stream.name == operator.name);
        operator.definition = def.and_then(|def| of_stream(plan, def));
    }
}

fn of_stream(plan: &Plan, stream: &StreamDef) -> Option<Definition> {
    let (kind, parts) = match &stream.origin {
        OriginDef::Every { period, origin } => {
            let content = format!("{} {origin}", content::content(period));
            let from = if *origin == 0 { String::new() } else { format!(" from {origin} on") };
            let part = DefinitionPart::new("period", format!("{}{from}", short(period)), &content);
            (DefinitionKind::Ticks, vec![part])
        }
        OriginDef::Batch { input, size } => {
            let text = match size {
                BatchSizeDef::Count(count) => format!("{count} events"),
                BatchSizeDef::Time { length, origin: 0 } => short(length),
                BatchSizeDef::Time { length, origin } => format!("{} from {origin} on", short(length)),
            };
            let size = DefinitionPart::new("size", text, &content::content(size));
            (DefinitionKind::Batch, vec![self::input(plan, "input", input), size])
        }
        _ => return None,
    };
    Some(Definition { name: stream.name.clone(), kind, parts, keeps: Vec::new() })
}
