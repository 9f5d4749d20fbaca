//! Arithmetic and conversions, as [`WordOp`], [`FloatOp`] and [`Cast`] define them.

use tidemill_model::{Type, Value, format_decimal};
use tidemill_plan::{Cast, FloatOp, MathOp, ReasonId, WordOp};

/// Computes with words; `overflow` is the reason where the result does not fit.
pub fn word(op: WordOp, left: i64, right: i64, overflow: ReasonId) -> Result<i64, ReasonId> {
    let (l, r) = (i128::from(left), i128::from(right));
    if let WordOp::FloorDiv { zero } | WordOp::Mod { zero } | WordOp::DecimalDiv { zero, .. } = op
        && right == 0
    {
        return Err(zero);
    }
    let result = match op {
        WordOp::Add => l + r,
        WordOp::Sub => l - r,
        WordOp::Mul => l * r,
        WordOp::FloorDiv { .. } => floor_div(l, r),
        WordOp::Mod { .. } => l - r * floor_div(l, r),
        WordOp::DecimalDiv { shift, .. } => round_half_even(l * 10i128.pow(shift.into()), r),
        WordOp::Min => l.min(r),
        WordOp::Max => l.max(r),
    };
    i64::try_from(result).map_err(|_| overflow)
}

/// Returns the quotient rounded towards minus infinity.
fn floor_div(left: i128, right: i128) -> i128 {
    let quotient = left / right;
    let inexact = left % right != 0;
    if inexact && (left < 0) != (right < 0) { quotient - 1 } else { quotient }
}

/// Returns the quotient rounded to the nearest integer, and to the even one of two that are as near.
fn round_half_even(left: i128, right: i128) -> i128 {
    let floor = floor_div(left, right);
    // Between 0 and 1 in units of the divisor.
    let rest = (left - floor * right).abs();
    let odd = floor % 2 != 0;
    match (rest * 2).cmp(&right.abs()) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Equal => floor + i128::from(odd),
        std::cmp::Ordering::Greater => floor + 1,
    }
}

/// Computes with floats; none for a division by zero.
pub fn float(op: FloatOp, left: f64, right: f64) -> Option<f64> {
    let divides = matches!(op, FloatOp::Div | FloatOp::FloorDiv | FloatOp::Mod);
    if divides && right == 0.0 {
        return None;
    }
    Some(match op {
        FloatOp::Add => left + right,
        FloatOp::Sub => left - right,
        FloatOp::Mul => left * right,
        FloatOp::Div => left / right,
        FloatOp::FloorDiv => float_divmod(left, right).0,
        FloatOp::Mod => float_divmod(left, right).1,
        FloatOp::Min => {
            if right < left {
                right
            } else {
                left
            }
        }
        FloatOp::Max => {
            if right > left {
                right
            } else {
                left
            }
        }
    })
}

/// Returns the floored quotient and the remainder that goes with it.
fn float_divmod(left: f64, right: f64) -> (f64, f64) {
    let mut remainder = left % right;
    let mut quotient = (left - remainder) / right;
    if remainder == 0.0 {
        remainder = 0.0f64.copysign(right);
    } else if (remainder < 0.0) != (right < 0.0) {
        remainder += right;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0f64.copysign(left / right), remainder);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, remainder)
}

