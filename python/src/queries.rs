//! SQL over the tables of a session, answered by the user's DuckDB (`tidemill.sql`).

use crate::arrow::stream_of;
use crate::session::{declared_tables, frames};
use arrow_array::RecordBatchReader;
use pyo3::prelude::*;
use std::sync::Arc;
use tidemill_plan::TableId;
use tidemill_runtime::{ReadsAt, Session, SessionError};
use tidemill_server::{Queried, Queries, Query, QueryError, QueryForm, QueryLimits, Snapshot, Waits};

/// Called, it says whether the answer of a query is still wanted.
#[pyclass(frozen)]
struct Wanted(Waits);

#[pymethods]
impl Wanted {
    fn __call__(&self) -> bool {
        self.0.is_wanted()
    }
}

/// DuckDB, as Python has it.
pub struct DuckDb(pub Arc<Session>);

impl Queries for DuckDb {
    fn query(
        &self,
        query: &Query,
        at: Option<&Snapshot>,
        limits: QueryLimits,
        waits: &Waits,
    ) -> Result<Queried, QueryError> {
        let names = &self.0.engine().program().tables;
        let may = |id: &TableId| query.tables.contains(&names[*id].name);
        let wanted: Vec<TableId> = declared_tables(&self.0).into_iter().filter(may).collect();
        let ask = || self.0.ask(wanted.clone(), None).and_then(|asked| asked.reads(None));
        let reads: ReadsAt = match at {
            Some(snapshot) => snapshot.reads(&wanted),
            None => ask().map_err(|error: SessionError| QueryError::Over(error.to_string()))?,
        };
        let epoch = reads.epoch;
        let tables = frames(&self.0, &wanted, reads);
        let reader = Python::attach(|py| {
            let answered = || {
                let Query { sql, parameters, form, setup, tables: _ } = query;
                let form = match form {
                    QueryForm::Own => "own",
                    QueryForm::Plain => "plain",
                    QueryForm::Lists => "lists",
                    QueryForm::Columns => "columns",
                };
                let limits = (limits.time_max.as_secs_f64(), limits.rows_max, limits.memory_max);
                let sqls = py.import("tidemill.sql")?;
                stream_of(&sqls.call_method1(
                    "answered",
                    (tables, epoch, sql, parameters, form, limits, Wanted(waits.clone()), setup.as_deref()),
                )?)
            };
            answered().map_err(|error| refusal(py, &error))
        })?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| QueryError::Refused(error.to_string()))?;
        Ok(Queried { epoch, schema, batches })
    }
}

fn refusal(py: Python<'_>, error: &PyErr) -> QueryError {
    let text = error.value(py).to_string();
    let is = |class: &str| {
        let class = py.import("tidemill.sql").and_then(|sqls| sqls.getattr(class));
        class.is_ok_and(|class| error.is_instance(py, &class))
    };
    match (is("QueryError"), is("RunError")) {
        (true, _) => QueryError::Refused(text),
        (_, true) => QueryError::NoEngine(text),
        _ => QueryError::Over(error.to_string()),
    }
}
