//! Printing. A closed pipe is ignored. Where a log takes what is said, it is a line there.

use crate::log::{TARGET, flush, is_json, takes_notes};
use std::io::{Write, stderr, stdout};

/// Prints a result on standard output.
pub fn out(text: &str) {
    let mut stdout = stdout().lock();
    let _ = writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush());
}

/// Prints a text for people on standard error, without entering it in a log.
pub fn err(text: &str) {
    flush();
    let _ = writeln!(stderr().lock(), "{}", text.trim_end());
}

/// Prints or logs a note about the run.
pub fn note(text: &str) {
    if takes_notes() { tracing::info!(target: TARGET, "{}", text.trim_end()) } else { err(text) }
}

/// Prints or logs an error.
pub fn error(text: &str) {
    if is_json() {
        tracing::error!(target: TARGET, "{}", text.trim_end());
    } else {
        err(&format!("error: {text}"));
    }
}

/// Prints or logs a warning.
pub fn warning(text: &str) {
    if takes_notes() {
        tracing::warn!(target: TARGET, "{}", text.trim_end());
    } else {
        err(&format!("warning: {text}"));
    }
}
