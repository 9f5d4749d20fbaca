//! Printing. Who does not listen any more (a closed pipe) is no reason to fail.

use std::io::{Write, stderr, stdout};

/// Results, on standard output.
pub fn out(text: &str) {
    let mut stdout = stdout().lock();
    let _ = writeln!(stdout, "{}", text.trim_end()).and_then(|()| stdout.flush());
}

/// Words about the run, on standard error.
pub fn err(text: &str) {
    let _ = writeln!(stderr().lock(), "{}", text.trim_end());
}

/// What is wrong.
pub fn error(text: &str) {
    err(&format!("error: {text}"));
}

/// What is probably wrong.
pub fn warning(text: &str) {
    err(&format!("warning: {text}"));
}
