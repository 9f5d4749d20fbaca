//! Typing of built-in functions.

use super::coerce::constant;
use super::expressions::boolean;
use super::fault::{Checked, Fault};
use super::limits::TOO_MUCH_MEMORY;
use super::scope::Scope;
use super::types::decimal;
use crate::program::{Cast, Expr as Typed, FloatOp, MathOp, Node, TextCall, TextOp, TextTest, WordOp};
use crate::{Expr, ExprNode, Function};
use tidemill_model::{DECIMAL_DIGITS_MAX, Type, Value, parse_decimal};

impl Scope<'_> {
    /// Returns a call, written as `surface`.
    pub fn call(&mut self, surface: &Expr, function: Function, arguments: &[Expr]) -> Checked<Typed> {
        match function {
            Function::Min => self.extreme(surface, WordOp::Min, FloatOp::Min, arguments),
            Function::Max => self.extreme(surface, WordOp::Max, FloatOp::Max, arguments),
            Function::Round => self.round(surface, arguments),
            Function::Decimal => self.make_decimal(surface, arguments),
            Function::Len => self.len(surface, arguments),
            Function::StartsWith => self.text_test(surface, TextTest::StartsWith, arguments),
            Function::EndsWith => self.text_test(surface, TextTest::EndsWith, arguments),
            Function::Contains => self.text_test(surface, TextTest::Contains, arguments),
            Function::Find => self.text_call(surface, TextCall::Find, exactly::<4>(surface, arguments)?),
            Function::Replace => self.text_call(surface, TextCall::Replace, exactly::<4>(surface, arguments)?),
            Function::Slice => self.text_call(surface, TextCall::Slice, exactly::<3>(surface, arguments)?),
            Function::At => self.text_call(surface, TextCall::At, exactly::<2>(surface, arguments)?),
            Function::Zfill => self.text_call(surface, TextCall::Zfill, exactly::<2>(surface, arguments)?),
            Function::SplitPart => {
                exactly::<4>(surface, arguments)?;
                self.split(surface, [TextCall::Part, TextCall::SpacedPart], arguments)
            }
            Function::SplitCount => {
                exactly::<3>(surface, arguments)?;
                self.split(surface, [TextCall::Parts, TextCall::SpacedParts], arguments)
            }
            Function::Sqrt => self.math(surface, MathOp::Sqrt, exactly::<1>(surface, arguments)?),
            Function::Fmod => self.math(surface, MathOp::Fmod, exactly::<2>(surface, arguments)?),
            Function::Exp => self.math(surface, MathOp::Exp, exactly::<1>(surface, arguments)?),
            Function::Log => self.math(surface, MathOp::Log, exactly::<1>(surface, arguments)?),
            Function::Log2 => self.math(surface, MathOp::Log2, exactly::<1>(surface, arguments)?),
            Function::Log10 => self.math(surface, MathOp::Log10, exactly::<1>(surface, arguments)?),
            Function::Pow => self.math(surface, MathOp::Pow, exactly::<2>(surface, arguments)?),
            Function::Sin => self.math(surface, MathOp::Sin, exactly::<1>(surface, arguments)?),
            Function::Cos => self.math(surface, MathOp::Cos, exactly::<1>(surface, arguments)?),
            Function::Tan => self.math(surface, MathOp::Tan, exactly::<1>(surface, arguments)?),
            Function::Atan2 => self.math(surface, MathOp::Atan2, exactly::<2>(surface, arguments)?),
            Function::Hypot => self.math(surface, MathOp::Hypot, exactly::<2>(surface, arguments)?),
            _ => {
                let [argument] = exactly(surface, arguments)?;
                let value = self.operand(argument)?;
                self.call_one(surface, function, argument, value)
            }
        }
    }

    /// Returns a function of one value.
    fn call_one(&mut self, surface: &Expr, function: Function, argument: &Expr, value: Typed) -> Checked<Typed> {
        match function {
            Function::Abs => self.abs(surface, value),
            Function::Lower => text(surface, TextOp::Lower, value),
            Function::Upper => text(surface, TextOp::Upper, value),
            Function::Strip => text(surface, TextOp::Strip, value),
            Function::Floor => self.whole(surface, value, Cast::FloatFloor, |by| Cast::ScaleFloor { by }),
            Function::Ceil => self.whole(surface, value, Cast::FloatCeil, |by| Cast::ScaleCeil { by }),
            Function::Trunc => self.whole(surface, value, Cast::FloatToInt, |by| Cast::ScaleTruncate { by }),
            Function::Int => self.convert_int(surface, argument, value),
            Function::Float => self.convert_float(surface, argument, value),
            Function::Str => self.convert_str(surface, value),
            Function::Microseconds => self.duration(surface, 1, value),
            Function::Milliseconds => self.duration(surface, 1_000, value),
            Function::Seconds => self.duration(surface, 1_000_000, value),
            Function::Minutes => self.duration(surface, 60_000_000, value),
            Function::Hours => self.duration(surface, 3_600_000_000, value),
            Function::Days => self.duration(surface, 86_400_000_000, value),
            Function::TotalMicroseconds | Function::TotalSeconds
                if !matches!(value.ty.ty, Type::Duration | Type::Time) =>
            {
                Err(refuse(surface, &value))
            }
            Function::TotalMicroseconds => Ok(self.cast(Cast::Relabel, value, Type::Int)),
            Function::TotalSeconds => Ok(self.cast(Cast::WordToFloat { scale: 6 }, value, Type::Float)),
            _ => unreachable!("functions of several arguments are dispatched before"),
        }
    }

    fn abs(&mut self, surface: &Expr, value: Typed) -> Checked<Typed> {
        match value.ty.ty {
            Type::Float => Ok(Typed { ty: value.ty, node: Node::FloatAbs(Box::new(value)) }),
            Type::Int | Type::Decimal { .. } | Type::Duration => {
                let reason = self.sign_overflow(&value, surface);
                Ok(Typed { ty: value.ty, node: Node::WordAbs { value: Box::new(value), reason } })
            }
            _ => Err(refuse(surface, &value)),
        }
    }

    fn round(&mut self, surface: &Expr, arguments: &[Expr]) -> Checked<Typed> {
        let (argument, digits) = match arguments {
            [value] => (value, None),
            [value, digits] => (value, Some(literal_scale(digits)?)),
            _ => return Err(Fault::new(format!("{surface} has {} arguments", arguments.len()))),
        };
        let value = self.operand(argument)?;
        match (value.ty.ty, digits) {
            (Type::Int, _) => Ok(value),
            (Type::Float, None) => {
                Ok(self.failing_cast(Cast::FloatRound, value, Type::Int, "conversion failed", surface))
            }
            (Type::Float, Some(_)) => {
                Err(Fault::new(format!("{argument} is float, which has no decimal digits to round to"))
                    .hint("use a Decimal, or round(x) for a whole number"))
            }
            (Type::Decimal { scale, .. }, None) => Ok(self.scale_down(value, scale, Type::Int)),
            (Type::Decimal { scale, .. }, Some(n)) if n < scale => Ok(self.scale_down(value, scale - n, decimal(n))),
            (Type::Decimal { scale, .. }, Some(n)) if n == scale => Ok(value),
            (Type::Decimal { .. }, Some(n)) => Ok(self.align(value, decimal(n), surface)),
            _ => Err(refuse(surface, &value)),
        }
    }

    /// A whole number beside a number: of a float by one conversion, of a decimal by another.
    fn whole(
        &mut self,
        surface: &Expr,
        value: Typed,
        of_float: Cast,
        of_decimal: impl FnOnce(u8) -> Cast,
    ) -> Checked<Typed> {
        match value.ty.ty {
            Type::Int => Ok(value),
            Type::Float => Ok(self.failing_cast(of_float, value, Type::Int, "conversion failed", surface)),
            Type::Decimal { scale: 0, .. } => Ok(self.cast(Cast::Relabel, value, Type::Int)),
            Type::Decimal { scale, .. } => Ok(self.cast(of_decimal(scale), value, Type::Int)),
            _ => Err(refuse(surface, &value)),
        }
    }

    /// A function of floats, or of ints that become floats.
    fn math(&mut self, surface: &Expr, op: MathOp, arguments: &[Expr]) -> Checked<Typed> {
        let mut floats = Vec::new();
        for argument in arguments {
            let value = self.operand(argument)?;
            floats.push(match value.ty.ty {
                Type::Int | Type::Float => self.align(value, Type::Float, surface),
                Type::Decimal { .. } => {
                    return Err(refuse(surface, &value).hint(format!("write float({argument})")).at(argument.span));
                }
                Type::Bool => return Err(refuse(surface, &value).hint(format!("write int({argument})"))),
                _ => return Err(refuse(surface, &value)),
            });
        }
        let reason = match op {
            MathOp::Atan2 | MathOp::Hypot => self.reasons.never(),
            _ => self.reasons.id(format!("math error in {surface}")),
        };
        Ok(Typed { ty: Type::Float.into(), node: Node::Math { op, arguments: floats, reason } })
    }

    fn scale_down(&mut self, value: Typed, by: u8, to: Type) -> Typed {
        let cast = if by == 0 { Cast::Relabel } else { Cast::ScaleRound { by } };
        self.cast(cast, value, to)
    }

    /// Types `Decimal('1.50')`, or `Decimal(x, 2)` of an int.
    fn make_decimal(&mut self, surface: &Expr, arguments: &[Expr]) -> Checked<Typed> {
        match arguments {
            [Expr { node: ExprNode::Literal(Value::Str(text)), .. }] => {
                let written = text.split_once('.').map_or(0, |(_, part)| part.len());
                let scale = u8::try_from(written).ok().filter(|s| *s <= DECIMAL_DIGITS_MAX);
                let value = scale.and_then(|s| Some((s, parse_decimal(text, DECIMAL_DIGITS_MAX, s)?)));
                match value {
                    Some((scale, unscaled)) => Ok(constant(decimal(scale), Value::Decimal(unscaled))),
                    None => Err(Fault::new(format!("{text:?} is no decimal of at most {DECIMAL_DIGITS_MAX} digits"))),
                }
            }
            [argument, scale] => {
                let scale = literal_scale(scale)?;
                let value = self.operand(argument)?;
                match value.ty.ty {
                    Type::Int => Ok(self.align(value, decimal(scale), surface)),
                    _ => Err(refuse(surface, &value).hint("Decimal(x, scale) takes an int")),
                }
            }
            _ => Err(Fault::new(format!("{surface} is no decimal"))
                .hint("write Decimal('1.50'), or Decimal(x, 2) of an int")),
        }
    }

    fn len(&mut self, surface: &Expr, arguments: &[Expr]) -> Checked<Typed> {
        let [argument] = exactly(surface, arguments)?;
        if let ExprNode::Event(name) = &argument.node {
            return self.length(name);
        }
        let value = self.operand(argument)?;
        match value.ty.ty {
            Type::Str | Type::Bytes => Ok(Typed { ty: Type::Int.into(), node: Node::Len(Box::new(value)) }),
            _ => Err(refuse(surface, &value)),
        }
    }

    /// A function of texts, of which it has at least the first argument, and ints.
    fn text_call(&mut self, surface: &Expr, op: TextCall, arguments: &[Expr]) -> Checked<Typed> {
        let texts = match op {
            TextCall::Find | TextCall::Part | TextCall::Parts => 2,
            TextCall::Replace => 3,
            _ => 1,
        };
        let mut typed = Vec::new();
        for (number, argument) in arguments.iter().enumerate() {
            let value = self.operand(argument)?;
            if value.ty.ty != (if number < texts { Type::Str } else { Type::Int }) {
                return Err(refuse(surface, &value));
            }
            typed.push(match (op, number) {
                (TextCall::Part | TextCall::Parts, 1) => self.separator(surface, value)?,
                _ => value,
            });
        }
        let reason = match op {
            _ if !op.may_fail(&typed) => self.reasons.never(),
            TextCall::Replace | TextCall::Zfill => self.reasons.id(TOO_MUCH_MEMORY),
            _ => self.reasons.id(format!("index out of range in {surface}")),
        };
        let ty = match op {
            TextCall::Find | TextCall::Parts | TextCall::SpacedParts => Type::Int,
            _ => Type::Str,
        };
        Ok(Typed { ty: ty.into(), node: Node::TextCall { op, arguments: typed, reason } })
    }

    /// Types a question for the parts of a text: by a separator, or by white space where that is None, as it is written or as it
    /// turns out to be.
    fn split(&mut self, surface: &Expr, [by_text, by_space]: [TextCall; 2], arguments: &[Expr]) -> Checked<Typed> {
        let [text, separator, rest @ ..] = arguments else { unreachable!("they were counted") };
        let spaced: Vec<Expr> = std::iter::once(text).chain(rest).cloned().collect();
        let given = self.expression(separator)?;
        if given.ty.ty == Type::Null {
            return self.text_call(surface, by_space, &spaced);
        }
        if !given.ty.nullable {
            return self.text_call(surface, by_text, arguments);
        }
        let present = Expr { node: ExprNode::OrZero(Box::new(separator.clone())), span: separator.span };
        let parted: Vec<Expr> = [text.clone(), present].into_iter().chain(rest.iter().cloned()).collect();
        let condition = Box::new(boolean(Node::IsNull(Box::new(given))));
        let then = Box::new(self.text_call(surface, by_space, &spaced)?);
        let otherwise = Box::new(self.text_call(surface, by_text, &parted)?);
        Ok(Typed { ty: then.ty, node: Node::IfElse { condition, then, otherwise } })
    }

    /// A text that is not empty.
    fn separator(&mut self, surface: &Expr, value: Typed) -> Checked<Typed> {
        match &value.node {
            Node::Const(Value::Str(text)) if text.is_empty() => {
                Err(Fault::new(format!("the separator is empty, in {surface}")).hint("give a text that parts others"))
            }
            Node::Const(_) => Ok(value),
            _ => {
                let reason = self.reasons.id(format!("empty separator in {surface}"));
                let node = Node::TextCall { op: TextCall::Separator, arguments: vec![value], reason };
                Ok(Typed { ty: Type::Str.into(), node })
            }
        }
    }

    fn text_test(&mut self, surface: &Expr, op: TextTest, arguments: &[Expr]) -> Checked<Typed> {
        let [left, right] = exactly(surface, arguments)?;
        let (left, right) = (self.operand(left)?, self.operand(right)?);
        if left.ty != right.ty || !left.ty.ty.is_bytes() {
            return Err(Fault::new(format!("{surface} is a question about {} and {}", left.ty, right.ty))
                .hint("both must be str, or both bytes"));
        }
        let node = Node::TextTest { op, left: Box::new(left), right: Box::new(right) };
        Ok(Typed { ty: Type::Bool.into(), node })
    }

    fn convert_int(&mut self, surface: &Expr, argument: &Expr, value: Typed) -> Checked<Typed> {
        let failed = "conversion failed";
        Ok(match value.ty.ty {
            Type::Int => value,
            Type::Bool => self.cast(Cast::BoolToInt, value, Type::Int),
            Type::Float => self.failing_cast(Cast::FloatToInt, value, Type::Int, failed, surface),
            Type::Decimal { scale: 0, .. } => self.cast(Cast::Relabel, value, Type::Int),
            Type::Decimal { scale, .. } => self.cast(Cast::ScaleTruncate { by: scale }, value, Type::Int),
            Type::Str => self.failing_cast(Cast::StrToInt, value, Type::Int, failed, surface),
            Type::Time | Type::Duration => {
                return Err(refuse(surface, &value).hint(format!("write {argument}.total_microseconds()")));
            }
            _ => return Err(refuse(surface, &value)),
        })
    }

    fn convert_float(&mut self, surface: &Expr, argument: &Expr, value: Typed) -> Checked<Typed> {
        Ok(match value.ty.ty {
            Type::Float => value,
            Type::Int => self.align(value, Type::Float, surface),
            Type::Decimal { scale, .. } => self.cast(Cast::WordToFloat { scale }, value, Type::Float),
            Type::Str => self.failing_cast(Cast::StrToFloat, value, Type::Float, "conversion failed", surface),
            Type::Bool => return Err(refuse(surface, &value).hint(format!("write float(int({argument}))"))),
            Type::Time | Type::Duration => {
                return Err(refuse(surface, &value).hint(format!("write {argument}.total_seconds()")));
            }
            _ => return Err(refuse(surface, &value)),
        })
    }

    fn convert_str(&mut self, surface: &Expr, value: Typed) -> Checked<Typed> {
        let cast = match value.ty.ty {
            Type::Str => return Ok(value),
            Type::Int => Cast::IntToStr,
            Type::Bool => Cast::BoolToStr,
            Type::Decimal { scale, .. } => Cast::DecimalToStr { scale },
            Type::Float => {
                return Err(refuse(surface, &value).hint("a float has no one text; keep it a float, or use a Decimal"));
            }
            _ => return Err(refuse(surface, &value)),
        };
        Ok(self.cast(cast, value, Type::Str))
    }

    /// Types a duration of `value` units of `unit` microseconds each.
    fn duration(&mut self, surface: &Expr, unit: i64, value: Typed) -> Checked<Typed> {
        if value.ty.ty != Type::Int {
            return Err(refuse(surface, &value).hint("give a whole number of a smaller unit"));
        }
        if let Node::Const(Value::Int(count)) = value.node {
            let product = count.checked_mul(unit).map(|us| constant(Type::Duration, Value::Duration(us)));
            return product.ok_or_else(|| Fault::new(format!("{surface} is too long")));
        }
        if unit == 1 {
            return Ok(self.cast(Cast::Relabel, value, Type::Duration));
        }
        let right = Box::new(constant(Type::Int, Value::Int(unit)));
        let reason = self.overflow(Type::Int, surface);
        let node = Node::Word { op: WordOp::Mul, left: Box::new(value), right, reason };
        Ok(Typed { ty: Type::Duration.into(), node })
    }
}

