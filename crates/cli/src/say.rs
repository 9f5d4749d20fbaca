//! Printing. A closed pipe is ignored.

use std::io::{Write, stderr, stdout};

/// Results, on standard output.
pub fn out(text: &str) {
    let mut stdout = stdout().lock();
    let _ = writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush());
}

/// A message about the run, on standard error.
pub fn err(text: &str) {
    let _ = writeln!(stderr().lock(), "{}", text.trim_end());
}

/// An error.
pub fn error(text: &str) {
    err(&format!("error: {text}"));
}

/// A warning.
pub fn warning(text: &str) {
    err(&format!("warning: {text}"));
}
