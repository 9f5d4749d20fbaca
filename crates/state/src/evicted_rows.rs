//! The rows of a table that are not in memory: the interface through which a table reads them.

use crate::image::Image;
use std::sync::Arc;

/// The reason why evicted rows could not be read.
pub type EvictedError = Box<dyn std::error::Error + Send + Sync>;

/// The place of a key that has no row.
pub const NOWHERE: u32 = u32::MAX;

/// The rows of some keys.
pub struct Found {
    /// The rows that exist.
    pub rows: Image,
    /// The number of each key's row, by key, or [`NOWHERE`].
    pub places: Vec<u32>,
}

/// The rows of those keys of a table that have no slot.
pub trait EvictedRows: Send + Sync {
    /// Returns the rows of these keys. If they cannot be read, the owner of the run is told before this returns, and
    /// releases nothing afterwards; the result is then irrelevant.
    fn get(&self, keys: &Image) -> Found;

    /// Pins these rows as they are now, whatever is evicted or fetched later.
    fn pin(&self) -> Arc<dyn PinnedRows>;
}

/// The rows of a table's keys without a slot, as they were at one instant.
pub trait PinnedRows: Send + Sync {
    /// Passes all of these rows to `each`, each row once. May also pass rows of keys that had a slot.
    fn each(&self, each: &mut dyn FnMut(Image)) -> Result<(), EvictedError>;

    /// Returns the rows of these keys.
    fn get(&self, keys: &Image) -> Result<Found, EvictedError>;
}
