//! The only source of synchronization types: std's and `parking_lot`'s, or the model checker's.
//!
//! Two kinds of shared data are plain memory to the compiler, and the model checker must be told of each access: the
//! atomic words in the heads of blocks ([`word_at`]), and the cells of rows ([`reads_key`] and its siblings, which
//! compile to nothing otherwise).

#[cfg(feature = "loom")]
pub(crate) mod model;
#[cfg(feature = "loom")]
pub(crate) use model::*;

#[cfg(not(feature = "loom"))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(feature = "loom"))]
pub(crate) use unchecked::*;

#[cfg(not(feature = "loom"))]
mod unchecked {
    use super::AtomicU64;
    use crate::rows::RowAddress;
    use std::mem::ManuallyDrop;

    /// Returns the atomic word at an address.
    ///
    /// # Safety
    /// It is aligned, lives as long as the result, and all accesses to it are atomic.
    #[inline(always)]
    pub unsafe fn word_at<'a>(address: *const AtomicU64) -> &'a AtomicU64 {
        // SAFETY: by the caller.
        unsafe { &*address }
    }

    /// Writes consecutive atomic words.
    ///
    /// # Safety
    /// As [`word_at`], for each.
    pub unsafe fn fill(first: *const AtomicU64, count: usize, value: u64) {
        // SAFETY: by the caller.
        (0..count).for_each(|word| unsafe { (*first.add(word)).store(value, super::Ordering::Relaxed) });
    }

    /// Returns the value of a word that is not shared now.
    #[inline(always)]
    pub fn value_of(word: &mut AtomicU64) -> u64 {
        *word.get_mut()
    }

    /// Returns zeroed pages of the system: a page that is not read or written is never touched.
    pub fn zeroed(len: usize) -> Vec<AtomicU64> {
        const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
        let mut words = ManuallyDrop::new(vec![0u64; len]);
        // SAFETY: an atomic word has the size and the values of a word, and here also its alignment.
        unsafe { Vec::from_raw_parts(words.as_mut_ptr().cast(), words.len(), words.capacity()) }
    }

    /// Tells the checker that the key cells of a row are read.
    #[inline(always)]
    pub fn reads_key(_row: RowAddress) {}

    /// Tells the checker that the key cells of a row are written.
    #[inline(always)]
    pub fn writes_key(_row: RowAddress) {}

    /// Tells the checker that the header or other cells of a row are read.
    #[inline(always)]
    pub fn reads_row(_row: RowAddress) {}

    /// Tells the checker that the header or other cells of a row are written.
    #[inline(always)]
    pub fn writes_row(_row: RowAddress) {}
}
