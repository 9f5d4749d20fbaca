//! Joins of streams: what is joined, what is kept and for how long.

use super::expression::Names;
use crate::program::{Expr, Node};
use crate::{Bound, Keep, Origin, OutputField, Program, Slices, Stream, StreamId, Transaction};
use std::fmt::Write;

/// Returns the join that a stream is an input of, if it is one: its name.
pub(super) fn of_input(stream: &Stream) -> Option<&str> {
    let Origin::Map { .. } = stream.origin else { return None };
    stream.name.strip_suffix(".left").or_else(|| stream.name.strip_suffix(".right"))
}

/// Appends the description of all joins.
pub(super) fn joins(text: &mut String, program: &Program) {
    let mut title = "\njoins of streams\n";
    for join in &program.transactions {
        let Some(sides) = sides(program, &join.name) else { continue };
        text.push_str(std::mem::take(&mut title));
        let [left, right] = sides.map(|side| input(program, side));
        let on: Vec<String> = keys(program, sides).into_iter().map(|[a, b]| format!("{a} = {b}")).collect();
        let slices = reach(program, &join.name);
        let within = if slices.slide == 1 && slices.count > 1 {
            format!("less than {} apart", slices.span(slices.count))
        } else {
            format!("in one window of {}", slices.span(1))
        };
        let _ = writeln!(text, "  {}: {left} with {right}, on {}, {within}", join.name, on.join(" and "));
        let _ = writeln!(text, "    {}", kept(program, join, slices));
        let _ = writeln!(text, "    {}", alone(program, &join.name));
    }
}

/// Returns the maps of the inputs of a join, if there is one of this name.
fn sides(program: &Program, join: &str) -> Option<[StreamId; 2]> {
    let find = |part: &str| {
        let is_it = |stream: &Stream| of_input(stream) == Some(join) && stream.name.ends_with(part);
        program.streams.iter_enumerated().find(|(_, stream)| is_it(stream)).map(|(id, _)| id)
    };
    Some([find(".left")?, find(".right")?])
}

fn input(program: &Program, side: StreamId) -> &str {
    match program.streams[side].origin {
        Origin::Map { input, .. } => &program.streams[input].name,
        _ => unreachable!("it is a map"),
    }
}

/// Returns the values that are equal in a pair, left and right.
fn keys(program: &Program, sides: [StreamId; 2]) -> Vec<[String; 2]> {
    let of = |side: StreamId| -> Vec<String> {
        let Origin::Map { input, fields, .. } = &program.streams[side].origin else { unreachable!("it is a map") };
        let names = Names::event(&program.streams[*input].schema);
        let named = program.streams[side].schema.fields.iter().zip(fields);
        let keys = named.filter(|(field, _)| field.name.starts_with("by_"));
        let text = |value: &OutputField| match value {
            OutputField::Value(value) => names.expression(present(value)).replace("ev.", ""),
            OutputField::List(_) => unreachable!("a key is no list"),
        };
        keys.map(|(_, value)| text(value)).collect()
    };
    let [left, right] = sides.map(of);
    left.into_iter().zip(right).map(|(a, b)| [a, b]).collect()
}

/// Returns a value that may be None, where what stands for it is never.
fn present(value: &Expr) -> &Expr {
    match &value.node {
        Node::IfElse { condition, otherwise, .. } if matches!(condition.node, Node::IsNull(_)) => otherwise,
        _ => value,
    }
}

/// Returns the slices for which records are kept.
fn reach(program: &Program, join: &str) -> Slices {
    let rows = program.tables.iter().find(|table| table.name == format!("{join}.rows")).expect("a join has rows");
    let window = rows.columns.iter().find_map(|column| column.window).expect("they hold records");
    match window.keep {
        Keep::Records(slices) => slices,
        _ => unreachable!("windows of records"),
    }
}

fn kept(program: &Program, join: &Transaction, slices: Slices) -> String {
    let fields = join.schema.fields.iter().filter(|field| field.name.contains('.') && !field.name.ends_with(".exists"));
    let fields: Vec<&str> = fields.map(|field| field.name.as_str()).collect();
    let fields = if fields.is_empty() { "no field".to_owned() } else { fields.join(", ") };
    let freed = program.streams.iter().find_map(|stream| match &stream.origin {
        Origin::Due(due) if stream.name == format!("{}.freed", join.name) => Some(due),
        _ => None,
    });
    let long = match freed.map(|due| &due.bound) {
        Some(Bound::Grid { .. }) if slices.count > 1 => {
            format!("for {} and at most twice as long", slices.span(slices.count))
        }
        _ => "to the end of its window".to_owned(),
    };
    format!("keeps {fields} by key, {long}")
}

fn alone(program: &Program, join: &str) -> String {
    let bound = program.streams.iter().find_map(|stream| match &stream.origin {
        Origin::Due(due) if stream.name == format!("{join}.unmatched") => Some(due),
        _ => None,
    });
    let Some(due) = bound else { return "an event without a partner gives nothing".into() };
    let when = match due.bound {
        Bound::Again(after) => {
            let span = Slices { count: 1, slide: after, time: due.time };
            format!("{} after it", span.span(1))
        }
        _ => "when its window ends".into(),
    };
    format!("an event without a partner comes {when}, between epochs: an epoch ends where one may")
}
