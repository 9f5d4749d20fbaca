//! Tables: their columns, keys and defaults.

use super::fault::{Checked, Fault, check_identifier, check_unique};
use super::parts::Lowered;
use super::types::check_column_type;
use super::windows;
use crate::{
    Column, ColumnDef, GROUPS_MAX, KeyGroups, KeyGroupsDef, Plan, PlanError, Table, TableDef, TableId, TablePart,
};
use tidemill_model::{Type, Value, parse_decimal};
use typed_index_collections::TiVec;

/// Returns all tables, in declaration order.
pub(super) fn tables(plan: &Plan, errors: &mut Vec<PlanError>) -> TiVec<TableId, Table> {
    let mut tables = TiVec::new();
    for def in &plan.tables {
        match table(def) {
            Ok(table) => tables.push(table),
            Err(fault) => errors.push(fault.of("table", &def.name)),
        }
    }
    tables
}

/// Enters a table that users do not see: a part of an operator. Its name has a dot, as theirs have not.
pub(super) fn enter_hidden(
    columns: Vec<ColumnDef>,
    of: Lowered<'_>,
    part: TablePart,
    tables: &mut TiVec<TableId, Table>,
) -> Checked<TableId> {
    let mut table = table(&TableDef::new(part.name(), columns))?;
    table.name = part.named(of.name);
    table.is_hidden = true;
    table.owner = of.owner(part);
    Ok(tables.push_and_get_key(table))
}

fn table(def: &TableDef) -> Checked<Table> {
    check_identifier("table", &def.name)?;
    check_unique("column", def.columns.iter().map(|c| c.name.as_str()))?;
    check_unique("earlier column", def.columns.iter().filter_map(|c| c.was.as_deref()))?;
    let columns = def.columns.iter().map(column).collect::<Checked<Vec<_>>>()?;
    let key: Vec<usize> = (0..columns.len()).filter(|&i| def.columns[i].key).collect();
    if key.is_empty() {
        return Err(Fault::new("no column is the key").hint("mark at least one column as key"));
    }
    let groups = def.groups.as_ref().map(|groups| key_groups(def, groups)).transpose()?;
    let indexes = indexes(def, &columns)?;
    let was = def.was.clone();
    if was.as_ref() == Some(&def.name) {
        return Err(Fault::new(format!("it was '{}' already", def.name))
            .hint("say the name that it had before, or leave it out"));
    }
    let (name, expire) = (def.name.clone(), def.expire.clone());
    Ok(Table { name, columns, key, indexes, groups, was, expire, is_hidden: false, owner: None })
}

/// Returns the columns of each index.
fn indexes(def: &TableDef, columns: &[Column]) -> Checked<Vec<Vec<usize>>> {
    let names: Vec<String> = def.indexes.iter().map(|index| index.join(", ")).collect();
    check_unique("index of", names.iter().map(String::as_str))?;
    let column = |name: &String| {
        let names = columns.iter().map(|column| column.name.as_str());
        let column = columns.iter().position(|column| column.name == *name);
        let column = column.ok_or_else(|| Fault::unknown("column", name, names))?;
        match (&columns[column].window, columns[column].ty.ty) {
            (Some(_), _) => Err(Fault::new(format!("'{name}' has an index, and is a window"))),
            (None, Type::Float) => Err(Fault::new(format!("'{name}' has an index, and is a float"))
                .hint("index a column of ints, decimals, times or texts")),
            (None, _) => Ok(column),
        }
    };
    let index = |index: &Vec<String>| {
        if index.is_empty() {
            return Err(Fault::new("an index has no column"));
        }
        check_unique("column of an index", index.iter().map(String::as_str))?;
        index.iter().map(column).collect()
    };
    def.indexes.iter().map(index).collect()
}

fn key_groups(def: &TableDef, groups: &KeyGroupsDef) -> Checked<KeyGroups> {
    let KeyGroupsDef { column: name, count } = groups;
    let is_it = |column: &ColumnDef| column.name == *name && column.key && column.ty.ty == Type::Int;
    let Some(column) = def.columns.iter().position(is_it) else {
        return Err(Fault::new(format!("keys are grouped by '{name}', which is no key column of type int")));
    };
    if !(2..=GROUPS_MAX).contains(count) {
        return Err(Fault::new(format!("keys are in {count} groups")).hint(format!("say from 2 to {GROUPS_MAX}")));
    }
    Ok(KeyGroups { column, count: *count })
}

fn column(def: &ColumnDef) -> Checked<Column> {
    check_identifier("column", &def.name)?;
    if def.name == "exists" {
        return Err(Fault::new("a column cannot be called 'exists'").hint("`role.exists` asks whether the row exists"));
    }
    check_column_type(&def.name, def.ty.ty)?;
    let was = def.was.clone();
    if was.as_ref() == Some(&def.name) {
        return Err(Fault::new(format!("column '{}' was '{}' already", def.name, def.name))
            .hint("say the name that it had before, or leave it out"));
    }
    if let Some(window) = &def.window {
        let default = Some(Value::Bytes(Vec::new()));
        return Ok(Column {
            default,
            window: Some(windows::declared(def, window)?),
            was,
            ..Column::new(&def.name, Type::Bytes)
        });
    }
    if def.key {
        check_key(def)?;
    }
    let default = match &def.default {
        Some(value) => Some(default(def, value)?),
        None if def.ty.nullable => Some(Value::Null),
        None => None,
    };
    Ok(Column { default, was, ..Column::new(&def.name, def.ty) })
}

fn check_key(def: &ColumnDef) -> Checked<()> {
    let name = &def.name;
    if def.ty.nullable {
        return Err(Fault::new(format!("key column '{name}' may be None")));
    }
    if def.ty.ty == Type::Float {
        return Err(Fault::new(format!("key column '{name}' is a float")).hint("use an int, a Decimal or a str"));
    }
    if def.default.is_some() {
        return Err(Fault::new(format!("key column '{name}' has a default")).hint("a key is always given"));
    }
    Ok(())
}

/// Returns the default as a value of the column's own type.
fn default(def: &ColumnDef, value: &Value) -> Checked<Value> {
    let converted = match (def.ty.ty, value) {
        (_, Value::Null) => def.ty.nullable.then_some(Value::Null),
        (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Float, Value::Float(_))
        | (Type::Time, Value::Time(_))
        | (Type::Str, Value::Str(_))
        | (Type::Bytes, Value::Bytes(_)) => Some(value.clone()),
        (Type::Float, Value::Int(v)) => Some(Value::Float(*v as f64)),
        (Type::Decimal { digits, scale }, Value::Int(v)) => scaled(*v, digits, scale),
        (Type::Decimal { digits, .. }, Value::Decimal(v)) => scaled(*v, digits, 0),
        (Type::Decimal { digits, scale }, Value::Str(text)) => parse_decimal(text, digits, scale).map(Value::Decimal),
        _ => None,
    };
    converted.ok_or_else(|| {
        Fault::new(format!("column '{}' is {} but its default is {value}", def.name, def.ty))
            .hint("give a default of the column's type")
    })
}

/// Returns `value × 10^scale`, if it has at most that many digits.
pub(super) fn scaled(value: i64, digits: u8, scale: u8) -> Option<Value> {
    let unscaled = value.checked_mul(10i64.checked_pow(scale as u32)?)?;
    (unscaled.unsigned_abs() < 10u64.pow(digits as u32)).then_some(Value::Decimal(unscaled))
}
