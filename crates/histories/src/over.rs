//! Random windows over streams.

use crate::ast::*;
use crate::random::Random;
use tidemill_model::{ColumnType, Field, FieldType, Schema, Type, Value};
use tidemill_plan::build::cell;
use tidemill_plan::{
    Ask, ColumnDef, Expr, ExprNode, OverDef, OwnDef, Periods, Record, Stmt, StmtNode, StreamRef, TableDef, TopDef,
    TransactionDef, Unit, WindowFunction, WindowsDef, Zone,
};

/// A table of which each row is to have results, and a group that is its key.
pub type Rows = (String, Vec<(String, Expr)>);

/// Returns a window over a stream of a schema; not every one can be: a stream may not hold its time.
pub fn random_over(
    random: &mut Random,
    name: &str,
    input: StreamRef,
    schema: &Schema,
    time: Type,
    rows: Option<Rows>,
) -> TransactionDef {
    let is_key = |ty: Type| !matches!(ty, Type::Float | Type::Duration | Type::Null);
    let scalars: Vec<(&str, Type)> = schema
        .fields
        .iter()
        .filter_map(|field| match field.ty {
            FieldType::Scalar(ty) if !field.name.contains('.') => Some((field.name.as_str(), ty.ty)),
            _ => None,
        })
        .collect();
    let keys: Vec<&str> = scalars.iter().filter(|(_, ty)| is_key(*ty)).map(|(name, _)| *name).collect();
    let mut by: Vec<(String, Expr)> = Vec::new();
    for _ in 0..*random.pick(&[0, 1, 1, 1, 2]) {
        let key = random.pick_any(&keys).filter(|key| !matches!(**key, "start" | "end"));
        if let Some(key) = key.filter(|key| !by.iter().any(|(name, _)| name == *key)) {
            by.push((key.to_string(), event(key)));
        }
    }
    if random.chance(16)
        && let Some(top) = random_top(random, schema)
    {
        let windows = WindowsDef::Counting { count: 1 };
        let over = Some(OverDef { by, windows, early: None, every: None, top: Some(top), first: None, own: vec![] });
        return operator(name, input, over);
    }
    if random.chance(12) {
        let within = random.between(1, 40) as i64;
        let first = Some(if time == Type::Int { Value::Int(within) } else { Value::Duration(within) });
        let over = Some(OverDef {
            by,
            windows: WindowsDef::Counting { count: 1 },
            early: None,
            every: None,
            top: None,
            first,
            own: vec![],
        });
        return operator(name, input, over);
    }
    if rows.is_none() && random.chance(45) {
        by.retain(|(key, _)| scalars.iter().any(|(name, ty)| name == key && ty.is_word()));
        return random_plain(random, name, input, &scalars, by, time);
    }
    let windows = random_windows(random, time);
    let early = random_early(random, &windows);
    let are_empty = matches!(windows, WindowsDef::Tumbling { .. } | WindowsDef::Sliding { .. });
    let every = rows.filter(|_| are_empty).map(|(table, key)| {
        by = key;
        table
    });
    let mut fields: Vec<(String, Expr)> = by.iter().map(|(name, _)| (name.clone(), event(name))).collect();
    for bound in ["start", "end"] {
        if random.chance(80) {
            fields.push((bound.into(), event(bound)));
        }
    }
    for number in 0..random.between(1, 4) {
        if let Some(aggregate) = random_aggregate(random, &scalars) {
            fields.push((format!("a{number}"), aggregate));
        }
    }
    fields.push(("n".into(), count()));
    let own: Vec<OwnDef> = random_own(random, &scalars, &windows).into_iter().collect();
    for of in own.iter().flat_map(|own| &own.state) {
        fields.push((format!("own_{}", of.name), cell("own", &of.name)));
    }
    let mut body: Vec<Stmt> = Vec::new();
    if random.chance(30) {
        let few = compare(tidemill_plan::CompareOp::Lt, count(), int(2));
        body.push(stmt(StmtNode::If {
            condition: few,
            then: vec![stmt(StmtNode::Return { record: None })],
            otherwise: vec![],
        }));
    }
    if random.chance(20) {
        let some = compare(tidemill_plan::CompareOp::Lt, count(), int(4));
        body.push(stmt(StmtNode::Require { condition: some, reason: "too many".into() }));
    }
    body.push(stmt(StmtNode::Return { record: Some(Record { fields, schema: None, event_time: None }) }));
    let over = Some(OverDef { by, windows, early, every, top: None, first: None, own });
    TransactionDef { body, ..operator(name, input, over) }
}

