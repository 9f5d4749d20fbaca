//! Expressions: operands left to right, the first failure is the result.

use crate::Record;
use crate::arithmetic::{cast, float, math, word};
use crate::limits::Sums;
use std::cmp::Ordering;
use tidemill_model::Value;
use tidemill_plan::typed::{Expr, Node};
use tidemill_plan::{CompareOp, Edge, LocalId, LoopId, OutputField, ReasonId, RoleId, TextOp, TextTest};

/// The values that an expression can use. Analysis has made sure that it asks for nothing that is not there.
pub trait Scope {
    /// Returns a field of the event.
    fn field(&self, index: usize) -> &Value;

    /// Returns a column of the element that a loop is at.
    fn element(&self, _loop_id: LoopId, _column: usize) -> &Value {
        unreachable!("no list loop runs here")
    }

    /// Returns a local variable.
    fn local(&self, _local: LocalId) -> &Value {
        unreachable!("there are no locals here")
    }

    /// Returns a cell of a role's row as of now.
    fn cell(&self, _role: RoleId, _element: Option<LoopId>, _column: usize) -> Result<Value, ReasonId> {
        unreachable!("there are no roles here")
    }

    /// Returns the sums counted so far.
    fn sums(&self) -> &Sums {
        unreachable!("nothing is counted here")
    }

    /// Returns whether a role's row exists as of now.
    fn exists(&self, _role: RoleId, _element: Option<LoopId>) -> bool {
        unreachable!("there are no roles here")
    }

    /// Returns the place of the event.
    fn place(&self) -> i64 {
        unreachable!("only bodies ask for places")
    }

    /// Returns the number of rows of a role that is all rows of its table.
    fn rows(&self, _role: RoleId) -> usize {
        unreachable!("there are no roles here")
    }
}

/// Returns the fields of a new event.
pub fn output_fields(fields: &[OutputField], scope: &dyn Scope) -> Result<Record, ReasonId> {
    let value = |field: &OutputField| match field {
        OutputField::Value(expr) => evaluate(expr, scope),
        OutputField::List(index) => Ok(scope.field(*index).clone()),
    };
    fields.iter().map(value).collect()
}

