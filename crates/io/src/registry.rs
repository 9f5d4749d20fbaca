//! Which connectors there are.

use crate::{Connector, SinkConnection, SourceConnection, Spec, SpecError};
use std::collections::BTreeMap;
use std::fmt;

/// Connectors by kind.
#[derive(Default)]
pub struct Registry {
    connectors: BTreeMap<String, Box<dyn Connector>>,
}

/// A kind that is registered already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindTaken(pub String);

impl fmt::Display for KindTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is a connector '{}' already", self.0)
    }
}

impl std::error::Error for KindTaken {}

impl Registry {
    /// Makes a registry without connectors.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a connector. States record specs by kind, so a kind means the same for ever: none is replaced.
    pub fn register(&mut self, connector: impl Connector + 'static) -> Result<(), KindTaken> {
        let kind = connector.kind().to_owned();
        if self.connectors.contains_key(&kind) {
            return Err(KindTaken(kind));
        }
        self.connectors.insert(kind, Box::new(connector));
        Ok(())
    }

    /// Returns the kinds that there are, sorted.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.connectors.keys().map(String::as_str)
    }

    /// Returns the source that a spec means.
    pub fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        self.connector(&spec.kind)?.source(spec)
    }

    /// Returns the sink that a spec means.
    pub fn sink(&self, spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
        self.connector(&spec.kind)?.sink(spec)
    }

    fn connector(&self, kind: &str) -> Result<&dyn Connector, SpecError> {
        let known = || self.kinds().map(str::to_owned).collect();
        let found = self.connectors.get(kind).map(Box::as_ref);
        found.ok_or_else(|| SpecError::Unknown { kind: kind.to_owned(), known: known() })
    }
}
