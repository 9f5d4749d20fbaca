//! Conversions that the plan leaves unsaid: to a common type, and to the type of what is assigned.

use super::fault::{Checked, Fault};
use super::scope::Scope;
use super::tables::scaled;
use super::types::{decimal, scale_of, zero};
use crate::program::{Cast, Expr as Typed, Node, WordOp};
use crate::{Expr, ExprNode};
use tidemill_model::{ColumnType, Type, Value};

/// Returns a constant.
pub(super) fn constant(ty: impl Into<ColumnType>, value: Value) -> Typed {
    Typed { ty: ty.into(), node: Node::Const(value) }
}

fn null(ty: Type) -> Typed {
    constant(ColumnType::optional(ty), Value::Null)
}

impl Scope<'_> {
    /// Returns a conversion that cannot fail.
    pub fn cast(&mut self, cast: Cast, value: Typed, to: impl Into<ColumnType>) -> Typed {
        let reason = self.reasons.never();
        Typed { ty: to.into(), node: Node::Cast { cast, value: Box::new(value), reason } }
    }

    /// Returns a conversion that fails with `what` in the expression.
    pub fn failing_cast(&mut self, cast: Cast, value: Typed, to: Type, what: &str, surface: &Expr) -> Typed {
        let reason = self.reasons.id(format!("{what} in {surface}"));
        Typed { ty: to.into(), node: Node::Cast { cast, value: Box::new(value), reason } }
    }

    /// Returns the value, aborting where it is null.
    pub fn unwrap(&mut self, value: Typed, surface: &Expr) -> Typed {
        if !value.ty.nullable {
            return value;
        }
        let reason = self.reasons.id(format!("None in {surface}"));
        Typed { ty: value.ty.ty.into(), node: Node::Unwrap { value: Box::new(value), reason } }
    }

    /// Returns the value, or the zero of its type where it is null. Cannot fail.
    pub fn or_zero(&mut self, value: &Expr) -> Checked<Typed> {
        let value = self.expression(value)?;
        if !value.ty.nullable {
            return Ok(value);
        }
        if value.ty.ty == Type::Null {
            return Err(Fault::new("it is never anything but None"));
        }
        let (ty, reason) = (ColumnType::from(value.ty.ty), self.reasons.never());
        let condition = Typed { ty: Type::Bool.into(), node: Node::IsNull(Box::new(value.clone())) };
        let present = Typed { ty, node: Node::Unwrap { value: Box::new(value), reason } };
        let (condition, then) = (Box::new(condition), Box::new(constant(ty, zero(ty.ty))));
        Ok(Typed { ty, node: Node::IfElse { condition, then, otherwise: Box::new(present) } })
    }

    /// Applies a conversion of non-null values where there is a value. A nullable operand stands
    /// there twice: expressions are pure, so that cannot be seen.
    fn lift(&mut self, value: Typed, convert: impl FnOnce(&mut Self, Typed) -> Typed) -> Typed {
        if !value.ty.nullable {
            return convert(self, value);
        }
        let reason = self.reasons.never();
        let ty = value.ty.ty;
        let present = Typed { ty: ty.into(), node: Node::Unwrap { value: Box::new(value.clone()), reason } };
        let converted = convert(self, present);
        let to = converted.ty.ty;
        let condition = Typed { ty: Type::Bool.into(), node: Node::IsNull(Box::new(value)) };
        let node =
            Node::IfElse { condition: Box::new(condition), then: Box::new(null(to)), otherwise: Box::new(converted) };
        Typed { ty: ColumnType::optional(to), node }
    }

    /// Returns the value under a type that [`super::types::join`] gave for it; stays nullable.
    pub fn align(&mut self, value: Typed, to: Type, surface: &Expr) -> Typed {
        match (&value.node, value.ty.ty) {
            (_, from) if from == to => value,
            (_, Type::Null) => null(to),
            (Node::Const(Value::Int(v)), Type::Int) if to == Type::Float => constant(to, Value::Float(*v as f64)),
            (Node::Const(Value::Int(v) | Value::Decimal(v)), from) => {
                let (Type::Decimal { digits, scale }, Some(has)) = (to, scale_of(from)) else {
                    unreachable!("{from} does not join in {to}")
                };
                match scaled(*v, digits, scale - has) {
                    Some(value) => constant(to, value),
                    None => self.convert(value, to, surface),
                }
            }
            _ => self.lift(value, |scope, present| scope.convert(present, to, surface)),
        }
    }

    fn convert(&mut self, value: Typed, to: Type, surface: &Expr) -> Typed {
        match (value.ty.ty, to) {
            (Type::Int, Type::Float) => self.cast(Cast::IntToFloat, value, to),
            (from, Type::Decimal { digits, scale }) => {
                let by = scale - scale_of(from).expect("only numbers with a scale become decimals");
                match from {
                    _ if by == 0 => self.cast(Cast::Relabel, value, to),
                    Type::Decimal { digits: has, .. } if has + by <= digits => {
                        self.cast(Cast::ScaleUp { by }, value, to)
                    }
                    _ => self.failing_cast(Cast::ScaleUp { by }, value, to, "decimal overflow", surface),
                }
            }
            (from, to) => unreachable!("{from} does not join in {to}"),
        }
    }

    /// Returns the value as what is kept in a cell, local or field of type `to`; `target` names it.
    pub fn store(&mut self, value: Typed, to: ColumnType, surface: &Expr, target: &str) -> Checked<Typed> {
        let from = value.ty.ty;
        if from == Type::Null && !to.nullable {
            return Err(Fault::new(format!("{target} is {to} and cannot be None")).at(surface.span));
        }
        check_fits(from, to, surface, target)?;
        let value = if to.nullable { value } else { self.unwrap(value, surface) };
        let Type::Decimal { digits, scale } = to.ty else { return Ok(self.align(value, to.ty, surface)) };
        if let (Node::Const(Value::Int(v) | Value::Decimal(v)), Some(has)) = (&value.node, scale_of(from)) {
            let fitting = scaled(*v, digits, scale - has);
            let fault = || Fault::new(format!("{surface} does not fit {target}, which is {to}")).at(surface.span);
            return Ok(constant(to.ty, fitting.ok_or_else(fault)?));
        }
        if from == to.ty && keeps_digits(&value) {
            return Ok(value);
        }
        if from == Type::Null {
            return Ok(null(to.ty));
        }
        Ok(self.lift(value, |scope, present| scope.fit(present, digits, scale, surface)))
    }

    /// Returns a non-null number as a decimal that has at most `digits`.
    fn fit(&mut self, value: Typed, digits: u8, scale: u8, surface: &Expr) -> Typed {
        let to = Type::Decimal { digits, scale };
        let has = |v: &Typed| match v.ty.ty {
            Type::Decimal { digits, scale } if keeps_digits(v) => Some((digits, scale)),
            _ => None,
        };
        match has(&value) {
            Some((d, s)) if d + (scale - s) <= digits => self.align(value, to, surface),
            _ => {
                let aligned = self.align(value, decimal(scale), surface);
                self.failing_cast(Cast::FitDigits { digits }, aligned, to, "decimal overflow", surface)
            }
        }
    }
}

