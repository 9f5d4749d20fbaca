//! The connectors of this crate: their options as structs, which are connections, and how these open.

mod csv;
mod generator;
mod ipc;
mod jsonl;
mod null;
mod parquet;

pub use csv::{ReadCsv, WriteCsv};
pub use generator::Generate;
pub use ipc::{ReadIpc, WriteIpc};
pub use jsonl::{ReadJsonl, WriteJsonl};
pub use null::WriteNull;
pub use parquet::{ReadParquet, WriteParquet};

use crate::columnar::Spool;
use crate::output::Output;
use crate::{Connector, Disk, InputEnd, SinkConnection, SinkDurability, SourceConnection, Spec, SpecError};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::sync::Arc;
use tidemill_durability::{Planted, Storage};
use tidemill_model::Schema;
use tidemill_runtime::{IoFailure, Sink};

/// The connectors of this crate.
pub(crate) fn standard() -> [Box<dyn Connector>; 6] {
    [
        Format::<ReadCsv, WriteCsv>::of(csv::KIND),
        Format::<ReadJsonl, WriteJsonl>::of(jsonl::KIND),
        Format::<ReadParquet, WriteParquet>::of(parquet::KIND),
        Format::<ReadIpc, WriteIpc>::of(ipc::KIND),
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
        Ok(Box::new(spec.read::<R>()?))
    }

    fn sink(&self, spec: &Spec) -> Result<Box<dyn SinkConnection>, SpecError> {
        Ok(Box::new(spec.read::<W>()?))
    }
}

/// Whether the end of a source that cannot be followed is the end for good.
fn is_last(end: InputEnd) -> Result<bool, IoFailure> {
    match end {
        InputEnd::Pause => Ok(false),
        InputEnd::Last => Ok(true),
        InputEnd::Follow => Err(IoFailure::new("only CSV and JSON Lines can be followed")),
    }
}

/// Opens the output of a sink. `form` says what it holds, for people and to be compared: an output that was begun in
/// one form cannot go on in another.
fn output(path: &str, durable: Option<&SinkDurability>, form: impl FnOnce() -> String) -> Result<Output, IoFailure> {
    match durable {
        Some(durable) => Output::open_durable(durable, path, form()),
        None => Output::open(&(Arc::new(Disk) as Arc<dyn Storage>), path),
    }
}

/// The bug on purpose, if there is one.
fn planted(durable: Option<&SinkDurability>) -> Planted {
    durable.map(|durable| durable.planted).unwrap_or_default()
}

/// Opens a sink that writes its file whole. In a durable run the events are kept in a part of their own until then.
fn columnar(
    path: &str,
    schema: &Schema,
    durable: Option<&SinkDurability>,
    open: impl Fn(Output) -> Result<Box<dyn Sink>, IoFailure> + Send + 'static,
) -> Result<Box<dyn Sink>, IoFailure> {
    // Parts have one form, and are not compressed as the file will be.
    let part = output(path, durable, || format!("columns of {schema}"))?;
    let Some(durable) = durable.filter(|_| !part.is_interactive()) else { return open(part) };
    let (storage, path) = (durable.storage.clone(), path.to_owned());
    let whole = move || open(Output::open(&storage, &path)?);
    Ok(Box::new(Spool::new(part, schema, Box::new(whole))?))
}

fn comma() -> char {
    ','
}