/// Returns a window whose events may be folded apart ([`tidemill_plan::Fold`]), if the program lets them: of time, with
/// aggregates of which partial ones can be merged.
fn random_plain(
    random: &mut Random,
    name: &str,
    input: StreamRef,
    scalars: &[(&str, Type)],
    by: Vec<(String, Expr)>,
    time: Type,
) -> TransactionDef {
    use WindowFunction as F;
    let length = *random.pick(&[1, 2, 5, 10, 60]);
    let span = |units| if time == Type::Int { Value::Int(units) } else { Value::Duration(units) };
    let windows = match time == Type::Time && random.chance(30) {
        true => WindowsDef::Calendar(random_periods(random)),
        false => match random.below(6) {
            0..=2 => WindowsDef::Tumbling { length: span(length), origin: *random.pick(&[0, 0, -3]) },
            3 | 4 => WindowsDef::Sliding { length: span(3 * length), every: span(length), origin: -3 },
            _ => WindowsDef::Session { gap: span(length) },
        },
    };
    let is_sliding = matches!(windows, WindowsDef::Sliding { .. });
    let mut fields: Vec<(String, Expr)> = by.iter().map(|(name, _)| (name.clone(), event(name))).collect();
    fields.push(("n".into(), count()));
    let bools: Vec<&(&str, Type)> = scalars.iter().filter(|(_, ty)| *ty == Type::Bool).collect();
    for number in 0..random.between(3, 8) {
        let any = random.pick_any(&bools).copied().filter(|_| random.chance(60)).or(random.pick_any(scalars));
        let Some(&(field, ty)) = any else { continue };
        let functions: &[F] = match ty {
            Type::Int => &[F::Count, F::Sum, F::Mean, F::Min, F::Max, F::Last, F::ArgMin, F::ArgMax, F::Variance],
            Type::Decimal { .. } | Type::Float => &[F::Count, F::Sum, F::Mean, F::Min, F::Max, F::ArgMax],
            Type::Bool => &[F::Any, F::All, F::Last],
            Type::Time => &[F::Min, F::Max, F::Last, F::ArgMin],
            _ => &[F::Count, F::First],
        };
        let function = match *random.pick(functions) {
            // Single events of sliding windows are not folded.
            F::First | F::Last | F::ArgMin | F::ArgMax if is_sliding => F::Count,
            function => function,
        };
        let ranks = matches!(function, F::ArgMin | F::ArgMax);
        let value = Some(Box::new(event(if ranks { random.pick(scalars).0 } else { field })));
        let by = ranks.then(|| Box::new(event(field)));
        let aggregate = ExprNode::Aggregate { function, value, by, argument: None };
        fields.push((format!("a{number}"), expr(aggregate)));
    }
    let body = vec![stmt(StmtNode::Return { record: Some(Record { fields, schema: None, event_time: None }) })];
    let over = Some(OverDef { by, windows, early: None, every: None, top: None, first: None, own: vec![] });
    TransactionDef { body, ..operator(name, input, over) }
}

/// Returns, now and then, a table of which each row is to have results.
pub fn random_rows(random: &mut Random, schema: &Schema, tables: &[TableDef]) -> Option<Rows> {
    let table = random.pick_any(tables).filter(|_| random.chance(50))?;
    let mut parts: Vec<(String, Expr)> = Vec::new();
    for key in table.columns.iter().filter(|column| column.key) {
        let fits = |field: &&Field| {
            let is_free = !field.name.contains('.') && !parts.iter().any(|(name, _)| *name == field.name);
            is_free && field.scalar_type().is_some_and(|ty| ty.ty == key.ty.ty)
        };
        let fields: Vec<&Field> = schema.fields.iter().filter(fits).collect();
        let name = &random.pick_any(&fields).filter(|field| !matches!(&*field.name, "start" | "end" | "stands"))?.name;
        parts.push((name.clone(), event(name)));
    }
    Some((table.name.clone(), parts))
}

