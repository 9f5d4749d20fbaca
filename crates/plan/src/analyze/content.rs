//! The whole content of parts of a plan, as text to be compared: the same for the same content. It has no places in source texts.

use super::rewrite::{self, placeless};
use crate::{Expr, Stmt};
use serde::Serialize;

/// Returns the whole content of a part of a plan, as text that is the same for the same content. Objects have their members in the order of
/// names; statements and expressions have no places.
pub(super) fn content(of: &impl Serialize) -> String {
    let mut text = String::new();
    write(&serde_json::to_value(of).expect("a plan is plain data"), &mut text);
    text
}

fn write(value: &serde_json::Value, text: &mut String) {
    use serde_json::Value as Json;
    match value {
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let is_placed = members.iter().any(|(name, _)| *name == "node");
            text.push('{');
            for (name, value) in members.into_iter().filter(|(name, _)| !(is_placed && *name == "span")) {
                text.push_str(&format!("{name:?}:"));
                write(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Json::Array(elements) => {
            text.push('[');
            for element in elements {
                write(element, text);
                text.push(',');
            }
            text.push(']');
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Returns the content of an expression, and its text, which tells apart the floats that JSON does not have.
pub(super) fn expression(expr: &Expr) -> String {
    let expr = placeless(expr);
    format!("{} {expr}", content(&expr))
}

/// Returns the content of statements.
pub(super) fn statements(block: &[Stmt]) -> String {
    let mut texts = String::new();
    rewrite::block(block, &mut |expr| {
        texts.push_str(&format!(" {}", placeless(expr)));
        None
    });
    format!("{}{texts}", content(&block))
}
