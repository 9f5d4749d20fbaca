//! `tidemill check` and `tidemill explain`: an application looked at, not run.

use crate::arguments::{CheckArguments, ExplainArguments, Target};
use crate::check_json::{program_json, state_json};
use crate::ends::{destination, origin};
use crate::exit::{self, report};
use crate::job::{Input, Job, JobError, Output, first_rows_schema, source_streams};
use crate::loader::{Loader, Purpose};
use crate::outlook::source_outlooks;
use crate::say;
use crate::sizes::StateSizes;
use crate::state::before;
use crate::text::{count, counted, value};
use indicatif::HumanBytes;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;
use tidemill_connect::{Disk, open_state_as_it_is, source_options, time_text};
use tidemill_durability::{Fit, Identity, Manifest, Migration, StateDirectory, StateError};
use tidemill_model::Schema;
use tidemill_plan::{
    Origin, Program, Stream, Table, TransactionId, analyze, explain_called as explained, warnings_called,
};
use tidemill_runtime::{Engine, open_rows, open_text, refuse_open_of};

/// Checks an application; the exit code.
pub fn check<L: Loader>(arguments: &CheckArguments, loader: &mut L) -> Result<u8, L::Error> {
    look(&arguments.target, loader, |job, program| {
        job.check_connections(None)?;
        job.check_sent(&program)?;
        let mut warned = warnings_called(&program, &called(&job, &program));
        warned.extend(connector_warnings(&job, &program));
        if arguments.json {
            let state = arguments.state.as_ref().map(|state| state_json(state, &job, &program)).transpose()?;
            say::out(&program_json(&job, &program, &warned, state).to_string());
            return Ok(());
        }
        say::out(&listing(&job, &program));
        warned.iter().for_each(|warning| say::warning(warning));
        say::out(&verdict(&program, warned.len()));
        match &arguments.state {
            Some(state) => check_state(state, &job, &program),
            None => Ok(()),
        }
    })
}

/// Explains an application; the exit code.
pub fn explain<L: Loader>(arguments: &ExplainArguments, loader: &mut L) -> Result<u8, L::Error> {
    look(&arguments.target, loader, |job, program| {
        let (mut text, application) = (explained(&program, &called(&job, &program)), program.name.clone());
        let (functions, bytes) = Engine::new(program)?.code_size();
        if arguments.json {
            let code = json!({"functions": functions, "bytes": bytes});
            say::out(&json!({"application": application, "explanation": text, "code": code}).to_string());
            return Ok(());
        }
        let functions = counted(functions as u64, "function");
        let _ = writeln!(text, "\ncompiled\n  {functions}, {} bytes of machine code", count(bytes as u64));
        say::out(&text);
        Ok(())
    })
}

