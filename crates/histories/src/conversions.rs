//! Random pairs of programs, the later one with columns that convert values of the earlier one's.

use crate::ast::*;
use crate::bodies::event_view;
use crate::expressions::column_type;
use crate::random::Random;
use tidemill_model::{ColumnType, Field, Schema, Type, Value};
use tidemill_plan::{ColumnDef, ConvertDef, Plan, Stmt};

/// The depth of expressions.
const DEPTH: usize = 3;

/// Returns a program with a table, and a later version of it in which columns of the table have functions.
pub fn conversion_plans(seed: u64) -> (Plan, Plan) {
    let mut random = Random::new(seed ^ 0xc0fe);
    let mut key_type = || match column_type(&mut random) {
        Type::Float => Type::Int,
        ty => ty,
    };
    let keys: Vec<ColumnDef> = [key("id", key_type()), key("part", key_type())].into();
    let keys = &keys[..random.between(1, 2)];
    let mut tables = [keys.to_vec(), keys.to_vec()];
    for number in 0..random.between(1, 3) {
        let ty = |random: &mut Random| ColumnType { ty: column_type(random), nullable: random.chance(40) };
        let (before, mut after) = (ty(&mut random), ty(&mut random));
        let from = ColumnType { nullable: before.nullable && random.chance(50), ..before };
        // None stays None where the function does not take it.
        after.nullable |= before.nullable && !from.nullable;
        let convert = Some(random_conversion(&mut random, from, after));
        let name = format!("c{number}");
        // Under its own name only another type says that it is to be converted.
        let is_renamed = before == after || from == after || random.chance(50);
        let (own, was) = if is_renamed { (format!("n{number}"), Some(name.clone())) } else { (name.clone(), None) };
        tables[0].push(ColumnDef::new(name, before));
        tables[1].push(ColumnDef { was, convert, ..ColumnDef::new(own, after) });
    }
    if random.chance(30) {
        tables[1].push(column("added", Type::Int, Value::Int(7)));
    }
    let version = |columns: &Vec<ColumnDef>, schema_version| {
        let source = source("ticks", Schema::scalars([("id", ColumnType::required(Type::Int))]));
        Plan { schema_version, ..plan("things", vec![table("things", columns.clone())], vec![source], Vec::new()) }
    };
    (version(&tables[0], 1), version(&tables[1], 2))
}

fn random_conversion(random: &mut Random, from: ColumnType, to: ColumnType) -> ConvertDef {
    let value = Field::scalar(ConvertDef::VALUE, from);
    let view = event_view(&Schema { fields: vec![value] }, random.below(30));
    let mut body: Vec<Stmt> = Vec::new();
    if random.chance(30) {
        body.push(require(view.value(random, Type::Bool, DEPTH), "it is odd"));
    }
    let value = match random.chance(30) {
        true => {
            let condition = view.value(random, Type::Bool, DEPTH);
            let then = view.value(random, to.ty, DEPTH);
            // A local is something other than None somewhere.
            let otherwise = match to.nullable && random.chance(30) {
                true => literal(Value::Null),
                false => view.value(random, to.ty, DEPTH),
            };
            body.push(when(condition, vec![assign("result", then)], vec![assign("result", otherwise)]));
            local("result")
        }
        false => view.storable(random, to, DEPTH),
    };
    ConvertDef { from, body, value }
}
