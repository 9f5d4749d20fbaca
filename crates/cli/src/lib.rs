//! The `tidemill` command, above any way of loading an application, and the [`Job`] that it and the
//! front ends run.
//!
//! A front end implements [`Loader`] and calls [`main`]. Everything that is said goes to standard
//! error; standard output is for results: what sinks write to `-`, `--json`, `check` and `explain`.
//! Neither the meaning of a plan nor that of a source file lives here.

mod arguments;
mod audit;
mod check;
mod check_json;
mod end;
mod ends;
mod epoch;
pub mod exit;
mod job;
mod loader;
mod log;
mod log_writer;
mod look;
mod new;
mod options;
mod outlook;
mod progress;
mod run;
mod savepoint;
mod say;
mod serve;
mod settings;
mod shell;
mod sizes;
mod state;
mod summary;
mod text;
mod user;
mod watch;

pub use arguments::Template;
pub use job::{
    Input, Job, JobError, Notes, OpenSink, OpenSource, Output, Ready, say_waits, source_streams, table_schema,
};
pub use loader::{Interrupt, Loader, Look, LookAt, Purpose};
pub use options::{OptionError, RunOptions};
pub use watch::Thresholds;

use arguments::Command;
use std::ffi::OsString;
use tracing::dispatcher::with_default;

/// Runs the command line, its first element the command's own name; the exit code. The caller shows
/// errors of loading.
pub fn main<L: Loader>(arguments: impl IntoIterator<Item = OsString>, loader: &mut L) -> Result<u8, L::Error> {
    let arguments = match settings::parse(arguments.into_iter().collect()) {
        Ok(arguments) => arguments,
        Err(answer) => {
            // Help, the version, or the mistake. A failure to print cannot be reported.
            let _ = answer.print();
            return Ok(if answer.use_stderr() { exit::USAGE } else { exit::SUCCESS });
        }
    };
    match &arguments.command {
        Command::Run(arguments) => {
            with_default(&arguments.log.dispatch(false, arguments.quiet), || flushed(|| run::run(arguments, loader)))
        }
        Command::Serve(arguments) => {
            let log = arguments.run.log.dispatch(true, arguments.run.quiet);
            with_default(&log, || flushed(|| serve::serve(arguments, loader)))
        }
        Command::Check(arguments) => check::check(arguments, loader),
        Command::Verify(arguments) => Ok(audit::verify(arguments)),
        Command::Savepoint(command) => Ok(savepoint::savepoint(command, loader)),
        Command::User(command) => Ok(user::user(command)),
        Command::Tail(arguments) => loader.look(&arguments.look()),
        Command::Table(arguments) => loader.look(&arguments.look()),
        Command::Top(arguments) => loader.look(&arguments.look()),
        Command::Txn(command) => Ok(audit::txn(command)),
        Command::Explain(target) => check::explain(target, loader),
        Command::New(arguments) => Ok(new::new(arguments, loader)),
        Command::Completions { shell } => Ok(shell::completions(*shell)),
        Command::Man { folder } => Ok(shell::man(folder.as_deref())),
    }
}

/// Does something, and then waits until what was logged is written.
fn flushed<T>(work: impl FnOnce() -> T) -> T {
    let done = work();
    log::flush();
    done
}