/// Returns whether a decimal is sure to have no more digits than its type says. Arithmetic only promises that the
/// unscaled value fits a word, which can be a digit more.
pub(super) fn keeps_digits(value: &Typed) -> bool {
    match (&value.node, value.ty.ty) {
        (_, Type::Decimal { digits, .. }) if digits < tidemill_model::DECIMAL_DIGITS_MAX => true,
        (Node::Field(_) | Node::Element { .. } | Node::Cell { .. } | Node::Local(_) | Node::Const(_), _) => true,
        (Node::Cast { cast: Cast::FitDigits { .. }, .. }, _) => true,
        (Node::Cast { cast: Cast::Relabel, value, .. }, _) => value.ty.ty != Type::Int && keeps_digits(value),
        (Node::Cast { cast: Cast::ScaleUp { by }, value, .. }, Type::Decimal { digits, .. }) => {
            let enough = matches!(value.ty.ty, Type::Decimal { digits: has, .. } if has + by <= digits);
            enough && keeps_digits(value)
        }
        (Node::Unwrap { value, .. }, _) => keeps_digits(value),
        (Node::Word { op: WordOp::Min | WordOp::Max, left, right, .. }, _) => keeps_digits(left) && keeps_digits(right),
        (Node::IfElse { then, otherwise, .. }, _) => keeps_digits(then) && keeps_digits(otherwise),
        _ => false,
    }
}

/// Refuses what would lose something without the user having said so.
fn check_fits(from: Type, to: ColumnType, surface: &Expr, target: &str) -> Checked<()> {
    let hint = match (from, to.ty) {
        (a, b) if a == b => return Ok(()),
        (Type::Null, _) | (Type::Int, Type::Float | Type::Decimal { .. }) => return Ok(()),
        (Type::Decimal { scale: a, .. }, Type::Decimal { scale: b, .. }) if a <= b => return Ok(()),
        _ if matches!(surface.node, ExprNode::Literal(_)) => String::new(),
        (Type::Decimal { .. }, Type::Decimal { scale, .. }) => format!("write round({surface}, {scale})"),
        (Type::Float, Type::Int) => format!("write int({surface}) or round({surface})"),
        (Type::Decimal { .. }, Type::Int) => format!("write int({surface}) or round({surface})"),
        (Type::Decimal { .. }, Type::Float) => format!("write float({surface})"),
        (Type::Bool | Type::Str, Type::Int) => format!("write int({surface})"),
        (Type::Str, Type::Float) => format!("write float({surface})"),
        (Type::Int | Type::Bool | Type::Decimal { .. }, Type::Str) => format!("write str({surface})"),
        (Type::Duration, Type::Int) => format!("write {surface}.total_microseconds()"),
        (Type::Duration, Type::Float) => format!("write {surface}.total_seconds()"),
        (Type::Float, Type::Decimal { scale, .. }) => {
            format!("floats are not exact; write Decimal(round({surface}), {scale}) or use decimals throughout")
        }
        _ => String::new(),
    };
    Err(Fault::new(format!("{target} is {to} but {surface} is {from}")).hint(hint).at(surface.span))
}
