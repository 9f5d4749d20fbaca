//! Why a state cannot be gone through.

use tidemill_durability::StateError;
use tidemill_runtime::RunError;

/// Why a state cannot be gone through, or what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// It cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A source cannot be read again, or an epoch does not read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What was asked for is not there.
    #[error("{0}")]
    Unknown(String),
    /// The engine and the reference interpreter came to different results.
    #[error("{0}")]
    Differs(String),
}