/// Returns a conversion of a non-null value to type `to`; none where it fails.
pub fn cast(cast: Cast, value: &Value, to: Type) -> Option<Value> {
    let number = |word: i128| i64::try_from(word).ok().map(|word| Value::from_word(to, word));
    match (cast, value) {
        (Cast::BoolToInt, Value::Bool(value)) => number(i128::from(*value)),
        (Cast::BoolToStr, Value::Bool(value)) => Some(Value::Str(if *value { "True" } else { "False" }.into())),
        (Cast::FloatToInt, Value::Float(value)) => integer(value.trunc()).map(Value::Int),
        (Cast::FloatRound, Value::Float(value)) => integer(value.round_ties_even()).map(Value::Int),
        (Cast::FloatFloor, Value::Float(value)) => integer(value.floor()).map(Value::Int),
        (Cast::FloatCeil, Value::Float(value)) => integer(value.ceil()).map(Value::Int),
        (Cast::StrToInt, Value::Str(text)) => digits(text)?.parse().ok().map(Value::Int),
        (Cast::StrToFloat, Value::Str(text)) => digits(text)?.parse().ok().map(Value::Float),
        (cast, value) => {
            let word = value.word().unwrap_or_else(|| panic!("{value} cannot be cast by {cast:?}"));
            let wide = i128::from(word);
            let power = |exponent: u8| 10i128.pow(exponent.into());
            match cast {
                Cast::Relabel => number(wide),
                Cast::IntToFloat => Some(Value::Float(word as f64)),
                Cast::WordToFloat { scale } => Some(Value::Float(word as f64 / power(scale) as f64)),
                Cast::ScaleUp { by } => number(wide * power(by)),
                Cast::ScaleRound { by } => number(round_half_even(wide, power(by))),
                Cast::ScaleTruncate { by } => number(wide / power(by)),
                Cast::ScaleFloor { by } => number(wide.div_euclid(power(by))),
                Cast::ScaleCeil { by } => number(-(-wide).div_euclid(power(by))),
                Cast::FitDigits { digits } => number(wide).filter(|_| wide.abs() < power(digits)),
                Cast::IntToStr => Some(Value::Str(word.to_string())),
                Cast::DecimalToStr { scale } => Some(Value::Str(format_decimal(word, scale))),
                _ => panic!("{value} cannot be cast by {cast:?}"),
            }
        }
    }
}

/// A function of floats; none where the result is NaN or infinite and the arguments do not say so.
pub fn math(op: MathOp, arguments: &[f64]) -> Option<f64> {
    let value = match (op, arguments) {
        (MathOp::Sqrt, &[x]) => x.sqrt(),
        (MathOp::Fmod, &[x, y]) => x % y,
        (MathOp::Exp, &[x]) => libm::exp(x),
        (MathOp::Log, &[x]) => libm::log(x),
        (MathOp::Log2, &[x]) => libm::log2(x),
        (MathOp::Log10, &[x]) => libm::log10(x),
        (MathOp::Pow, &[x, y]) => libm::pow(x, y),
        (MathOp::Sin, &[x]) => libm::sin(x),
        (MathOp::Cos, &[x]) => libm::cos(x),
        (MathOp::Tan, &[x]) => libm::tan(x),
        (MathOp::Atan2, &[y, x]) => libm::atan2(y, x),
        (MathOp::Hypot, &[x, y]) => return Some(libm::hypot(x, y)),
        _ => panic!("{op} of {} arguments", arguments.len()),
    };
    let is_known = if value.is_nan() {
        arguments.iter().any(|x| x.is_nan())
    } else {
        value.is_finite() || arguments.iter().any(|x| !x.is_finite())
    };
    is_known.then_some(value)
}

/// Returns a whole float as an integer, where it is one of 64 bits.
fn integer(whole: f64) -> Option<i64> {
    let limit = 2f64.powi(63);
    (-limit <= whole && whole < limit).then_some(whole as i64)
}

/// Returns a text without Python's white space at both ends.
pub fn stripped(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{1c}' | '\u{1d}' | '\u{1e}' | '\u{1f}'))
}

