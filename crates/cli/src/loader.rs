//! What the command asks of a front end.

use crate::Job;
use std::path::PathBuf;
use std::sync::Arc;
use tidemill_runtime::Session;
use tidemill_server::{Metrics, Queries};

/// The purpose for which an application is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run: everything must be there.
    Run,
    /// To serve: clients send the events of sources whose data is given in no other way.
    Serve,
    /// To look at: sources whose data is given in another way may be missing.
    Look,
}

/// A front end, as the command sees it.
pub trait Loader {
    /// What goes wrong in the user's program; the caller of [`crate::main`] shows it.
    type Error;

    /// The application of a file: the one of that name, or the only one.
    fn load(&mut self, file: &str, name: Option<&str>, purpose: Purpose) -> Result<Job, Self::Error>;

    /// Whether the user has asked to stop since the last call.
    fn interrupted(&mut self) -> bool;

    /// What answers queries over a session's tables, if there is something.
    fn queries(&self, session: &Arc<Session>) -> Option<Arc<dyn Queries>>;

    /// Begins to send what a server counts by OpenTelemetry, as the application of that name; gives what ends it. Else
    /// what is missing, in words.
    fn telemetry(&self, metrics: Metrics, name: &str) -> Result<Box<dyn FnOnce()>, String>;

    /// The files of a new application of that name, with their texts; paths are relative to its folder.
    fn template(&self, name: &str) -> Vec<(PathBuf, String)>;
}