/// Returns, now and then, an aggregate as users write it: the number of events, the least value, and the sum, which may
/// overflow.
fn random_own(random: &mut Random, scalars: &[(&str, Type)], windows: &WindowsDef) -> Option<OwnDef> {
    let ints: Vec<&str> = scalars.iter().filter(|(_, ty)| *ty == Type::Int).map(|(name, _)| *name).collect();
    let value = event(random.pick_any(&ints).filter(|_| random.chance(25))?);
    let own = |name: &str| cell("own", name);
    let put = |name: &str, value: Expr| stmt(StmtNode::Set { role: "own".into(), column: name.into(), value });
    let when = |condition: Expr, then: Vec<Stmt>| stmt(StmtNode::If { condition, then, otherwise: vec![] });
    let least = |value: Expr| {
        let better = own("least").is_null().or(value.clone().lt(own("least")));
        when(!value.clone().is_null(), vec![when(better, vec![put("least", value)])])
    };
    let column = |name: &str, ty: ColumnType, default| ColumnDef { default, ..ColumnDef::new(name, ty) };
    let mut state = vec![
        column("count", Type::Int.into(), Some(Value::Int(0))),
        column("least", ColumnType::optional(Type::Int), None),
    ];
    let mut add = vec![put("count", own("count") + 1), least(value.clone())];
    let mut merge = vec![put("count", own("count") + cell("later", "count")), least(cell("later", "least"))];
    if random.chance(40) {
        state.push(column("sum", Type::Int.into(), Some(Value::Int(3))));
        add.push(when(!value.clone().is_null(), vec![put("sum", own("sum") + value)]));
        merge.insert(0, put("sum", own("sum") + cell("later", "sum")));
    }
    if random.chance(60) {
        let few = compare(tidemill_plan::CompareOp::Lt, own("count"), int(random.int(1, 3)));
        add.push(stmt(StmtNode::Require { condition: few, reason: "enough".into() }));
    }
    let merges = matches!(windows, WindowsDef::Sliding { .. }) || random.chance(50);
    Some(OwnDef { name: "own".into(), state, add, merge: merges.then_some(merge) })
}

/// Returns a window over a stream without a body.
fn operator(name: &str, input: StreamRef, over: Option<OverDef>) -> TransactionDef {
    TransactionDef {
        name: name.into(),
        inputs: vec![input],
        over,
        join: None,
        nested: false,
        derives: false,
        roles: vec![],
        body: vec![],
    }
}

fn count() -> Expr {
    expr(ExprNode::Aggregate { function: WindowFunction::Count, value: None, by: None, argument: None })
}

fn random_windows(random: &mut Random, time: Type) -> WindowsDef {
    let span = |units: i64| if time == Type::Int { Value::Int(units) } else { Value::Duration(units) };
    let origin = *random.pick(&[0, 0, 1, -3, 1_000]);
    let length = *random.pick(&[1, 2, 5, 10, 60]);
    if time == Type::Time && random.chance(30) {
        return WindowsDef::Calendar(random_periods(random));
    }
    match random.below(7) {
        0 | 1 => WindowsDef::Tumbling { length: span(length), origin },
        2 | 3 => {
            let every = *random.pick(&[1, 2, 5]);
            WindowsDef::Sliding { length: span(every * *random.pick(&[1, 2, 3, 4])), every: span(every), origin }
        }
        4 | 5 => WindowsDef::Session { gap: span(length) },
        _ => WindowsDef::Counting { count: random.between(1, 4) as i64 },
    }
}

