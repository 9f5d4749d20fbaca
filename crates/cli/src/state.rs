//! Opening a job's state: as it is, or brought to the program at hand first.
//!
//! A changed program takes over at a checkpoint after which nothing is logged. If a crash left something in the log, the
//! program that logged it, which the state has recorded, replays it first and takes such a checkpoint. A changed schema
//! is migrated there.

use crate::end::{check_ends, end_operators};
use crate::job::{Input, Job, JobError, Notes, Output, Watch, source_streams};
use crate::options::RunOptions;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_audit::recorded_program;
use tidemill_connect::{Patience, SinkDurability, System, open_patient_state, open_state_as_it_is, source_options};
use tidemill_durability::{Bug, Fit, Recorded, StateDirectory, StateError};
use tidemill_io::{IoFailure, Next, Registry, Sink, Source, Spec, Splits};
use tidemill_plan::{Program, Sink as SinkOf, Stream};
use tidemill_runtime::{
    Control, Durability, DurabilityOptions, Engine, Request, RunError, SentSource, Summary, refuse_open,
};

impl Job {
    /// Returns the program with the specs of its connections.
    pub fn recorded(&self) -> Recorded {
        fn json(name: &str, spec: &Spec) -> Option<(String, serde_json::Value)> {
            Some((name.to_owned(), serde_json::to_value(spec).expect("a spec is plain data")))
        }
        let source = |(name, input): (&String, &Input)| match input {
            Input::Connection(connection) if connection.is_recorded() => json(name, &connection.spec()),
            Input::Connection(_) | Input::Own(_) | Input::Sent => None,
        };
        let sink = |(name, output): (&String, &Output)| match output {
            Output::Connection(connection) => json(name, &connection.spec()),
            Output::Own(_) => None,
        };
        Recorded {
            plan: self.plan.clone(),
            sources: self.sources.iter().filter_map(source).collect(),
            sinks: self.sinks.iter().filter_map(sink).collect(),
        }
    }

    /// Opens the job's state for an engine. If a crash has left something in the log of another program, that program
    /// replays it. As long as there is patience, what is done with the state waits for file descriptors.
    pub fn open_state(
        &self,
        path: &Path,
        patience: &Patience,
        options: &RunOptions,
        engine: &Engine,
        notes: &mut Notes,
        interrupted: Watch,
    ) -> Result<StateDirectory, JobError> {
        let recorded = self.recorded();
        let open = || open_patient_state(path, engine.program(), Some(recorded.clone()), patience);
        let mut directory = open()?;
        if matches!(directory.fit(), Fit::Changed(_) | Fit::Migrates(_)) && directory.has_logged()? {
            drop(directory);
            let replayed = open_state_as_it_is(path)?;
            let summary = run_as_it_was(replayed, &self.connectors, AsItWas::Replays, interrupted)?;
            let epochs = summary.durability.map_or(0, |durability| durability.replayed_epochs);
            notes.said.push(format!(
                "the program has changed since a crash: {epochs} epochs were replayed by the program as it was"
            ));
            directory = open()?;
        }
        if !options.ends.is_empty() {
            check_ends(&directory, &options.ends)?;
            drop(directory);
            notes.said.extend(end_operators(path, &self.connectors, &options.ends, interrupted)?);
            directory = open()?;
        }
        refuse_open(&directory)?;
        if let Some(name) = options.savepoint.as_deref() {
            directory.no_savepoint(name)?;
        }
        Ok(directory)
    }
}

/// Brings an open state to the program, whose new tables the engine has filled, and keeps it as a savepoint; the
/// engine to run on it.
pub(crate) fn bring(
    directory: &mut StateDirectory,
    savepoint: Option<&str>,
    mut engine: Engine,
    notes: &mut Notes,
) -> Result<Engine, JobError> {
    if let Fit::Migrates(changes) = directory.fit().clone() {
        let is_kept = !changes.drops.is_empty() && !directory.planted().is(Bug::DropsUnsaid);
        let kept = if is_kept { Some(keep_as_it_is(directory, engine.program())?) } else { None };
        let was = directory.manifest().map(|manifest| manifest.program.version);
        engine.migrate(directory, &recorded_program(directory)?)?;
        engine = engine.with_empty_tables();
        let is = engine.program().schema_version;
        notes.said.push(match was == Some(is) {
            true => "the state was brought to the changed program:".to_owned(),
            false => format!("the state was migrated to version {is}:"),
        });
        notes.said.extend(changes.steps.iter().map(|change| format!("  {change}")));
        if let Some(name) = kept {
            let (path, drops) = (directory.path().display(), changes.drops.join("\n  "));
            notes.warned.push(format!(
                "the migration of {path} has lost what the program does not have any more:\n  {drops}\nthe savepoint \
                 '{name}' has it; with the program as it was, 'tidemill savepoint restore {path} {name}' goes back to it"
            ));
        }
    }
    if let Some(name) = savepoint.filter(|_| !directory.is_new()) {
        directory.create_savepoint(name)?;
    }
    Ok(engine)
}

