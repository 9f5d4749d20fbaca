//! Errors as the protocol has them: a code of five characters, a message, perhaps a detail and a hint.

use crate::shares::RETRY_SECONDS;

/// Codes of PostgreSQL (its manual, appendix A).
pub mod code {
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const NOT_SUPPORTED: &str = "0A000";
    pub const OUT_OF_RANGE: &str = "22003";
    pub const BAD_TIME: &str = "22008";
    pub const BAD_ENCODING: &str = "22021";
    pub const BAD_VALUE_OF_SETTING: &str = "22023";
    pub const BAD_BINARY: &str = "22P03";
    pub const BAD_TEXT: &str = "22P02";
    pub const NOT_NULL: &str = "23502";
    pub const NOT_ALLOWED: &str = "28000";
    pub const WRONG_PASSWORD: &str = "28P01";
    pub const NO_RIGHT: &str = "42501";
    pub const BLOCK_OPEN: &str = "25001";
    pub const READ_ONLY: &str = "25006";
    pub const NO_BLOCK: &str = "25P01";
    pub const BLOCK_FAILED: &str = "25P02";
    pub const NO_STATEMENT: &str = "26000";
    pub const CANNOT_ROLL_BACK: &str = "2D000";
    pub const NO_PORTAL: &str = "34000";
    pub const NO_SAVEPOINT: &str = "3B001";
    pub const SYNTAX: &str = "42601";
    pub const NO_COLUMN: &str = "42703";
    pub const NO_SETTING: &str = "42704";
    pub const NO_STREAM: &str = "42704";
    pub const WRONG_TYPE: &str = "42804";
    pub const NO_FUNCTION: &str = "42883";
    pub const NO_ANSWER: &str = "42000";
    pub const NO_TABLE: &str = "42P01";
    pub const NAME_TAKEN: &str = "42P05";
    pub const UNKNOWN_TYPE: &str = "42P18";
    pub const OUT_OF_MEMORY: &str = "53200";
    pub const TOO_MANY_CONNECTIONS: &str = "53300";
    pub const OVER_LIMIT: &str = "53400";
    pub const TOO_LARGE: &str = "54000";
    pub const CANCELED: &str = "57014";
    pub const CLOSING: &str = "57P01";
    pub const SNAPSHOT_TOO_OLD: &str = "72000";
    pub const IDLE: &str = "57P05";
    pub const RUN_OVER: &str = "57P03";
    pub const ABORTED: &str = "P0001";
}

/// The consequence of an error: after `Error` the connection goes on, after `Fatal` it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Fatal,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgError {
    pub severity: Severity,
    pub code: &'static str,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// The argument or column in which the error lies.
    pub column: Option<String>,
}

/// The result of an operation that fails with an error for the client.
pub type PgResult<T> = Result<T, PgError>;

impl PgError {
    /// Makes an error after which the connection goes on.
    pub fn new(code: &'static str, message: impl Into<String>) -> PgError {
        let message = message.into();
        PgError { severity: Severity::Error, code, message, detail: None, hint: None, column: None }
    }

    /// Makes an error after which the connection ends.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> PgError {
        PgError { severity: Severity::Fatal, ..PgError::new(code, message) }
    }

    /// Makes an error for a limit that other clients have reached; the request may be repeated.
    pub fn busy(message: impl Into<String>) -> PgError {
        PgError::new(code::OVER_LIMIT, message).again()
    }

    /// Adds the hint that the request was not carried out, and when to try again.
    pub fn again(self) -> PgError {
        self.hint(format!("this was not done; try again after {RETRY_SECONDS} s"))
    }

    /// Returns the error for a feature of SQL that this server does not have.
    pub fn not_supported(what: impl std::fmt::Display) -> PgError {
        PgError::new(code::NOT_SUPPORTED, format!("not supported yet: {what}"))
    }

    pub fn detail(self, detail: impl Into<String>) -> PgError {
        PgError { detail: Some(detail.into()), ..self }
    }

    pub fn hint(self, hint: impl Into<String>) -> PgError {
        PgError { hint: Some(hint.into()), ..self }
    }

    pub fn column(self, column: impl Into<String>) -> PgError {
        PgError { column: Some(column.into()), ..self }
    }
}