/// Periods of a zone whose clock changes several times while events come.
pub fn random_periods(random: &mut Random) -> Periods {
    let (mut at, mut before, mut changes) = (random.int(-30, 30), random.int(-20, 20), Vec::new());
    at += *random.pick(&[0, 0, 1_000, 1_700_000_000_000_000]);
    let offset = before;
    for _ in 0..random.below(6) {
        let next = random.int(-20, 20);
        changes.push((at, next));
        // Later than the time that the clock was set back by.
        at += random.int(1, 40) + (before - next).max(0);
        before = next;
    }
    let length = *random.pick(&[1, 2, 5, 10, 60]);
    let unit = match random.below(6) {
        0 => Unit::Months(*random.pick(&[1, 1, 3])),
        _ => Unit::Span { length, origin: *random.pick(&[0, length - 1]) },
    };
    Periods { unit, zone: Zone { name: "Some/Where".into(), offset, changes } }
}

/// Returns a top by a field of a schema, if it has one that can be.
fn random_top(random: &mut Random, schema: &Schema) -> Option<TopDef> {
    let is_ranked = |ty: Type| matches!(ty, Type::Int | Type::Float | Type::Time | Type::Decimal { .. });
    let ranked: Vec<&str> = schema
        .fields
        .iter()
        .filter_map(|field| match field.ty {
            FieldType::Scalar(ty) if !ty.nullable && is_ranked(ty.ty) => Some(field.name.as_str()),
            _ => None,
        })
        .collect();
    let by = event(random.pick_any(&ranked)?);
    Some(TopDef { count: random.between(1, 3) as i64, by, ties: random.chance(50) })
}

/// Returns, now and then, a distance of early results.
fn random_early(random: &mut Random, windows: &WindowsDef) -> Option<Value> {
    let parts = *random.pick(&[0, 2, 5]);
    let part = |length: i64| Some(length / parts).filter(|_| length % parts == 0);
    match windows {
        WindowsDef::Tumbling { length: of, .. } | WindowsDef::Sliding { every: of, .. } if parts > 0 => match of {
            Value::Int(length) => part(*length).map(Value::Int),
            Value::Duration(length) => part(*length).map(Value::Duration),
            _ => None,
        },
        _ => None,
    }
}

fn random_aggregate(random: &mut Random, scalars: &[(&str, Type)]) -> Option<Expr> {
    use WindowFunction as F;
    let (name, ty) = *random.pick_any(scalars)?;
    let mut functions = vec![F::First, F::Last, F::Count];
    match ty {
        Type::Int | Type::Decimal { .. } => functions.extend([F::Sum, F::Mean, F::Min, F::Max, F::Distinct]),
        Type::Float => functions.extend([F::Min, F::Max, F::Mean]),
        Type::Time => functions.extend([F::Min, F::Max, F::Distinct]),
        Type::Bool => functions.extend([F::Any, F::All]),
        _ => functions.push(F::Distinct),
    }
    if !matches!(ty, Type::Float | Type::Bool) {
        functions.extend([F::TopValue, F::TopCount, F::ApproxDistinct, F::ApproxCount]);
    }
    if matches!(ty, Type::Int | Type::Decimal { .. } | Type::Float) {
        functions.extend([F::ApproxQuantile, F::ApproxQuantile, F::Variance, F::Stddev, F::Pvariance, F::Pstddev]);
    }
    let ordered: Vec<&str> = scalars.iter().filter(|(_, ty)| *ty != Type::Bool).map(|(name, _)| *name).collect();
    let by = random.pick_any(&ordered).filter(|_| random.chance(25)).map(|by| Box::new(event(by)));
    let function = match by {
        Some(_) => *random.pick(&[F::ArgMin, F::ArgMax]),
        None => *random.pick(&functions),
    };
    let argument = function.asks().map(|(_, ask)| {
        Box::new(match ask {
            Ask::Quantile => literal(Value::Float(*random.pick(&[0.0, 0.3, 0.5, 0.99, 1.0]))),
            Ask::Frequency => {
                let value = Some(Box::new(event(name)));
                expr(ExprNode::Aggregate {
                    function: *random.pick(&[F::First, F::Last]),
                    value,
                    by: None,
                    argument: None,
                })
            }
            _ => int(random.int(0, 2)),
        })
    });
    Some(expr(ExprNode::Aggregate { function, value: Some(Box::new(event(name))), by, argument }))
}
