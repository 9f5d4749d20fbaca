//! Typing of arithmetic: which operation two operands mean, and how they come to one type.

use super::coerce::{constant, keeps_digits};
use super::fault::{Checked, Fault};
use super::scope::Scope;
use super::types::{decimal, join, scale_of};
use crate::program::{Cast, Expr as Typed, FloatOp, Node, WordOp};
use crate::{BinaryOp, DatePart, Edge, Expr, Periods, ReasonId, Zone};
use tidemill_model::{ColumnType, DECIMAL_DIGITS_MAX, Type, Value};

/// Digits after the point that a quotient of decimals has at least.
const QUOTIENT_SCALE_MIN: u8 = 6;

/// An operation being typed: its operands, made non-null, and how it was written.
struct Operation<'e> {
    op: BinaryOp,
    left: Typed,
    right: Typed,
    surface: &'e Expr,
}

impl Scope<'_> {
    /// Types `left op right`, written as `surface`.
    pub fn binary(&mut self, surface: &Expr, op: BinaryOp, left: &Expr, right: &Expr) -> Checked<Typed> {
        let left = self.operand(left)?;
        let right = self.operand(right)?;
        let operation = Operation { op, left, right, surface };
        use Type::*;
        match (operation.left.ty.ty, op, operation.right.ty.ty) {
            (Str, BinaryOp::Add, Str) | (Bytes, BinaryOp::Add, Bytes) => {
                let ty = operation.left.ty;
                Ok(Typed { ty, node: Node::Concat(Box::new(operation.left), Box::new(operation.right)) })
            }
            (Time | Duration, _, _) | (_, _, Time | Duration) => self.temporal(operation),
            (Int | Float, _, Float) | (Float, _, Int) => Ok(self.float(operation)),
            (Int, BinaryOp::Div, Int) => Ok(self.float(operation)),
            (Int, _, Int) => Ok(self.word(operation, Int)),
            (Decimal { .. }, _, Int | Decimal { .. }) | (Int, _, Decimal { .. }) => self.decimal(operation),
            _ => Err(refuse(&operation)),
        }
    }

    /// Returns an operand of arithmetic: a value that is there.
    pub fn operand(&mut self, surface: &Expr) -> Checked<Typed> {
        let value = self.expression(surface)?;
        if value.ty.ty == Type::Null {
            return Err(Fault::new("None is no operand").at(surface.span));
        }
        Ok(self.unwrap(value, surface))
    }

    fn temporal(&mut self, operation: Operation<'_>) -> Checked<Typed> {
        use {BinaryOp::*, Type::*};
        let ty = match (operation.left.ty.ty, operation.op, operation.right.ty.ty) {
            (Time, Sub, Time) | (Duration, Add | Sub | Mod, Duration) => Duration,
            (Time, Add | Sub, Duration) | (Duration, Add, Time) => Time,
            (Duration, Mul | FloorDiv, Int) | (Int, Mul, Duration) => Duration,
            (Duration, FloorDiv, Duration) => Int,
            (Duration, Div, Duration) => {
                let Operation { op, left, right, surface } = operation;
                let left = self.cast(Cast::WordToFloat { scale: 0 }, left, Float);
                let right = self.cast(Cast::WordToFloat { scale: 0 }, right, Float);
                return Ok(self.float(Operation { op, left, right, surface }));
            }
            _ => return Err(refuse(&operation)),
        };
        Ok(self.word(operation, ty))
    }

    /// Types an operation on floats, or on ints that become floats.
    fn float(&mut self, operation: Operation<'_>) -> Typed {
        let Operation { op, left, right, surface } = operation;
        let left = self.align(left, Type::Float, surface);
        let right = self.align(right, Type::Float, surface);
        let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Mod);
        let reason = if divides { self.zero(&right, surface) } else { self.reasons.never() };
        let op = match op {
            BinaryOp::Add => FloatOp::Add,
            BinaryOp::Sub => FloatOp::Sub,
            BinaryOp::Mul => FloatOp::Mul,
            BinaryOp::Div => FloatOp::Div,
            BinaryOp::FloorDiv => FloatOp::FloorDiv,
            BinaryOp::Mod => FloatOp::Mod,
        };
        Typed { ty: Type::Float.into(), node: Node::Float { op, left: Box::new(left), right: Box::new(right), reason } }
    }

    /// Returns an operation on words whose result is of type `ty`. Not for division with a fraction.
    fn word(&mut self, operation: Operation<'_>, ty: Type) -> Typed {
        let Operation { op, left, right, surface } = operation;
        let op = match op {
            BinaryOp::Add => WordOp::Add,
            BinaryOp::Sub => WordOp::Sub,
            BinaryOp::Mul => WordOp::Mul,
            BinaryOp::FloorDiv => WordOp::FloorDiv { zero: self.zero(&right, surface) },
            BinaryOp::Mod => WordOp::Mod { zero: self.zero(&right, surface) },
            BinaryOp::Div => unreachable!("division of words with a fraction is for floats and decimals"),
        };
        let overflows = match op {
            WordOp::Mod { .. } => false,
            WordOp::FloorDiv { .. } => constant_word(&right).is_none_or(|divisor| divisor == -1),
            _ => true,
        };
        let operand = left.ty.ty;
        let reason = if overflows { self.overflow(operand, surface) } else { self.reasons.never() };
        Typed { ty: ty.into(), node: Node::Word { op, left: Box::new(left), right: Box::new(right), reason } }
    }

    /// Types an operation on decimals, at least one; ints are decimals without a fraction.
    fn decimal(&mut self, operation: Operation<'_>) -> Checked<Typed> {
        let Operation { op, left, right, surface } = operation;
        let scale = |value: &Typed| scale_of(value.ty.ty).expect("an int or a decimal");
        let (l, r) = (scale(&left), scale(&right));
        match op {
            BinaryOp::Mul if l + r > DECIMAL_DIGITS_MAX => {
                Err(Fault::new(format!("{surface} would have {} digits after the point", l + r))
                    .hint("round an operand first, as in round(x, 2)"))
            }
            BinaryOp::Mul => {
                // The int side is labelled a decimal, so that the overflow is that of a decimal.
                let left = if l == 0 { self.align(left, decimal(0), surface) } else { left };
                Ok(self.word(Operation { op, left, right, surface }, decimal(l + r)))
            }
            BinaryOp::Div => Ok(self.quotient(left, right, surface)),
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::FloorDiv | BinaryOp::Mod => {
                let common = decimal(l.max(r));
                let left = self.align(left, common, surface);
                let right = self.align(right, common, surface);
                let ty = if op == BinaryOp::FloorDiv { Type::Int } else { common };
                Ok(self.word(Operation { op, left, right, surface }, ty))
            }
        }
    }

    /// Types left / right of decimals, rounded to the larger scale of both or [`QUOTIENT_SCALE_MIN`].
    ///
    /// With words L, R of scales l, r the quotient of scale q is L × 10^(q + r − l) / R. The exponent
    /// is never negative, as q ≥ l. Where it is above 18, the rest goes into L beforehand.
    fn quotient(&mut self, left: Typed, right: Typed, surface: &Expr) -> Typed {
        let scale = |value: &Typed| scale_of(value.ty.ty).expect("an int or a decimal");
        let (l, r) = (scale(&left), scale(&right));
        let q = l.max(r).max(QUOTIENT_SCALE_MIN);
        let rest = (q + r - l).saturating_sub(DECIMAL_DIGITS_MAX);
        let left = if rest > 0 { self.align(left, decimal(l + rest), surface) } else { left };
        let zero = self.zero(&right, surface);
        let op = WordOp::DecimalDiv { shift: q + r - l - rest, zero };
        let reason = self.overflow(decimal(q), surface);
        let node = Node::Word { op, left: Box::new(left), right: Box::new(right), reason };
        Typed { ty: decimal(q).into(), node }
    }

    /// Types `-value`.
    pub fn negate(&mut self, surface: &Expr, value: &Expr) -> Checked<Typed> {
        let value = self.operand(value)?;
        let ty = value.ty.ty;
        let folded = match &value.node {
            Node::Const(Value::Int(v)) => v.checked_neg().map(Value::Int),
            Node::Const(Value::Float(v)) => Some(Value::Float(-v)),
            Node::Const(Value::Decimal(v)) => v.checked_neg().map(Value::Decimal),
            Node::Const(Value::Duration(v)) => v.checked_neg().map(Value::Duration),
            _ => None,
        };
        match (folded, ty) {
            (Some(folded), _) => Ok(constant(ty, folded)),
            (None, Type::Float) => Ok(Typed { ty: value.ty, node: Node::FloatNeg(Box::new(value)) }),
            (None, Type::Int | Type::Decimal { .. } | Type::Duration) => {
                let reason = self.sign_overflow(&value, surface);
                Ok(Typed { ty: value.ty, node: Node::WordNeg { value: Box::new(value), reason } })
            }
            _ => Err(Fault::new(format!("{ty} has no negative, in {surface}"))),
        }
    }

    /// Types `min(…)` or `max(…)`, folded from the left.
    pub fn extreme(&mut self, surface: &Expr, word: WordOp, float: FloatOp, arguments: &[Expr]) -> Checked<Typed> {
        let mut values = Vec::new();
        for argument in arguments {
            values.push(self.operand(argument)?);
        }
        let joined = values.iter().map(|v| Some(v.ty)).reduce(|a, b| join(a?, b?)).flatten();
        let ty = match joined {
            _ if values.len() < 2 => return Err(Fault::new(format!("{surface} needs two arguments or more"))),
            Some(ColumnType { ty, .. }) if ty.is_word() || ty == Type::Float => ty,
            _ => {
                let types: Vec<String> = values.iter().map(|v| v.ty.to_string()).collect();
                return Err(Fault::new(format!("{surface} compares {}", types.join(", ")))
                    .hint("min and max take numbers of one kind, times or durations"));
            }
        };
        let mut aligned = Vec::new();
        for (value, argument) in values.into_iter().zip(arguments) {
            aligned.push(self.align(value, ty, argument));
        }
        let reason = self.reasons.never();
        let fold = |left: Typed, right: Typed| {
            let (left, right) = (Box::new(left), Box::new(right));
            let node = match ty {
                Type::Float => Node::Float { op: float, left, right, reason },
                _ => Node::Word { op: word, left, right, reason },
            };
            Typed { ty: ty.into(), node }
        };
        Ok(aligned.into_iter().reduce(fold).expect("two arguments or more"))
    }

    /// Returns the start or the end of the period that holds a time.
    pub fn period(&mut self, surface: &Expr, edge: Edge, periods: &Periods, time: &Expr) -> Checked<Typed> {
        periods.check()?;
        let time = Box::new(self.operand(time)?);
        if !matches!(time.ty.ty, Type::Int | Type::Time) {
            return Err(Fault::new(format!("{surface} is asked of {}", time.ty)).hint("give an int or a Time"));
        }
        let reason = match edge {
            Edge::Start => self.reasons.never(),
            Edge::End => self.overflow(Type::Int, surface),
        };
        Ok(Typed { ty: time.ty, node: Node::Period { edge, periods: periods.clone(), time, reason } })
    }

    /// A part of what calendar and clock show at a time.
    pub fn date_part(&mut self, surface: &Expr, part: DatePart, zone: &Zone, time: &Expr) -> Checked<Typed> {
        zone.check()?;
        let time = Box::new(self.operand(time)?);
        if time.ty.ty != Type::Time {
            return Err(Fault::new(format!("{surface} is asked of {}", time.ty)).hint("only a Time has a date"));
        }
        Ok(Typed { ty: Type::Int.into(), node: Node::DatePart { part, zone: zone.clone(), time } })
    }

    /// Returns the reason of an overflow of words of that type.
    pub fn overflow(&mut self, ty: Type, surface: &Expr) -> ReasonId {
        let kind = if matches!(ty, Type::Decimal { .. }) { "decimal" } else { "integer" };
        self.reasons.id(format!("{kind} overflow in {surface}"))
    }

    /// Returns the reason of an overflow of `-value` or `abs(value)`: only the least word has no opposite.
    pub fn sign_overflow(&mut self, value: &Typed, surface: &Expr) -> ReasonId {
        match value.ty.ty {
            Type::Decimal { .. } if keeps_digits(value) => self.reasons.never(),
            ty => self.overflow(ty, surface),
        }
    }

    /// Returns the reason of a division by zero, if the divisor can be zero.
    fn zero(&mut self, divisor: &Typed, surface: &Expr) -> ReasonId {
        let nonzero = match &divisor.node {
            Node::Const(Value::Float(v)) => *v != 0.0,
            Node::Cast { cast: Cast::WordToFloat { .. }, value, .. } => constant_word(value).is_some_and(|v| v != 0),
            _ => constant_word(divisor).is_some_and(|v| v != 0),
        };
        if nonzero { self.reasons.never() } else { self.reasons.id(format!("division by zero in {surface}")) }
    }
}