/// Returns the text of a number as Python reads it: with white space of Unicode around it, and with underscores, each
/// between two digits.
fn digits(text: &str) -> Option<String> {
    let mut found = String::new();
    let mut rest = text.trim().chars().peekable();
    while let Some(character) = rest.next() {
        let is_between = found.ends_with(|c: char| c.is_ascii_digit()) && rest.peek().is_some_and(char::is_ascii_digit);
        match character {
            '_' if is_between => {}
            '_' => return None,
            other => found.push(other),
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERFLOW: ReasonId = 7;
    const ZERO: ReasonId = 8;

    #[test]
    fn words_round_towards_minus_infinity() {
        let div = |l, r| word(WordOp::FloorDiv { zero: ZERO }, l, r, OVERFLOW);
        let rem = |l, r| word(WordOp::Mod { zero: ZERO }, l, r, OVERFLOW);
        for (l, r, quotient, rest) in [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0)] {
            assert_eq!((div(l, r), rem(l, r)), (Ok(quotient), Ok(rest)), "{l} and {r}");
        }
        assert_eq!((div(1, 0), rem(1, 0)), (Err(ZERO), Err(ZERO)));
        assert_eq!((div(i64::MIN, -1), rem(i64::MIN, -1)), (Err(OVERFLOW), Ok(0)));
        assert_eq!(word(WordOp::Mul, i64::MIN, -1, OVERFLOW), Err(OVERFLOW));
        assert_eq!(word(WordOp::Add, i64::MAX, 1, OVERFLOW), Err(OVERFLOW));
    }

    #[test]
    fn decimals_round_half_to_even() {
        let div = |l, r| word(WordOp::DecimalDiv { shift: 0, zero: ZERO }, l, r, OVERFLOW);
        for (l, r, quotient) in [(5, 2, 2), (7, 2, 4), (-5, 2, -2), (-7, 2, -4), (5, -2, -2), (2, 3, 1), (-1, 3, 0)] {
            assert_eq!(div(l, r), Ok(quotient), "{l} / {r}");
        }
        let shifted = |l, r, shift| word(WordOp::DecimalDiv { shift, zero: ZERO }, l, r, OVERFLOW);
        assert_eq!(shifted(1, 3, 6), Ok(333_333));
        assert_eq!(shifted(i64::MAX, i64::MAX, 18), Ok(1_000_000_000_000_000_000));
        assert_eq!(shifted(i64::MAX, 1, 1), Err(OVERFLOW));
        assert_eq!(shifted(1, 0, 6), Err(ZERO));
    }

    #[test]
    fn floats_divide_as_in_python() {
        // Left, right, and what CPython 3 says of `//` and `%`.
        let cases: [(f64, f64, f64, f64); 8] = [
            (7.0, 2.0, 3.0, 1.0),
            (-7.0, 2.0, -4.0, 1.0),
            (7.0, -2.0, -4.0, -1.0),
            (0.3, 0.1, 2.0, 0.09999999999999998),
            (-0.0, 2.0, -0.0, 0.0),
            (0.0, -2.0, -0.0, -0.0),
            (1.0, f64::INFINITY, 0.0, 1.0),
            (-1.0, f64::INFINITY, -1.0, f64::INFINITY),
        ];
        for (l, r, quotient, rest) in cases {
            let got = [FloatOp::FloorDiv, FloatOp::Mod].map(|op| float(op, l, r).map(f64::to_bits));
            assert_eq!(got, [Some(quotient.to_bits()), Some(rest.to_bits())], "{l} and {r}");
        }
        assert!([FloatOp::Div, FloatOp::FloorDiv, FloatOp::Mod].iter().all(|op| float(*op, 1.0, -0.0).is_none()));
        assert_eq!(float(FloatOp::Min, f64::NAN, 1.0).map(f64::is_nan), Some(true));
        assert_eq!(float(FloatOp::Max, 1.0, f64::NAN), Some(1.0));
    }

    #[test]
    fn casts_fail_at_their_borders() {
        let to_int = |c, v| cast(c, &v, Type::Int);
        let border = 2f64.powi(63);
        assert_eq!(to_int(Cast::FloatToInt, Value::Float(border)), None);
        assert_eq!(to_int(Cast::FloatToInt, Value::Float(-border)), Some(Value::Int(i64::MIN)));
        assert_eq!(to_int(Cast::FloatToInt, Value::Float(f64::NAN)), None);
        assert_eq!(to_int(Cast::FloatToInt, Value::Float(-1.9)), Some(Value::Int(-1)));
        assert_eq!(to_int(Cast::FloatRound, Value::Float(2.5)), Some(Value::Int(2)));
        assert_eq!(to_int(Cast::FloatRound, Value::Float(0.49999999999999994)), Some(Value::Int(0)));
        for (text, value) in [
            ("+5", Some(5)),
            ("-0", Some(0)),
            ("", None),
            ("-", None),
            (" 1\u{85}", Some(1)),
            ("1\u{1f}", None),
            ("1_0", Some(10)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
        ] {
            assert_eq!(to_int(Cast::StrToInt, Value::Str(text.into())), value.map(Value::Int), "{text:?}");
        }
        let decimal = Type::Decimal { digits: 18, scale: 2 };
        assert_eq!(cast(Cast::FitDigits { digits: 2 }, &Value::Decimal(-99), decimal), Some(Value::Decimal(-99)));
        assert_eq!(cast(Cast::FitDigits { digits: 2 }, &Value::Decimal(100), decimal), None);
        assert_eq!(cast(Cast::ScaleUp { by: 18 }, &Value::Int(10), decimal), None);
        assert_eq!(to_int(Cast::ScaleTruncate { by: 1 }, Value::Decimal(-19)), Some(Value::Int(-1)));
        assert_eq!(to_int(Cast::ScaleRound { by: 1 }, Value::Decimal(-25)), Some(Value::Int(-2)));
    }
}
