//! Random choices of rows of a table.

use crate::ast::*;
use crate::bodies::random_key;
use crate::expressions::View;
use crate::random::Random;
use tidemill_model::{Type, Value};
use tidemill_plan::{BinaryOp, ColumnDef, ConditionDef, Direction, Expr, OrderDef, RoleDef, SelectionDef, TableDef};

/// Returns the roles that are one row.
pub fn one_rows(roles: &[RoleDef]) -> Vec<&RoleDef> {
    roles.iter().filter(|role| role.is_one_row()).collect()
}

/// Returns the role that is these rows, and those with a row for each of them.
pub fn rows_with<'a>(roles: &'a [RoleDef], rows: &str) -> Vec<&'a RoleDef> {
    roles.iter().filter(|role| role.name == rows || role.each.as_deref() == Some(rows)).collect()
}

/// Returns the rows of a table, chosen by what `view` has, or by what the rows of earlier roles have.
pub fn random_selection(
    random: &mut Random,
    table: &TableDef,
    view: &View,
    earlier: &[&RoleDef],
    tables: &[TableDef],
) -> SelectionDef {
    if random.chance(25) {
        return SelectionDef::default();
    }
    let columns: Vec<&ColumnDef> = table.columns.iter().filter(|column| column.window.is_none()).collect();
    let mut conditions = Vec::new();
    for _ in 0..random.below(3) {
        let column = *random.pick(&columns);
        conditions.push(condition(random, column, view, earlier, tables));
    }
    let order = random.chance(45).then(|| {
        let direction = *random.pick(&[Direction::Ascending, Direction::Descending]);
        OrderDef { column: random.pick(&columns).name.clone(), direction, count: *random.pick(&[1, 1, 2, 3, 50]) }
    });
    SelectionDef { conditions, order }
}

fn condition(
    random: &mut Random,
    column: &ColumnDef,
    view: &View,
    earlier: &[&RoleDef],
    tables: &[TableDef],
) -> ConditionDef {
    let value = |random: &mut Random| match computed(random, column, view, earlier, tables) {
        Some(of_rows) if random.chance(40) => of_rows,
        _ if random.chance(8) => literal(Value::Null),
        _ => random_key(random, view, column.ty.ty),
    };
    if column.ty.ty != Type::Float && random.chance(55) {
        return same(&column.name, value(random));
    }
    let bound = |random: &mut Random| random.chance(75).then(|| value(random));
    let low = bound(random);
    between(&column.name, low, bound(random))
}

/// Returns a value of a column's type that reads a row of one of these roles, if one has what it takes. It may fail.
pub fn computed(
    random: &mut Random,
    column: &ColumnDef,
    view: &View,
    roles: &[&RoleDef],
    tables: &[TableDef],
) -> Option<Expr> {
    let of = |role: &RoleDef| -> Vec<(String, Expr)> {
        let table = tables.iter().find(|table| table.name == role.table).expect("a role's table is there");
        let fits = table.columns.iter().filter(|other| other.window.is_none() && other.ty.ty == column.ty.ty);
        fits.map(|other| (role.name.clone(), cell(&role.name, &other.name))).collect()
    };
    let cells: Vec<(String, Expr)> = roles.iter().copied().flat_map(of).collect();
    let (role, cell) = random.pick_any(&cells)?.clone();
    Some(match random.below(4) {
        0 if column.ty.ty == Type::Int => binary(BinaryOp::Add, cell, random_key(random, view, Type::Int)),
        1 => if_else(exists(&role), cell, random_key(random, view, column.ty.ty)),
        _ => cell,
    })
}
