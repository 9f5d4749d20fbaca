//! The names that an expression can use, and what it records: reasons, and the cells that it read.

use super::fault::{Checked, Fault};
use super::position::PositionTime;
use super::reasons::{Reasons, no_row};
use super::roles::RoleDraft;
use crate::program::{Expr as Typed, Node};
use crate::{LoopId, ReasonId, RoleId, Table, TableId};
use std::collections::BTreeSet;
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type};
use typed_index_collections::TiSlice;

/// The site of an expression, which decides what it can use beside the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// A filter or map: the event alone.
    Derived,
    /// The key of a role: the event, and the element where the role is over a list.
    Key,
    /// The body of a transaction: rows and locals too.
    Body,
}

/// A loop over a list around the point at hand.
#[derive(Clone, Debug)]
pub(super) struct ActiveLoop {
    pub variable: String,
    /// The list field of the event.
    pub field: usize,
    pub id: LoopId,
}

/// The use of a role by the body so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    pub reads: BTreeSet<usize>,
    pub writes: BTreeSet<usize>,
    pub written: bool,
    pub no_row: Option<ReasonId>,
    pub no_key: Option<ReasonId>,
    pub row_exists: Option<ReasonId>,
}

/// A local; its type is none until some assignment to it could be typed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LocalDraft {
    pub name: String,
    pub ty: Option<ColumnType>,
}

/// The surroundings of an expression.
pub(super) struct Scope<'a> {
    pub site: Site,
    pub event: &'a Schema,
    /// The field that holds their time, and what is added to it.
    pub event_time: Option<PositionTime>,
    /// A flag: whether some of them are late, and hold another time than that of their position.
    pub is_late: bool,
    /// A flag: whether they have places.
    pub has_places: bool,
    pub tables: &'a TiSlice<TableId, Table>,
    pub roles: &'a [RoleDraft],
    pub usage: Vec<Usage>,
    pub locals: Vec<LocalDraft>,
    pub loops: Vec<ActiveLoop>,
    /// The roles that are rows of a table, not one, and that a loop around this goes over.
    pub scanned: Vec<RoleId>,
    pub reasons: Reasons,
}

impl<'a> Scope<'a> {
    /// Makes a scope that sees the event alone.
    pub fn new(site: Site, event: &'a Schema) -> Self {
        Scope {
            site,
            event,
            event_time: None,
            is_late: false,
            has_places: false,
            tables: TiSlice::from_ref(&[]),
            roles: &[],
            usage: Vec::new(),
            locals: Vec::new(),
            loops: Vec::new(),
            scanned: Vec::new(),
            reasons: Reasons::default(),
        }
    }

    /// Returns the scope of a transaction's body.
    pub fn body(event: &'a Schema, tables: &'a TiSlice<TableId, Table>, roles: &'a [RoleDraft]) -> Self {
        let usage = vec![Usage::default(); roles.len()];
        Scope { tables, roles, usage, ..Scope::new(Site::Body, event) }
    }

    /// Drops what expressions recorded, for another pass over the same body.
    pub fn restart(&mut self) {
        self.usage.fill(Usage::default());
        self.loops.clear();
        self.scanned.clear();
        self.reasons = Reasons::default();
    }

    /// Returns a field of the event.
    pub fn field(&self, name: &str) -> Checked<(usize, &'a Field)> {
        let names = self.event.fields.iter().map(|f| f.name.as_str());
        let index = self.event.index_of(name).ok_or_else(|| Fault::unknown("event field", name, names))?;
        Ok((index, &self.event.fields[index]))
    }

    /// Returns a list field whose elements or length are wanted.
    pub fn open_list(&self, name: &str) -> Checked<(usize, &'a ListItem)> {
        let (index, field) = self.field(name)?;
        let FieldType::List(item) = &field.ty else {
            return Err(Fault::new(format!("ev.{name} is {}, not a list", field.ty)));
        };
        Ok((index, item))
    }

    /// Returns a scalar field as an expression.
    pub fn event_field(&self, name: &str) -> Checked<Typed> {
        let (index, field) = self.field(name)?;
        match field.ty {
            FieldType::Scalar(ty) => Ok(Typed { ty, node: Node::Field(index) }),
            FieldType::List(_) => {
                Err(Fault::new(format!("ev.{name} is a list")).hint(format!("write `for item in ev.{name}`")))
            }
        }
    }

    /// Returns a field of a loop's element.
    pub fn element(&self, variable: &str, field: &str) -> Checked<Typed> {
        let Some(around) = self.loops.iter().rev().find(|l| l.variable == variable) else {
            return Err(Fault::new(format!("'{variable}' is not the variable of a loop around this")));
        };
        let FieldType::List(item) = &self.event.fields[around.field].ty else {
            unreachable!("loops are entered over lists only");
        };
        let columns = item.columns();
        let names = columns.iter().map(|(n, _)| *n);
        match columns.iter().position(|(n, _)| *n == field) {
            Some(column) => Ok(Typed { ty: columns[column].1, node: Node::Element { loop_id: around.id, column } }),
            None if field.is_empty() => Err(Fault::new(format!("'{variable}' is an element with fields"))
                .hint(format!("write {variable}.{}", columns[0].0))),
            None if matches!(item, ListItem::Scalar(_)) => {
                Err(Fault::new(format!("'{variable}' is a plain value without fields")))
            }
            None => Err(Fault::unknown(format_args!("field of '{variable}' called"), field, names)),
        }
    }

