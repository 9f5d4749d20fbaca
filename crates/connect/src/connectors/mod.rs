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

use crate::{Connector, SinkConnection, SourceConnection, Spec, SpecError};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// Returns the connectors of this crate.
pub(crate) fn standard() -> [Box<dyn Connector>; 7] {
    [
        Format::<ReadCsv, WriteCsv>::of(csv::KIND),
        Format::<ReadJsonl, WriteJsonl>::of(jsonl::KIND),
        Format::<ReadParquet, WriteParquet>::of(parquet::KIND),
        Format::<ReadIpc, WriteIpc>::of(ipc::KIND),
        Box::new(clock::Clock),
        Box::new(generator::Generator),
        Box::new(null::Null),
    ]
}

/// A format of files: the options of its sources and of its sinks.
struct Format<R, W> {
    kind: &'static str,
    options: PhantomData<fn() -> (R, W)>,
}

impl<R, W> Format<R, W>
where
    R: SourceConnection + DeserializeOwned + 'static,
    W: SinkConnection + DeserializeOwned + 'static,
{
    fn of(kind: &'static str) -> Box<dyn Connector> {
        Box::new(Self { kind, options: PhantomData })
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
