//! Expressions as text, in Python's notation: for the reasons of aborts and for messages.
//!
//! The event is always called `ev`. Parentheses appear only where the tree needs them.

use crate::{
    Aggregate, Ask, BinaryOp, CompareOp, Expr, ExprNode, Function, MathOp, TextCall, UnaryOp, WindowFunction,
    WindowPart, Zone,
};
use std::fmt::{self, Display, Formatter};
use tidemill_model::Value;

/// The precedence of an expression, loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Conditional,
    Or,
    And,
    Not,
    Comparison,
    Sum,
    Product,
    Sign,
    Atom,
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.node {
            ExprNode::Literal(value) => f.write_str(&literal(value)),
            ExprNode::Local(name) => f.write_str(name),
            // A field of one side of a join.
            ExprNode::Event(name) if name.contains('.') => f.write_str(name),
            ExprNode::Event(name) => write!(f, "ev.{name}"),
            ExprNode::Element { variable, field } if field.is_empty() => f.write_str(variable),
            ExprNode::Element { variable, field } => write!(f, "{variable}.{field}"),
            ExprNode::Cell { role, column } => write!(f, "{role}.{column}"),
            ExprNode::Window { role, column, part, aggregate } => {
                write!(f, "{role}.{column}")?;
                window_part(f, part.as_ref())?;
                write!(f, ".{aggregate}()")
            }
            ExprNode::Aggregate { function, value, by, argument } => {
                f.write_str("w.")?;
                let argument = argument.as_ref().map(ToString::to_string).unwrap_or_default();
                match (value, by) {
                    (Some(value), Some(by)) => write!(f, "{function}({by}).{value}"),
                    (Some(value), None) => write!(f, "{value}.{function}({argument})"),
                    _ => write!(f, "{function}()"),
                }
            }
            ExprNode::Synopsis { role, column, ask, argument } => write!(f, "{role}.{column}.{ask}({argument})"),
            ExprNode::NextRecord { role, column, part, after } => {
                write!(f, "{role}.{column}")?;
                window_part(f, part.as_ref())?;
                write!(f, ".next({after})")
            }
            ExprNode::RecordField { role, column, at, field, .. } => write!(f, "{role}.{column}[{at}].{field}"),
            ExprNode::Pack(values) => {
                f.write_str("pack(")?;
                list(f, values)?;
                f.write_str(")")
            }
            ExprNode::Period { edge, time, .. } => write!(f, "period({time}).{edge}"),
            ExprNode::DatePart { part, zone, time } => write!(f, "{}{}.{part}", at(time, Level::Atom), in_zone(zone)),
            ExprNode::Exists(role) => write!(f, "{role}.exists"),
            ExprNode::Rows(role) => write!(f, "len({role})"),
            ExprNode::Place => f.write_str("place"),
            ExprNode::Length(list) => write!(f, "len(ev.{list})"),
            ExprNode::Unary { op: UnaryOp::Neg, value } => write!(f, "-{}", at(value, Level::Sign)),
            ExprNode::Unary { op: UnaryOp::Not, value } => write!(f, "not {}", at(value, Level::Not)),
            ExprNode::Binary { op, left, right } => {
                let level = binary_level(*op);
                write!(f, "{} {op} {}", at(left, level), above(right, level))
            }
            ExprNode::Compare { op, left, right } => {
                write!(f, "{} {op} {}", above(left, Level::Comparison), above(right, Level::Comparison))
            }
            ExprNode::All(parts) => join(f, parts, " and ", Level::And),
            ExprNode::Any(parts) => join(f, parts, " or ", Level::Or),
            ExprNode::IfElse { condition, then, otherwise } => {
                let inner = Level::Conditional;
                write!(f, "{} if {} else {}", above(then, inner), above(condition, inner), at(otherwise, inner))
            }
            ExprNode::IsNull(value) => write!(f, "{} is None", above(value, Level::Comparison)),
            ExprNode::Fitted { value, .. } => value.fmt(f),
            ExprNode::OrZero(value) => write!(f, "{} or 0", above(value, Level::Or)),
            ExprNode::In { value, options } => {
                write!(f, "{} in (", above(value, Level::Comparison))?;
                list(f, options)?;
                f.write_str(")")
            }
            ExprNode::Call { function, arguments } => call(f, *function, arguments),
        }
    }
}

/// Returns the text that puts a time into a zone; empty for UTC.
pub(crate) fn in_zone(zone: &Zone) -> String {
    if zone.name == "UTC" { String::new() } else { format!(".tz({:?})", zone.name) }
}

