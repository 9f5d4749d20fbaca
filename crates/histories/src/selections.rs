//! Random choices of rows of a table.

use crate::ast::*;
use crate::bodies::random_key;
use crate::expressions::View;
use crate::random::Random;
use tidemill_model::{Type, Value};
use tidemill_plan::{AccessDef, ColumnDef, ConditionDef, Direction, Expr, OrderDef, RoleDef, SelectionDef, TableDef};

/// Rows of a table, chosen by what `view` has, or by what the rows of earlier roles have.
pub fn random_selection(
    random: &mut Random,
    table: &TableDef,
    view: &View,
    earlier: &[RoleDef],
    tables: &[TableDef],
) -> SelectionDef {
    if random.chance(25) {
        return SelectionDef::default();
    }
    let columns: Vec<&ColumnDef> = table.columns.iter().filter(|column| column.window.is_none()).collect();
    let mut conditions = Vec::new();
    for _ in 0..random.below(3) {
        let column = *random.pick(&columns);
        conditions.push(condition(random, column, view, &cells(column, earlier, tables)));
    }
    let order = random.chance(45).then(|| {
        let direction = *random.pick(&[Direction::Ascending, Direction::Descending]);
        OrderDef { column: random.pick(&columns).name.clone(), direction, count: *random.pick(&[1, 1, 2, 3, 50]) }
    });
    SelectionDef { conditions, order }
}

fn condition(random: &mut Random, column: &ColumnDef, view: &View, cells: &[Expr]) -> ConditionDef {
    let value = |random: &mut Random| match random.pick_any(cells) {
        Some(cell) if random.chance(40) => cell.clone(),
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

/// What the rows of earlier roles have of a column's type.
fn cells(column: &ColumnDef, earlier: &[RoleDef], tables: &[TableDef]) -> Vec<Expr> {
    let one_row = earlier.iter().filter(|role| role.over.is_none() && role.access != AccessDef::All);
    let of = |role: &RoleDef| -> Vec<Expr> {
        let table = tables.iter().find(|table| table.name == role.table).expect("a role's table is there");
        let fits = table.columns.iter().filter(|other| other.window.is_none() && other.ty.ty == column.ty.ty);
        fits.map(|other| cell(&role.name, &other.name)).collect()
    };
    one_row.flat_map(of).collect()
}
