//! Opening a job's state: as it is, or brought to the program at hand first.
//!
//! A changed program takes over at a checkpoint after which nothing is logged. If a crash left something in the log, the
//! program that logged it, which the state has recorded, replays it first and takes such a checkpoint. A changed schema
//! is migrated there.

use crate::job::{Input, Job, JobError, Output, Watch, source_streams};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_audit::recorded_program;
use tidemill_connect::{Registry, SinkDurability, SourceOptions, Spec, System, open_state, open_state_as_it_is};
use tidemill_durability::{Fit, Planted, Recorded, StateDirectory, StateError};
use tidemill_plan::{Program, Sink as SinkOf, Stream};
use tidemill_runtime::{
    Control, Durability, DurabilityOptions, Engine, IoFailure, Next, Request, RunError, SentSource, Sink, Source,
};

impl Job {
    /// The program with the specs of its connections.
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
    /// replays it.
    pub fn open_state(
        &self,
        path: &Path,
        savepoint: Option<&str>,
        engine: &Engine,
        notes: &mut Vec<String>,
        interrupted: Watch,
    ) -> Result<StateDirectory, JobError> {
        let recorded = self.recorded();
        let open = || open_state(path, engine.program(), Some(recorded.clone()));
        let mut directory = open()?;
        if matches!(directory.fit(), Fit::Changed(_) | Fit::Migrates(_)) && directory.has_logged()? {
            drop(directory);
            let epochs = replay_as_it_was(path, &self.connectors, interrupted)?;
            notes.push(format!(
                "the program has changed since a crash: {epochs} epochs were replayed by the program as it was"
            ));
            directory = open()?;
        }
        if let Some(name) = savepoint {
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
    notes: &mut Vec<String>,
) -> Result<Engine, JobError> {
    if let Fit::Migrates(changes) = directory.fit().clone() {
        engine.migrate(directory, &recorded_program(directory)?)?;
        engine = engine.with_empty_tables();
        notes.push(format!("the state was migrated to version {}:", engine.program().schema_version));
        notes.extend(changes.iter().map(|change| format!("  {change}")));
    }
    if let Some(name) = savepoint.filter(|_| !directory.is_new()) {
        directory.create_savepoint(name)?;
    }
    Ok(engine)
}

/// Has the program that a state has recorded replay the log and take a checkpoint after it; the number of epochs
/// replayed.
fn replay_as_it_was(path: &Path, connectors: &Registry, interrupted: Watch) -> Result<u64, JobError> {
    let directory = open_state_as_it_is(path)?;
    let refused = |why: String| {
        RunError::State(StateError::Refused(format!(
            "the state {} was left by a crash, and the program has changed since; {why}: run the program as it was \
             until it ends or is stopped, then this one",
            path.display()
        )))
    };
    let recorded = directory.manifest().and_then(|manifest| manifest.recorded.clone());
    let recorded = recorded.ok_or_else(|| refused("the program as it was is not recorded".into()))?;
    let engine = Engine::new(recorded_program(&directory)?)?;
    let durable =
        SinkDurability { storage: directory.storage().clone(), owner: directory.owner(), planted: Planted::default() };
    let sources = sources_of(engine.program(), &recorded.sources, connectors)?;
    let sinks = sinks_of(engine.program(), &recorded.sinks, connectors, &durable, &|sink: &SinkOf| {
        refused(format!("what it released to sink '{}' is not known", sink.name))
    })?;
    let options = DurabilityOptions { replay_only: true, ..DurabilityOptions::default() };
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
    Ok(summary.durability.map_or(0, |durability| durability.replayed_epochs))
}

/// The sources of a program by their recorded specs. Events of a source without a spec were logged by value, so
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
        Ok(connection.open(&stream.schema, &SourceOptions::default()).map_err(failed)?)
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

/// A spec as a state has recorded it.
fn spec_of(recorded: &serde_json::Value) -> Result<Spec, IoFailure> {
    serde_json::from_value(recorded.clone()).map_err(|error| IoFailure::new(error.to_string()))
}

/// A source from which nothing is read.
struct Nothing;

impl Source for Nothing {
    fn next(&mut self, _wait_max: Duration) -> Result<Next, IoFailure> {
        Ok(Next::End)
    }
}