fn level(expr: &Expr) -> Level {
    match &expr.node {
        ExprNode::IfElse { .. } => Level::Conditional,
        ExprNode::Any(parts) if parts.len() > 1 => Level::Or,
        ExprNode::All(parts) if parts.len() > 1 => Level::And,
        ExprNode::Unary { op: UnaryOp::Not, .. } => Level::Not,
        ExprNode::Compare { .. } | ExprNode::IsNull(_) | ExprNode::In { .. } => Level::Comparison,
        ExprNode::Call { function: Function::Contains, .. } => Level::Comparison,
        ExprNode::Binary { op, .. } => binary_level(*op),
        ExprNode::Unary { op: UnaryOp::Neg, .. } => Level::Sign,
        _ => Level::Atom,
    }
}

pub(crate) fn binary_level(op: BinaryOp) -> Level {
    match op {
        BinaryOp::Add | BinaryOp::Sub => Level::Sum,
        _ => Level::Product,
    }
}

/// Returns the text of `expr` where something of level `least` or tighter may stand.
fn at(expr: &Expr, least: Level) -> String {
    if level(expr) >= least { expr.to_string() } else { format!("({expr})") }
}

/// Returns the text of `expr` where only something tighter than `level` may stand.
fn above(expr: &Expr, outer: Level) -> String {
    if level(expr) > outer { expr.to_string() } else { format!("({expr})") }
}

/// Returns the part of a window that is asked for.
fn window_part(f: &mut fmt::Formatter<'_>, part: Option<&WindowPart>) -> fmt::Result {
    match part {
        None => Ok(()),
        Some(WindowPart::Span(span)) => write!(f, ".window({})", literal(span)),
        Some(WindowPart::Last(count)) => write!(f, ".last({count})"),
    }
}

fn join(f: &mut Formatter<'_>, parts: &[Expr], word: &str, level: Level) -> fmt::Result {
    let texts: Vec<String> = parts.iter().map(|p| above(p, level)).collect();
    f.write_str(&texts.join(word))
}

fn list(f: &mut Formatter<'_>, parts: &[Expr]) -> fmt::Result {
    let texts: Vec<String> = parts.iter().map(Expr::to_string).collect();
    f.write_str(&texts.join(", "))
}

fn call(f: &mut Formatter<'_>, function: Function, arguments: &[Expr]) -> fmt::Result {
    use Function::*;
    match (function, arguments) {
        (Slice, [text, start, stop]) => {
            let [start, stop] = [(start, 0), (stop, i64::MAX)].map(|(place, default)| given(place, default));
            write!(f, "{}[{start}:{stop}]", at(text, Level::Atom))
        }
        (At, [text, place]) => write!(f, "{}[{place}]", at(text, Level::Atom)),
        (SplitPart, [text, separator, most, index]) => {
            write!(f, "{}[{index}]", split(text, separator, most))
        }
        (SplitCount, [text, separator, most]) => write!(f, "len({})", split(text, separator, most)),
        (Find | Replace | Zfill, [text, rest @ ..]) => {
            let defaults: &[i64] = match function {
                Find => &[0, i64::MAX],
                Replace => &[-1],
                _ => &[],
            };
            let (first, last) = rest.split_at(rest.len() - defaults.len().min(rest.len()));
            let mut texts: Vec<String> = first.iter().map(Expr::to_string).collect();
            let is_left_out = |(place, default): (&Expr, &i64)| given(place, *default).is_empty();
            let said = last.len() - last.iter().zip(defaults).rev().take_while(|of| is_left_out(*of)).count();
            texts.extend(last[..said].iter().map(Expr::to_string));
            write!(f, "{}.{function}({})", at(text, Level::Atom), texts.join(", "))
        }
        (Contains, [text, part]) => {
            write!(f, "{} in {}", above(part, Level::Comparison), above(text, Level::Comparison))
        }
        (Lower | Upper | Strip | StartsWith | EndsWith | TotalMicroseconds | TotalSeconds, [value, rest @ ..]) => {
            write!(f, "{}.{function}(", at(value, Level::Atom))?;
            list(f, rest)?;
            f.write_str(")")
        }
        _ => {
            write!(f, "{function}(")?;
            list(f, arguments)?;
            f.write_str(")")
        }
    }
}

/// The text of an int; nothing where it is what it is when it is left out.
fn given(expr: &Expr, default: i64) -> String {
    match expr.node {
        ExprNode::Literal(Value::Int(value)) if value == default => String::new(),
        _ => expr.to_string(),
    }
}

/// The parts of a text.
fn split(text: &Expr, separator: &Expr, most: &Expr) -> String {
    let is_white_space = matches!(separator.node, ExprNode::Literal(Value::Null));
    let most = given(most, -1);
    let arguments = match (is_white_space, most.is_empty()) {
        (true, true) => String::new(),
        (false, true) => separator.to_string(),
        _ => format!("{separator}, {most}"),
    };
    format!("{}.split({arguments})", at(text, Level::Atom))
}

