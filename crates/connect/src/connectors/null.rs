//! A sink that takes everything and keeps nothing.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_io::{Connector, DurableRun, IoFailure, Sink, SinkConnection, Spec, SpecError};
use tidemill_model::Schema;

const KIND: &str = "null";

pub(crate) struct Null;

impl Connector for Null {
    fn kind(&self) -> &str {
        KIND
    }

    fn sink(&self, spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
        Ok(Box::new(spec.read::<WriteNull>()?))
    }
}

/// Nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteNull {}

impl SinkConnection for WriteNull {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, _schema: &Schema, _durable: Option<&dyn DurableRun>) -> Result<Box<dyn Sink>, IoFailure> {
        Ok(Box::new(NullSink))
    }

    fn shown(&self) -> String {
        "nowhere".into()
    }
}

struct NullSink;

impl Sink for NullSink {
    fn write(&mut self, _batch: &RecordBatch) -> Result<(), IoFailure> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), IoFailure> {
        Ok(())
    }
}