/// Says what a run would do with a state.
fn check_state(path: &Path, job: &Job, program: &Program) -> Result<(), JobError> {
    let shown = path.display();
    let Some(manifest) = Manifest::read(&Disk, path)? else {
        say::out(&format!("\nstate {shown}: there is none; a run begins it"));
        return Ok(());
    };
    let fit = Fit::of(&manifest.program, &Identity::of(program));
    let (epoch, version) = (count(manifest.checkpoint.epoch), manifest.program.version);
    let mut text = format!("\nstate {shown}: checkpoint of epoch {epoch}, schema version {version}\n");
    text.push_str(&sizes(path));
    if let Fit::Refused(why) = &fit {
        return Err(StateError::Refused(format!("the state {shown} {why}")).into());
    }
    let (mut sources, mut refused) = (String::new(), None);
    match (open_state_as_it_is(path), &fit) {
        (Err(StateError::Refused(why)), _) => _ = writeln!(text, "  {why}; until it is free, a run is refused"),
        (Err(error), _) => return Err(error.into()),
        (Ok(directory), fit) => {
            text.push_str(match (fit, directory.has_logged()?) {
                (Fit::Same, false) => "  a run continues from it\n",
                (Fit::Same, true) => "  it was left by a crash; a run replays the log and continues\n",
                (_, true) => "  it was left by a crash; the log is replayed by the program as it was\n",
                (_, false) => "",
            });
            let (compared, runs) = directory.check_runs()?;
            if compared > 0 {
                let _ = writeln!(text, "  {compared} of {} compared with their hashes", counted(runs as u64, "run"));
            }
            match fit {
                Fit::Same | Fit::Changed(_) => sources = source_outlooks(&directory, job, program)?,
                Fit::Migrates(changes) => {
                    sources = open_of(&directory, changes)?;
                    let is_settled = !directory.has_logged()?;
                    refused = refuse_open_of(&directory, &changes.changed).err().filter(|_| is_settled);
                }
                Fit::Refused(_) => {}
            }
        }
    }
    match fit {
        Fit::Same | Fit::Refused(_) => {}
        Fit::Changed(changes) => {
            text.push_str("  the schema is the same; what the program does is not, from there on\n");
            changes.iter().for_each(|change| _ = writeln!(text, "    {change}"));
        }
        Fit::Migrates(changes) => {
            match program.schema_version == manifest.program.version {
                true => text.push_str("  it is brought to the changed program:\n"),
                false => _ = writeln!(text, "  it is migrated to version {}:", program.schema_version),
            }
            changes.lines().for_each(|change| _ = writeln!(text, "    {change}"));
            if !changes.drops.is_empty() {
                let name = before(program);
                let _ = writeln!(text, "    a savepoint, '{name}', keeps the state as it is before");
            }
        }
    }
    text.push_str(&sources);
    say::out(&text);
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns a text with the number of rows open in a state of each operator that the program does not go on with.
fn open_of(directory: &StateDirectory, changes: &Migration) -> Result<String, JobError> {
    let mut text = String::new();
    for operator in changes.changed.iter().map(|changed| &changed.operator).chain(&changes.gone) {
        let open = open_rows(directory, operator)?;
        let _ = writeln!(text, "  {}: {}", operator.shown(), open_text(operator, open));
    }
    Ok(text)
}

/// Returns the time when the newest checkpoint was taken, and what the state takes on the disk.
fn sizes(path: &Path) -> String {
    let StateSizes { log, checkpoint, savepoints, checkpoint_time } = StateSizes::of(path);
    let taken = checkpoint_time.map_or(String::new(), |time| format!(", taken at {}", time_text(time)));
    let [log, checkpoint, savepoints] = [log, checkpoint, savepoints].map(|bytes| HumanBytes(bytes).to_string());
    format!("  checkpoint {checkpoint}{taken}; log {log}; savepoints {savepoints}\n")
}

/// Returns the transactions that are called, if the application is served: their caller has the outcome.
fn called(job: &Job, program: &Program) -> Vec<TransactionId> {
    let is_sent = |stream: &Stream| {
        let is_read = matches!(job.sources.get(&stream.name), Some(Input::Connection(_) | Input::Own(_)));
        matches!(stream.origin, Origin::Source { .. }) && stream.own_time().is_none() && !is_read
    };
    let transactions = program.transactions.iter_enumerated().filter(|(_, transaction)| !transaction.is_hidden());
    let called =
        transactions.filter(|(_, transaction)| transaction.inputs.iter().all(|&s| is_sent(&program.streams[s])));
    called.map(|(id, _)| id).collect()
}

fn look<L: Loader>(
    target: &Target,
    loader: &mut L,
    view: impl FnOnce(Job, Program) -> Result<(), JobError>,
) -> Result<u8, L::Error> {
    let (file, name) = target.parts();
    let job = loader.load(file, name, Purpose::Look)?;
    let viewed = analyze(&job.plan).map_err(JobError::Plan).and_then(|program| view(job, program));
    Ok(viewed.map_or_else(|error| report(&error), |()| exit::SUCCESS))
}

/// Returns the faults of the files as they are now. Only the part of a file that names its columns is read.
fn connector_warnings(job: &Job, program: &Program) -> Vec<String> {
    let mut found = Vec::new();
    let mut opens = |kind: &str, name: &str, input: Option<&Input>, schema: &Schema| {
        if let Some(Input::Connection(connection)) = input
            && let Err(failure) = connection.open(schema, &source_options())
        {
            found.push(format!("{kind} '{name}': {failure}"));
        }
    };
    for table in &program.tables {
        opens("table", &table.name, job.tables.get(&table.name), &first_rows_schema(table));
    }
    for stream in source_streams(program) {
        opens("source", &stream.name, job.sources.get(&stream.name), &stream.schema);
    }
    for (name, output) in &job.sinks {
        if let Some(directory) = missing_directory(output) {
            found.push(format!("sink '{name}': there is no directory {directory}"));
        }
    }
    found
}

/// Returns the directory that an output's file is to be in, if there is none.
fn missing_directory(output: &Output) -> Option<String> {
    let Output::Connection(connection) = output else { return None };
    let directory = Path::new(connection.path()?).parent().filter(|parent| !parent.as_os_str().is_empty())?;
    (!directory.is_dir()).then(|| directory.display().to_string())
}

/// Returns a list of the declared tables, sources, transactions and sinks with their types, without the parts that
/// windows, joins and wakes are made of.
fn listing(job: &Job, program: &Program) -> String {
    let mut text = format!("application {}\n", program.name);
    for table in program.tables.iter().filter(|table| !table.is_hidden) {
        let rows = job.tables.get(&table.name).map_or("empty at first".into(), origin);
        let _ = writeln!(text, "\ntable {}: {rows}", table.name);
        columns(&mut text, table);
    }
    for stream in source_streams(program) {
        let data = job.sources.get(&stream.name).map_or("data given to the run".into(), origin);
        let _ = writeln!(text, "\nsource {}: {data}", stream.name);
        fields(&mut text, stream);
    }
    for (id, stream) in program.streams.iter_enumerated().filter(|(id, _)| program.is_shown(*id)) {
        let _ = match &stream.origin {
            Origin::Map { .. } if program.late_of(id).is_some() => writeln!(text, "\nlate events {}", stream.name),
            Origin::Filter { input, .. } => {
                writeln!(text, "\nfilter {} of {}", stream.name, program.streams[*input].name)
            }
            Origin::Map { input, .. } => writeln!(text, "\nmap {} of {}", stream.name, program.streams[*input].name),
            _ => continue,
        };
        fields(&mut text, stream);
    }
    for transaction in program.transactions.iter().filter(|transaction| !transaction.is_hidden()) {
        let inputs: Vec<&str> = transaction.inputs.iter().map(|&s| program.streams[s].name.as_str()).collect();
        let _ = writeln!(text, "\ntransaction {} on {}", transaction.name, inputs.join(", "));
        let emitted = transaction.emits.iter().map(|emit| emit.stream);
        for stream in [transaction.committed.stream, transaction.aborted].into_iter().chain(emitted) {
            let stream = &program.streams[stream];
            let _ = writeln!(text, "  {} {{{}}}", stream.name, stream.schema);
        }
    }
    for sink in &program.sinks {
        let to = job.sinks.get(&sink.name).map_or(String::new(), |output| format!(" to {}", destination(output)));
        let _ = writeln!(text, "\nsink {} of {}{to}", sink.name, program.streams[sink.stream].name);
    }
    text
}

fn columns(text: &mut String, table: &Table) {
    for (index, column) in table.columns.iter().enumerate() {
        let key = if table.key.contains(&index) { " (key)" } else { "" };
        if let Some(window) = &column.window {
            let _ = writeln!(text, "  {}: {window}", column.name);
            continue;
        }
        let default = column.default.as_ref().map_or(String::new(), |v| format!(" = {}", value(v, column.ty.ty)));
        let _ = writeln!(text, "  {}: {}{default}{key}", column.name, column.ty);
    }
    for index in &table.indexes {
        let _ = writeln!(text, "  index of {}", table.named(index));
    }
}

fn fields(text: &mut String, stream: &Stream) {
    for (index, field) in stream.schema.fields.iter().enumerate() {
        let time = match stream.event_time == Some(index) {
            true if stream.is_anchored() => " (time of its position)",
            true => " (event time)",
            false => "",
        };
        let _ = writeln!(text, "  {}: {}{time}", field.name, field.ty);
    }
}

fn verdict(program: &Program, warnings: usize) -> String {
    let parts = [
        counted(program.tables.iter().filter(|table| !table.is_hidden).count() as u64, "table"),
        counted(source_streams(program).count() as u64, "source"),
        counted(program.transactions.iter().filter(|t| !t.is_hidden()).count() as u64, "transaction"),
        counted(program.sinks.len() as u64, "sink"),
    ];
    let warnings = if warnings == 0 { "no warnings".into() } else { counted(warnings as u64, "warning") };
    format!("\n{}: {}; no errors, {warnings}", program.name, parts.join(", "))
}
