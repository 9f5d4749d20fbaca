//! Text and bytes outside the row: one pointer to a length and the bytes.
//!
//! A handle is the address of `[len: u64][bytes]`, or 0 for the empty value. A handle has one owner: the cell that
//! holds it, or the garbage list that it was moved to.
//!
//! The size of a blob is rounded up to a multiple of 16 bytes, and of an eighth of the next power of two. These are the
//! size classes of allocators. So a blob whose length changes a little stays in place, and one that is appended to is
//! moved so rarely that its bytes are copied a few times on average.

use crate::memory::prefetch;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::Range;

/// Bytes before the content.
pub const PREFIX: usize = 8;

/// The smallest step that a blob's size is rounded up to.
const STEP_MIN: usize = 16;

fn layout(len: usize) -> Layout {
    let size = PREFIX + len;
    let step = (size.next_power_of_two() / 8).max(STEP_MIN);
    Layout::from_size_align(size.next_multiple_of(step), 8).expect("a text is smaller than the address space")
}

/// Returns the bytes of memory of a blob whose content has this length.
pub fn size(len: usize) -> usize {
    if len == 0 { 0 } else { layout(len).size() }
}

/// Makes a new blob with these bytes; 0 for the empty value.
pub fn new(bytes: &[u8]) -> u64 {
    of(&[bytes])
}

/// Returns a new blob with these pieces, concatenated; 0 for the empty value.
pub fn of(pieces: &[&[u8]]) -> u64 {
    let len = pieces.iter().map(|piece| piece.len()).sum();
    if len == 0 {
        return 0;
    }
    let layout = layout(len);
    // SAFETY: the layout's size is at least PREFIX, hence not zero; the writes stay inside it.
    unsafe {
        let blob = alloc(layout);
        if blob.is_null() {
            handle_alloc_error(layout);
        }
        blob.cast::<u64>().write(len as u64);
        let mut to = blob.add(PREFIX);
        for piece in pieces {
            std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
            to = to.add(piece.len());
        }
        blob as u64
    }
}

/// Returns the bytes of a handle.
///
/// # Safety
/// `handle` came from [`of`] or [`new`], and is neither freed nor edited while the result lives.
pub unsafe fn bytes<'a>(handle: u64) -> &'a [u8] {
    if handle == 0 {
        return &[];
    }
    let blob = handle as *const u8;
    // SAFETY: by the caller's promise this is a live blob, laid out by `new`.
    unsafe { std::slice::from_raw_parts(blob.add(PREFIX), blob.cast::<u64>().read() as usize) }
}

/// Returns the bytes of a handle, to be changed.
///
/// # Safety
/// As of [`bytes`], and nobody else reads them while the result lives.
pub unsafe fn bytes_mut<'a>(handle: u64) -> &'a mut [u8] {
    if handle == 0 {
        return &mut [];
    }
    let blob = handle as *mut u8;
    // SAFETY: by the caller's promise this is a live blob, laid out by `new`.
    unsafe { std::slice::from_raw_parts_mut(blob.add(PREFIX), blob.cast::<u64>().read() as usize) }
}

/// Lines of a blob that are prefetched: those of a window of a few slices.
const LINES_AHEAD: usize = 4;

/// Prefetches the beginning of the blob that a cell holds.
///
/// # Safety
/// `cell` is a text cell of a row, and no thread writes it meanwhile.
pub unsafe fn ask(cell: *const u64) {
    // SAFETY: by the caller.
    let blob = unsafe { cell.read() } as *const u8;
    (0..LINES_AHEAD).for_each(|line| prefetch(blob.wrapping_add(64 * line)));
}

/// A change of some bytes: removes the bytes before `start`, and those of `gap`, which comes after `start`. New bytes
/// are appended to the remaining ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The first byte that stays, unless `gap` begins there.
    pub start: usize,
    /// The bytes in between that are removed.
    pub gap: Range<usize>,
}