/// Returns the name of the savepoint that keeps a state as it is before it is migrated to a program, where something would
/// be lost.
pub(crate) fn before(program: &Program) -> String {
    format!("before-version-{}", program.schema_version)
}

/// Keeps a state that is about to lose something; the name of the savepoint.
fn keep_as_it_is(directory: &StateDirectory, program: &Program) -> Result<String, JobError> {
    let now = directory.manifest().expect("what migrates has begun");
    let first = before(program);
    for number in 1.. {
        let name = if number == 1 { first.clone() } else { format!("{first}.{number}") };
        match directory.find_savepoint(&name)? {
            // A crash came between it and the migration.
            Some(there) if there.manifest.checkpoint == now.checkpoint && there.manifest.program == now.program => {
                return Ok(name);
            }
            Some(_) => {}
            None => return Ok(directory.create_savepoint(&name)?.name),
        }
    }
    unreachable!("some number is free")
}

/// The use of the program that a state has recorded.
#[derive(Clone, Copy)]
pub(crate) enum AsItWas<'a> {
    /// The program replays the log.
    Replays,
    /// The program closes what these operators have open. Nothing is logged before it does.
    Ends(&'a [String]),
}

/// Has the program that a state has recorded do something and take a checkpoint after it.
pub(crate) fn run_as_it_was(
    directory: StateDirectory,
    connectors: &Registry,
    what: AsItWas<'_>,
    interrupted: Watch,
) -> Result<Summary, JobError> {
    let path = directory.path().display().to_string();
    let refused = |why: String| {
        RunError::State(StateError::Refused(match what {
            AsItWas::Replays => format!(
                "the state {path} was left by a crash, and the program has changed since; {why}: run the program as it was \
                 until it ends or is stopped, then this one"
            ),
            AsItWas::Ends(names) => format!("{} cannot be ended in {path}: {why}", names.join(", ")),
        }))
    };
    let recorded = directory.manifest().and_then(|manifest| manifest.recorded.clone());
    let recorded = recorded.ok_or_else(|| refused("the program as it was is not recorded".into()))?;
    let engine = Engine::new(recorded_program(&directory)?)?;
    let durable = SinkDurability::of(&directory, directory.storage().clone());
    let sources = match what {
        AsItWas::Replays => sources_of(engine.program(), &recorded.sources, connectors)?,
        AsItWas::Ends(_) => unread_sources(engine.program(), &directory),
    };
    let sinks = sinks_of(engine.program(), &recorded.sinks, connectors, &durable, &|sink: &SinkOf| {
        refused(format!("what it released to sink '{}' is not known", sink.name))
    })?;
    let ends = if let AsItWas::Ends(names) = what { names.to_vec() } else { Vec::new() };
    let options = DurabilityOptions { replay_only: true, ends, ..DurabilityOptions::default() };
    let control = Arc::new(Control::default());
    let request = Request {
        control: control.clone(),
        durability: Some(Durability { directory, options }),
        ..Request::new(sources, sinks, Arc::new(System::new()))
    };
    let mut gives_up = false;
    let summary = engine.run(request, &mut || {
        if interrupted(Some(&control)) {
            gives_up = true;
            control.stop();
        }
    })?;
    if gives_up {
        return Err(JobError::Interrupted);
    }
    Ok(summary)
}

/// Returns the sources of a program by their recorded specs. Events of a source without a spec were logged by value, so
/// nothing is read from it.
fn sources_of(
    program: &Program,
    specs: &BTreeMap<String, serde_json::Value>,
    connectors: &Registry,
) -> Result<Vec<Box<dyn Source>>, JobError> {
    let open = |stream: &Stream| -> Result<Box<dyn Source>, JobError> {
        let Some(spec) = specs.get(&stream.name) else {
            let is_sent = program.sent_beside(stream).is_some();
            return Ok(if is_sent { Box::new(SentSource) } else { Box::new(Nothing) });
        };
        let failed = |failure| RunError::Source { name: stream.name.clone(), failure };
        let connection = connectors.source(&spec_of(spec).map_err(failed)?).map_err(|error| failed(error.into()))?;
        Ok(connection.open(&stream.schema, &source_options()).map_err(failed)?)
    };
    source_streams(program).map(open).collect()
}

