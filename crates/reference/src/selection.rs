//! Which rows a role is that is not one row: all of its table are looked at, and sorted.

use crate::table::{Key, Table};
use std::cmp::Ordering;
use tidemill_model::Value;
use tidemill_plan::{Direction, Order, ReasonId, Selection, Test};

/// Returns the keys of the chosen rows, in their order. `evaluate` gives the values of expressions; where one fails, no
/// row is chosen.
pub fn chosen(
    selection: &Selection,
    table: &Table,
    evaluate: impl Fn(&tidemill_plan::typed::Expr) -> Result<Value, ReasonId>,
) -> Vec<Key> {
    let mut keys = table.keys();
    for condition in &selection.conditions {
        let optional = |bound: &Option<_>| bound.as_ref().map_or(Ok(Value::Null), &evaluate);
        let (same, low, high) = match &condition.test {
            Test::Same(value) => (Some(evaluate(value)), Ok(Value::Null), Ok(Value::Null)),
            Test::Between { low, high } => (None, optional(low), optional(high)),
        };
        let (Ok(same), Ok(low), Ok(high)) = (same.transpose(), low, high) else { return Vec::new() };
        keys.retain(|key| {
            let value = &table.get(key).expect("a key of a row")[condition.column];
            match &same {
                Some(same) if same.is_null() || value.is_null() => same.is_null() && value.is_null(),
                Some(same) => order(value, same) == Some(Ordering::Equal),
                None => is_within(value, &low, &high),
            }
        });
    }
    let Some(Order { column, direction, count }) = selection.order else { return keys };
    let value = |key: &Key| table.get(key).expect("a key of a row")[column].clone();
    let (mut ranked, last): (Vec<Key>, Vec<Key>) = keys.into_iter().partition(|key| is_ranked(&value(key)));
    ranked.sort_by(|left, right| {
        let ordering = order(&value(left), &value(right)).expect("ranked values have an order");
        if direction == Direction::Ascending { ordering } else { ordering.reverse() }
    });
    ranked.extend(last);
    ranked.truncate(count as usize);
    ranked
}

/// Returns whether a value has a rank: `None` and NaN have none.
fn is_ranked(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Float(float) => !float.is_nan(),
        _ => true,
    }
}

fn is_within(value: &Value, low: &Value, high: &Value) -> bool {
    let above = low.is_null() || matches!(order(low, value), Some(Ordering::Less | Ordering::Equal));
    let below = high.is_null() || matches!(order(value, high), Some(Ordering::Less | Ordering::Equal));
    is_ranked(value) && above && below
}

/// Returns the order of two values of one column, if they have one: false before true, words by number, floats by IEEE,
/// text and bytes by their bytes.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
        (Value::Str(left), Value::Str(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (left, right) => match (left.word(), right.word()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => panic!("{left} and {right} are not values of one column"),
        },
    }
}
