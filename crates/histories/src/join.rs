//! Random joins of streams.

use crate::ast::*;
use crate::random::Random;
use tidemill_model::{FieldType, Schema, Type, Value};
use tidemill_plan::{
    BinaryOp, Expr, ExprNode, JoinBound, JoinDef, JoinHow, Record, Stmt, StmtNode, StreamRef, TransactionDef,
    WindowsDef,
};

/// A scalar field.
type Scalar<'a> = (&'a str, Type);

/// Returns a join of two streams with their schemas; none where no fields can be equal. Not every one can be: a stream
/// may not hold its time.
pub fn random_join(
    random: &mut Random,
    name: &str,
    inputs: [(StreamRef, &Schema); 2],
    time: Type,
) -> Option<TransactionDef> {
    let fields = [scalars(inputs[0].1), scalars(inputs[1].1)];
    let mut on: Vec<(Expr, Expr)> = Vec::new();
    for _ in 0..*random.pick(&[1, 1, 1, 2]) {
        let (left, right) = random_key(random, &fields)?;
        on.push((event(left), event(right)));
    }
    let how = *random.pick(&[JoinHow::Inner, JoinHow::Left, JoinHow::Outer, JoinHow::Anti]);
    let body = random_body(random, how, &fields);
    let right = (how != JoinHow::Anti).then(|| "a".to_owned());
    let join = JoinDef { left: "p".into(), right, on, bound: random_bound(random, time), how };
    let inputs = inputs.map(|(stream, _)| stream).to_vec();
    Some(TransactionDef {
        name: name.into(),
        inputs,
        over: None,
        join: Some(join),
        nested: false,
        derives: false,
        roles: vec![],
        body,
    })
}

fn scalars(schema: &Schema) -> Vec<Scalar<'_>> {
    let scalar = |field: &'_ tidemill_model::Field| match field.ty {
        FieldType::Scalar(ty) if !field.name.contains('.') => Some(ty.ty),
        _ => None,
    };
    schema.fields.iter().filter_map(|field| Some((field.name.as_str(), scalar(field)?))).collect()
}

fn random_key<'a>(random: &mut Random, fields: &[Vec<Scalar<'a>>; 2]) -> Option<(&'a str, &'a str)> {
    let is_key = |ty: Type| !matches!(ty, Type::Float | Type::Duration | Type::Null);
    let pairs: Vec<(&str, &str)> = fields[0]
        .iter()
        .filter(|(_, ty)| is_key(*ty))
        .flat_map(|(left, ty)| {
            fields[1].iter().filter(move |(_, other)| other == ty).map(move |(right, _)| (*left, *right))
        })
        .collect();
    random.pick_any(&pairs).copied()
}

fn random_bound(random: &mut Random, time: Type) -> JoinBound {
    let units = *random.pick(&[1, 2, 5, 10, 60, 1_000]);
    let length = if time == Type::Int { Value::Int(units) } else { Value::Duration(units) };
    match random.chance(60) {
        true => JoinBound::Within(length),
        false => JoinBound::Over(WindowsDef::Tumbling { length, origin: *random.pick(&[0, 0, 1, -3]) }),
    }
}

fn random_body(random: &mut Random, how: JoinHow, fields: &[Vec<Scalar<'_>>; 2]) -> Vec<Stmt> {
    let is_there = |side: usize| side == 0 || how != JoinHow::Anti;
    let missing: &[&str] = match how {
        JoinHow::Inner | JoinHow::Anti => &[],
        JoinHow::Left => &["a.exists"],
        JoinHow::Outer => &["a.exists", "p.exists"],
    };
    let mut given: Vec<(String, Expr)> = Vec::new();
    for (side, of) in fields.iter().enumerate().filter(|(side, _)| is_there(*side)) {
        for (name, ty) in of {
            let field = event(&format!("{}.{name}", ["p", "a"][side]));
            if *ty == Type::Int && random.chance(10) {
                // It fails of a side that is missing, and where it does not fit.
                let (left, right) = (Box::new(field.clone()), Box::new(field.clone()));
                given
                    .push((format!("twice{}", given.len()), expr(ExprNode::Binary { op: BinaryOp::Add, left, right })));
            }
            if random.chance(40) {
                given.push((format!("j{}", given.len()), field));
            }
        }
    }
    given.extend(missing.iter().map(|name| (name.replace('.', "_"), event(name))));
    given.push(("one".into(), int(1)));
    let mut body = Vec::new();
    if let Some(name) = missing.first().filter(|_| random.chance(30)) {
        let nothing = vec![stmt(StmtNode::Return { record: None })];
        body.push(stmt(StmtNode::If { condition: event(name), then: nothing, otherwise: vec![] }));
    }
    body.push(stmt(StmtNode::Return { record: Some(Record { fields: given, schema: None, event_time: None }) }));
    body
}
