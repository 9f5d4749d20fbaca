//! `tidemill verify` and `tidemill txn show`.

use crate::arguments::{TxnCommand, VerifyArguments};
use crate::exit::{self, report};
use crate::job::JobError;
use crate::say;
use crate::text::{count, counted};
use serde_json::json;
use std::fmt::Write;
use tidemill_audit::{Verified, recorded_source, show, verify as verified};
use tidemill_connect::view_state;

/// Verifies a state; the exit code.
pub fn verify(arguments: &VerifyArguments) -> u8 {
    let directory = view_state(&arguments.state).map_err(JobError::from);
    let done = directory.and_then(|directory| Ok(verified(&directory, arguments.from.as_deref(), &recorded_source)?));
    match done {
        Ok(verified) if arguments.json => {
            say::out(&serde_json::to_string(&verified).expect("plain data"));
            exit::SUCCESS
        }
        Ok(verified) => {
            say::out(&text(&verified));
            verified.notes.iter().for_each(|note| say::warning(note));
            exit::SUCCESS
        }
        Err(error) => report(&error),
    }
}

fn text(verified: &Verified) -> String {
    let epochs = counted(verified.through - verified.from, "epoch");
    let (name, events, from) = (&verified.application, counted(verified.events, "event"), count(verified.from));
    let mut text = if verified.is_empty() {
        format!("{name}: nothing to run again after epoch {from}\n")
    } else {
        let tables = if verified.tables_compared { ", and the tables of the newest checkpoint" } else { "" };
        let compared = counted(verified.compared, "epoch");
        format!(
            "{name}: {epochs} with {events} after epoch {from} run again; no difference\n  compared: the digests of \
             {compared}{tables}\n"
        )
    };
    for (name, digest) in &verified.tables {
        let _ = writeln!(text, "  table {name}: {}, digest {:016x}", counted(digest.rows, "row"), digest.hash);
    }
    for (name, digest) in &verified.outputs {
        let _ = writeln!(text, "  sink {name}: {}, digest {:016x}", counted(digest.events, "event"), digest.hash);
    }
    text
}

/// Shows transactions; the exit code.
pub fn txn(command: &TxnCommand) -> u8 {
    let TxnCommand::Show { state, position, json } = command;
    let shown = view_state(state).map_err(JobError::from);
    match shown.and_then(|directory| Ok(show(&directory, position, &recorded_source)?)) {
        Ok(text) if *json => {
            say::out(&json!({"position": position.to_string(), "text": text}).to_string());
            exit::SUCCESS
        }
        Ok(text) => {
            say::out(&text);
            exit::SUCCESS
        }
        Err(error) => report(&error),
    }
}
