//! `tidemill verify` and `tidemill txn show`.

use crate::arguments::{TxnCommand, VerifyArguments};
use crate::exit::{self, report};
use crate::job::JobError;
use crate::say;
use crate::text::{count, counted};
use serde_json::json;
use std::fmt::Write;
use tidemill_audit::{Proven, Verified, recorded_source, show, verify_from_anchor};
use tidemill_connect::view_state;

/// Verifies a state; the exit code.
pub fn verify(arguments: &VerifyArguments) -> u8 {
    let directory = view_state(&arguments.state).map_err(JobError::from);
    let (from, anchor) = (arguments.from.as_deref(), arguments.anchor);
    let done = directory.and_then(|directory| Ok(verify_from_anchor(&directory, from, anchor, &recorded_source)?));
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
    text.push_str(&verified.proof.as_ref().map_or_else(|| "  proof: none is kept\n".into(), proof_text));
    text
}

/// Says which heads were computed again, and what they show.
fn proof_text(proven: &Proven) -> String {
    let Proven { begins, from, entries, head, root, runs: (runs, compared), anchor } = proven;
    let (hashed, begins) = (counted(*entries, "epoch"), count(*begins));
    let mut text = format!("  proof: head {head}; {hashed} after epoch {} hashed again", count(*from));
    let _ = writeln!(text, "; the chain begins after epoch {begins}");
    let _ = match root {
        Some(root) => writeln!(text, "  root of the checkpoint: {root}; {} compared", counted(*compared as u64, "run")),
        None => {
            writeln!(text, "  root of the checkpoint: none; {compared} of {} compared", counted(*runs as u64, "run"))
        }
    };
    if let Some(anchor) = anchor {
        let shown = match anchor.before {
            None => format!("every head from epoch {} on follows it", anchor.head.epoch),
            Some(checkpoint) => {
                format!(
                    "the anchor is before the checkpoint of epoch {checkpoint}: shown is that {checkpoint} follows it"
                )
            }
        };
        let _ = match anchor.restored {
            None => writeln!(text, "  anchor: {shown}"),
            Some(epoch) => writeln!(text, "  anchor: the state was put back to epoch {epoch} since; {shown}"),
        };
        text.push_str("  not shown: who wrote the inputs\n");
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