fn sinks_of(
    program: &Program,
    specs: &BTreeMap<String, serde_json::Value>,
    connectors: &Registry,
    durable: &SinkDurability,
    unknown: &dyn Fn(&SinkOf) -> RunError,
) -> Result<Vec<Box<dyn Sink>>, JobError> {
    let open = |sink: &SinkOf| -> Result<Box<dyn Sink>, JobError> {
        let spec = specs.get(&sink.name).ok_or_else(|| unknown(sink))?;
        let failed = |failure| RunError::Sink { name: sink.name.clone(), failure };
        let connection = connectors.sink(&spec_of(spec).map_err(failed)?).map_err(|error| failed(error.into()))?;
        Ok(connection.open(&program.streams[sink.stream].schema, Some(durable)).map_err(failed)?)
    };
    program.sinks.iter().map(open).collect()
}

/// Returns a spec as a state has recorded it.
fn spec_of(recorded: &serde_json::Value) -> Result<Spec, IoFailure> {
    serde_json::from_value(recorded.clone()).map_err(|error| IoFailure::new(error.to_string()))
}

/// Returns sources from which nothing is read, with splits where a state has such.
fn unread_sources(program: &Program, directory: &StateDirectory) -> Vec<Box<dyn Source>> {
    let known = directory.checkpoint().map(|checkpoint| checkpoint.sources.as_slice()).unwrap_or_default();
    let has_splits = |number| known.iter().any(|at| at.split.as_ref().is_some_and(|split| split.source == number));
    let source = |(number, stream): (usize, &Stream)| -> Box<dyn Source> {
        match (program.sent_beside(stream), has_splits(number)) {
            (Some(_), _) => Box::new(SentSource),
            (None, true) => Box::new(NothingInSplits),
            (None, false) => Box::new(Nothing),
        }
    };
    source_streams(program).enumerate().map(source).collect()
}

/// A source in splits from which nothing is read.
struct NothingInSplits;

impl Source for NothingInSplits {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(Next::End)
    }

    fn splits(&mut self) -> Option<&mut dyn Splits> {
        Some(self)
    }
}

impl Splits for NothingInSplits {
    fn new_splits(&mut self, _known: &[String]) -> Result<Vec<String>, IoFailure> {
        Ok(Vec::new())
    }

    fn open(&mut self, _name: &str) -> Result<Box<dyn Source>, IoFailure> {
        Ok(Box::new(Nothing))
    }
}

/// A source from which nothing is read.
struct Nothing;

impl Source for Nothing {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(Next::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::tempdir;
    use tidemill_durability::Planted;
    use tidemill_model::{Type, Value};
    use tidemill_plan::analyze;
    use tidemill_plan::build::PlanBuilder;
    use tidemill_runtime::Engine;

    fn accounts(version: u64, column: &str) -> Recorded {
        let plan = PlanBuilder::new("bank")
            .schema_version(version)
            .table("accounts", |t| t.key("id", Type::Int).column_or(column, Type::Int, Value::Int(0)))
            .source("deposits", |s| s.field("id", Type::Int))
            .build();
        Recorded { plan, sources: BTreeMap::new(), sinks: BTreeMap::new() }
    }

    fn open(path: &Path, recorded: Recorded) -> (Engine, StateDirectory) {
        let engine = Engine::new(analyze(&recorded.plan).expect("it is valid")).expect("it compiles");
        let directory = open_patient_state(path, engine.program(), Some(recorded), &Patience::later());
        (engine, directory.expect("it fits"))
    }

    /// Drops a column by a typo; whether a savepoint keeps it and the user is warned, who wants to hear nothing else.
    fn is_kept_and_said(planted: Planted) -> (bool, bool) {
        let folder = tempdir().expect("there is room");
        let path = folder.path().join("state");
        let (engine, directory) = open(&path, accounts(1, "balance"));
        let durability = Durability { directory, options: DurabilityOptions::default() };
        let request = Request {
            durability: Some(durability),
            ..Request::new(vec![Box::new(Nothing)], Vec::new(), Arc::new(System::new()))
        };
        engine.run(request, &mut || {}).expect("nothing fails");
        let (engine, mut directory) = open(&path, accounts(2, "balanse"));
        directory.plant(planted);
        let mut notes = Notes::default();
        bring(&mut directory, None, engine, &mut notes).expect("it is migrated");
        let savepoints = directory.savepoints().expect("they read");
        let names_both = |text: &String| text.contains("balance: int") && text.contains("before-version-2");
        (savepoints.iter().any(|one| one.name == "before-version-2"), notes.warned.iter().any(names_both))
    }

    #[test]
    fn a_dropped_column_is_kept_and_said() {
        assert_eq!(is_kept_and_said(Planted::default()), (true, true));
    }

    #[test]
    fn planted_a_column_is_dropped_without_a_word() {
        assert_eq!(is_kept_and_said(Planted::new(Bug::DropsUnsaid)), (false, false));
    }
}
