//! Good plans: what analysis makes of them.

mod expressions;
mod flow;
mod transactions;
mod verify;

use tidemill_model::{ColumnType, Type, Value};
use tidemill_plan::build::{PlanBuilder, named};
use tidemill_plan::typed::Expr as Typed;
use tidemill_plan::{Expr, Origin, OutputField, Plan, Program, Stream, Transaction, analyze};

/// Returns the program of a good plan, with its promises checked.
fn program(plan: PlanBuilder) -> Program {
    let plan = plan.build();
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    let program = match analyze(&plan) {
        Ok(program) => program,
        Err(errors) => panic!("{}", errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n")),
    };
    verify::verify(&program);
    for column in program.tables.iter().flat_map(|t| &t.columns) {
        assert!(column.default.as_ref().is_none_or(|d| verify::is_of(d, column.ty)));
    }
    let json = serde_json::to_string(&program).unwrap();
    assert_eq!(serde_json::from_str::<Program>(&json).unwrap(), program);
    program
}

fn stream<'a>(program: &'a Program, name: &str) -> &'a Stream {
    program.streams.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no stream {name}"))
}

fn transaction<'a>(program: &'a Program, name: &str) -> &'a Transaction {
    program.transactions.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no transaction {name}"))
}

fn decimal(digits: u8, scale: u8) -> Type {
    Type::Decimal { digits, scale }
}

/// Returns a source `all` with a field of every type; `maybe_…` are nullable.
fn fields() -> PlanBuilder {
    PlanBuilder::new("fields").source("all", |mut s| {
        for (name, ty) in [
            ("flag", Type::Bool),
            ("n", Type::Int),
            ("m", Type::Int),
            ("x", Type::Float),
            ("price", decimal(10, 2)),
            ("rate", decimal(9, 5)),
            ("at", Type::Time),
            ("text", Type::Str),
            ("raw", Type::Bytes),
        ] {
            s = s.field(name, ty).field(format!("maybe_{name}"), ColumnType::optional(ty));
        }
        s.list("tags", Type::Str).nested("lines", [("item", Type::Str.into()), ("count", Type::Int.into())])
    })
}

/// Returns an expression over [`fields`] as a map types it, with the reasons of its failures.
fn typed(expr: impl Into<Expr>) -> (Typed, Vec<String>) {
    let plan = fields().map("mapped", named("all"), [("value", expr.into())]);
    let program = program(plan);
    let Origin::Map { fields, reasons, .. } = &stream(&program, "mapped").origin else { panic!("a map") };
    let OutputField::Value(value) = &fields[0] else { panic!("a value") };
    let reasons = reasons.iter().filter(|r| *r != "cannot fail").cloned().collect();
    (value.clone(), reasons)
}

/// Asserts the type of an expression and the reasons of its failures.
fn check(expr: impl Into<Expr>, ty: impl Into<ColumnType>, reasons: &[&str]) {
    let expr = expr.into();
    let (value, found) = typed(expr.clone());
    assert_eq!(value.ty, ty.into(), "{expr}");
    assert_eq!(found, reasons, "{expr}");
}

#[test]
fn defaults_take_the_type_of_their_column() {
    let program = program(PlanBuilder::new("defaults").table("t", |t| {
        t.key("id", Type::Int)
            .column_or("float", Type::Float, Value::Int(2))
            .column_or("whole", decimal(5, 2), Value::Int(3))
            .column_or("text", decimal(5, 2), Value::Str("-1.5".into()))
            .column_or("raw", decimal(5, 2), Value::Decimal(150))
            .column("maybe", ColumnType::optional(Type::Str))
            .column("bare", Type::Str)
    }));
    let defaults: Vec<_> = program.tables.raw[0].columns.iter().map(|c| c.default.clone()).collect();
    let decimals = [Value::Decimal(300), Value::Decimal(-150), Value::Decimal(150)].map(Some);
    assert_eq!(defaults[..2], [None, Some(Value::Float(2.0))]);
    assert_eq!(defaults[2..5], decimals);
    assert_eq!(defaults[5..], [Some(Value::Null), None]);
}
