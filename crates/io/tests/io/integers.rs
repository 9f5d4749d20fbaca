//! A connector as others write one, of this crate and the values of events: integers that can be read again from any of
//! them.

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use serde::{Deserialize, Serialize};
use std::process::abort;
use std::sync::Arc;
use std::time::Duration;
use tidemill_io::{
    Connector, IoFailure, Next, Resumed, Source, SourceBatch, SourceConnection, SourceOptions, Spec, SpecError,
};
use tidemill_model::Schema;
use tidemill_model::arrow::arrow_schema;

/// Makes sources of integers.
pub struct Integers;

impl Connector for Integers {
    fn kind(&self) -> &str {
        "integers"
    }

    fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        Ok(Box::new(spec.read::<Between>()?))
    }
}

/// The integers from `from` to below `to`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    pub from: i64,
    pub to: i64,
    /// The process dies when it is asked for this one: a test of crashes.
    #[serde(default)]
    pub dies_at: Option<i64>,
}

impl SourceConnection for Between {
    fn spec(&self) -> Spec {
        Spec::of("integers", self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        if schema.fields.len() != 1 {
            return Err(IoFailure::schema(format!("integers have one column, and the schema is {schema}")));
        }
        let rows_max = (options.batch_rows as i64).min(100);
        Ok(Box::new(Reading { between: self.clone(), next: self.from, rows_max, schema: schema.clone() }))
    }
}

/// Integers that are being read.
struct Reading {
    between: Between,
    next: i64,
    rows_max: i64,
    schema: Schema,
}

impl Source for Reading {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        let end = (self.next + self.rows_max).min(self.between.to);
        if end == self.next {
            return Ok(Next::End);
        }
        if self.between.dies_at.is_some_and(|at| at < end) {
            abort();
        }
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(self.next..end));
        self.next = end;
        let events = RecordBatch::try_new(arrow_schema(&self.schema), vec![column]).expect("one column of integers");
        Ok(Next::Batch(SourceBatch { events, bad: Vec::new() }))
    }

    fn token(&self) -> Option<String> {
        Some(self.next.to_string())
    }

    fn replays(&self) -> bool {
        true
    }

    fn resume(&mut self, token: Option<&str>) -> Result<Resumed, IoFailure> {
        let token = token.expect("a source is given its own tokens");
        self.next = token.parse().map_err(|error| IoFailure::new(format!("'{token}' is no integer: {error}")))?;
        Ok(Resumed::Behind)
    }
}
