//! `tidemill savepoint`.

use crate::arguments::SavepointCommand;
use crate::exit::{self, report};
use crate::job::{JobError, table_schema};
use crate::say;
use crate::text::{count, counted};
use std::fs::create_dir_all;
use std::path::Path;
use tidemill_audit::recorded_program;
use tidemill_connect::{SinkConnection, WriteParquet, open_state_as_it_is, view_state};
use tidemill_durability::StateError;
use tidemill_runtime::{IoFailure, RunError, state_rows};

/// Runs one of its commands; the exit code.
pub fn savepoint(command: &SavepointCommand) -> u8 {
    let done = match command {
        SavepointCommand::Create { state, name } => create(state, name),
        SavepointCommand::List { state } => list(state),
        SavepointCommand::Restore { state, name } => restore(state, name),
        SavepointCommand::Remove { state, name } => remove(state, name),
        SavepointCommand::Export { state, name, folder } => export(state, name, folder),
    };
    done.map_or_else(|error| report(&error), |()| exit::SUCCESS)
}

fn create(state: &Path, name: &str) -> Result<(), JobError> {
    if let Some(writer) = view_state(state)?.writer() {
        return Err(JobError::Run(RunError::State(StateError::Refused(format!(
            "the state {} is in use by {writer}, which alone can make a savepoint now: call savepoint('{name}') of its \
             session (app.start), end it first, or begin the next run with --savepoint {name}",
            state.display()
        )))));
    }
    let directory = open_state_as_it_is(state)?;
    let logged = directory.has_logged()?;
    let savepoint = directory.create_savepoint(name)?;
    say::out(&format!("savepoint {name}: epoch {}", count(savepoint.manifest.checkpoint.epoch)));
    if logged {
        say::warning(
            "the state was left by a crash: the savepoint is of the newest checkpoint, without the epochs logged after it",
        );
    }
    Ok(())
}

fn list(state: &Path) -> Result<(), JobError> {
    let directory = view_state(state)?;
    let savepoints = directory.savepoints()?;
    if savepoints.is_empty() {
        say::out("there are no savepoints");
    }
    for savepoint in savepoints {
        let checkpoint = &savepoint.manifest.checkpoint;
        let log = if directory.has_log_after(&savepoint) { ", keeps the log after it" } else { "" };
        let (name, epoch, version) = (&savepoint.name, count(checkpoint.epoch), savepoint.manifest.program.version);
        say::out(&format!("{name}: epoch {epoch}, schema version {version}{log}"));
    }
    Ok(())
}

fn restore(state: &Path, name: &str) -> Result<(), JobError> {
    let mut directory = open_state_as_it_is(state)?;
    directory.restore_savepoint(name)?;
    let epoch = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    say::out(&format!("the state is at savepoint {name}, epoch {}", count(epoch)));
    say::warning(
        "outputs begin anew after it: a run replaces their files when it ends; move those that you want to keep",
    );
    Ok(())
}

fn remove(state: &Path, name: &str) -> Result<(), JobError> {
    open_state_as_it_is(state)?.remove_savepoint(name)?;
    say::out(&format!("savepoint {name} is removed"));
    Ok(())
}

fn export(state: &Path, name: &str, folder: &Path) -> Result<(), JobError> {
    let savepoint = open_state_as_it_is(&view_state(state)?.savepoint(name)?.path)?;
    let program = recorded_program(&savepoint)?;
    let failed = |name: &str| {
        let name = name.to_owned();
        move |failure| JobError::Table { name, failure }
    };
    create_dir_all(folder).map_err(|error| {
        JobError::Run(RunError::Sink {
            name: name.into(),
            failure: IoFailure::new(format!("{} cannot be made: {error}", folder.display())),
        })
    })?;
    for (table, rows) in program.tables.iter().zip(state_rows(&savepoint, &program)?) {
        let path = folder.join(format!("{}.parquet", table.name));
        let file = WriteParquet { path: path.display().to_string(), compression: Default::default() };
        let mut sink = file.open(&table_schema(table), None).map_err(failed(&table.name))?;
        sink.write(&rows).and_then(|()| sink.finish()).map_err(failed(&table.name))?;
        say::out(&format!("{}: {}", path.display(), counted(rows.num_rows() as u64, "row")));
    }
    Ok(())
}
