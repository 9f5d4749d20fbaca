//! A statement with values, ready to be executed.

use super::arrays::{self, Item};
use super::backend::Described;
use super::catalog::described;
use super::engine;
use super::error::{PgError, PgResult, code};
use super::frontend::Form;
use super::given::Given;
use super::statement::{Argument, Asked, Call, Prepared, Read, Statement, Values};
use super::types::{self, PgType};
use super::wire::Wire;
use crate::held::Holding;
use crate::shares::Client;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use std::sync::Arc;
use tidemill_connect::json_string;
use tidemill_model::{ColumnType, Field, FieldType, Type, Value};

/// The parameter values of a statement, in the form that its execution needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound {
    /// The JSON object of a call, and its key.
    Object(Vec<u8>, Option<String>),
    Asked(Asked),
    /// The parameters of a query for the engine, as JSON.
    Parameters(String),
    /// The name of a savepoint.
    Name(Option<String>),
    Nothing,
}

impl Bound {
    /// Returns the approximate number of bytes that the bound values take.
    pub fn bytes(&self) -> usize {
        match self {
            Bound::Object(object, key) => object.len() + key.as_ref().map_or(0, String::len),
            Bound::Parameters(text) => text.len(),
            Bound::Name(name) => name.as_ref().map_or(0, String::len),
            Bound::Asked(_) | Bound::Nothing => 0,
        }
    }
}

/// Rows that are sent piece by piece.
pub struct Rows {
    pub batch: RecordBatch,
    /// The fields of the batch.
    pub fields: Vec<Field>,
    /// The columns of the batch that are sent, in their order.
    pub columns: Vec<usize>,
    pub next: usize,
    pub end: usize,
}

impl Rows {
    /// Returns the names and types by which clients see the columns of the batch.
    pub fn described(&self) -> Vec<Described> {
        let one = |(field, column): (&Field, &ArrayRef)| match (Item::of_list(column.data_type()), column.data_type()) {
            (Some(item), _) => Described { name: field.name.clone(), ty: PgType::Array(item) },
            (None, DataType::UInt32) => Described { name: field.name.clone(), ty: PgType::Oid },
            _ => described(field),
        };
        self.fields.iter().zip(self.batch.columns()).map(one).collect()
    }

    /// Appends the value of a column in a row, and says whether there is one.
    pub fn write(&self, out: &mut Vec<u8>, column: usize, row: usize, form: Form) -> bool {
        let values = self.batch.column(column);
        match (Item::of_list(values.data_type()), values.data_type()) {
            (Some(item), _) => arrays::write(out, values, item, row, form),
            (None, DataType::UInt32) => types::write_oid(out, values, row, form),
            _ => types::write(out, &self.batch, column, &self.fields[column], row, form),
        }
    }
}

/// A statement with values.
pub struct Portal {
    pub prepared: Arc<Prepared>,
    pub bound: Bound,
    pub forms: Arc<[Form]>,
    /// A flag: whether it was executed to its end.
    pub is_done: bool,
    /// The rows that are left of a read.
    pub rows: Option<Rows>,
    /// The share of the server's memory for held rows, if they are many.
    holding: Option<Holding>,
}

impl Portal {
    pub fn new(wire: &Wire, prepared: &Arc<Prepared>, values: &Values, forms: Vec<Form>) -> PgResult<Portal> {
        let columns = prepared.columns.as_ref().map_or(0, Vec::len);
        if forms.len() > 1 && forms.len() != columns {
            let message = format!("there are {columns} columns, and formats of {}", forms.len());
            return Err(PgError::new(code::PROTOCOL_VIOLATION, message));
        }
        let bound = match &prepared.statement {
            Statement::Call(call) => bound_call(wire, call, values)?,
            Statement::Read(read) => Bound::Asked(asked(wire, read, values)?),
            Statement::Query(_) => Bound::Parameters(engine::parameters(values.all())),
            Statement::Keep(name, _) => Bound::Name(name_of(name.as_ref(), values)?),
            _ => Bound::Nothing,
        };
        Ok(Portal { prepared: prepared.clone(), bound, forms: forms.into(), is_done: false, rows: None, holding: None })
    }

