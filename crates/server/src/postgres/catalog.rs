//! The catalog: the procedures that can be called and the tables that can be read, by name.

use super::backend::Described;
use super::types;
use crate::calls::Calls;
use crate::index;
use tidemill_model::{ColumnType, Field, FieldType, Type};
use tidemill_plan::{StreamId, TableId};
use tidemill_runtime::Session;

/// The parameter with the key of a call.
pub const KEY: &str = "idempotency_key";

/// A procedure.
#[derive(Debug)]
pub struct Procedure {
    pub name: String,
    /// Its parameters: the fields of its events, and after them the key of the call, where it may have one.
    pub fields: Vec<Field>,
    /// The number of the key.
    pub key: Option<usize>,
    /// The fields of the record it returns; empty if it never returns one.
    pub returns: Vec<Field>,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    pub name: String,
    pub id: TableId,
    pub columns: Vec<Field>,
    /// The columns of its key.
    pub key: Vec<usize>,
}

/// The procedures, tables and streams of an application.
#[derive(Debug)]
pub struct Catalog {
    /// The procedures, in the order of [`Calls::procedures`].
    pub procedures: Vec<Procedure>,
    /// The procedure that makes a savepoint; it is no transaction of the application.
    pub keep: Procedure,
    pub tables: Vec<Table>,
    /// The streams that can be listened to.
    pub streams: Vec<(String, StreamId)>,
}

impl Catalog {
    /// Makes the catalog of a session.
    pub fn of(session: &Session, calls: &Calls) -> Catalog {
        let program = session.engine().program();
        let procedures = calls.procedures().enumerate().map(|(number, (name, schema))| {
            let transaction = program.transactions.iter().find(|t| t.name == name).expect("it is a transaction");
            let returned = &program.streams[transaction.committed.stream].schema.fields;
            let returns = if transaction.committed.passes_event { Vec::new() } else { returned.clone() };
            let (mut fields, mut key) = (schema.fields, None);
            if calls.remembers(number) {
                key = Some(fields.len());
                fields.push(Field::scalar(KEY, ColumnType { ty: Type::Str, nullable: true }));
            }
            Procedure { name: name.to_owned(), fields, key, returns }
        });
        let tables = index::tables(program).map(|table| {
            let field = |c: &tidemill_plan::Column| Field { name: c.name.clone(), ty: FieldType::Scalar(c.ty) };
            Table {
                name: table.name.clone(),
                id: session.table(&table.name).expect("it is there"),
                columns: table.columns.iter().map(field).collect(),
                key: table.key.clone(),
            }
        });
        let stream =
            |stream: &tidemill_plan::Stream| (stream.name.clone(), session.stream(&stream.name).expect("it is there"));
        let streams = index::streams(program).map(stream).collect();
        Catalog { keep: keep(), procedures: procedures.collect(), tables: tables.collect(), streams }
    }

    /// Returns the names of the procedures.
    pub fn procedure_names(&self) -> String {
        listed(self.procedures.iter().map(|procedure| &*procedure.name))
    }

    /// Returns the names of the tables.
    pub fn table_names(&self) -> String {
        listed(self.tables.iter().map(|table| &*table.name))
    }
}

/// Returns `tidemill_savepoint(name)`.
pub(super) fn keep() -> Procedure {
    let field = |name, ty, nullable| Field::scalar(name, ColumnType { ty, nullable });
    Procedure {
        name: "tidemill_savepoint".into(),
        fields: vec![field("name", Type::Str, true)],
        key: None,
        returns: vec![field("savepoint", Type::Str, false), field("epoch", Type::Int, false)],
    }
}

/// Returns the names as a text, or a word for none.
pub fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns a field as a column of rows.
pub fn described(field: &Field) -> Described {
    Described { name: field.name.clone(), ty: types::of_field(&field.ty) }
}
