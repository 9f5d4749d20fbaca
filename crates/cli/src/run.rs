//! `tidemill run`.

use crate::arguments::RunArguments;
use crate::exit::{self, report_of_run};
use crate::job::{Job, Ready};
use crate::loader::{Interrupt, Loader, Purpose};
use crate::log::{TARGET, flush, is_json};
use crate::options::RunOptions;
use crate::progress::Progress;
use crate::summary::{late_warnings, log_end, readable};
use crate::watch::Beginning;
use crate::{JobError, say};
use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use tidemill_io::Unit;
use tidemill_runtime::{Control, Summary, Watched};
use tidemill_server::{MetricsError, MetricsServer};
use tracing::info;

/// Runs an application; the exit code.
pub fn run<L: Loader>(arguments: &RunArguments, loader: &mut L) -> Result<u8, L::Error> {
    let (file, name) = arguments.target.parts();
    let options = arguments.options();
    if let Err(error) = options.check() {
        say::error(&format!("--{}: {}; give --state DIR", error.option, error.message));
        return Ok(exit::USAGE);
    }
    let job = loader.load(file, name, Purpose::Run)?;
    if let Some(sink) = job.standard_output().next().filter(|_| arguments.json) {
        say::error(&format!("--json and sink '{sink}' would both write to standard output; give the sink a file"));
        return Ok(exit::USAGE);
    }
    let mut stopping = None;
    Ok(match execute(arguments, &options, job, loader, &mut stopping) {
        Ok((summary, text)) => {
            log_end(&summary);
            if arguments.json {
                say::out(&serde_json::to_string(&summary).expect("a summary is plain data"));
            } else if !arguments.quiet && !is_json() {
                say::err(&text);
            }
            stopping.filter(|_| summary.stopped).map_or(exit::SUCCESS, exit::interrupted)
        }
        Err(error) => report_of_run(&error, stopping),
    })
}

/// Notes how the user asks for an end; ends the process where he has asked before. A terminal that is closed asks several
/// times, and nobody means anything by that.
pub(crate) fn at_once(stopping: &mut Option<Interrupt>, by: Interrupt) {
    if stopping.is_some() && by != Interrupt::HangUp {
        say::error("stopped at once; the sinks are not finished");
        flush();
        std::process::exit(exit::interrupted(by).into());
    }
    stopping.get_or_insert(by);
}

/// Serves what is counted of a run, if that is wanted.
pub(crate) fn served_metrics(
    arguments: &RunArguments,
    watched: &Watched,
) -> Result<Option<MetricsServer>, MetricsError> {
    let Some(address) = arguments.metrics else { return Ok(None) };
    let server = MetricsServer::start(address, watched.clone(), arguments.insecure)?;
    if !arguments.quiet {
        say::note(&format!("serving metrics on {}", server.url()));
    }
    Ok(Some(server))
}

/// Returns the summary, also as text. `stopping`: how the user asked to stop, if he did.
fn execute<L: Loader>(
    arguments: &RunArguments,
    options: &RunOptions,
    job: Job,
    loader: &mut L,
    stopping: &mut Option<Interrupt>,
) -> Result<(Summary, String), JobError> {
    // The bar would run into what a sink writes to the same terminal.
    let own_terminal = job.standard_output().next().is_none() || !stdout().is_terminal();
    let bar = |units: &[Unit]| if own_terminal && !arguments.quiet { Progress::new(units) } else { None };
    let mut replay = None;
    let ready: Ready = job.open(options, &mut |under_way| {
        if let Some(control) = under_way
            && let Some(progress) = replay.get_or_insert_with(|| bar(&[]))
        {
            progress.update(control);
        }
        let interrupted = loader.interrupted();
        if let Some(by) = interrupted {
            at_once(stopping, by);
        }
        interrupted.is_some()
    })?;
    drop(replay);
    ready.notes.warned.iter().for_each(|warning| say::warning(warning));
    if !arguments.quiet {
        ready.notes.said.iter().for_each(|note| say::note(note));
    }
    let control = Arc::new(Control::default());
    let metrics = served_metrics(arguments, &ready.watched)?;
    let mut progress = bar(&ready.units);
    if stopping.is_some() {
        control.stop();
    }
    let (mut beginning, watched) = (Beginning::default(), ready.watched.clone());
    let mut tick = || {
        beginning.look(&watched, &control);
        if let Some(by) = loader.interrupted() {
            info!(target: TARGET, by = by.word(), "asked to stop");
            at_once(stopping, by);
            control.stop();
        }
        progress.iter_mut().for_each(|progress| progress.update(&control));
    };
    let result = ready.run(control.clone(), &mut tick);
    drop((progress, metrics));
    let (engine, summary) = result?;
    late_warnings(&summary, engine.program()).iter().for_each(|warning| say::warning(warning));
    let text = readable(&summary, engine.program(), arguments.explain_scheduling);
    Ok((summary, text))
}
