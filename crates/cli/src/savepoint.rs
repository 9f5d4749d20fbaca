//! `tidemill savepoint`.

use crate::arguments::SavepointCommand;
use crate::exit::{self, report};
use crate::job::{JobError, table_schema};
use crate::loader::Loader;
use crate::say;
use crate::text::{count, counted};
use serde_json::{Value, json};
use std::fs::create_dir_all;
use std::path::Path;
use tidemill_audit::recorded_program;
use tidemill_connect::{WriteParquet, open_state_as_it_is, view_state};
use tidemill_durability::{Remains, StateError};
use tidemill_io::{IoFailure, SinkConnection};
use tidemill_runtime::{RunError, state_rows};

/// The report of a command: lines and an object, and a warning.
struct Done {
    lines: Vec<String>,
    object: Value,
    warning: Option<&'static str>,
}

impl Done {
    fn of(line: String, object: Value) -> Done {
        Done { lines: vec![line], object, warning: None }
    }
}

/// Runs one of its commands; the exit code.
pub fn savepoint<L: Loader>(command: &SavepointCommand, loader: &L) -> u8 {
    let (done, is_json) = match command {
        SavepointCommand::Create { state, name, ca, json } => match url(state) {
            Some(url) => match loader.savepoint(url, name, ca.as_deref()) {
                Ok(epoch) => (Ok(created(name, epoch)), *json),
                Err(why) => {
                    say::error(&why);
                    return exit::RUN;
                }
            },
            None => (create(state, name), *json),
        },
        SavepointCommand::List { state, json } => (list(state), *json),
        SavepointCommand::Restore { state, name, json } => (restore(state, name), *json),
        SavepointCommand::Remove { state, name, json } => (remove(state, name), *json),
        SavepointCommand::Export { state, name, folder, json } => (export(state, name, folder), *json),
    };
    match done {
        Ok(Done { lines, object, warning }) => {
            match is_json {
                true => say::out(&object.to_string()),
                false => lines.iter().for_each(|line| say::out(line)),
            }
            warning.into_iter().for_each(say::warning);
            exit::SUCCESS
        }
        Err(error) => report(&error),
    }
}

/// Returns the URL of a server, if it is one.
fn url(state: &Path) -> Option<&str> {
    state.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://"))
}

fn created(name: &str, epoch: u64) -> Done {
    Done::of(format!("savepoint {name}: epoch {}", count(epoch)), json!({"savepoint": name, "epoch": epoch}))
}

fn create(state: &Path, name: &str) -> Result<Done, JobError> {
    if let Some(writer) = view_state(state)?.writer() {
        return Err(JobError::Run(RunError::State(StateError::Refused(format!(
            "the state {} is in use by {writer}, which alone can make a savepoint now: give the URL of the server \
             instead (tidemill savepoint create http://127.0.0.1:8740 {name}), call savepoint('{name}') of its session \
             (app.start), end it first, or begin the next run with --savepoint {name}",
            state.display()
        )))));
    }
    let directory = open_state_as_it_is(state)?;
    let logged = directory.has_logged()?;
    let epoch = directory.create_savepoint(name)?.manifest.checkpoint.epoch;
    let warning = logged.then_some(
        "the state was left by a crash: the savepoint is of the newest checkpoint, without the epochs logged after it",
    );
    Ok(Done { warning, ..created(name, epoch) })
}

fn list(state: &Path) -> Result<Done, JobError> {
    let directory = view_state(state)?;
    let (mut lines, mut savepoints, mut remains) = (Vec::new(), Vec::new(), Vec::new());
    for savepoint in directory.savepoints()? {
        let (epoch, version) = (savepoint.manifest.checkpoint.epoch, savepoint.manifest.program.version);
        let (name, keeps) = (&savepoint.name, directory.has_log_after(&savepoint));
        let log = if keeps { ", keeps the log after it" } else { "" };
        lines.push(format!("{name}: epoch {}, schema version {version}{log}", count(epoch)));
        savepoints.push(json!({"name": name, "epoch": epoch, "schema_version": version, "keeps_log": keeps}));
    }
    for Remains { name, damage } in directory.remains()? {
        let damage = damage.map(|damage| damage.to_string());
        let what = damage.as_ref().map_or_else(|| "unfinished".into(), |damage| format!("cannot be read ({damage})"));
        lines.push(format!("{name}: {what}; 'tidemill savepoint remove' removes what is left of it"));
        remains.push(json!({"name": name, "damage": damage}));
    }
    if lines.is_empty() {
        lines.push("there are no savepoints".into());
    }
    Ok(Done { lines, object: json!({"savepoints": savepoints, "remains": remains}), warning: None })
}

fn restore(state: &Path, name: &str) -> Result<Done, JobError> {
    let mut directory = open_state_as_it_is(state)?;
    directory.restore_savepoint(name)?;
    let epoch = directory.checkpoint().map_or(0, |checkpoint| checkpoint.epoch);
    let warning =
        Some("outputs begin anew after it: a run replaces their files when it ends; move those that you want to keep");
    let line = format!("the state is at savepoint {name}, epoch {}", count(epoch));
    Ok(Done { warning, ..Done::of(line, json!({"restored": name, "epoch": epoch})) })
}

fn remove(state: &Path, name: &str) -> Result<Done, JobError> {
    open_state_as_it_is(state)?.remove_savepoint(name)?;
    Ok(Done::of(format!("savepoint {name} is removed"), json!({"removed": name})))
}

fn export(state: &Path, name: &str, folder: &Path) -> Result<Done, JobError> {
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
    let (mut lines, mut tables) = (Vec::new(), Vec::new());
    for (table, rows) in program.tables.iter().zip(state_rows(&savepoint, &program)?) {
        let path = folder.join(format!("{}.parquet", table.name)).display().to_string();
        let file = WriteParquet { path: path.clone(), compression: Default::default() };
        let mut sink = file.open(&table_schema(table), None).map_err(failed(&table.name))?;
        sink.write(&rows).and_then(|()| sink.finish()).map_err(failed(&table.name))?;
        lines.push(format!("{path}: {}", counted(rows.num_rows() as u64, "row")));
        tables.push(json!({"table": table.name, "path": path, "rows": rows.num_rows()}));
    }
    Ok(Done { lines, object: json!({"savepoint": name, "tables": tables}), warning: None })
}
