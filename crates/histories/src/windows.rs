//! Random windowed columns, and what can be asked of them.

use crate::ast::*;
use crate::expressions::Visible;
use crate::random::Random;
use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::{Aggregate, ColumnDef, ExprNode, WindowDef, WindowPart};

/// Returns a windowed column, over time in that unit.
pub fn random_window(random: &mut Random, name: String, time: Option<Type>) -> ColumnDef {
    let number = *random.pick(&[Type::Int, Type::Float, decimal(2), decimal(4)]);
    let Some(time) = time.filter(|_| random.chance(75)) else {
        let ty = *random.pick(&[number, number, Type::Time, Type::Str, Type::Bytes]);
        return windowed(&name, ty, WindowDef::Last(random.int(1, 5)));
    };
    let distinct = random.chance(40);
    let ty = match distinct {
        true => *random.pick(&[Type::Int, decimal(2), Type::Time, Type::Str, Type::Bytes]),
        false => *random.pick(&[number, number, Type::Time]),
    };
    // Times take steps of up to 7: windows are entered, left and leapt over.
    let slide = *random.pick(&[None, Some(1), Some(2), Some(3), Some(5)]);
    let span = slide.unwrap_or(1) * random.int(1, 4);
    let length = |length| if time == Type::Int { Value::Int(length) } else { Value::Duration(length) };
    windowed(&name, ty, WindowDef::Span { span: length(span), slide: slide.map(length), distinct })
}

/// Returns whether values can be added, and aggregates asked for, on an event whose time is of this type.
pub fn usable(column: &ColumnDef, time: Option<Type>) -> bool {
    match &column.window {
        // Records are what joins keep.
        None | Some(WindowDef::Records { .. }) => false,
        Some(WindowDef::Moments { .. } | WindowDef::Latest { .. } | WindowDef::Synopsis { .. }) => {
            unreachable!("no column is declared so")
        }
        Some(WindowDef::Last(_)) => true,
        Some(WindowDef::Span { span, .. }) => {
            time == Some(if matches!(span, Value::Int(_)) { Type::Int } else { Type::Time })
        }
    }
}

/// Returns every aggregate of a windowed column and of a part of it.
pub fn aggregates(role: &str, column: &ColumnDef) -> Vec<Visible> {
    use Aggregate::*;
    let value = column.ty.ty;
    let number = matches!(value, Type::Int | Type::Float | Type::Decimal { .. });
    let (part, distinct) = match column.window.as_ref().expect("a windowed column") {
        WindowDef::Records { .. }
        | WindowDef::Latest { .. }
        | WindowDef::Moments { .. }
        | WindowDef::Synopsis { .. } => unreachable!("not usable"),
        WindowDef::Last(count) => (WindowPart::Last((count / 2).max(1)), value != Type::Float),
        WindowDef::Span { span, slide, distinct } => {
            let least = match span {
                Value::Int(_) => Value::Int(1),
                _ => Value::Duration(1),
            };
            (WindowPart::Span(slide.clone().unwrap_or(least)), *distinct)
        }
    };
    let only_distinct = matches!(column.window, Some(WindowDef::Span { distinct: true, .. }));
    let is_last = matches!(column.window, Some(WindowDef::Last(_)));
    let optional = ColumnType::optional;
    let mean = if value == Type::Int { Type::Float } else { value };
    let all = [
        (Count, ColumnType::required(Type::Int), !only_distinct),
        (Distinct, ColumnType::required(Type::Int), distinct),
        (Sum, ColumnType::required(value), number && !only_distinct),
        (Mean, optional(mean), number && !only_distinct),
        (Min, optional(value), !value.is_bytes() && !only_distinct),
        (Max, optional(value), !value.is_bytes() && !only_distinct),
        (Variance, optional(Type::Float), number && is_last),
        (Stddev, optional(Type::Float), number && is_last),
        (Pvariance, optional(Type::Float), number && is_last),
        (Pstddev, optional(Type::Float), number && is_last),
    ];
    let visible = |(aggregate, ty, _), part: Option<&WindowPart>| {
        let (role, column) = (role.to_owned(), column.name.clone());
        Visible { expr: expr(ExprNode::Window { role, column, part: part.cloned(), aggregate }), ty, bounded: false }
    };
    all.into_iter()
        .filter(|(.., there)| *there)
        .flat_map(|asked| [visible(asked, None), visible(asked, Some(&part))])
        .collect()
}
