//! Why a state cannot be audited.

use tidemill_durability::StateError;
use tidemill_runtime::RunError;

/// The reason why a state cannot be audited, or its fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The state cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A source or a logged epoch cannot be read again.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The position, source or program that was asked for is not in the state.
    #[error("{0}")]
    Unknown(String),
    /// The engine and the reference interpreter came to different results.
    #[error("{0}")]
    Differs(String),
}
