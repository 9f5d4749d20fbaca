//! The memory of a table's texts.
//!
//! Each place that makes or frees blobs of a table's rows counts them: the table itself for keys, loaded rows and
//! removed rows; the context of compiled code for the writes of transactions. A replaced blob counts until it is
//! freed.

use crate::sync::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Bytes of the blobs of one table. Written by each thread that makes or frees them, read by the gate.
///
/// The counts of several threads arrive in any order, so the sum wraps below zero for a moment if blobs are counted
/// as freed before they are counted as made.
#[derive(Clone, Default)]
pub struct TextBytes(Arc<AtomicUsize>);

impl TextBytes {
    /// Counts blobs that were made.
    pub fn add(&self, bytes: usize) {
        if bytes > 0 {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts blobs that were freed.
    pub fn subtract(&self, bytes: usize) {
        if bytes > 0 {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of all blobs.
    pub fn get(&self) -> usize {
        (self.0.load(Ordering::Relaxed) as isize).max(0) as usize
    }
}
