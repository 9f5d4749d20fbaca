//! The object that `tidemill check --json` prints.

use crate::ends::{destination, origin};
use crate::job::{Job, JobError, source_streams};
use crate::outlook::source_outlooks;
use crate::sizes::StateSizes;
use crate::text::value;
use serde_json::{Value, json};
use std::path::Path;
use tidemill_connect::{Disk, open_state_as_it_is, time_text};
use tidemill_durability::{Fit, Identity, Manifest, StateError};
use tidemill_plan::{Program, Stream, Table};

/// Returns an application as an object: what it declares, and what is to be warned of.
pub fn program_json(job: &Job, program: &Program, warnings: &[String], state: Option<Value>) -> Value {
    let tables = program.tables.iter().filter(|table| !table.is_hidden).map(|table| {
        let rows = job.tables.get(&table.name).map(origin);
        json!({"name": table.name, "rows": rows, "columns": columns(table)})
    });
    let sources = source_streams(program).map(|stream| {
        let data = job.sources.get(&stream.name).map(origin);
        json!({"name": stream.name, "data": data, "fields": fields(stream)})
    });
    let transactions = program.transactions.iter().filter(|transaction| !transaction.is_hidden()).map(|transaction| {
        let name = |id: &tidemill_plan::StreamId| program.streams[*id].name.clone();
        let outlets = [transaction.committed.stream, transaction.aborted].into_iter();
        let outlets = outlets.chain(transaction.emits.iter().map(|emit| emit.stream));
        let outlets = outlets.map(|id| json!({"name": name(&id), "fields": fields(&program.streams[id])}));
        let inputs = transaction.inputs.iter().map(name).collect::<Vec<_>>();
        let reasons = &transaction.reasons;
        json!({"name": transaction.name, "inputs": inputs, "streams": outlets.collect::<Vec<_>>(), "reasons": reasons})
    });
    let sinks = program.sinks.iter().map(|sink| {
        let to = job.sinks.get(&sink.name).map(destination);
        json!({"name": sink.name, "stream": program.streams[sink.stream].name, "to": to})
    });
    let mut found = json!({
        "application": program.name,
        "tables": tables.collect::<Vec<_>>(),
        "sources": sources.collect::<Vec<_>>(),
        "transactions": transactions.collect::<Vec<_>>(),
        "sinks": sinks.collect::<Vec<_>>(),
        "warnings": warnings,
    });
    if let Some(state) = state {
        found["state"] = state;
    }
    found
}

fn columns(table: &Table) -> Vec<Value> {
    let of = |(index, column): (usize, &tidemill_plan::Column)| {
        let default = column.default.as_ref().map(|default| value(default, column.ty.ty));
        let ty = column.window.as_ref().map_or_else(|| column.ty.to_string(), ToString::to_string);
        json!({"name": column.name, "type": ty, "key": table.key.contains(&index), "default": default})
    };
    table.columns.iter().enumerate().map(of).collect()
}

fn fields(stream: &Stream) -> Vec<Value> {
    let of = |(index, field): (usize, &tidemill_model::Field)| {
        let is_time = stream.event_time == Some(index);
        json!({"name": field.name, "type": field.ty.to_string(), "event_time": is_time})
    };
    stream.schema.fields.iter().enumerate().map(of).collect()
}

/// Returns as JSON what a run would do with a state, and how large the state is. Fails where it would be refused.
pub fn state_json(path: &Path, job: &Job, program: &Program) -> Result<Value, JobError> {
    let shown = path.display().to_string();
    let Some(manifest) = Manifest::read(&Disk, path)? else { return Ok(json!({"path": shown, "exists": false})) };
    let fit = Fit::of(&manifest.program, &Identity::of(program));
    let (word, changes) = match &fit {
        Fit::Same => ("same", Vec::new()),
        Fit::Changed(changes) => ("changed", changes.clone()),
        Fit::Migrates(changes) => ("migrates", changes.lines().cloned().collect()),
        Fit::Refused(why) => return Err(StateError::Refused(format!("the state {shown} {why}")).into()),
    };
    let sizes = StateSizes::of(path);
    let mut state = json!({
        "path": shown,
        "exists": true,
        "epoch": manifest.checkpoint.epoch,
        "schema_version": manifest.program.version,
        "fit": word,
        "changes": changes,
        "checkpoint_time": sizes.checkpoint_time.map(time_text),
        "checkpoint_bytes": sizes.checkpoint,
        "log_bytes": sizes.log,
        "savepoint_bytes": sizes.savepoints,
    });
    match open_state_as_it_is(path) {
        Err(StateError::Refused(why)) => state["in_use"] = why.into(),
        Err(error) => return Err(error.into()),
        Ok(directory) => {
            state["was_left_by_a_crash"] = directory.has_logged()?.into();
            if matches!(fit, Fit::Same | Fit::Changed(_)) {
                let outlooks = source_outlooks(&directory, job, program)?;
                state["sources"] = outlooks.lines().map(str::trim).collect::<Vec<_>>().into();
            }
        }
    }
    Ok(state)
}
