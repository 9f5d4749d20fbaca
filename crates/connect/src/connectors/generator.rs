//! Made-up events, the same for the same seed.

use super::open::is_last;
use crate::generator::{ColumnSpec, Generator as Events, Speed};
use serde::{Deserialize, Serialize};
use tidemill_io::{Connector, InputEnd, IoFailure, Source, SourceConnection, SourceOptions, Spec, SpecError};
use tidemill_model::Schema;

const KIND: &str = "generator";

pub(crate) struct Generator;

impl Connector for Generator {
    fn kind(&self) -> &str {
        KIND
    }

    fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        Ok(Box::new(spec.read::<Generate>()?))
    }
}

/// Events to make up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// The number of events; none for no end.
    #[serde(default)]
    pub events: Option<u64>,
    /// Events per second; none for as fast as they are taken.
    #[serde(default)]
    pub rate: Option<f64>,
    /// Every value is a function of the seed, the column and the event's ordinal.
    #[serde(default)]
    pub seed: u64,
    /// The specification of each field of the schema's values, with the field's name.
    pub columns: Vec<(String, ColumnSpec)>,
    /// The meaning of the end of its events.
    #[serde(default, skip_serializing_if = "InputEnd::is_pause")]
    pub end: InputEnd,
}

impl SourceConnection for Generate {
    fn spec(&self) -> Spec {
        Spec::of(KIND, self)
    }

    fn open(&self, schema: &Schema, options: &SourceOptions) -> Result<Box<dyn Source>, IoFailure> {
        let pace = Speed { events: self.events, rate: self.rate, is_last: is_last(self.end)? };
        Ok(Box::new(Events::open(pace, self.seed, &self.columns, schema, options)?))
    }

    fn end(&self) -> InputEnd {
        self.end
    }

    fn shown(&self) -> String {
        match self.events {
            Some(1) => "generator of 1 event".into(),
            Some(events) => format!("generator of {events} events"),
            None => "generator without end".into(),
        }
    }
}