/// Returns the value of an expression, or the reason why there is none.
pub fn evaluate(expr: &Expr, scope: &dyn Scope) -> Result<Value, ReasonId> {
    let eval = |e: &Expr| evaluate(e, scope);
    let text = |e: &Expr| eval(e).map(|v| bytes(&v).to_vec());
    let as_bool = |e: &Expr| eval(e).map(|v| boolean(&v));
    let as_word = |e: &Expr| eval(e).map(|v| v.word().expect("analysis typed this a word"));
    let as_float = |e: &Expr| eval(e).map(|v| number(&v));
    let of_word = |word: Option<i64>, reason| word.map(|w| Value::from_word(expr.ty.ty, w)).ok_or(reason);
    Ok(match &expr.node {
        Node::Const(value) => value.clone(),
        Node::Field(index) => scope.field(*index).clone(),
        Node::Element { loop_id, column } => scope.element(*loop_id, *column).clone(),
        Node::Local(local) => scope.local(*local).clone(),
        Node::Cell { role, element, column } => scope.cell(*role, *element, *column)?,
        Node::Exists { role, element } => Value::Bool(scope.exists(*role, *element)),
        Node::Rows { role } => Value::Int(scope.rows(*role) as i64),
        Node::Place => Value::Int(scope.place()),
        Node::Length(field) => match scope.field(*field) {
            Value::List(elements) => Value::Int(elements.len() as i64),
            other => panic!("{other} where a list belongs"),
        },
        Node::Unwrap { value, reason } => match eval(value)? {
            Value::Null => return Err(*reason),
            value => value,
        },
        Node::IsNull(value) => Value::Bool(eval(value)?.is_null()),
        Node::Word { op, left, right, reason } => {
            let (left, right) = (as_word(left)?, as_word(right)?);
            Value::from_word(expr.ty.ty, word(*op, left, right, *reason)?)
        }
        Node::Float { op, left, right, reason } => {
            let (left, right) = (as_float(left)?, as_float(right)?);
            Value::Float(float(*op, left, right).ok_or(*reason)?)
        }
        Node::Math { op, arguments, reason } => {
            let arguments = arguments.iter().map(as_float).collect::<Result<Vec<_>, _>>()?;
            Value::Float(math(*op, &arguments).ok_or(*reason)?)
        }
        Node::WordNeg { value, reason } => of_word(as_word(value)?.checked_neg(), *reason)?,
        Node::WordAbs { value, reason } => of_word(as_word(value)?.checked_abs(), *reason)?,
        Node::FloatNeg(value) => Value::Float(-as_float(value)?),
        Node::FloatAbs(value) => Value::Float(as_float(value)?.abs()),
        Node::Compare { op, left, right } => {
            let (left, right) = (eval(left)?, eval(right)?);
            Value::Bool(holds(*op, order(&left, &right)))
        }
        Node::Equal { left, right, negated } => {
            let (left, right) = (eval(left)?, eval(right)?);
            let equal = match (left.is_null(), right.is_null()) {
                (false, false) => order(&left, &right) == Some(Ordering::Equal),
                (left, right) => left && right,
            };
            Value::Bool(equal != *negated)
        }
        Node::And(left, right) => Value::Bool(as_bool(left)? && as_bool(right)?),
        Node::Or(left, right) => Value::Bool(as_bool(left)? || as_bool(right)?),
        Node::Not(value) => Value::Bool(!as_bool(value)?),
        Node::IfElse { condition, then, otherwise } => eval(if as_bool(condition)? { then } else { otherwise })?,
        Node::Cast { cast: kind, value, reason } => cast(*kind, &eval(value)?, expr.ty.ty).ok_or(*reason)?,
        Node::Concat(left, right) => match (eval(left)?, eval(right)?) {
            (Value::Str(left), Value::Str(right)) => Value::Str(left + &right),
            (Value::Bytes(left), Value::Bytes(right)) => Value::Bytes([left, right].concat()),
            (left, right) => panic!("{left} and {right} cannot be joined"),
        },
        Node::Text { op, value } => match (op, eval(value)?) {
            (TextOp::Lower, Value::Str(text)) => Value::Str(text.to_lowercase()),
            (TextOp::Upper, Value::Str(text)) => Value::Str(text.to_uppercase()),
            (TextOp::Strip, Value::Str(text)) => Value::Str(crate::arithmetic::stripped(&text).to_owned()),
            (_, other) => panic!("{other} where a text belongs"),
        },
        Node::TextCall { op, arguments, reason } => {
            let arguments = arguments.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
            crate::texts::call(*op, &arguments).ok_or(*reason)?
        }
        Node::TextTest { op, left, right } => {
            let (left, right) = (text(left)?, text(right)?);
            Value::Bool(match op {
                TextTest::StartsWith => left.starts_with(&right),
                TextTest::EndsWith => left.ends_with(&right),
                TextTest::Contains => (0..=left.len()).any(|at| left[at..].starts_with(&right)),
            })
        }
        Node::WindowAdd { window, cell, time, value } => {
            let (cell, time, value) = (eval(cell)?, as_word(time)?, eval(value)?);
            Value::Bytes(crate::window::add(window, bytes(&cell), time, value))
        }
        Node::WindowRead { window, cell, time, within, aggregate, reason } => {
            let (cell, time) = (eval(cell)?, as_word(time)?);
            crate::window::read(window, bytes(&cell), time, *within, *aggregate).ok_or(*reason)?
        }
        Node::SynopsisRead { window, cell, time, within, ask, argument } => {
            let (cell, time, argument) = (eval(cell)?, as_word(time)?, eval(argument)?);
            crate::synopsis::read(window, bytes(&cell), time, *within, *ask, &argument)
        }
        Node::WindowNext { window, cell, time, within, after } => {
            let (cell, time, after) = (eval(cell)?, as_word(time)?, as_word(after)?);
            Value::Int(crate::records::next(window, bytes(&cell), time, *within, after))
        }
        Node::WindowField { cell, at, of, field } => {
            let (cell, at) = (eval(cell)?, as_word(at)?);
            crate::records::field(bytes(&cell), at, *of, *field, expr.ty.ty)
        }
        Node::Period { edge: Edge::Start, periods, time, .. } => {
            Value::from_word(expr.ty.ty, crate::periods::start(periods, as_word(time)?))
        }
        Node::Period { edge: Edge::End, periods, time, reason } => {
            of_word(crate::periods::end(periods, as_word(time)?), *reason)?
        }
        Node::DatePart { part, zone, time } => Value::Int(crate::dates::part(*part, zone, as_word(time)?)),
        Node::Pack(values) => {
            let values = values.iter().map(eval).collect::<Result<Vec<_>, _>>()?;
            Value::Bytes(crate::records::pack(&values))
        }
        Node::Counted { measure, value, reason } => {
            let value = eval(value)?;
            scope.sums().text(*measure, &value, *reason)?;
            value
        }
        Node::Len(value) => Value::Int(match eval(value)? {
            Value::Str(text) => text.chars().count() as i64,
            Value::Bytes(bytes) => bytes.len() as i64,
            other => panic!("{other} has no length"),
        }),
    })
}

/// Compares two non-null values of one type; none where one is NaN.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(l), Value::Bool(r)) => Some(l.cmp(r)),
        (Value::Float(l), Value::Float(r)) => l.partial_cmp(r),
        (Value::Str(_), Value::Str(_)) | (Value::Bytes(_), Value::Bytes(_)) => Some(bytes(left).cmp(bytes(right))),
        (l, r) => match (l.word(), r.word()) {
            (Some(l), Some(r)) => Some(l.cmp(&r)),
            _ => panic!("{left} and {right} cannot be compared"),
        },
    }
}

fn holds(op: CompareOp, order: Option<Ordering>) -> bool {
    match op {
        CompareOp::Eq => order == Some(Ordering::Equal),
        CompareOp::Ne => order != Some(Ordering::Equal),
        CompareOp::Lt => order.is_some_and(Ordering::is_lt),
        CompareOp::Le => order.is_some_and(Ordering::is_le),
        CompareOp::Gt => order.is_some_and(Ordering::is_gt),
        CompareOp::Ge => order.is_some_and(Ordering::is_ge),
    }
}

fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Str(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        other => panic!("{other} where text or bytes belong"),
    }
}

fn boolean(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        other => panic!("{other} where a bool belongs"),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        other => panic!("{other} where a float belongs"),
    }
}
