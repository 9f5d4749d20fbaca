//! An operator that is lowered, and the names of its parts by which others find them.

use crate::{OperatorId, Owner};

/// The number of an operator that is lowered, and its name, which begins those of its parts.
#[derive(Clone, Copy)]
pub(super) struct Lowered<'n> {
    pub id: OperatorId,
    pub name: &'n str,
}

impl Lowered<'_> {
    /// Returns it as the owner of a part.
    pub fn owner<P>(self, part: P) -> Option<Owner<P>> {
        Some(Owner { operator: self.id, part })
    }
}

/// Returns the name of the transaction that gives the early results of a window.
pub(super) fn early(window: &str) -> String {
    format!("{window}.early")
}

/// Returns the name of the transaction that adds events to a window.
pub(super) fn add(window: &str) -> String {
    format!("{window}.add")
}

/// Returns the name of the stream of what is due of a window.
pub(super) fn due(window: &str) -> String {
    format!("{window}.due")
}

/// Returns the name of the stream of boundaries and rows of a window.
pub(super) fn boundaries(window: &str) -> String {
    format!("{window}.rows")
}
