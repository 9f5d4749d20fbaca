//! Joins of streams: what is joined, what is kept and for how long.

use super::expression::Names;
use crate::program::{Expr, Node};
use crate::{
    JoinHow, Operator, OperatorId, OperatorKind, Origin, OutputField, Program, Reach, Slices, StreamId, StreamPart,
    TransactionPart,
};
use std::fmt::Write;
use tidemill_model::Type;

/// Appends the description of all joins, in the order of their declaration.
pub(super) fn joins(text: &mut String, program: &Program) {
    let mut title = "\njoins of streams\n";
    for transaction in program.transactions.iter().filter(|of| of.part() == Some(TransactionPart::Function)) {
        let Some(id) = transaction.owner.map(|owner| owner.operator) else { continue };
        let operator = &program.operators[id];
        let OperatorKind::Join { how, reach, key, fields } = &operator.kind else { continue };
        text.push_str(std::mem::take(&mut title));
        let [left, right] = [0, 1].map(|side| &program.streams[operator.inputs[side]].name);
        let on: Vec<String> = keys(program, id, key).into_iter().map(|[a, b]| format!("{a} = {b}")).collect();
        let within = match *reach {
            Reach::Within(length) => format!("less than {} apart", span(operator, length)),
            Reach::Over { length, .. } => format!("in one window of {}", span(operator, length)),
        };
        let _ = writeln!(text, "  {}: {left} with {right}, on {}, {within}", operator.name, on.join(" and "));
        let fields = if fields.is_empty() { "no field".to_owned() } else { fields.join(", ") };
        let long = match *reach {
            Reach::Within(length) => format!("for {} and at most twice as long", span(operator, length)),
            Reach::Over { .. } => "to the end of its window".to_owned(),
        };
        let _ = writeln!(text, "    keeps {fields} by key, {long}");
        let _ = writeln!(text, "    {}", alone(operator, *how, *reach));
    }
}

fn span(operator: &Operator, length: i64) -> String {
    Slices { count: 1, slide: length, time: operator.time.unwrap_or(Type::Int) }.span(1)
}

/// Returns the values that are equal in a pair, left and right.
fn keys(program: &Program, join: OperatorId, key: &[String]) -> Vec<[String; 2]> {
    let of = |side: StreamPart| -> Vec<String> {
        let side: StreamId = program.stream_of(join, side).expect("a join has two sides");
        let Origin::Map { input, fields, .. } = &program.streams[side].origin else { unreachable!("it is a map") };
        let names = Names::event(&program.streams[*input].schema);
        let named = program.streams[side].schema.fields.iter().zip(fields);
        let keys = named.filter(|(field, _)| key.contains(&field.name));
        let text = |value: &OutputField| match value {
            OutputField::Value(value) => names.expression(present(value)).replace("ev.", ""),
            OutputField::List(_) => unreachable!("a key is no list"),
        };
        keys.map(|(_, value)| text(value)).collect()
    };
    let [left, right] = [StreamPart::Left, StreamPart::Right].map(of);
    left.into_iter().zip(right).map(|(a, b)| [a, b]).collect()
}

/// Returns a value that may be None, where what stands for it is never.
fn present(value: &Expr) -> &Expr {
    match &value.node {
        Node::IfElse { condition, otherwise, .. } if matches!(condition.node, Node::IsNull(_)) => otherwise,
        _ => value,
    }
}

fn alone(operator: &Operator, how: JoinHow, reach: Reach) -> String {
    let when = match reach {
        _ if how == JoinHow::Inner => return "an event without a partner gives nothing".into(),
        Reach::Within(length) => format!("{} after it", span(operator, length)),
        Reach::Over { .. } => "when its window ends".into(),
    };
    format!("an event without a partner comes {when}, between epochs: an epoch ends where one may")
}
