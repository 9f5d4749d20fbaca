//! The specification of a source or sink: plain data, written by the front ends as JSON and kept in states. A
//! [`crate::Registry`] makes a connection of it.

use crate::IoFailure;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// A connector's kind and its options, as one JSON object: `{"kind": "csv", "paths": ["a.csv"]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Names the connector.
    pub kind: String,
    /// All other keys.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

impl Spec {
    /// Returns the spec of a kind with the fields of a struct as options.
    ///
    /// # Panics
    ///
    /// If `options` does not become a JSON object.
    pub fn of(kind: &str, options: &impl Serialize) -> Spec {
        let Ok(Value::Object(options)) = serde_json::to_value(options) else {
            panic!("options of {kind} are an object")
        };
        Spec { kind: kind.to_owned(), options }
    }

    /// Reads the options into a struct. An error names the option at fault.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, SpecError> {
        let at = Cell::new(None);
        let end = std::iter::from_fn(|| {
            at.set(None);
            None
        });
        let entries = self.options.iter().map(|(option, value)| {
            at.set(Some(option));
            (option.as_str(), value)
        });
        T::deserialize(MapDeserializer::new(entries.chain(end))).map_err(|error: serde_json::Error| {
            SpecError::Options { kind: self.kind.clone(), option: at.get().cloned(), reason: error.to_string() }
        })
    }
}

/// The reason why no connection can be made of a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// No connector has this kind.
    Unknown {
        /// The kind.
        kind: String,
        /// The kinds that there are.
        known: Vec<String>,
    },
    /// The connector has no sources.
    NoSource(String),
    /// The connector has no sinks.
    NoSink(String),
    /// The options are wrong.
    Options {
        /// The connector.
        kind: String,
        /// The option at fault, if it is a single one that was given.
        option: Option<String>,
        /// The fault.
        reason: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Unknown { kind, .. } if kind.starts_with("python:") => write!(
                f,
                "there is no connector '{kind}': it was written in a program, and no record can make it; run the program \
                 as it was, until it ends or is stopped"
            ),
            SpecError::Unknown { kind, known } => {
                write!(f, "there is no connector '{kind}'; there are {}", known.join(", "))
            }
            SpecError::NoSource(kind) => write!(f, "{kind} cannot be a source"),
            SpecError::NoSink(kind) => write!(f, "{kind} cannot be a sink"),
            SpecError::Options { kind, option: Some(option), reason } => {
                write!(f, "{kind}, option '{option}': {reason}")
            }
            SpecError::Options { kind, option: None, reason } => write!(f, "{kind}: {reason}"),
        }
    }
}

impl std::error::Error for SpecError {}

impl From<SpecError> for IoFailure {
    fn from(error: SpecError) -> IoFailure {
        IoFailure::new(error.to_string())
    }
}
