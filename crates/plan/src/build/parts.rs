//! Tables, sources and records.

use crate::{ColumnDef, ConvertDef, Expr, KeyGroupsDef, OriginDef, Record, Stmt, TableDef, WindowDef};
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Value};

/// A table in the making.
#[derive(Clone, Debug)]
pub struct TableBuilder {
    table: TableDef,
}

impl TableBuilder {
    pub(super) fn new(name: String) -> Self {
        TableBuilder { table: TableDef::new(name, Vec::new()) }
    }

    /// Adds a key column.
    pub fn key(self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        self.push(ColumnDef { key: true, ..ColumnDef::new(name, ty) })
    }

    /// Adds a column without a default (a nullable one is `None` by default).
    pub fn column(self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        self.push(ColumnDef::new(name, ty))
    }

    /// Adds a column with a default.
    pub fn column_or(self, name: impl Into<String>, ty: impl Into<ColumnType>, default: Value) -> Self {
        self.push(ColumnDef { default: Some(default), ..ColumnDef::new(name, ty) })
    }

    /// Adds a windowed column, whose values are of that type.
    pub fn window(self, name: impl Into<String>, value: impl Into<ColumnType>, window: WindowDef) -> Self {
        self.push(ColumnDef { window: Some(window), ..ColumnDef::new(name, value) })
    }

    /// The column that was added last had this name in an earlier version of the schema: a state that is migrated keeps
    /// its values.
    pub fn was(mut self, name: impl Into<String>) -> Self {
        let column = self.table.columns.last_mut().expect("a column is added before it is said what it was");
        column.was = Some(name.into());
        self
    }

    /// The column that was added last converts what it takes over by a function of the `Event` field
    /// [`ConvertDef::VALUE`], of the type `from`: statements, and the value after them.
    pub fn convert(mut self, from: impl Into<ColumnType>, body: Vec<Stmt>, value: impl Into<Expr>) -> Self {
        let column = self.table.columns.last_mut().expect("a column is added before it is said how it is converted");
        column.convert = Some(ConvertDef { from: from.into(), body, value: value.into() });
        self
    }

    /// The rows with values of these columns, and the first by the last of them, are found without a look at all rows.
    pub fn index<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.table.indexes.push(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Its changes are a stream.
    pub fn changes(mut self) -> Self {
        self.table.changes = true;
        self
    }

    /// Its keys are in so many groups, by the value of an int key column modulo their number: transactions that keep
    /// to one are scheduled group by group ([`crate::Groups`]).
    pub fn key_groups(mut self, column: impl Into<String>, count: usize) -> Self {
        self.table.groups = Some(KeyGroupsDef { column: column.into(), count });
        self
    }

    fn push(mut self, column: ColumnDef) -> Self {
        self.table.columns.push(column);
        self
    }

    pub(super) fn build(self) -> TableDef {
        self.table
    }
}

/// A source in the making.
#[derive(Clone, Debug, Default)]
pub struct SourceBuilder {
    schema: Schema,
    event_time: Option<String>,
    lateness: i64,
    anchored: bool,
    remembers: Option<i64>,
}

impl SourceBuilder {
    /// Adds a field.
    pub fn field(mut self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        self.schema.fields.push(Field::scalar(name, ty.into()));
        self
    }

    /// Adds a list of plain values.
    pub fn list(mut self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        let ty = FieldType::List(ListItem::Scalar(ty.into()));
        self.schema.fields.push(Field { name: name.into(), ty });
        self
    }

    /// Adds a list of elements with fields of their own.
    pub fn nested<'a>(
        mut self,
        name: impl Into<String>,
        columns: impl IntoIterator<Item = (&'a str, ColumnType)>,
    ) -> Self {
        let columns = columns.into_iter().map(|(n, t)| (n.to_owned(), t)).collect();
        self.schema.fields.push(Field { name: name.into(), ty: FieldType::List(ListItem::Struct(columns)) });
        self
    }

    /// Adds the field of event time.
    pub fn event_time(mut self, name: impl Into<String>, ty: impl Into<ColumnType>) -> Self {
        let name = name.into();
        self.event_time = Some(name.clone());
        self.field(name, ty)
    }

    /// How late an event may be, in the unit of its time (microseconds for `Time`); below zero as of a clock.
    pub fn lateness(mut self, lateness: i64) -> Self {
        self.lateness = lateness;
        self
    }

    /// Its events are sent, and bring no time: the field of event time gets that of their position.
    pub fn anchored(mut self) -> Self {
        self.anchored = true;
        self
    }

    /// Its events are calls that may have a key: answers are kept for so long, microseconds.
    pub fn remembers(mut self, time: i64) -> Self {
        self.remembers = Some(time);
        self
    }

    pub(super) fn build(self) -> OriginDef {
        let SourceBuilder { schema, event_time, lateness, anchored, remembers } = self;
        OriginDef::Source { schema, event_time, lateness, anchored, remembers }
    }
}

/// A new event whose types follow from the values. Arrays of pairs convert into one by themselves.
pub fn record<N: Into<String>, E: Into<Expr>>(fields: impl IntoIterator<Item = (N, E)>) -> Record {
    let fields = fields.into_iter().map(|(n, e)| (n.into(), e.into())).collect();
    Record { fields, schema: None, event_time: None }
}

impl Record {
    /// The same record, made to fit a declared schema.
    pub fn declared(mut self, schema: Schema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The same record, with a field that holds its event time.
    pub fn timed(mut self, field: impl Into<String>) -> Self {
        self.event_time = Some(field.into());
        self
    }
}

impl<N: Into<String>, E: Into<Expr>, const COUNT: usize> From<[(N, E); COUNT]> for Record {
    fn from(fields: [(N, E); COUNT]) -> Self {
        record(fields)
    }
}
