//! `tidemill serve`.

use crate::arguments::ServeArguments;
use crate::exit::{self, report_of_run};
use crate::job::Job;
use crate::loader::{Interrupt, Loader, Purpose};
use crate::log::{TARGET, is_json};
use crate::options::RunOptions;
use crate::run::{at_once, served_metrics};
use crate::summary::{late_warnings, log_end, readable};
use crate::watch::Beginning;
use crate::{JobError, say, say_waits};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tidemill_runtime::{Control, Session, Summary};
use tidemill_server::{ServeError, ServeOptions, Server};
use tracing::info;

/// The interval at which it looks whether it is to end.
const TICK: Duration = Duration::from_millis(100);

/// The reason why serving failed.
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
    let mut stopping = None;
    Ok(match execute(arguments, &options, job, loader, &mut stopping) {
        Ok((summary, text)) => {
            log_end(&summary);
            if run.json {
                say::out(&serde_json::to_string(&summary).expect("a summary is plain data"));
            } else if !run.quiet && !is_json() {
                say::err(&text);
            }
            exit::SUCCESS
        }
        Err(Failed::Job(error)) => report_of_run(&error, stopping),
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

/// Returns the summary, also as text. `stopping`: how the user asked to stop before it was served, if he did.
fn execute<L: Loader>(
    arguments: &ServeArguments,
    options: &RunOptions,
    job: Job,
    loader: &mut L,
    stopping: &mut Option<Interrupt>,
) -> Result<(Summary, String), Failed> {
    let quiet = arguments.run.quiet;
    let mut ready = job.open_for_session(options, &mut |_| {
        let interrupted = loader.interrupted();
        if let Some(by) = interrupted {
            at_once(stopping, by);
        }
        interrupted.is_some()
    })?;
    arguments.keep.iter().try_for_each(|(stream, events)| ready.keep(stream, *events))?;
    ready.notes.warned.iter().for_each(|warning| say::warning(warning));
    if !quiet {
        ready.notes.said.iter().for_each(|note| say::note(note));
    }
    let metrics = served_metrics(&arguments.run, &ready.watched)?;
    let session = Arc::new(ready.start(Arc::new(Control::default()), &mut || {})?);
    let server = Server::start_with(session.clone(), arguments.options(), loader.launch()).map_err(Failed::Serve)?;
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
        server.notice().into_iter().for_each(say::warning);
        let postgres = server.postgres_url(name).map(|url| format!(" and {url}")).unwrap_or_default();
        say::note(&format!("serving {name} on {}{postgres}", server.url()));
    }
    let (mut beginning, watched) = (Beginning::default(), session.watched());
    while !session.is_over() {
        beginning.look(&watched, session.control());
        if let Some(by) = loader.interrupted() {
            info!(target: TARGET, by = by.word(), "asked to stop");
            break;
        }
        thread::sleep(TICK);
    }
    // Clients whose calls wait for the tick of a clock have their answers before the server has ended.
    session.announce_end();
    drop((server, metrics));
    if let Some(end) = end_telemetry {
        end();
    }
    let mut summary = end(&session, loader)?;
    let program = session.engine().program();
    say_waits(&mut summary, program);
    late_warnings(&summary, program).iter().for_each(|warning| say::warning(warning));
    let text = readable(&summary, session.engine().program(), arguments.run.explain_scheduling);
    Ok((summary, text))
}

/// Ends a session that nobody sends to any more. Sources that are read may never end, and a disk that is full may stay so:
/// the run is stopped then, and what the log has no room for was not answered.
fn end<L: Loader>(session: &Session, loader: &mut L) -> Result<Summary, JobError> {
    if session.source_names().any(|name| session.source(name).is_err()) {
        session.stop();
    }
    let mut stopping = Some(Interrupt::Key);
    let closed = session.close(&mut || {
        if let Some(by) = loader.interrupted() {
            at_once(&mut stopping, by);
        }
        if session.control().waits() {
            session.stop();
        }
    });
    Ok(closed.expect("a session is closed once")?)
}
