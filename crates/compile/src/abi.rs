//! What compiled code and the engine pass to each other: plain structs of addresses. Compiled code
//! reads them by offset, so every one is `repr(C)`.
//!
//! Who keeps them alive: whoever calls. All addresses must stay valid for the call, and those of
//! texts for as long as captured columns that may point to them are read.

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

/// An output column of words: ints, float bits, bools, or the address of a text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NativeView {
    /// One word per value.
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
    /// The columns, as [`crate::StreamLayout`] numbers them.
    pub columns: *const ColumnView,
    /// Event `i` → its row in columns that are addressed by row.
    pub index: *const u32,
    /// Per role: row addresses, by `i`, or by `starts[role][i] + element`.
    pub rows: *const *const u64,
    /// Per role: for roles over a list, where the rows of event `i` start.
    pub starts: *const *const u32,
    /// Captured columns of the committed record, by `i`.
    pub captures: *const NativeView,
    /// Captured columns of the abort, by `i`.
    pub seen: *const NativeView,
    /// What became of event `i`: 0, [`COMMITTED_SILENTLY`], or 1 + the reason.
    pub verdicts: *mut u32,
}

/// The transaction committed without emitting a record.
pub const COMMITTED_SILENTLY: u32 = u32::MAX;

/// What a pipeline writes for one derived stream or delivery.
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
    /// Per column: computed keys of elements written so far; in and out.
    pub element_counts: *mut u64,
}

/// One entry of the undo log.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UndoEntry {
    /// The word's address.
    pub address: u64,
    /// What it held.
    pub word: u64,
}
