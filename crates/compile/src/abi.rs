//! The interface between compiled code and the engine: plain structs of addresses. Compiled code reads them by offset,
//! so every one is `repr(C)`.
//!
//! The caller keeps them alive. All addresses must stay valid for the call, and those of
//! texts for as long as captured columns that may point to them are read.

use std::ops::Range;
use tidemill_plan::ReasonId;

/// An input column in Arrow form, or in native form ([`NativeView`]) under the same struct.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ColumnView {
    /// Arrow: the values (bits for bool, `i32` offsets for text and lists). Native: the words.
    pub values: *const u8,
    /// Arrow: the bytes of text. Native: the lengths of text.
    pub aux: *const u8,
    /// Arrow: the validity bits or null. Native: a byte per value, 1 for null.
    pub validity: *const u8,
    /// Arrow bool: where the first value's bit stands.
    pub values_offset: u64,
    /// Arrow: where the first validity bit stands.
    pub validity_offset: u64,
}

impl ColumnView {
    /// Returns the bytes of the texts at these places of an Arrow column of texts; of nulls none.
    ///
    /// # Safety
    /// The column is one of texts in Arrow form, and has these places.
    pub(crate) unsafe fn text_bytes(&self, places: Range<u64>) -> i64 {
        let (offsets, bits) = (self.values.cast::<i32>(), self.validity);
        let text = |place: u64| {
            let bit = self.validity_offset + place;
            // SAFETY: by the caller; a text has an offset at its place and at the next, and a bit where there are bits.
            unsafe {
                let is_null = !bits.is_null() && *bits.add((bit / 8) as usize) >> (bit % 8) & 1 == 0;
                let len = *offsets.add(place as usize + 1) - *offsets.add(place as usize);
                if is_null { 0 } else { i64::from(len) }
            }
        };
        places.map(text).sum()
    }
}

/// An output column of words: ints, float bits, bools, or the address of a text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NativeView {
    /// The values, a word for each.
    pub words: *mut u64,
    /// The lengths of texts; null for other types.
    pub lens: *mut u64,
    /// A byte per value, 1 for null; null where the column cannot hold null.
    pub nulls: *mut u8,
}

/// The prepared input of a transaction or pipeline. `i` counts the input's events from 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InputView {
    /// The columns, in the order in which [`crate::StreamLayout`] numbers them.
    pub columns: *const ColumnView,
    /// Event `i` → its row in columns that are addressed by row.
    pub index: *const u32,
    /// The place of each event of the root, by row; null where no code asks for it.
    pub places: *const u64,
    /// The row addresses of each role, by `i`, or by `starts[role][i] + element`. For a role that is not one row: by
    /// `i`, the address of their number and, after it, their addresses in their order.
    pub rows: *const *const u64,
    /// The start of the rows of event `i`, for each role over a list.
    pub starts: *const *const u32,
    /// Captured columns of the committed record, by `i`.
    pub captures: *const NativeView,
    /// Captured columns of the abort, by `i`.
    pub seen: *const NativeView,
    /// The verdict of each event, by `i`.
    pub verdicts: *mut Verdict,
}

/// The end of a transaction, as the word that compiled code stores.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict(u32);

impl Verdict {
    /// The transaction committed and its event is on `committed`.
    pub const COMMITTED: Verdict = Verdict(0);
    /// The transaction committed and put nothing on `committed`.
    pub const COMMITTED_SILENTLY: Verdict = Verdict(u32::MAX);

    /// Returns the verdict of an aborted transaction.
    pub fn aborted(reason: ReasonId) -> Verdict {
        assert!(reason < u32::MAX - 1, "reason {reason} has the word of another verdict");
        Verdict(reason + 1)
    }

    /// Returns the verdict of a stored word.
    pub const fn of(word: u32) -> Verdict {
        Verdict(word)
    }

    /// Returns the stored word: 0, [`u32::MAX`], or 1 + the reason.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Returns whether the transaction committed, with or without an event on `committed`.
    pub const fn is_committed(self) -> bool {
        self.0 == Self::COMMITTED.0 || self.0 == Self::COMMITTED_SILENTLY.0
    }

    /// Returns whether the transaction committed with an event on `committed`.
    pub const fn passes_record(self) -> bool {
        self.0 == Self::COMMITTED.0
    }

    /// Returns the reason why the transaction aborted, if it did.
    pub const fn reason(self) -> Option<ReasonId> {
        if self.is_committed() { None } else { Some(self.0 - 1) }
    }
}

/// The output of a pipeline for one derived stream or delivery.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OutputView {
    /// Event `k` of the stream → event `i` of the pipeline's root.
    pub index: *mut u32,
    /// Events written so far; in and out.
    pub count: u64,
    /// The stream's computed columns, by `k`.
    pub columns: *const NativeView,
    /// Failures: `i` in the upper, the reason in the lower half.
    pub failures: *mut u64,
    /// Failures written so far; in and out.
    pub failure_count: u64,
    /// The number of computed keys of elements written so far, by column; in and out.
    pub element_counts: *mut u64,
}

/// An entry of the undo log.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UndoEntry {
    /// The word's address.
    pub address: u64,
    /// The word that it held.
    pub word: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_and_their_words() {
        let aborted = Verdict::aborted(3);
        assert_eq!((aborted.word(), aborted.reason(), aborted.is_committed()), (4, Some(3), false));
        for committed in [Verdict::COMMITTED, Verdict::COMMITTED_SILENTLY] {
            assert_eq!((committed.is_committed(), committed.reason()), (true, None));
            assert_eq!(Verdict::of(committed.word()), committed);
        }
        assert!(Verdict::COMMITTED.passes_record() && !Verdict::COMMITTED_SILENTLY.passes_record());
        assert!(!aborted.passes_record());
    }
}