fn text(surface: &Expr, op: TextOp, value: Typed) -> Checked<Typed> {
    match value.ty.ty {
        Type::Str => Ok(Typed { ty: Type::Str.into(), node: Node::Text { op, value: Box::new(value) } }),
        _ => Err(refuse(surface, &value)),
    }
}

fn refuse(surface: &Expr, value: &Typed) -> Fault {
    Fault::new(format!("{surface} cannot take {}", value.ty.ty))
}

fn exactly<'e, const N: usize>(surface: &Expr, arguments: &'e [Expr]) -> Checked<&'e [Expr; N]> {
    let plural = if N == 1 { "" } else { "s" };
    arguments
        .try_into()
        .map_err(|_| Fault::new(format!("{surface} has {} arguments, not {N} argument{plural}", arguments.len())))
}

/// Returns a count of digits that is written out.
fn literal_scale(expr: &Expr) -> Checked<u8> {
    match expr.node {
        ExprNode::Literal(Value::Int(n)) if (0..=DECIMAL_DIGITS_MAX as i64).contains(&n) => Ok(n as u8),
        _ => Err(Fault::new(format!("{expr} is no number of digits"))
            .hint(format!("write a number from 0 to {DECIMAL_DIGITS_MAX}"))
            .at(expr.span)),
    }
}
