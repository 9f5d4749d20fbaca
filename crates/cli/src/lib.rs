//! The `tidemill` command, above any way of loading an application, and the [`Job`] that it and the
//! front ends run.
//!
//! A front end implements [`Loader`] and calls [`main`]. Everything that is said goes to standard
//! error; standard output is for results: what sinks write to `-`, `--json`, `check` and `explain`.
//! Neither the meaning of a plan nor that of a source file lives here.

mod arguments;
mod audit;
mod check;
mod epoch;
pub mod exit;
mod job;
mod loader;
mod new;
mod options;
mod outlook;
mod progress;
mod run;
mod savepoint;
mod say;
mod serve;
mod state;
mod summary;
mod text;
mod user;

pub use job::{Input, Job, JobError, OpenSink, OpenSource, Output, Ready, say_waits, source_streams, table_schema};
pub use loader::{Loader, Purpose};
pub use options::{OptionError, RunOptions};

use arguments::{Arguments, Command};
use clap::Parser;
use std::ffi::OsString;

/// Runs the command line, its first element the command's own name; the exit code. The caller shows
/// errors of loading.
pub fn main<L: Loader>(arguments: impl IntoIterator<Item = OsString>, loader: &mut L) -> Result<u8, L::Error> {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(answer) => {
            // Help, the version, or the mistake. A failure to print cannot be reported.
            let _ = answer.print();
            return Ok(if answer.use_stderr() { exit::USAGE } else { exit::SUCCESS });
        }
    };
    match &arguments.command {
        Command::Run(arguments) => run::run(arguments, loader),
        Command::Serve(arguments) => serve::serve(arguments, loader),
        Command::Check(arguments) => check::check(arguments, loader),
        Command::Verify(arguments) => Ok(audit::verify(arguments)),
        Command::Savepoint(command) => Ok(savepoint::savepoint(command)),
        Command::User(command) => Ok(user::user(command)),
        Command::Txn(command) => Ok(audit::txn(command)),
        Command::Explain(target) => check::explain(target, loader),
        Command::New(arguments) => Ok(new::new(arguments, loader)),
    }
}