    /// Has rows from now on. An error if responses hold too many already.
    pub fn hold(&mut self, wire: &Wire, client: &Client, rows: Rows) -> PgResult<()> {
        let most = wire.limits.responses_bytes_max;
        let busy = || PgError::busy(format!("responses hold {most} bytes of tables that their clients have not taken"));
        self.holding = Some(wire.held.hold(client, [&rows.batch]).ok_or_else(busy)?);
        self.rows = Some(rows);
        Ok(())
    }

    /// Forgets the rows once all are sent: the portal is as one that has none.
    pub fn let_go(&mut self) {
        if let Some(rows) = &mut self.rows {
            rows.batch = RecordBatch::new_empty(rows.batch.schema());
            (rows.next, rows.end) = (0, 0);
        }
        self.holding = None;
    }
}

/// Returns the JSON object of a call, and its key.
fn bound_call(wire: &Wire, call: &Call, values: &Values) -> PgResult<Bound> {
    let procedure = &wire.catalog.procedures[call.procedure];
    let (mut object, mut key) = (Vec::with_capacity(64), None);
    object.push(b'{');
    for (number, argument) in &call.arguments {
        let field = &procedure.fields[*number];
        if procedure.key == Some(*number) {
            key = match values.value(argument)? {
                Given::Null => None,
                Given::Text(text) | Given::Unknown(text) => Some(text),
                _ => return Err(PgError::new(code::WRONG_TYPE, "an idempotency key is a text").column(&field.name)),
            };
            continue;
        }
        if object.len() > 1 {
            object.push(b',');
        }
        json_string(&mut object, &field.name);
        object.push(b':');
        let written = values.value(argument).and_then(|given| given.json(&mut object, &field.ty));
        written
            .map_err(|error| about(error, &format!("argument '{}' of {}", field.name, procedure.name), &field.name))?;
    }
    object.push(b'}');
    Ok(Bound::Object(object, key))
}

/// Returns the name of a savepoint.
fn name_of(argument: Option<&Argument>, values: &Values) -> PgResult<Option<String>> {
    match argument.map(|argument| values.value(argument)).transpose()? {
        None | Some(Given::Null) => Ok(None),
        Some(Given::Text(text) | Given::Unknown(text)) => Ok(Some(text)),
        Some(_) => Err(PgError::new(code::WRONG_TYPE, "the name of a savepoint is a text")),
    }
}

/// Returns an error about one value.
fn about(error: PgError, what: &str, column: &str) -> PgError {
    PgError { message: format!("{what}: {}", error.message), ..error }.column(column)
}

fn asked(wire: &Wire, read: &Read, values: &Values) -> PgResult<Asked> {
    let table = &wire.catalog.tables[read.table];
    let limit = match &read.limit {
        None => None,
        Some(limit) => match values.value(limit)? {
            Given::Null => None,
            given => Some(limit_of(&given)?),
        },
    };
    let Some(arguments) = &read.key else { return Ok(Asked { key: None, limit }) };
    let mut key = Vec::with_capacity(arguments.len());
    for (argument, &column) in arguments.iter().zip(&table.key) {
        let field = &table.columns[column];
        let FieldType::Scalar(ty) = field.ty else { unreachable!("a key has no lists") };
        let given = values.value(argument)?;
        if given == Given::Null {
            // Nothing is equal to it.
            return Ok(Asked { key: None, limit: Some(0) });
        }
        let value = given.value(ColumnType::required(ty.ty));
        key.push(
            value.map_err(|error| about(error, &format!("column '{}' of {}", field.name, table.name), &field.name))?,
        );
    }
    Ok(Asked { key: Some(key), limit })
}

fn limit_of(given: &Given) -> PgResult<usize> {
    match given.value(ColumnType::required(Type::Int))? {
        Value::Int(limit) => {
            let negative = || PgError::new("2201W", "LIMIT is not negative");
            usize::try_from(limit).map_err(|_| negative())
        }
        other => unreachable!("{other} is no int"),
    }
}