impl Edit {
    /// Returns the bytes after the edit, in pieces.
    pub fn pieces<'a>(&self, bytes: &'a [u8], tail: &'a [u8]) -> [&'a [u8]; 3] {
        [&bytes[self.start..self.gap.start], &bytes[self.gap.end..], tail]
    }

    /// Returns whether the edit changes anything when `tail` bytes are appended.
    pub fn changes(&self, tail: usize) -> bool {
        self.start > 0 || !self.gap.is_empty() || tail > 0
    }
}

/// Edits a blob in place. Returns false, and changes nothing, if the result needs another allocation.
///
/// # Safety
/// `handle` came from [`new`] and is not freed, and no other thread reads it meanwhile.
pub unsafe fn edit(handle: u64, edit: &Edit, tail: &[u8]) -> bool {
    if handle == 0 {
        return false;
    }
    let blob = handle as *mut u8;
    // SAFETY: by the caller's promise this is a live blob, laid out by `new`, that no other thread reads. The
    // remaining bytes lie in it, and the result fits, because the layout is the same.
    unsafe {
        let len = blob.cast::<u64>().read() as usize;
        let Edit { start, gap } = edit;
        assert!(*start <= gap.start && gap.start <= gap.end && gap.end <= len, "an edit of other bytes");
        let (head, rest) = (gap.start - start, len - gap.end);
        let becomes = head + rest + tail.len();
        if becomes == 0 || layout(becomes) != layout(len) {
            return false;
        }
        let bytes = blob.add(PREFIX);
        if *start > 0 {
            std::ptr::copy(bytes.add(*start), bytes, head);
        }
        if head < gap.end {
            std::ptr::copy(bytes.add(gap.end), bytes.add(head), rest);
        }
        std::ptr::copy_nonoverlapping(tail.as_ptr(), bytes.add(head + rest), tail.len());
        blob.cast::<u64>().write(becomes as u64);
    }
    true
}

/// Frees a blob; returns the bytes of memory that it took.
///
/// # Safety
/// `handle` came from [`new`], is freed once, and is not read afterwards.
pub unsafe fn free(handle: u64) -> usize {
    if handle == 0 {
        return 0;
    }
    let blob = handle as *mut u8;
    // SAFETY: the length was written by `of`, or by `edit`, which keeps the layout of the allocation.
    unsafe {
        let layout = layout(blob.cast::<u64>().read() as usize);
        dealloc(blob, layout);
        layout.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_what_allocators_round_to() {
        let sizes: Vec<usize> = (1..=1000).map(|len| layout(len).size()).collect();
        let mut different = sizes.clone();
        different.dedup();
        assert_eq!(different[..12], [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256]);
        assert!(sizes.iter().zip(1..).all(|(size, len)| *size >= PREFIX + len));
    }

    #[test]
    fn edits_do_what_their_pieces_say() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut in_place = 0;
        for (start, from, to, tail) in (0..100).step_by(9).flat_map(|start| {
            (start..=100).step_by(7).flat_map(move |from| {
                (from..=100).step_by(5).flat_map(move |to| [0, 16, 40].map(|t| (start, from, to, t)))
            })
        }) {
            let (edit, tail) = (Edit { start, gap: from..to }, vec![7; tail]);
            let expected = edit.pieces(&bytes, &tail).concat();
            let handle = new(&bytes);
            // SAFETY: only this test has the blobs, and it frees them once.
            unsafe {
                let done = super::edit(handle, &edit, &tail);
                assert_eq!(done, !expected.is_empty() && layout(expected.len()) == layout(100), "{edit:?}");
                assert_eq!(super::bytes(handle), if done { &expected } else { &bytes }, "{edit:?}");
                let other = of(&edit.pieces(&bytes, &tail));
                assert_eq!(super::bytes(other), expected, "{edit:?}");
                free(handle);
                free(other);
                in_place += usize::from(done);
            }
        }
        assert!(in_place > 100, "{in_place}");
    }
}
