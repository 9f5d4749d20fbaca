//! `tidemill run`.

use crate::arguments::RunArguments;
use crate::exit::{self, report};
use crate::job::{Job, Ready};
use crate::loader::{Loader, Purpose};
use crate::options::RunOptions;
use crate::progress::Progress;
use crate::summary::readable;
use crate::{JobError, say};
use std::io::{IsTerminal, stdout};
use std::sync::Arc;
use tidemill_connect::Unit;
use tidemill_runtime::{Control, Summary};

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
    Ok(match execute(arguments, &options, job, loader) {
        Ok((summary, text)) => {
            if arguments.json {
                say::out(&serde_json::to_string(&summary).expect("a summary is plain data"));
            } else if !arguments.quiet {
                say::err(&text);
            }
            if summary.stopped { exit::INTERRUPTED } else { exit::SUCCESS }
        }
        Err(error) => report(&error),
    })
}

/// Notes that the user wants an end; ends the process where that is so already.
pub(crate) fn at_once(stopping: &mut bool) {
    if *stopping {
        say::error("stopped at once; the sinks are not finished");
        std::process::exit(exit::INTERRUPTED.into());
    }
    *stopping = true;
}

/// The summary, also as text.
fn execute<L: Loader>(
    arguments: &RunArguments,
    options: &RunOptions,
    job: Job,
    loader: &mut L,
) -> Result<(Summary, String), JobError> {
    // The bar would run into what a sink writes to the same terminal.
    let own_terminal = job.standard_output().next().is_none() || !stdout().is_terminal();
    let bar = |units: &[Unit]| if own_terminal && !arguments.quiet { Progress::new(units) } else { None };
    let (mut replay, mut stopping) = (None, false);
    let ready: Ready = job.open(options, &mut |under_way| {
        if let Some(control) = under_way
            && let Some(progress) = replay.get_or_insert_with(|| bar(&[]))
        {
            progress.update(control);
        }
        let interrupted = loader.interrupted();
        if interrupted {
            at_once(&mut stopping);
        }
        interrupted
    })?;
    drop(replay);
    if !arguments.quiet {
        ready.notes.iter().for_each(|note| say::err(note));
    }
    let control = Arc::new(Control::default());
    let mut progress = bar(&ready.units);
    let (mut stopping, mut waiting) = (false, false);
    let mut tick = || {
        if loader.interrupted() {
            at_once(&mut stopping);
            control.stop();
        }
        match &mut progress {
            Some(progress) => progress.update(&control),
            None if control.waits() != waiting => {
                waiting = !waiting;
                let what = if waiting { "the disk is full: the run waits for room" } else { "there is room again" };
                say::warning(what);
            }
            None => {}
        }
    };
    let result = ready.run(control.clone(), &mut tick);
    drop(progress);
    let (engine, summary) = result?;
    let text = readable(&summary, engine.program(), arguments.explain_scheduling);
    Ok((summary, text))
}
