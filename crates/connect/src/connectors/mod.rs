//! The connectors of this crate: their options as structs, which are connections, and how these open.

mod clock;
mod csv;
mod generator;
mod ipc;
mod jsonl;
mod null;
mod open;
mod parquet;

pub use clock::ReadClock;
pub use csv::{ReadCsv, WriteCsv};
pub use generator::Generate;
pub use ipc::{ReadIpc, WriteIpc};
pub use jsonl::{ReadJsonl, WriteJsonl};
pub use null::WriteNull;
pub use parquet::{ReadParquet, WriteParquet};

use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use tidemill_io::{Connector, KindTaken, Registry, SinkConnection, SourceConnection, Spec, SpecError};

/// Returns a registry with the connectors of this crate.
pub fn standard_connectors() -> Registry {
    registered().expect("each kind is registered once")
}

fn registered() -> Result<Registry, KindTaken> {
    let mut connectors = Registry::new();
    connectors.register(Format::<ReadCsv, WriteCsv>::of(csv::KIND))?;
    connectors.register(Format::<ReadJsonl, WriteJsonl>::of(jsonl::KIND))?;
    connectors.register(Format::<ReadParquet, WriteParquet>::of(parquet::KIND))?;
    connectors.register(Format::<ReadIpc, WriteIpc>::of(ipc::KIND))?;
    connectors.register(clock::Clock)?;
    connectors.register(generator::Generator)?;
    connectors.register(null::Null)?;
    Ok(connectors)
}

/// A format of files: the options of its sources and of its sinks.
struct Format<R, W> {
    kind: &'static str,
    options: PhantomData<fn() -> (R, W)>,
}

impl<R, W> Format<R, W> {
    fn of(kind: &'static str) -> Self {
        Self { kind, options: PhantomData }
    }
}

impl<R, W> Connector for Format<R, W>
where
    R: SourceConnection + DeserializeOwned + 'static,
    W: SinkConnection + DeserializeOwned + 'static,
{
    fn kind(&self) -> &str {
        self.kind
    }

    fn source(&self, spec: &Spec) -> Result<Box<dyn SourceConnection>, SpecError> {
        let can_grow = matches!(self.kind, csv::KIND | jsonl::KIND);
        crate::splits::connection(spec, can_grow, |spec| Ok(Box::new(spec.read::<R>()?)))
    }

    fn sink(&self, spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
        Ok(Box::new(spec.read::<W>()?))
    }
}
