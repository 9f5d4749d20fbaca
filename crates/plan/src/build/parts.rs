//! Tables, sources and records.

use crate::{
    Ahead, CallerFields, ColumnDef, ConvertDef, Expire, Expr, KeyGroupsDef, OriginDef, Record, Stmt, TableDef,
    WindowDef,
};
use tidemill_model::{ColumnType, Field, FieldType, ListItem, Schema, Type, Value};

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

    /// Adds a windowed column, whose values are of the type `value`.
    pub fn window(self, name: impl Into<String>, value: impl Into<ColumnType>, window: WindowDef) -> Self {
        self.push(ColumnDef { window: Some(window), ..ColumnDef::new(name, value) })
    }

    /// Sets the name that the column added last had in an earlier version of the schema: a state that is migrated keeps
    /// its values.
    pub fn was(mut self, name: impl Into<String>) -> Self {
        let column = self.table.columns.last_mut().expect("a column is added before it is said what it was");
        column.was = Some(name.into());
        self
    }

    /// Lets the column added last convert the values that it takes over by a function of the `Event` field
    /// [`ConvertDef::VALUE`], of the type `from`: statements, and the value after them.
    pub fn convert(mut self, from: impl Into<ColumnType>, body: Vec<Stmt>, value: impl Into<Expr>) -> Self {
        let column = self.table.columns.last_mut().expect("a column is added before it is said how it is converted");
        column.convert = Some(ConvertDef { from: from.into(), body, value: value.into() });
        self
    }

    /// Adds an index: the rows with values of these columns, and the first row by the last of them, are found without a
    /// look at all rows.
    pub fn index<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.table.indexes.push(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Makes the table's changes a stream.
    pub fn changes(mut self) -> Self {
        self.table.changes = true;
        self
    }

    /// Its rows expire.
    pub fn expire(mut self, expire: Expire) -> Self {
        self.table.expire = Some(expire);
        self
    }

    /// Sets the name that the table had in an earlier version of the schema.
    pub fn had_name(mut self, name: impl Into<String>) -> Self {
        self.table.was = Some(name.into());
        self
    }

    /// Divides the table's keys into `count` groups, by the value of an int key column modulo `count`: transactions
    /// that keep to one are scheduled group by group ([`crate::Groups`]).
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
    keys_max: Option<u64>,
    ahead: Ahead,
    caller: CallerFields,
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

    /// Sets how late an event may be, in the unit of its time (microseconds for `Time`); below zero as of a clock.
    pub fn lateness(mut self, lateness: i64) -> Self {
        self.lateness = lateness;
        self
    }

    /// Sets that the stream's events are sent and bring no time: the field of event time gets that of their position.
    pub fn anchored(mut self) -> Self {
        self.anchored = true;
        self
    }

    /// Sets that the stream's events are calls that may have a key: the answers are kept for `time` microseconds.
    pub fn remembers(mut self, time: i64) -> Self {
        self.remembers = Some(time);
        self
    }

    /// Sets the number of keys that are kept at a time, at most.
    pub fn keys_max(mut self, most: u64) -> Self {
        self.keys_max = Some(most);
        self
    }

    /// Sets how far ahead of the machine's clock an event may be when it is taken; needs an event time of type `Time`.
    pub fn ahead(mut self, ahead: Ahead) -> Self {
        self.ahead = ahead;
        self
    }

    /// Adds the field that says which user makes a call; nullable where calls of nobody known are taken.
    pub fn caller(mut self, name: impl Into<String>, is_nullable: bool) -> Self {
        let name = name.into();
        self.caller.user = Some(name.clone());
        self.field(name, ColumnType { ty: Type::Str, nullable: is_nullable })
    }

    /// Adds the field that says by which protocol a call is made.
    pub fn caller_protocol(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.caller.protocol = Some(name.clone());
        self.field(name, ColumnType::optional(Type::Str))
    }

    pub(super) fn build(self) -> OriginDef {
        let SourceBuilder { schema, event_time, lateness, anchored, remembers, keys_max, ahead, caller } = self;
        OriginDef::Source { schema, event_time, lateness, anchored, remembers, keys_max, ahead, caller }
    }
}

/// Returns a new event whose types follow from the values. Arrays of pairs convert into one by themselves.
pub fn record<N: Into<String>, E: Into<Expr>>(fields: impl IntoIterator<Item = (N, E)>) -> Record {
    let fields = fields.into_iter().map(|(n, e)| (n.into(), e.into())).collect();
    Record { fields, schema: None, event_time: None }
}

impl Record {
    /// Makes the record fit a declared schema.
    pub fn declared(mut self, schema: Schema) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Names the field of the record that holds its event time.
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
