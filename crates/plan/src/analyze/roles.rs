//! Roles: the rows that a transaction may touch, and the keys that choose them.

use super::fault::{Checked, Fault, check_identifier, check_unique};
use super::reasons::Reasons;
use super::scope::{ActiveLoop, Scope, Site, Usage};
use super::selection::selection;
use crate::program::Expr as Typed;
use crate::{AccessDef, Expr, ExprNode, Missing, Role, RoleDef, RoleId, Selection, Table, TableId, TransactionDef};
use tidemill_model::{ColumnType, Schema, Type};
use typed_index_collections::TiSlice;

/// A role as far as its declaration says; what the body does with it comes later.
#[derive(Clone, Debug)]
pub(super) struct RoleDraft {
    pub name: String,
    pub table: TableId,
    pub key: Vec<Typed>,
    /// The list field with a row per element.
    pub over: Option<usize>,
    /// The role with a row of this one for each of its rows.
    pub each: Option<RoleId>,
    pub access: AccessDef,
    /// The rows of the table, where it is not one row.
    pub selection: Selection,
}

impl RoleDraft {
    /// Returns whether the key can be null.
    pub fn key_nullable(&self) -> bool {
        self.key.iter().any(|k| k.ty.nullable)
    }

    /// Returns whether a read of a missing row aborts.
    pub fn aborts_when_missing(&self) -> bool {
        matches!(self.access, AccessDef::Row | AccessDef::Read | AccessDef::All)
    }

    /// Returns whether a write to a missing row inserts it.
    pub fn create(&self) -> bool {
        self.access == AccessDef::Create
    }

    /// Returns whether it is rows of its table, and not one row.
    pub fn is_scan(&self) -> bool {
        self.access == AccessDef::All
    }

    /// Returns whether its rows may be written.
    pub fn writable(&self) -> bool {
        matches!(self.access, AccessDef::Row | AccessDef::Create | AccessDef::All)
    }

    /// Returns the role, with what the body does with it.
    pub fn finish(self, usage: Usage, reasons: &mut Reasons) -> Role {
        Role {
            missing: if self.aborts_when_missing() { Missing::Abort } else { Missing::Default },
            create: self.create(),
            written: usage.written,
            reads: usage.reads.into_iter().collect(),
            writes: usage.writes.into_iter().collect(),
            no_row: usage.no_row.unwrap_or_else(|| reasons.never()),
            no_key: usage.no_key.unwrap_or_else(|| reasons.never()),
            row_exists: usage.row_exists.unwrap_or_else(|| reasons.never()),
            name: self.name,
            table: self.table,
            key: self.key,
            over: self.over,
            scan: None,
            each: self.each,
            selection: self.selection,
            wakes: None,
        }
    }
}

/// Returns the roles of a transaction.
pub(super) fn roles(def: &TransactionDef, event: &Schema, tables: &TiSlice<TableId, Table>) -> Checked<Vec<RoleDraft>> {
    check_unique("role", def.roles.iter().map(|r| r.name.as_str()))?;
    let mut drafts = Vec::new();
    for role in &def.roles {
        let draft = draft(role, event, tables, &drafts)?;
        drafts.push(draft);
    }
    Ok(drafts)
}