fn constant_word(value: &Typed) -> Option<i64> {
    match &value.node {
        Node::Const(value) => value.word(),
        _ => None,
    }
}

/// Returns the reason why there is no such operation.
fn refuse(operation: &Operation<'_>) -> Fault {
    let Operation { op, left, right, surface } = operation;
    let (l, r) = (left.ty.ty, right.ty.ty);
    let fault = Fault::new(format!("{l} {op} {r} has no meaning, in {surface}"));
    let crate::ExprNode::Binary { left, right, .. } = &surface.node else { return fault };
    use Type::*;
    match (l, r) {
        (Decimal { .. }, Float) => fault.hint(format!("write float({left})")),
        (Float, Decimal { .. }) => fault.hint(format!("write float({right})")),
        (Str, Int | Bool | Decimal { .. }) if *op == BinaryOp::Add => fault.hint(format!("write str({right})")),
        (Int | Bool | Decimal { .. }, Str) if *op == BinaryOp::Add => fault.hint(format!("write str({left})")),
        (Bool, Int | Float | Bool) => fault.hint(format!("write int({left})")),
        (_, Bool) => fault.hint(format!("write int({right})")),
        (Time | Duration, Int | Float) if matches!(op, BinaryOp::Add | BinaryOp::Sub) => {
            fault.hint(format!("write seconds({right}) or the unit that is meant"))
        }
        (Duration, Int) if *op == BinaryOp::Div => fault.hint("write `//`, which gives a whole number of microseconds"),
        _ => fault,
    }
}
