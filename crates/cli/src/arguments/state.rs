//! The commands that work on a state.

use clap::Subcommand;
use std::path::PathBuf;
use tidemill_audit::EventPosition;

const SAVEPOINT_HELP: &str = "\
A server that asks who you are gets the token that TIDEMILL_TOKEN has; it needs the right --savepoint.

Examples:
  tidemill savepoint create ./state monday
  tidemill savepoint create http://127.0.0.1:8740 monday";

#[derive(Debug, Subcommand)]
pub enum SavepointCommand {
    /// Keep the newest checkpoint under a name, and the log after it; of a state that is served, one that is made now.
    #[command(after_help = SAVEPOINT_HELP)]
    Create {
        /// The state directory, which no process may be using; or the URL of the server that uses it.
        #[arg(value_name = "DIR|URL")]
        state: PathBuf,
        /// Letters, digits, '-', '_' and '.'.
        #[arg(value_name = "NAME")]
        name: String,
        /// The certificate, in PEM, that vouches for the server, instead of those that the system knows.
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Print what was done as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// List the savepoints.
    #[command(after_help = "Example:\n  tidemill savepoint list ./state")]
    List {
        /// The state directory.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// Print them as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Put the state back; everything after the savepoint is forgotten, and outputs begin anew.
    #[command(after_help = "Example:\n  tidemill savepoint restore ./state monday")]
    Restore {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The savepoint.
        #[arg(value_name = "NAME")]
        name: String,
        /// Print what was done as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Remove a savepoint, and with the next checkpoint the log that it keeps.
    #[command(after_help = "Example:\n  tidemill savepoint remove ./state monday")]
    Remove {
        /// The state directory. No process may be using it.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The savepoint.
        #[arg(value_name = "NAME")]
        name: String,
        /// Print what was done as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Write each table of a savepoint to a Parquet file.
    #[command(after_help = "Example:\n  tidemill savepoint export ./state monday ./tables")]
    Export {
        /// The state directory. A run may go on with it meanwhile.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The savepoint.
        #[arg(value_name = "NAME")]
        name: String,
        /// The folder of the files; made if missing.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// Print what was done as one JSON object.
        #[arg(long)]
        json: bool,
    },
}

const SHOW_HELP: &str = "\
A position is SOURCE:N, the N-th event of a source, counted from 0 (records that could not be decoded are
not counted), or SOURCE@TIME, all events of a source with that event time. Of a source that is read in
splits, SOURCE/FILE:N is the N-th event of one file, and SOURCE/FILE@TIME its events of a time; FILE is
its path, or the end of it after a slash. It must be in the log: after the newest checkpoint, or after a
savepoint.

Examples:
  tidemill txn show ./state transfers:17
  tidemill txn show ./state transfers/monday.csv:17
  tidemill txn show ./state transfers@2024-05-01T09:00:02Z";

#[derive(Debug, Subcommand)]
pub enum TxnCommand {
    /// Run an event's transactions again at the state that they ran at, and show what they read, required,
    /// wrote and emitted, and why one aborted.
    #[command(after_help = SHOW_HELP)]
    Show {
        /// The state directory. A run may go on with it meanwhile.
        #[arg(value_name = "DIR")]
        state: PathBuf,
        /// The event.
        #[arg(value_name = "POSITION")]
        position: EventPosition,
        /// Print what was found as one JSON object.
        #[arg(long)]
        json: bool,
    },
}
