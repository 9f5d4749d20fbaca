//! Casts to `numeric` without digits, which has all that there are in PostgreSQL and three after the point in the engine.
//!
//! A literal is cast to as many digits as it has. All else is cast to 15 after the point, by its text, so that a float has
//! the digits that it is written with; where texts and decimals have more, the query is refused. Rows are shown with as
//! many digits as their column needs (`tidemill/sql.py`).

use super::super::error::{PgError, PgResult, code};
use super::rewrite::name_of_type;
use sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, Value, ValueWithSpan};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

/// The most digits of the engine's decimals, and of ours.
const DIGITS_MAX: usize = 38;
const DIGITS: usize = 18;

/// Digits after the point of what is no literal. Products of two have twice as many.
const SCALE: usize = 15;

/// Returns whether a type is `numeric` without digits.
pub fn is_bare(ty: &DataType) -> bool {
    match ty {
        DataType::Numeric(ExactNumberInfo::None)
        | DataType::Decimal(ExactNumberInfo::None)
        | DataType::Dec(ExactNumberInfo::None) => true,
        DataType::Custom(_, arguments) if arguments.is_empty() => name_of_type(ty).as_deref() == Some("numeric"),
        _ => false,
    }
}

/// Returns an expression as a `numeric`, in the words of the engine.
pub fn cast(expression: &Expr) -> PgResult<Expr> {
    if let Some(text) = literal(expression)
        && let Some((digits, scale)) = digits_of(text)
    {
        return literal_cast(text, digits, scale);
    }
    let text = format!("CAST({expression} AS VARCHAR)");
    let more = format!("[.][0-9]{{{SCALE}}}[0-9]*[1-9]|[eE]-");
    let sql = format!(
        "CASE WHEN typeof({expression}) NOT IN ('DOUBLE', 'FLOAT') AND regexp_matches({text}, '{more}') \
         THEN error('a value has more than {SCALE} digits after the point; cast it to numeric(digits, scale)') \
         ELSE CAST({text} AS DECIMAL({DIGITS_MAX}, {SCALE})) END"
    );
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&sql).and_then(|mut parser| parser.parse_expr());
    parsed.map(|case| Expr::Nested(Box::new(case))).map_err(|error| PgError::new(code::SYNTAX, error.to_string()))
}

/// Refuses a number of a query that the engine would take as another one: it is beyond floats, or has more digits than
/// decimals have.
pub fn check_number(text: &str) -> PgResult<()> {
    let refused = |why: &str| Err(PgError::new(code::OUT_OF_RANGE, format!("the number {text} {why}")));
    if text.contains(['e', 'E']) {
        let is_beyond = text.parse::<f64>().is_ok_and(f64::is_infinite);
        return if is_beyond { refused("is beyond the largest float") } else { Ok(()) };
    }
    match digits_of(text) {
        Some((digits, 1..)) if digits > DIGITS_MAX => refused(&format!("has more than {DIGITS_MAX} digits")),
        _ => Ok(()),
    }
}

/// Returns the text of a literal.
fn literal(expression: &Expr) -> Option<&str> {
    let Expr::Value(value) = expression else { return None };
    match &value.value {
        Value::Number(text, _) | Value::SingleQuotedString(text) => Some(text.trim()),
        _ => None,
    }
}

fn literal_cast(text: &str, digits: usize, scale: usize) -> PgResult<Expr> {
    if digits > DIGITS_MAX {
        let message = format!("the numeric {text} has more than {DIGITS_MAX} digits");
        return Err(PgError::new(code::OUT_OF_RANGE, message));
    }
    let digits = if digits <= DIGITS { DIGITS } else { DIGITS_MAX };
    Ok(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(ValueWithSpan::from(Value::SingleQuotedString(text.to_owned())))),
        data_type: DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits as u64, scale as i64)),
        format: None,
    })
}

/// Returns the digits that a number has, in all and after the point; none if it is no number.
fn digits_of(text: &str) -> Option<(usize, usize)> {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + part.len() == 0 || !is_digits(whole) || !is_digits(part) {
        return None;
    }
    let scale = (part.len() as i64 - i64::from(exponent)).max(0) as usize;
    let before = whole.trim_start_matches('0').len() as i64 + i64::from(exponent);
    Some((before.max(0) as usize + scale, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_the_digits_that_they_are_written_with() {
        let cases = [
            ("1.23456", Some((6, 5))),
            ("-000.50", Some((2, 2))),
            ("12", Some((2, 0))),
            (".5", Some((1, 1))),
            ("1.5e3", Some((4, 0))),
            ("1.5e-3", Some((4, 4))),
            ("1e40", Some((41, 0))),
            ("NaN", None),
            ("", None),
            (".", None),
            ("1.2.3", None),
        ];
        for (text, digits) in cases {
            assert_eq!(digits_of(text), digits, "{text}");
        }
        let number = |text: &str| Expr::Value(ValueWithSpan::from(Value::Number(text.to_owned(), false)));
        let shown = |text| cast(&number(text)).map(|cast| cast.to_string());
        assert_eq!(shown("1.23456").unwrap(), "CAST('1.23456' AS DECIMAL(18,5))");
        assert_eq!(shown("123456789012345678901.5").unwrap(), "CAST('123456789012345678901.5' AS DECIMAL(38,1))");
        assert!(shown("1e40").is_err());
    }
}
