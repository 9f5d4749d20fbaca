//! The failure of a source or sink.

use std::fmt;

/// A source or sink failed; the run stops with this message.
#[derive(Debug)]
pub struct IoFailure {
    /// A lowercase fact that names the file or origin and what is wrong.
    pub message: String,
    /// A flag: whether the data has the wrong schema, found before any event was taken.
    pub schema: bool,
}

impl IoFailure {
    /// Makes an operating failure.
    pub fn new(message: impl Into<String>) -> Self {
        IoFailure { message: message.into(), schema: false }
    }

    /// Makes the failure that data has the wrong schema.
    pub fn schema(message: impl Into<String>) -> Self {
        IoFailure { message: message.into(), schema: true }
    }
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for IoFailure {}
