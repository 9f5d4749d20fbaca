//! The outlook for each source: what the next run over a state will do with it.

use crate::job::{Input, Job, JobError, source_streams};
use crate::summary::waits;
use crate::text::{count, counted};
use std::fmt::Write;
use tidemill_connect::source_options;
use tidemill_durability::StateDirectory;
use tidemill_io::{IoFailure, Source, SourceConnection};
use tidemill_plan::{Origin, Program, Stream};
use tidemill_runtime::{Gate, SourceAt, SourceSummary, Taken, open_split, source_positions};

/// Returns a line for each source, and one more for what the state holds back of it.
pub fn source_outlooks(directory: &StateDirectory, job: &Job, program: &Program) -> Result<String, JobError> {
    let (mut sources, _) = source_positions(directory, program)?;
    let mut text = String::new();
    let streams = program.streams.iter_enumerated().filter(|(_, s)| matches!(s.origin, Origin::Source { .. }));
    let mut gate = Gate::new(program, &streams.map(|(id, _)| id).collect::<Vec<_>>());
    for (source, at) in sources.iter_mut().enumerate() {
        if let Some(split) = at.split.as_ref().filter(|split| split.split > 0) {
            gate.join(split.source, at.standing.begin);
        }
        gate.stand(source, std::mem::take(&mut at.standing), 0);
    }
    let names: Vec<&str> = source_streams(program).map(|stream| stream.name.as_str()).collect();
    let positions = gate.positions();
    for (((stream, at), position), source) in source_streams(program).zip(&sources).zip(positions).zip(0..) {
        let what = match job.sources.get(&stream.name) {
            _ if gate.is_over(source) => "has ended for good; a run refuses what is new in it".to_owned(),
            Some(Input::Connection(connection)) => {
                let of_source = |(number, of): &(usize, &SourceAt)| {
                    of.split.as_ref().map_or(*number, |split| split.source) == source
                };
                let splits: Vec<&SourceAt> =
                    sources.iter().enumerate().filter(of_source).map(|(_, split)| split).collect();
                outlook(connection.as_ref(), stream, &splits).unwrap_or_else(|failure| format!("is refused: {failure}"))
            }
            Some(Input::Own(_) | Input::Sent) | None => given(at),
        };
        let _ = writeln!(text, "  source {} {what}", stream.name);
        let (by, from) = position.held_by.unzip();
        let summary = SourceSummary {
            held: position.held,
            held_until: position.held_until,
            held_by: by.map(|by| names[by].to_owned()),
            held_from: from.flatten(),
            ..SourceSummary::default()
        };
        if let Some(waits) = waits(&summary, stream) {
            let _ = writeln!(text, "    {waits}");
        }
    }
    Ok(text)
}

/// Returns a text that says what a run will read of a source.
fn outlook(connection: &dyn SourceConnection, stream: &Stream, splits: &[&SourceAt]) -> Result<String, IoFailure> {
    let mut source = connection.open(&stream.schema, &source_options())?;
    let at = splits[0];
    if source.splits().is_some() || at.split.is_some() {
        return split_outlook(source.as_mut(), splits);
    }
    if at.taken != Taken::default() {
        source.resume(at.token.as_deref())?;
    }
    Ok(source.outlook().unwrap_or_else(|| "reads what comes".into()))
}

/// Returns a text that says what a run will read of a source in splits.
fn split_outlook(source: &mut dyn Source, splits: &[&SourceAt]) -> Result<String, IoFailure> {
    const NAMED_MAX: usize = 8;
    let known = || splits.iter().filter_map(|at| Some((at.split.as_ref()?, *at)));
    let mut texts = Vec::new();
    for (split, at) in known() {
        let mut opened = open_split(source, &split.name)?;
        if at.taken != Taken::default() {
            opened.resume(at.token.as_deref())?;
        }
        let outlook = opened.outlook().filter(|text| !text.starts_with("has nothing new"));
        texts.extend(outlook.filter(|_| !at.standing.ended));
    }
    let names: Vec<String> = known().map(|(split, _)| split.name.clone()).collect();
    let new = source.splits().map_or(Ok(Vec::new()), |of| of.new_splits(&names))?;
    texts.extend(new.iter().map(|name| format!("reads {name} from the beginning")));
    if texts.len() > NAMED_MAX {
        let more = texts.len() - NAMED_MAX;
        texts.truncate(NAMED_MAX);
        texts.push(format!("and {more} more"));
    }
    let what = if texts.is_empty() { "nothing is new".to_owned() } else { texts.join("; ") };
    Ok(format!("has {} splits: {what}", names.len() + new.len()))
}

/// Returns a text that says what a run will take of the data that it is given.
fn given(at: &SourceAt) -> String {
    let (before, again) = (at.before.events, at.taken.since(at.before));
    match again == Taken::default() {
        true => format!("takes the data given to the run, after {} of earlier runs", counted(before, "event")),
        false => format!(
            "takes the data given to the run, after {} of earlier runs. Give the data of the last run again, which did \
             not come to its end: {} of it were taken",
            counted(before, "event"),
            count(again.events)
        ),
    }
}
