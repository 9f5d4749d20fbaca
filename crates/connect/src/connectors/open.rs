//! Functions that the connectors share in opening sources and sinks.

use crate::columnar::Spool;
use crate::output::Output;
use crate::{Disk, SinkDurability};
use std::any::Any;
use std::sync::Arc;
use tidemill_durability::{Planted, Storage};
use tidemill_io::{DurableRun, InputEnd, IoFailure, Sink};
use tidemill_model::Schema;

/// Returns whether the end of a source that cannot be followed is the end for good.
pub(super) fn is_last(end: InputEnd) -> Result<bool, IoFailure> {
    match end {
        InputEnd::Pause => Ok(false),
        InputEnd::Last => Ok(true),
        InputEnd::Follow => Err(IoFailure::new("only CSV and JSON Lines can be followed")),
    }
}

/// Returns a durable run as sinks of files see it. Only such a run has a storage for files.
pub(super) fn in_files(durable: Option<&dyn DurableRun>) -> Result<Option<&SinkDurability>, IoFailure> {
    let Some(run) = durable else { return Ok(None) };
    let known = (run as &dyn Any).downcast_ref();
    known.map(Some).ok_or_else(|| IoFailure::new("this durable run has no storage for files"))
}

/// Opens the output of a sink. `form` says what it holds, for people and to be compared: an output that was begun in
/// one form cannot go on in another.
pub(super) fn output(
    path: &str,
    durable: Option<&SinkDurability>,
    form: impl FnOnce() -> String,
) -> Result<Output, IoFailure> {
    match durable {
        Some(durable) => Output::open_durable(durable, path, form()),
        None => Output::open(&(Arc::new(Disk) as Arc<dyn Storage>), path),
    }
}

/// Returns the bug on purpose, if there is one.
pub(super) fn planted(durable: Option<&SinkDurability>) -> Planted {
    durable.map(|durable| durable.planted).unwrap_or_default()
}

/// Opens a sink that writes its file whole. In a durable run the events are kept in a part of their own until then.
pub(super) fn columnar(
    path: &str,
    schema: &Schema,
    durable: Option<&SinkDurability>,
    open: impl Fn(Output) -> Result<Box<dyn Sink>, IoFailure> + Send + 'static,
) -> Result<Box<dyn Sink>, IoFailure> {
    // Parts have one form, and are not compressed as the file will be.
    let part = output(path, durable, || format!("columns of {schema}"))?;
    let Some(durable) = durable.filter(|_| !part.is_interactive()) else { return open(part) };
    let (storage, path) = (durable.storage.clone(), path.to_owned());
    let whole = move || open(Output::open_held(&storage, &path)?);
    Ok(Box::new(Spool::new(part, schema, Box::new(whole))?))
}

/// Returns the delimiter of CSV if none is given.
pub(super) fn comma() -> char {
    ','
}
