//! Text and bytes outside the row: a length and the bytes, behind one pointer.
//!
//! A handle is the address of `[len: u64][bytes]`, or 0 for the empty value. A handle has one owner,
//! the cell that holds it, or the garbage list that it was moved to.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

/// Bytes before the content.
pub const PREFIX: usize = 8;

fn layout(len: usize) -> Layout {
    Layout::from_size_align(PREFIX + len, 8).expect("a text is smaller than the address space")
}

/// A new blob with these bytes; 0 for none.
pub fn new(bytes: &[u8]) -> u64 {
    if bytes.is_empty() {
        return 0;
    }
    let layout = layout(bytes.len());
    // SAFETY: the layout's size is at least PREFIX, hence not zero; the writes stay inside it.
    unsafe {
        let blob = alloc(layout);
        if blob.is_null() {
            handle_alloc_error(layout);
        }
        blob.cast::<u64>().write(bytes.len() as u64);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), blob.add(PREFIX), bytes.len());
        blob as u64
    }
}

/// The bytes behind a handle.
///
/// # Safety
/// `handle` came from [`new`] and is not freed while the result lives.
pub unsafe fn bytes<'a>(handle: u64) -> &'a [u8] {
    if handle == 0 {
        return &[];
    }
    let blob = handle as *const u8;
    // SAFETY: by the caller's promise this is a live blob, laid out by `new`.
    unsafe { std::slice::from_raw_parts(blob.add(PREFIX), blob.cast::<u64>().read() as usize) }
}

/// Gives a blob other bytes, as many as it has.
///
/// # Safety
/// `handle` came from [`new`] and is not freed, and nobody else reads it meanwhile.
pub unsafe fn overwrite(handle: u64, bytes: &[u8]) {
    if handle == 0 {
        assert!(bytes.is_empty(), "the empty value has no bytes");
        return;
    }
    let blob = handle as *mut u8;
    // SAFETY: by the caller's promise this is a live blob, laid out by `new`, that nobody else reads.
    unsafe {
        assert_eq!(blob.cast::<u64>().read() as usize, bytes.len(), "a blob keeps its length");
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), blob.add(PREFIX), bytes.len());
    }
}

/// Frees a blob.
///
/// # Safety
/// `handle` came from [`new`], is freed once, and nothing reads it any more.
pub unsafe fn free(handle: u64) {
    if handle != 0 {
        let blob = handle as *mut u8;
        // SAFETY: the length was written by `new`, so the layout is the one it was allocated with.
        unsafe { dealloc(blob, layout(blob.cast::<u64>().read() as usize)) }
    }
}