/// Returns a constant as Python would write it, as far as Python has a notation for it.
pub(crate) fn literal(value: &Value) -> String {
    match value {
        Value::Duration(us) => duration(*us),
        Value::Time(us) => format!("Time({us})"),
        other => other.to_string(),
    }
}

/// Returns a duration as text, in the largest unit of which it is a whole number.
fn duration(us: i64) -> String {
    const UNITS: [(&str, i64); 5] = [
        ("days", 86_400_000_000),
        ("hours", 3_600_000_000),
        ("minutes", 60_000_000),
        ("seconds", 1_000_000),
        ("milliseconds", 1_000),
    ];
    let unit = UNITS.into_iter().find(|(_, unit)| us != 0 && us % unit == 0);
    let (name, unit) = unit.unwrap_or(("microseconds", 1));
    format!("{name}({})", us / unit)
}

impl Display for BinaryOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::Mod => "%",
        })
    }
}

impl Display for CompareOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        })
    }
}

impl Display for Aggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Aggregate::Count => "count",
            Aggregate::Sum => "sum",
            Aggregate::Mean => "mean",
            Aggregate::Min => "min",
            Aggregate::Max => "max",
            Aggregate::Distinct => "distinct",
            Aggregate::Variance => "variance",
            Aggregate::Stddev => "stddev",
            Aggregate::Pvariance => "pvariance",
            Aggregate::Pstddev => "pstddev",
        })
    }
}

impl Display for WindowFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WindowFunction::Count => "count",
            WindowFunction::Sum => "sum",
            WindowFunction::Mean => "mean",
            WindowFunction::Min => "min",
            WindowFunction::Max => "max",
            WindowFunction::First => "first",
            WindowFunction::Last => "last",
            WindowFunction::ArgMin => "argmin",
            WindowFunction::ArgMax => "argmax",
            WindowFunction::Distinct => "distinct",
            WindowFunction::Any => "any",
            WindowFunction::All => "all",
            WindowFunction::Variance => "variance",
            WindowFunction::Stddev => "stddev",
            WindowFunction::Pvariance => "pvariance",
            WindowFunction::Pstddev => "pstddev",
            WindowFunction::TopValue => "top_value",
            WindowFunction::TopCount => "top_count",
            WindowFunction::ApproxDistinct => "approx_distinct",
            WindowFunction::ApproxQuantile => "approx_quantile",
            WindowFunction::ApproxCount => "approx_count",
        })
    }
}

impl Display for Ask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ask::Value => "value",
            Ask::Times => "times",
            Ask::Distinct => "distinct",
            Ask::Quantile => "quantile",
            Ask::Frequency => "frequency",
        })
    }
}

impl Display for MathOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MathOp::Sqrt => "sqrt",
            MathOp::Fmod => "fmod",
            MathOp::Exp => "exp",
            MathOp::Log => "log",
            MathOp::Log2 => "log2",
            MathOp::Log10 => "log10",
            MathOp::Pow => "pow",
            MathOp::Sin => "sin",
            MathOp::Cos => "cos",
            MathOp::Tan => "tan",
            MathOp::Atan2 => "atan2",
            MathOp::Hypot => "hypot",
        })
    }
}

impl Display for TextCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextCall::Find => "find",
            TextCall::Replace => "replace",
            TextCall::Slice => "slice",
            TextCall::At => "at",
            TextCall::Zfill => "zfill",
            TextCall::Part | TextCall::SpacedPart => "part",
            TextCall::Parts | TextCall::SpacedParts => "parts",
            TextCall::Separator => "separator",
        })
    }
}

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        use Function::*;
        f.write_str(match self {
            Abs => "abs",
            Min => "min",
            Max => "max",
            Round => "round",
            Len => "len",
            Lower => "lower",
            Upper => "upper",
            Strip => "strip",
            StartsWith => "startswith",
            EndsWith => "endswith",
            Contains => "in",
            Int => "int",
            Float => "float",
            Str => "str",
            Decimal => "Decimal",
            Microseconds => "microseconds",
            Milliseconds => "milliseconds",
            Seconds => "seconds",
            Minutes => "minutes",
            Hours => "hours",
            Days => "days",
            TotalMicroseconds => "total_microseconds",
            TotalSeconds => "total_seconds",
            Floor => "floor",
            Ceil => "ceil",
            Trunc => "trunc",
            Sqrt => "sqrt",
            Fmod => "fmod",
            Exp => "exp",
            Log => "log",
            Log2 => "log2",
            Log10 => "log10",
            Pow => "pow",
            Sin => "sin",
            Cos => "cos",
            Tan => "tan",
            Atan2 => "atan2",
            Hypot => "hypot",
            Find => "find",
            Replace => "replace",
            Slice => "slice",
            At => "at",
            Zfill => "zfill",
            SplitPart | SplitCount => "split",
        })
    }
}
