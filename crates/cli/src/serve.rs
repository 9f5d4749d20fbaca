//! `tidemill serve`.

use crate::arguments::ServeArguments;
use crate::exit::{self, report};
use crate::job::Job;
use crate::loader::{Loader, Purpose};
use crate::options::RunOptions;
use crate::run::at_once;
use crate::summary::readable;
use crate::{JobError, say, say_waits};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tidemill_runtime::{Control, Session, Summary};
use tidemill_server::{ServeError, ServeOptions, Server};

/// The interval at which it looks whether it is to end.
const TICK: Duration = Duration::from_millis(100);

/// Why serving failed.
enum Failed {
    Job(JobError),
    Serve(ServeError),
    Telemetry(String),
}

impl<E: Into<JobError>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::Job(error.into())
    }
}

/// Runs an application and serves it until it is interrupted; the exit code.
pub fn serve<L: Loader>(arguments: &ServeArguments, loader: &mut L) -> Result<u8, L::Error> {
    let run = &arguments.run;
    let (file, name) = run.target.parts();
    let options = run.options();
    if let Err(error) = options.check() {
        say::error(&format!("--{}: {}; give --state DIR", error.option, error.message));
        return Ok(exit::USAGE);
    }
    let job = loader.load(file, name, Purpose::Serve)?;
    Ok(match execute(arguments, &options, job, loader) {
        Ok((summary, text)) => {
            if run.json {
                say::out(&serde_json::to_string(&summary).expect("a summary is plain data"));
            } else if !run.quiet {
                say::err(&text);
            }
            exit::SUCCESS
        }
        Err(Failed::Job(error)) => report(&error),
        Err(Failed::Telemetry(text)) => {
            say::error(&text);
            exit::USAGE
        }
        Err(Failed::Serve(error)) => {
            say::error(&error.to_string());
            if matches!(
                error,
                ServeError::Host(_)
                    | ServeError::Insecure(_)
                    | ServeError::Unencrypted(_)
                    | ServeError::Users(_)
                    | ServeError::Tls(_)
            ) {
                exit::USAGE
            } else {
                exit::RUN
            }
        }
    })
}

/// The summary, also as text.
fn execute<L: Loader>(
    arguments: &ServeArguments,
    options: &RunOptions,
    job: Job,
    loader: &mut L,
) -> Result<(Summary, String), Failed> {
    let quiet = arguments.run.quiet;
    let mut stopping = false;
    let mut ready = job.open_for_session(options, &mut |_| {
        let interrupted = loader.interrupted();
        if interrupted {
            at_once(&mut stopping);
        }
        interrupted
    })?;
    arguments.keep.iter().try_for_each(|(stream, events)| ready.keep(stream, *events))?;
    if !quiet {
        ready.notes.iter().for_each(|note| say::err(note));
    }
    let session = Arc::new(ready.start(Arc::new(Control::default()), &mut || {})?);
    let engine = loader.queries(&session);
    let server = Server::start_with(session.clone(), arguments.options(), engine).map_err(Failed::Serve)?;
    let name = &session.engine().program().name;
    let end_telemetry = match arguments.telemetry {
        true => Some(loader.telemetry(server.metrics(), name).map_err(Failed::Telemetry)?),
        false => None,
    };
    if !quiet {
        match arguments.options() {
            ServeOptions { insecure: true, users: None, .. } => {
                say::warning("whoever reaches this address can call, read and push: nobody is asked who he is");
            }
            ServeOptions { insecure: true, tls: None, .. } => {
                say::warning("what is sent to this address is not encrypted, and tokens of HTTP are not either");
            }
            _ => {}
        }
        let postgres = server.postgres_url(name).map(|url| format!(" and {url}")).unwrap_or_default();
        say::err(&format!("serving {name} on {}{postgres}", server.url()));
    }
    while !loader.interrupted() && !session.is_over() {
        thread::sleep(TICK);
    }
    drop(server);
    if let Some(end) = end_telemetry {
        end();
    }
    let mut summary = end(&session, loader)?;
    say_waits(&mut summary, session.engine().program());
    let text = readable(&summary, session.engine().program(), arguments.run.explain_scheduling);
    Ok((summary, text))
}

/// Ends a session that nobody sends to any more. Sources that are read may never end: the run is stopped then.
fn end<L: Loader>(session: &Session, loader: &mut L) -> Result<Summary, JobError> {
    if session.source_names().any(|name| session.source(name).is_err()) {
        session.stop();
    }
    let mut stopping = true;
    let closed = session.close(&mut || {
        if loader.interrupted() {
            at_once(&mut stopping);
        }
    });
    Ok(closed.expect("a session is closed once")?)
}