fn draft(def: &RoleDef, event: &Schema, tables: &TiSlice<TableId, Table>, earlier: &[RoleDraft]) -> Checked<RoleDraft> {
    check_identifier("role", &def.name)?;
    let names = tables.iter().map(|t| t.name.as_str());
    let table = tables.position(|t| t.name == def.table);
    let table = table.ok_or_else(|| Fault::unknown("table", &def.table, names))?;
    check_defaults(def, &tables[table])?;
    let usage = vec![Usage::default(); earlier.len()];
    let mut scope = Scope { tables, roles: earlier, usage, ..Scope::new(Site::Key, event) };
    if def.access == AccessDef::All {
        if !def.key.is_empty() || def.over.is_some() || def.each.is_some() {
            return Err(Fault::new(format!("role '{}' is rows of '{}', and has no key", def.name, def.table)));
        }
        let selection = selection(def, &tables[table], &mut scope)?;
        let name = def.name.clone();
        return Ok(RoleDraft { name, table, key: Vec::new(), over: None, each: None, access: def.access, selection });
    }
    if !def.selection.is_all() {
        return Err(Fault::new(format!("role '{}' is one row of '{}', and is chosen by its key", def.name, def.table)));
    }
    let mut over = None;
    if let Some(list) = &def.over {
        let (field, _) = scope.open_list(list)?;
        scope.loops.push(ActiveLoop { variable: list.clone(), field, id: 0 });
        over = Some(field);
    }
    let each = def.each.as_ref().map(|rows| scope.scan(rows)).transpose()?;
    scope.scanned.extend(each);
    let key = key(def, &tables[table], &mut scope)?;
    if each.is_some() && !key.iter().any(Typed::reads_rows) {
        let rows = def.each.as_deref().unwrap_or_default();
        return Err(Fault::new(format!("role '{}' is a row for each of '{rows}', but its key reads none", def.name)));
    }
    let (name, access, selection) = (def.name.clone(), def.access, Selection::default());
    Ok(RoleDraft { name, table, key, over, each, access, selection })
}

/// Checks that every column has a default, if a missing row is read as the defaults.
fn check_defaults(def: &RoleDef, table: &Table) -> Checked<()> {
    if !matches!(def.access, AccessDef::Create | AccessDef::ReadDefault) {
        return Ok(());
    }
    let bare = (0..table.columns.len()).find(|i| !table.key.contains(i) && table.columns[*i].default.is_none());
    let Some(column) = bare.map(|i| &table.columns[i].name) else { return Ok(()) };
    let way = if def.access == AccessDef::Create { "create" } else { "default" };
    Err(Fault::new(format!(
        "role '{}' reads a missing row as the defaults, but column '{column}' of table '{}' has none",
        def.name, table.name
    ))
    .hint(format!("give '{column}' a default, or leave out {way}=True")))
}

fn key(def: &RoleDef, table: &Table, scope: &mut Scope<'_>) -> Checked<Vec<Typed>> {
    if def.key.len() != table.key.len() {
        let columns: Vec<&str> = table.key.iter().map(|&c| table.columns[c].name.as_str()).collect();
        return Err(Fault::new(format!(
            "role '{}' gives {} key value{}, but the key of table '{}' is {}",
            def.name,
            def.key.len(),
            if def.key.len() == 1 { "" } else { "s" },
            table.name,
            columns.join(", ")
        )));
    }
    let parts = def.key.iter().zip(&table.key);
    parts.map(|(expr, &column)| key_part(def, table, column, expr, scope).map_err(|f| f.at(expr.span))).collect()
}

/// Types one part of a key. It must not fail, since keys are resolved before the transaction runs, unless it reads
/// rows.
fn key_part(def: &RoleDef, table: &Table, column: usize, expr: &Expr, scope: &mut Scope<'_>) -> Checked<Typed> {
    scope.reasons = Reasons::untold();
    let value = scope.expression(expr)?;
    let column = &table.columns[column];
    if value.ty.ty == Type::Null {
        return Err(Fault::new(format!("the key of role '{}' is always None", def.name)));
    }
    let mut wanted = column.ty;
    wanted.nullable = value.ty.nullable;
    let reads_rows = value.reads_rows();
    if reads_rows && def.over.is_some() {
        return Err(Fault::new(format!(
            "role '{}' is over a list, so no part of its key can be read from a row",
            def.name
        ))
        .hint("name the row in a field of the event"));
    }
    if matches!(expr.node, ExprNode::Cell { .. }) && value.ty.ty != column.ty.ty {
        return Err(Fault::new(format!(
            "the key of role '{}' is read from {}, but key column '{}' is {}",
            def.name, value.ty.ty, column.name, column.ty.ty
        )));
    }
    let key = scope.store(value, wanted, expr, &format!("key column '{}'", column.name))?;
    match scope.reasons.first() {
        // The row that it reads may be missing.
        Some(_) if reads_rows => Ok(Typed { ty: ColumnType::optional(key.ty.ty), ..key }),
        Some(reason) => Err(Fault::new(format!("the key of role '{}' could fail: {reason}", def.name))
            .hint("compute the key in a map, and run the transaction on the mapped stream")),
        None => Ok(key),
    }
}