    /// Returns a local variable, or the variable of a loop over plain values.
    pub fn local(&self, name: &str) -> Checked<Typed> {
        if self.loops.iter().any(|l| l.variable == name) {
            return self.element(name, "");
        }
        let Some(id) = self.locals.iter().position(|l| l.name == name) else {
            return Err(match self.site {
                Site::Body => Fault::unknown("name", name, self.locals.iter().map(|l| l.name.as_str())),
                Site::Derived => Fault::new(format!("no name '{name}'")).hint("a filter or map sees only the event"),
                Site::Key => Fault::new(format!("no name '{name}'")).hint("a key is made from the event alone"),
            });
        };
        match self.locals[id].ty {
            Some(ty) => Ok(Typed { ty, node: Node::Local(id) }),
            None => Err(Fault::new(format!("local '{name}' has no type here"))),
        }
    }

    /// Returns a role, and the loop whose element chooses its row.
    pub fn role(&self, name: &str) -> Checked<(RoleId, Option<LoopId>)> {
        let Some(id) = self.roles.iter().position(|r| r.name == name) else {
            return Err(match self.site {
                Site::Body => Fault::unknown("role", name, self.roles.iter().map(|r| r.name.as_str())),
                Site::Derived => Fault::new("a filter or map sees only the event"),
                Site::Key => Fault::new(format!("no role '{name}' before this one"))
                    .hint("a key is made from the event, or read from the row of a role that comes before"),
            });
        };
        if self.roles[id].is_scan() && !self.scanned.contains(&id) {
            return Err(Fault::new(format!("role '{name}' is rows of {}, not one", self.table(id).name))
                .hint(format!("loop over them: `for row in {name}`")));
        }
        if let Some(rows) = self.roles[id].each.filter(|rows| !self.scanned.contains(rows)) {
            let rows = &self.roles[rows].name;
            return Err(Fault::new(format!("role '{name}' is a row for each of '{rows}'"))
                .hint(format!("use it inside `for row in {rows}`")));
        }
        let Some(list) = self.roles[id].over else { return Ok((id, None)) };
        match self.loops.iter().rev().find(|l| l.field == list) {
            Some(around) => Ok((id, Some(around.id))),
            None => {
                let list = &self.event.fields[list].name;
                Err(Fault::new(format!("role '{name}' is a row for each element of ev.{list}"))
                    .hint(format!("use it inside `for item in ev.{list}`")))
            }
        }
    }

    /// Returns the table of a role.
    pub fn table(&self, role: RoleId) -> &'a Table {
        &self.tables[self.roles[role].table]
    }

    /// Returns a column of a role's table.
    pub fn column(&self, role: RoleId, name: &str) -> Checked<usize> {
        let table = self.table(role);
        let names = table.columns.iter().map(|c| c.name.as_str());
        table
            .columns
            .iter()
            .position(|c| c.name == name)
            .ok_or_else(|| Fault::unknown(format_args!("column in table '{}' called", table.name), name, names))
    }

    /// Returns the cell of a role as an expression; notes the read.
    pub fn cell(&mut self, role: &str, column: &str) -> Checked<Typed> {
        let (role, element) = self.role(role)?;
        let index = self.column(role, column)?;
        if self.table(role).columns[index].window.is_some() {
            let name = format!("{}.{column}", self.roles[role].name);
            return Err(Fault::new(format!("{name} is a window, not a value"))
                .hint(format!("ask for an aggregate, as in {name}.count()")));
        }
        Ok(self.read(role, element, index))
    }

    /// Returns a cell as an expression, of a window too; notes the read.
    pub fn read(&mut self, role: RoleId, element: Option<LoopId>, column: usize) -> Typed {
        self.usage[role].reads.insert(column);
        // Chosen rows exist before the transaction, when keys are read.
        let may_miss = self.site != Site::Key || !self.roles[role].is_scan();
        if self.roles[role].aborts_when_missing() && may_miss {
            self.no_row(role);
            self.no_key(role);
        } else if self.table(role).key.contains(&column) {
            self.no_key(role);
        }
        let ty = self.table(role).columns[column].ty;
        Typed { ty, node: Node::Cell { role, element, column } }
    }

    /// Returns an expression for whether a role's row exists.
    pub fn exists(&self, role: &str) -> Checked<Typed> {
        let (role, element) = self.role(role)?;
        Ok(Typed { ty: Type::Bool.into(), node: Node::Exists { role, element } })
    }

    /// Returns a role that is rows of its table, not one.
    pub fn scan(&self, name: &str) -> Checked<RoleId> {
        let names = self.roles.iter().map(|r| r.name.as_str());
        let id = self.roles.iter().position(|r| r.name == name).ok_or_else(|| Fault::unknown("role", name, names))?;
        if !self.roles[id].is_scan() {
            return Err(Fault::new(format!("role '{name}' is one row, not rows of its table"))
                .hint(format!("declare it with {}.all()", self.table(id).name)));
        }
        Ok(id)
    }

    /// Returns an expression for the number of a role's rows.
    pub fn rows(&self, role: &str) -> Checked<Typed> {
        Ok(Typed { ty: Type::Int.into(), node: Node::Rows { role: self.scan(role)? } })
    }

    /// Notes that the role can fail for want of its row, from here on.
    pub fn no_row(&mut self, role: RoleId) {
        let text = no_row(&self.table(role).name, &self.roles[role].name);
        self.usage[role].no_row = Some(self.reasons.id(text));
    }

    /// Notes that the role can fail for want of its key, if that can be null, from here on.
    pub fn no_key(&mut self, role: RoleId) {
        if self.roles[role].key_nullable() {
            let text = format!("key of {} is None", self.roles[role].name);
            self.usage[role].no_key = Some(self.reasons.id(text));
        }
    }

    /// Notes that the role can fail because its row is there, from here on.
    pub fn row_exists(&mut self, role: RoleId) {
        let text = format!("row exists in {} for {}", self.table(role).name, self.roles[role].name);
        self.usage[role].row_exists = Some(self.reasons.id(text));
    }
}
