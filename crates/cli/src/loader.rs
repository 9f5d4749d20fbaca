//! The interface of a front end, as the command uses it.

use crate::Job;
use crate::arguments::Template;
use std::path::{Path, PathBuf};
use tidemill_server::{Launch, Metrics};

/// The purpose for which an application is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A run: everything must be there.
    Run,
    /// A server: clients send the events of sources whose data is given in no other way.
    Serve,
    /// A look: sources whose data is given in another way may be missing.
    Look,
}

/// A way to ask for an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C.
    Key,
    /// SIGTERM, as managers of services and containers send it.
    Terminate,
    /// SIGHUP, as a terminal that is closed sends it.
    HangUp,
}

/// A request to look at a state or at a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// The events of a stream.
    Tail {
        /// The stream.
        stream: String,
        /// The place after which they are wanted: an epoch of a state, a position of a server.
        after: Option<String>,
        /// A flag: whether those are wanted, too, that come later.
        follows: bool,
        /// The state or server.
        at: LookAt,
    },
    /// The rows of a table.
    Table {
        /// The table.
        name: String,
        /// A condition of SQL.
        condition: Option<String>,
        /// The form: `table`, `jsonl` or `csv`.
        format: &'static str,
        /// The state or server.
        at: LookAt,
    },
    /// The counts of a server, again and again.
    Top {
        /// Seconds between two looks.
        seconds: f64,
        /// A flag: whether one look is enough.
        is_once: bool,
        /// A flag: whether an object is printed.
        is_json: bool,
        /// The server.
        at: LookAt,
    },
}

/// A state or a server, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookAt {
    /// A directory or a URL.
    pub place: String,
    /// The secret of a user.
    pub token: Option<String>,
    /// The certificates that are trusted.
    pub ca: Option<PathBuf>,
}

impl Interrupt {
    /// Returns its word in logs.
    pub fn word(self) -> &'static str {
        match self {
            Interrupt::Key => "Ctrl-C",
            Interrupt::Terminate => "SIGTERM",
            Interrupt::HangUp => "SIGHUP",
        }
    }
}

/// A front end, as the command sees it.
pub trait Loader {
    /// The error of the user's program; the caller of [`crate::main`] shows it.
    type Error;

    /// Returns the application of a file: the one of that name, or the only one.
    fn load(&mut self, file: &str, name: Option<&str>, purpose: Purpose) -> Result<Job, Self::Error>;

    /// Returns the signal by which the user has asked to stop since the last call, if there was one.
    fn interrupted(&mut self) -> Option<Interrupt>;

    /// Returns the command that starts processes which answer queries, if there is one.
    fn launch(&self) -> Option<Launch>;

    /// Begins to send what a server counts by OpenTelemetry, as the application of that name; gives what ends it. Else
    /// what is missing, in words.
    fn telemetry(&self, metrics: Metrics, name: &str) -> Result<Box<dyn FnOnce()>, String>;

    /// Has the server at a URL make a savepoint of this name, and returns its epoch; else what went wrong, in words. `ca`: the
    /// certificate that vouches for the server.
    fn savepoint(&self, url: &str, name: &str, ca: Option<&Path>) -> Result<u64, String>;

    /// Looks at a state, or at what is served: answers a command that only a client can. Returns the exit code.
    fn look(&mut self, wanted: &Look) -> Result<u8, Self::Error>;

    /// Returns the files of a new application of that name, with their texts; paths are relative to its folder.
    fn template(&self, name: &str, template: Template) -> Vec<(PathBuf, String)>;
}
